//! The binary's rooms as a library, so that tests can start them: the HTTP face, the command line and the
//! wiring. This is the only crate that knows axum, clap and the runtime.

pub mod bench;
pub mod cli;
pub mod config;
pub mod connector;
pub mod embedding;
pub mod env;
pub mod folder;
pub mod http;
mod intake;
pub mod logs;
pub mod model;
pub mod reranking;
pub mod wiring;
