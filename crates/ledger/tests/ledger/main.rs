//! The evidence log from outside: published vectors, a second tree implementation, every small change to an
//! exported log, and attacks on what it reveals.
#![cfg(test)]

mod append;
mod canonical;
mod fixture;
mod formats;
mod privacy;
mod reads;
mod reasons;
mod tampering;
mod tree;
