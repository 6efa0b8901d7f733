//! The only content that leaves (I-4). A [`Released`] is made from the bytes of an answer and the receipt of
//! the read event that was committed for exactly these bytes.

use merkwelt_domain::ReadId;
use merkwelt_store::change::{EntryRef, Receipt};

use crate::error::{Attempt, Error};

/// An answer whose read event is durable. It has no public constructor.
#[must_use]
#[derive(Clone)]
pub struct Released {
    body: Vec<u8>,
    read_id: ReadId,
    entry: EntryRef,
}

impl Released {
    // INVARIANT: I-4, R-100: the receipt of a durable commit is needed to make one.
    pub(crate) fn seal(body: Vec<u8>, read_id: ReadId, receipt: Receipt) -> Result<Self, Attempt> {
        let entry = receipt.entry.ok_or(Error::Unavailable)?;
        Ok(Self { body, read_id, entry })
    }

    /// The answer as JSON, byte for byte what the ledger committed to.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The answer as JSON, by value.
    #[must_use]
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// The read event.
    #[must_use]
    pub fn read_id(&self) -> &ReadId {
        &self.read_id
    }

    /// Where in the ledger it stands.
    #[must_use]
    pub fn entry(&self) -> &EntryRef {
        &self.entry
    }
}

impl std::fmt::Debug for Released {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Released({}, {} bytes)", self.read_id, self.body.len())
    }
}
