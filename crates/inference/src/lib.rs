//! Embedding and token counting on the machine the service runs on.
//!
//! Nothing here opens a connection, reads a clock or the environment: directories and model files are
//! arguments. Work is synchronous and bound by the processor; callers put it on a blocking pool.

// The properties of the fuzz targets name this crate as others do.
#[cfg(test)]
extern crate self as merkwelt_inference;

pub mod descriptor;
pub mod embed;
#[cfg(any(test, feature = "test-embedder"))]
pub mod hash;
pub mod models;
pub mod native;
pub mod rerank;
pub mod tokens;

pub use descriptor::{Descriptor, Pooling};
pub use embed::{Embedder, Embedding, Role};
pub use tokens::TokenCounter;
