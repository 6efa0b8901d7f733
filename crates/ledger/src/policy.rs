//! C2SP `tlog-policy`, the file that says whose signature counts. Log keys and `quorum none` are understood;
//! a policy that asks for witnesses is refused rather than weakened.

use std::fmt;

use crate::checkpoint::{self, Checkpoint, SignedCheckpoint};
use crate::note::VerifierKey;

/// Why a policy file was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A line that is not a log, a comment or the quorum, or octets a policy may not contain.
    #[error("line {0} is malformed")]
    Malformed(usize),
    /// Witnesses, groups or a quorum other than `none`.
    #[error("line {0} asks for witnesses, which are not supported")]
    Witness(usize),
    /// The same public key twice.
    #[error("line {0} repeats a log key")]
    DuplicateLog(usize),
    /// There is not exactly one quorum line.
    #[error("a policy needs exactly one quorum line")]
    Quorum,
}

/// The log keys a verifier accepts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    logs: Vec<VerifierKey>,
}

impl Policy {
    /// Trusts exactly these log keys and asks for no witness.
    #[must_use]
    pub const fn of_keys(logs: Vec<VerifierKey>) -> Self {
        Self { logs }
    }

    /// Reads a policy file.
    ///
    /// # Errors
    /// [`Error`] with the number of the line, counted from 1.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut logs: Vec<VerifierKey> = Vec::new();
        let mut quorums = 0;
        let count = bytes.iter().filter(|byte| **byte == b'\n').count();
        let body = match bytes.split_last() {
            Some((b'\n', body)) => body,
            _ => return Err(Error::Malformed(count + 1)),
        };
        for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
            if !line.iter().all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f)) {
                return Err(Error::Malformed(number));
            }
            let mut items = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|item| !item.is_empty());
            match (items.next(), items.next(), items.next(), items.next()) {
                (None, ..) => {}
                (Some([b'#', ..]), ..) => {}
                (Some(b"log"), Some(key), _, None) => {
                    let key = parse_key(key).ok_or(Error::Malformed(number))?;
                    if logs.iter().any(|known| known.public() == key.public()) {
                        return Err(Error::DuplicateLog(number));
                    }
                    logs.push(key);
                }
                (Some(b"quorum"), Some(b"none"), None, None) => quorums += 1,
                (Some(b"quorum" | b"witness" | b"group"), ..) => return Err(Error::Witness(number)),
                _ => return Err(Error::Malformed(number)),
            }
        }
        if quorums == 1 { Ok(Self { logs }) } else { Err(Error::Quorum) }
    }

    /// The accepted log keys.
    #[must_use]
    pub fn logs(&self) -> &[VerifierKey] {
        &self.logs
    }

    /// The checkpoint, once a listed key of its origin has signed it.
    ///
    /// # Errors
    /// As [`SignedCheckpoint::verify`].
    pub fn verify<'c>(&self, checkpoint: &'c SignedCheckpoint) -> Result<&'c Checkpoint, checkpoint::Error> {
        checkpoint.verify(&self.logs)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in &self.logs {
            writeln!(f, "log {key}")?;
        }
        writeln!(f, "quorum none")
    }
}

fn parse_key(bytes: &[u8]) -> Option<VerifierKey> {
    VerifierKey::parse(std::str::from_utf8(bytes).ok()?).ok()
}
