//! The real binary, seen from outside.

#![cfg(test)]

mod apart;
mod crash;
mod damage;
mod docs;
mod folders;
mod machine;
mod model;
mod power;
mod readme;
mod running;
mod service;
mod sources;
