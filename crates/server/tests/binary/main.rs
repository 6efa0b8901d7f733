//! The real binary, seen from outside.

#![cfg(test)]

mod docs;
mod readme;
mod running;
mod service;
