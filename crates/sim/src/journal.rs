//! What happened at the ports, in order: the simulation learns from here at which moment a change took
//! effect, and compares every answer with what could be seen at that moment.

use std::sync::{Arc, Mutex, PoisonError};

use merkwelt_domain::{KeyId, SubjectId, Timestamp};
use merkwelt_ledger::commitment::Commitment;
use merkwelt_store::Error;
use merkwelt_store::change::{EntryRef, Receipt};

use crate::env::TaskId;

/// A read as it was recorded.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// The read's id.
    pub(crate) id: String,
    /// Its place in the ledger, if the caller was told.
    pub(crate) entry: Option<EntryRef>,
    /// What it says of the answer's bytes.
    pub(crate) result: Commitment,
    /// Keys of request, result and records, 32 bytes each.
    pub(crate) openings: Vec<u8>,
    /// How many records it names.
    pub(crate) items: usize,
    /// How many tokens it names.
    pub(crate) tokens: u32,
    /// Whether it is an answer from a kept pack.
    pub(crate) pack: bool,
}

/// A call that reached the store and what it did there.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// A key was looked up.
    Credential,
    /// Permissions were asked.
    Grants,
    /// A search at a time.
    Recall(Timestamp),
    /// A read by key at a time.
    Fetch(Timestamp),
    /// A listing at a time.
    Scan(Timestamp),
    /// The cost of everything at a time.
    Flat(Timestamp),
    /// A read event at a time.
    Read(Timestamp, Box<Recorded>),
    /// Writes at a time, with their receipt if there is one.
    Write(Timestamp, Option<Receipt>),
    /// A change of groups or members.
    Directory,
    /// An erasure of somebody; how many of its transactions were committed.
    Erase(Option<SubjectId>, usize),
    /// A key was created.
    AddKey,
    /// A key was revoked.
    RevokeKey(KeyId),
    /// A denial was recorded.
    Denial,
    /// Anything that changes nothing.
    Look,
}

/// A call, whether it took effect, and what the caller was told.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Who called.
    pub(crate) task: TaskId,
    /// What.
    pub(crate) call: Call,
    /// Whether it took effect, whatever the caller was told.
    pub(crate) landed: bool,
    /// What the caller was told.
    pub(crate) told: Result<(), Error>,
    /// Whether it took effect and left no receipt.
    pub(crate) silent: bool,
    /// Whether a fault was injected into it.
    pub(crate) faulted: bool,
}

/// The calls since the journal was last read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Event>>>);

impl Journal {
    pub(crate) fn write(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
