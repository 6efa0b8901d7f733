//! The evidence log of Merkwelt: what was read, changed, refused and erased, in an order nobody can alter
//! unnoticed, without a word of content. Pure logic: no file, clock, socket, database or runtime, so that an
//! auditor can build this crate alone and verify an exported log offline.
//!
//! # What it promises
//! - Changing, removing, inserting or reordering an entry, or cutting the end behind a checkpoint somebody
//!   kept, is detected by [`verify::verify_export`] (R-099, L-23).
//! - An entry holds ids, numbers, times, tags and keyed [`Commitment`]s, never content (R-097, L-17). The keys
//!   that open them live outside and can be destroyed (L-18); entries about one person do not link without
//!   that person's key (L-19).
//! - The formats are public ones: RFC 6962 trees, RFC 8785 JSON behind a strict reader (L-26), C2SP signed
//!   notes, checkpoints, proofs and policies (L-22).
//!
//! # What it does not prove
//! That content is true, that nothing was read past this service, or that a log handed over with its own key
//! is the one that was written: the last needs a key pinned beforehand or an older checkpoint.
//!
//! # The order of a write
//! 1. Build drafts ([`ReadEntry`], [`entry::Draft`]) with fresh opening keys.
//! 2. [`log::append`] turns the stored head and the drafts into leaves and a new head.
//! 3. The store commits leaves, head and openings in one transaction. **This is the commit point.**
//! 4. Only now does content leave the service.
//! 5. From time to time the stored head is signed ([`SignedCheckpoint::sign`]); never one that is not durable.

pub mod canonical;
pub mod checkpoint;
pub mod commitment;
pub mod entry;
pub mod export;
mod findings;
pub mod hash;
pub mod log;
pub mod note;
pub mod policy;
pub mod proof;
pub mod read;
mod reader;
pub mod token;
pub mod tree;
pub mod verify;

pub use canonical::{Integer, Value};
pub use checkpoint::{Checkpoint, SignedCheckpoint};
pub use commitment::{Commitment, Opening, OpeningKey, RecordTag, SubjectKey, SubjectTag};
pub use entry::{Actor, Draft, EntryType, Field};
pub use findings::{EXCEPTIONS_MAX, Exception, ExceptionReason};
pub use hash::Hash;
pub use log::{Appended, Head, Leaf, append};
pub use note::{SignedNote, Signer, VerifierKey};
pub use policy::Policy;
pub use proof::Proof;
pub use read::{ReadEntry, ReadKind, RecordLabel, RecordRef, Versioned};
pub use token::{Token, Trace, UtcMillis};
pub use verify::{Failure, Reason, Report, Trust, verify_export};
