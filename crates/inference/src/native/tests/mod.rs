//! Tests of the built-in encoder: a tiny synthetic model everywhere, the real one where it is at hand.

mod corpora;
mod golden;
mod kernels;
mod malformed;
mod reference;
mod synthetic;
mod unigram;
