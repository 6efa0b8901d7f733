//! The real binary, seen from outside.

#![cfg(test)]

mod readme;
mod running;
mod service;
