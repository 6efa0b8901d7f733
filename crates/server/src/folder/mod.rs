//! A folder of documents as a source of truth: what lies in it, who may read it, and how the register of
//! sources is brought to the same state. A folder is written by people and programs that may mean harm, so
//! nothing in it is followed, opened or believed before it was looked at.

mod acl;
mod file;
mod name;
mod pass;
mod place;
mod refusal;
mod shelf;
mod walk;

pub(crate) use acl::Rights;
pub use acl::audience;
pub(crate) use name::{Label, shown};
pub(crate) use pass::{Before, Missing, Pass, Seen};
pub(crate) use place::{Outcome, Restore};
pub(crate) use refusal::Refusal;
pub(crate) use shelf::{Dry, Failure, Known, NewEntry, Past, Prepared, Put, Removal, Shelf, Standing};
pub(crate) use walk::{Bounds, Found, Governed, Listing, Refused, Root, Stat};
