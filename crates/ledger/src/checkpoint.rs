//! C2SP `tlog-checkpoint`: the signed statement "the log of this origin had this size and this root". A log
//! never signs two that contradict each other; whoever kept an older one can prove it if it does (L-23).

use std::fmt;

use crate::hash::Hash;
use crate::note::{self, SignedNote, Signer, VerifierKey};
use crate::tree;

/// Why a checkpoint was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not origin, size and root.
    #[error("the checkpoint is malformed")]
    Malformed,
    /// Lines after the root: nobody could audit what they say.
    #[error("the checkpoint has extension lines")]
    Extension,
    /// The checkpoint is of another log than the key.
    #[error("the checkpoint belongs to another origin")]
    Origin,
    /// The note around it was refused.
    #[error(transparent)]
    Note(#[from] note::Error),
    /// It does not continue the older checkpoint.
    #[error("not consistent with the older checkpoint: {0}")]
    Inconsistent(tree::Error),
}

/// Size and root of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    origin: String,
    size: u64,
    root: Hash,
}

impl Checkpoint {
    /// States size and root of the log `origin`, by custom `<instance>/tenant/<pseudonym>`.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an origin that cannot be a key name too.
    pub fn new(origin: &str, size: u64, root: Hash) -> Result<Self, Error> {
        let usable = |c: char| !c.is_whitespace() && !c.is_control() && c != '+';
        if origin.is_empty() || !origin.chars().all(usable) {
            return Err(Error::Malformed);
        }
        Ok(Self { origin: origin.to_owned(), size, root })
    }

    /// Reads the three lines of a note text.
    ///
    /// # Errors
    /// [`Error::Malformed`] or [`Error::Extension`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut lines = text.strip_suffix('\n').ok_or(Error::Malformed)?.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(Error::Malformed);
        };
        if lines.next().is_some() {
            return Err(Error::Extension);
        }
        let size = parse_decimal(size).ok_or(Error::Malformed)?;
        Self::new(origin, size, Hash::from_base64(root).map_err(|_| Error::Malformed)?)
    }

    /// Identity of the log.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Number of entries.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Root of the tree over them.
    #[must_use]
    pub const fn root(&self) -> Hash {
        self.root
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, self.root.to_base64())
    }
}

/// A checkpoint in its signed note.
// INVARIANT: `checkpoint` is what `note.text()` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    checkpoint: Checkpoint,
    note: SignedNote,
}

impl SignedCheckpoint {
    /// Signs. The caller sees to it that the tree behind it is durable and continues all it signed before.
    ///
    /// # Errors
    /// [`Error::Origin`] when the key has another name than the log.
    pub fn sign(checkpoint: Checkpoint, signer: &Signer) -> Result<Self, Error> {
        if signer.verifier_key().name() != checkpoint.origin {
            return Err(Error::Origin);
        }
        let note = signer.sign(&checkpoint.to_string())?;
        Ok(Self { checkpoint, note })
    }

    /// Adds the signature of a second key, as in a key rotation.
    ///
    /// # Errors
    /// [`Error::Origin`] when the key has another name than the log.
    pub fn cosign(&mut self, signer: &Signer) -> Result<(), Error> {
        if signer.verifier_key().name() != self.checkpoint.origin {
            return Err(Error::Origin);
        }
        signer.cosign(&mut self.note);
        Ok(())
    }

    /// Reads a note whose text is a checkpoint; signatures are not checked yet.
    ///
    /// # Errors
    /// [`Error`] but [`Error::Origin`].
    pub fn parse(note: &str) -> Result<Self, Error> {
        let note = SignedNote::parse(note)?;
        Ok(Self { checkpoint: Checkpoint::parse(note.text())?, note })
    }

    /// What it says. Trust it only after [`SignedCheckpoint::verify`].
    #[must_use]
    pub const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The note as it was read or signed.
    #[must_use]
    pub const fn note(&self) -> &SignedNote {
        &self.note
    }

    /// The checkpoint, once one of the keys has signed it and bears its origin as name.
    ///
    /// # Errors
    /// [`Error::Origin`] if no key bears the origin, [`Error::Note`] if none of those signed.
    pub fn verify<'k>(&self, keys: impl IntoIterator<Item = &'k VerifierKey>) -> Result<&Checkpoint, Error> {
        let own: Vec<_> = keys.into_iter().filter(|key| key.name() == self.checkpoint.origin).collect();
        if own.is_empty() {
            return Err(Error::Origin);
        }
        self.note.verify(own)?;
        Ok(&self.checkpoint)
    }

    /// Demands that this checkpoint continues an older one of the same log: both signed, the older tree a
    /// prefix of this one (L-23).
    ///
    /// # Errors
    /// As [`SignedCheckpoint::verify`], and [`Error::Inconsistent`] for a shrunk or forked log.
    pub fn verify_continues(&self, older: &Self, proof: &[Hash], keys: &[VerifierKey]) -> Result<(), Error> {
        let (old, new) = (older.verify(keys)?, self.verify(keys)?);
        if old.origin != new.origin {
            return Err(Error::Origin);
        }
        // Every log continues the empty one, and there is nothing to prove it with.
        if old.size == 0 && old.root == Hash::empty_root() && proof.is_empty() {
            return Ok(());
        }
        tree::verify_consistency((old.size, old.root), (new.size, new.root), proof)
            .map_err(Error::Inconsistent)
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note.fmt(f)
    }
}

/// An unsigned decimal with exactly one spelling.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    let plain = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    if plain { text.parse().ok() } else { None }
}
