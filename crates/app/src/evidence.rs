//! Reading the ledger: its signed head, its entries, a proof for one of them. Entries hold no content
//! so reading them is no read of content.

use merkwelt_authz::{Request, action};

use crate::App;
use crate::error::{Error, until_settled};

/// The signed head of a tenant's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerHead {
    /// The C2SP signed note.
    pub note: String,
    /// Number of entries it covers.
    pub size: u64,
    /// The key that verifies it, as C2SP writes it.
    pub verifier_key: String,
}

impl App {
    /// A signed checkpoint over everything durable now.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn ledger_head(&self, request: &Request) -> Result<LedgerHead, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadEvidence>(request).await?;
            let found = self.backend.checkpoint(&allowed).await?;
            Ok(LedgerHead { note: found.note, size: found.size, verifier_key: found.verifier_key })
        })
    }

    /// The exact bytes of up to `max` entries from `from` on.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn ledger_entries(
        &self,
        request: &Request,
        from: u64,
        max: u32,
    ) -> Result<Vec<Vec<u8>>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadEvidence>(request).await?;
            Ok(self.backend.entries(&allowed, from, max).await?)
        })
    }

    /// A C2SP `tlog-proof` for one entry (L-22).
    ///
    /// # Errors
    /// [`Error::NotFound`] for an index beyond the end.
    pub async fn ledger_proof(&self, request: &Request, index: u64) -> Result<String, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadEvidence>(request).await?;
            Ok(self.backend.proof(&allowed, index).await?)
        })
    }
}
