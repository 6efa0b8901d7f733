//! The boundary to storage: what may be asked and changed, what comes back, and the public conformance
//! suite that every backend passes. The reference backend here is the obviously right one; it is slow and
//! keeps everything in memory.

pub mod analysis;
pub mod broken;
pub mod change;
pub mod conformance;
mod error;
pub mod evidence;
pub mod keys;
pub mod merge;
mod ports;
pub mod query;
pub mod ranking;
pub mod record;
pub mod reference;
pub mod register;
pub mod source;

pub use error::Error;
pub use ports::{
    Backend, Checkpoint, Directory, DirectoryChange, Erased, EvidenceLog, Founding, Group, KeyInfo, NewKey,
    Registry, Residue, Store, Tenant,
};
pub use source::Library;
