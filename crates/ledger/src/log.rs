//! The append: a pure function from the head of a log, drafts and a time to new leaves and a new head. The
//! caller commits both in one transaction, and only then does content leave; recovery rebuilds the
//! head from the stored leaves through the same step.

use crate::canonical::Integer;
use crate::entry::{self, Draft, EntryType};
use crate::hash::Hash;
use crate::token::UtcMillis;
use crate::tree::{self, Frontier};

/// Why nothing was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first entry of a log must be its genesis, which names the key.
    #[error("a log begins with its genesis entry")]
    GenesisMissing,
    /// A log has one genesis.
    #[error("a log has only one genesis entry")]
    GenesisRepeated,
    /// A draft cannot become an entry.
    #[error(transparent)]
    Entry(#[from] entry::Error),
    /// The stored tree edge is damaged or the log is full.
    #[error(transparent)]
    Tree(#[from] tree::Error),
    /// Stored leaves are not numbered without a gap.
    #[error("leaf {expected} is missing")]
    Gap {
        /// The index that should have come.
        expected: u64,
    },
    /// Stored leaves go back in time.
    #[error("leaf {index} is older than the one before")]
    TimeReversed {
        /// The offending leaf.
        index: u64,
    },
}

/// All that is needed of a log to append to it; a store keeps it in one row beside the leaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    frontier: Frontier,
    last_at: Option<UtcMillis>,
}

impl Head {
    /// The log without entries.
    #[must_use]
    pub const fn empty() -> Self {
        Self { frontier: Frontier::empty(), last_at: None }
    }

    /// Takes a head as it was stored.
    ///
    /// # Errors
    /// [`tree::Error::Malformed`] when there are entries without a time or a time without entries.
    pub fn from_parts(frontier: Frontier, last_at: Option<UtcMillis>) -> Result<Self, Error> {
        if (frontier.size() == 0) == last_at.is_none() {
            Ok(Self { frontier, last_at })
        } else {
            Err(tree::Error::Malformed.into())
        }
    }

    /// Rebuilds the head from the stored leaves in the order of their index.
    ///
    /// # Errors
    /// [`Error::Gap`] or [`Error::TimeReversed`] when the rows are not an appended sequence.
    pub fn recover(rows: impl IntoIterator<Item = (u64, Hash, UtcMillis)>) -> Result<Self, Error> {
        let mut head = Self::empty();
        for (index, hash, at) in rows {
            if index != head.size() {
                return Err(Error::Gap { expected: head.size() });
            }
            head.advance(hash, at)?;
        }
        Ok(head)
    }

    /// Number of entries; the index of the next one.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// Root of the tree over all entries, for the next checkpoint.
    #[must_use]
    pub fn root(&self) -> Hash {
        self.frontier.root()
    }

    /// The right edge of the tree.
    #[must_use]
    pub const fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Time of the last entry.
    #[must_use]
    pub const fn last_at(&self) -> Option<UtcMillis> {
        self.last_at
    }

    // INVARIANT: this is the only step by which a head grows; append and recovery both take it.
    fn advance(&mut self, hash: Hash, at: UtcMillis) -> Result<(), Error> {
        if self.last_at.is_some_and(|last| at < last) {
            return Err(Error::TimeReversed { index: self.size() });
        }
        self.frontier.push(hash)?;
        self.last_at = Some(at);
        Ok(())
    }
}

/// One entry with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Position in the log, from 0.
    pub index: u64,
    /// What happened.
    pub kind: EntryType,
    /// The time inside the bytes.
    pub at: UtcMillis,
    /// The exact canonical bytes.
    pub bytes: Vec<u8>,
    /// Their RFC 6962 leaf hash.
    pub hash: Hash,
}

/// What one append produced, to be stored in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an append counts once its leaves and its head are stored"]
pub struct Appended {
    /// The head after the append.
    pub head: Head,
    /// The new entries in their order.
    pub leaves: Vec<Leaf>,
    /// Root after the append.
    pub root: Hash,
}

/// Appends drafts as one batch, all at the same time.
///
/// The ledger never runs backwards: when `now` lies before the last entry, the entries take that entry's time
/// and say by how much the clock stood behind (`clock_behind_ms`). Refusing instead would stop every read
/// whenever a clock is set back.
///
/// # Errors
/// [`Error`]; nothing is appended then.
pub fn append(head: &Head, drafts: &[Draft], now: UtcMillis) -> Result<Appended, Error> {
    let (at, behind) = match head.last_at {
        Some(last) if now < last => (last, Integer::new(last.unix_ms() - now.unix_ms())),
        _ => (now, None),
    };
    let mut head = head.clone();
    let mut leaves = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let index = head.size();
        match (index, draft.kind()) {
            (0, EntryType::Genesis) => {}
            (0, _) => return Err(Error::GenesisMissing),
            (_, EntryType::Genesis) => return Err(Error::GenesisRepeated),
            _ => {}
        }
        let bytes = draft.to_leaf(at, behind)?;
        let hash = Hash::of_leaf(&bytes);
        head.advance(hash, at)?;
        leaves.push(Leaf { index, kind: draft.kind(), at, bytes, hash });
    }
    let root = head.root();
    Ok(Appended { head, leaves, root })
}
