//! The search shard of a cell: in memory only, built on first use from the records, moved on by what the
//! writer announces, and valid for exactly one content epoch. A search holds the shard and a snapshot of the
//! same epoch, or it does not search.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use merkwelt_domain::{ConversationId, MemoryId, SourceId};
use merkwelt_store::Error;
use rusqlite::Connection;

use crate::cell::Cell;
use crate::pool::lock;
use crate::snapshot::State;

mod filter;
mod index;
mod keys;
mod load;
mod postings;
mod search;
mod spans;
mod vectors;

pub(crate) use filter::Eyes;
pub(crate) use index::{Row, Shard, passage_key};
pub(crate) use postings::Term;
pub(crate) use search::{Proposals, of_source, search};
pub(crate) use vectors::Probe;

/// Announced changes that are kept for a shard; one that is further behind is built anew.
const PENDING_MAX: usize = 8192;

/// What a write touched. It names records and holds nothing of them; the shard reads them again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touch {
    /// A memory, whatever became of it.
    Memory(MemoryId),
    /// A turn.
    Turn(ConversationId, u32),
    /// All turns of a conversation.
    Conversation(ConversationId),
    /// A source: its audience, its state, its current revision.
    Source(SourceId),
    /// Every vector: the shard is built anew.
    Everything,
}

struct Delta {
    before: u64,
    after: u64,
    touched: Vec<Touch>,
}

/// Where a cell keeps its shard, if it has one, and what was written since.
#[derive(Default)]
pub(crate) struct ShardPlace {
    shard: RwLock<Option<Shard>>,
    pending: Mutex<VecDeque<Delta>>,
    bytes: AtomicUsize,
}

impl ShardPlace {
    /// The writer is about to commit this. It comes before the commit, so that no snapshot shows an epoch
    /// whose changes are not known here.
    pub(crate) fn announce(&self, before: u64, after: u64, touched: Vec<Touch>) {
        if before == after {
            return;
        }
        let mut pending = lock(&self.pending);
        pending.push_back(Delta { before, after, touched });
        let held: usize = pending.iter().map(|delta| delta.touched.len()).sum();
        if held > PENDING_MAX {
            // The gap makes the shard start anew.
            pending.clear();
        }
    }

    /// The announced commit failed.
    pub(crate) fn withdraw(&self, after: u64) {
        lock(&self.pending).retain(|delta| delta.after != after);
    }

    /// What happened between two epochs; `None` if that is not known completely.
    fn between(&self, from: u64, to: u64) -> Option<BTreeSet<Touch>> {
        let pending = lock(&self.pending);
        let mut reached = from;
        let mut touched = BTreeSet::new();
        for delta in pending.iter().filter(|delta| delta.after > from && delta.after <= to) {
            if delta.before != reached {
                return None;
            }
            touched.extend(delta.touched.iter().cloned());
            reached = delta.after;
        }
        (reached == to && !touched.contains(&Touch::Everything)).then_some(touched)
    }

    fn forget(&self, up_to: u64) {
        lock(&self.pending).retain(|delta| delta.after > up_to);
    }

    /// Takes the shard out of memory.
    pub(crate) fn evict(&self) {
        *self.shard.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// About how many bytes the shard takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many entries an owner has here.
    pub(crate) fn owned_by(&self, owner: &str) -> u64 {
        let shard = self.shard.read().unwrap_or_else(PoisonError::into_inner);
        shard.as_ref().map_or(0, |shard| shard.owned_by(owner))
    }

    /// Calls `ask` with the shard, if it is one of this content epoch.
    pub(crate) fn ask<T>(
        &self,
        ask: impl FnOnce(&Shard) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let shard = self.shard.read().unwrap_or_else(PoisonError::into_inner);
        shard.as_ref().map_or(Ok(None), ask)
    }

    /// Calls `ask` with the place of the shard held alone.
    pub(crate) fn alone<T>(
        &self,
        ask: impl FnOnce(&mut Option<Shard>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut shard = self.shard.write().unwrap_or_else(PoisonError::into_inner);
        let result = ask(&mut shard);
        self.bytes.store(shard.as_ref().map_or(0, Shard::bytes), Ordering::Relaxed);
        result
    }
}

/// Brings the shard to the epoch of an open snapshot: by what was announced since, or from nothing.
pub(crate) fn advance<'s>(
    cell: &Cell,
    db: &Connection,
    state: &State,
    place: &'s mut Option<Shard>,
) -> Result<&'s Shard, Error> {
    let epoch = state.epochs.content.number();
    let known = match place.as_ref() {
        // INVARIANT: I-14, a shard never moves on from the vectors of one model to those of another.
        Some(shard) if shard.model.is_some() && shard.model != state.model => None,
        Some(shard) if shard.epoch == epoch => Some(BTreeSet::new()),
        Some(shard) => {
            cell.shard.between(shard.epoch, epoch).filter(|touched| touched.len() * 2 <= shard.alive() + 64)
        }
        None => None,
    };
    let shard = match (place.take(), known) {
        (Some(mut shard), Some(touched)) => {
            load::apply(cell, db, &mut shard, &touched)?;
            shard
        }
        _ => load::build(cell, db)?,
    };
    // Only now, so that a failure leaves no half-moved shard behind.
    let shard = place.insert(shard);
    shard.epoch = epoch;
    shard.model.clone_from(&state.model);
    shard.tidy();
    cell.shard.forget(epoch);
    Ok(shard)
}

impl Cell {
    /// After writing: brings a shard that is in memory up to date, so that the next search need not.
    pub(crate) fn catch_up(&self) {
        let loaded = self.shard.ask(|_| Ok(Some(()))).ok().flatten().is_some();
        if !loaded {
            return;
        }
        let moved = self
            .shard
            .alone(|place| self.snapshot(|cell, db| advance(cell, db, &State::read(db)?, place).map(|_| ())));
        if moved.is_err() {
            self.shard.evict();
        }
    }
}

#[cfg(test)]
mod tests;
