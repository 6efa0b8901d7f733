//! The real binary, seen from outside.

#![cfg(test)]

mod docs;
mod model;
mod readme;
mod running;
mod service;
