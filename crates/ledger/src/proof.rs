//! C2SP `tlog-proof@v1`: one file that proves offline that one entry stands in a checkpointed log (L-22).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::checkpoint::{self, SignedCheckpoint, parse_decimal};
use crate::hash::Hash;
use crate::policy::Policy;
use crate::tree;

const HEADER: &str = "c2sp.org/tlog-proof@v1\n";

/// Why a proof was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a proof of version 1.
    #[error("the proof is malformed")]
    Malformed,
    /// The checkpoint inside was refused.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// The path does not lead from the entry to the root.
    #[error("the entry is not in the log: {0}")]
    Inclusion(#[from] tree::Error),
}

/// An inclusion proof with the checkpoint it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    extra: Option<Vec<u8>>,
    index: u64,
    path: Vec<Hash>,
    checkpoint: SignedCheckpoint,
}

impl Proof {
    /// Proves leaf `index` of a source that holds all leaves below the checkpoint's size.
    ///
    /// # Errors
    /// [`Error::Inclusion`] if the index lies outside the checkpoint or a leaf is missing.
    pub fn new(source: &tree::Source<'_>, index: u64, checkpoint: SignedCheckpoint) -> Result<Self, Error> {
        let path = tree::inclusion_proof(source, index, checkpoint.checkpoint().size())?;
        Ok(Self { extra: None, index, path, checkpoint })
    }

    /// Attaches bytes that are carried but never authenticated.
    #[must_use]
    pub fn with_extra(self, extra: Vec<u8>) -> Self {
        Self { extra: Some(extra), ..self }
    }

    /// Reads a proof file. Writing it again gives the same bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`] or [`Error::Checkpoint`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let rest = text.strip_prefix(HEADER).ok_or(Error::Malformed)?;
        let (lines, note) = rest.split_once("\n\n").ok_or(Error::Malformed)?;
        let mut lines = lines.split('\n').peekable();
        let extra = match lines.next_if(|line| line.starts_with("extra ")) {
            Some(line) => {
                let encoded = line.strip_prefix("extra ").ok_or(Error::Malformed)?;
                Some(STANDARD.decode(encoded).map_err(|_| Error::Malformed)?)
            }
            None => None,
        };
        let index = lines
            .next()
            .and_then(|line| line.strip_prefix("index "))
            .and_then(parse_decimal)
            .ok_or(Error::Malformed)?;
        let path = lines
            .map(|line| Hash::from_base64(line).map_err(|_| Error::Malformed))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { extra, index, path, checkpoint: SignedCheckpoint::parse(note)? })
    }

    /// Position of the entry in the log.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// Sibling hashes, the leaf's first.
    #[must_use]
    pub fn path(&self) -> &[Hash] {
        &self.path
    }

    /// The carried bytes, which nothing authenticates.
    #[must_use]
    pub fn extra(&self) -> Option<&[u8]> {
        self.extra.as_deref()
    }

    /// The checkpoint the path leads to.
    #[must_use]
    pub const fn checkpoint(&self) -> &SignedCheckpoint {
        &self.checkpoint
    }

    /// Checks that exactly these leaf bytes stand at [`Proof::index`] of a log the policy trusts.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] or [`Error::Inclusion`].
    pub fn verify(&self, leaf: &[u8], policy: &Policy) -> Result<(), Error> {
        let checkpoint = policy.verify(&self.checkpoint)?;
        tree::verify_inclusion(
            Hash::of_leaf(leaf),
            self.index,
            checkpoint.size(),
            &self.path,
            checkpoint.root(),
        )?;
        Ok(())
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        if let Some(extra) = &self.extra {
            writeln!(f, "extra {}", STANDARD.encode(extra))?;
        }
        writeln!(f, "index {}", self.index)?;
        for hash in &self.path {
            writeln!(f, "{}", hash.to_base64())?;
        }
        write!(f, "\n{}", self.checkpoint)
    }
}
