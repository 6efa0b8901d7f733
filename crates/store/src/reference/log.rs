//! The ledgers of the reference backend, one per tenant, in the real format.

use std::sync::Arc;

use merkwelt_authz::{Denied, Fut, Pass, class};
use merkwelt_domain::{Env, TenantId, Timestamp};
use merkwelt_ledger::checkpoint::{Checkpoint as Tree, SignedCheckpoint};
use merkwelt_ledger::entry::Draft;
use merkwelt_ledger::hash::Hash;
use merkwelt_ledger::log::{Head, Leaf, append};
use merkwelt_ledger::note::Signer;
use merkwelt_ledger::proof::Proof;
use merkwelt_ledger::tree::leaves_of;

use merkwelt_domain::memory::Owner;

use super::Reference;
use super::directory::event_id;
use super::rows::State;
use crate::change::EntryRef;
use crate::error::Error;
use crate::evidence::{denial_draft, genesis_draft, utc};
use crate::ports::{Checkpoint, EvidenceLog};

/// One ledger.
#[derive(Clone)]
pub(super) struct Log {
    head: Head,
    /// Shared between the copies of the state that a write makes.
    leaves: Vec<Arc<Leaf>>,
    signer: Arc<Signer>,
}

impl Log {
    /// A ledger that holds its genesis.
    pub(super) fn begin(tenant: &TenantId, env: &dyn Env, at: Timestamp) -> Result<Self, Error> {
        let mut seed = [0_u8; 32];
        env.fill(&mut seed);
        let signer =
            Signer::from_seed(&format!("merkwelt/tenant/{tenant}"), &seed).map_err(|_| Error::Damaged)?;
        let genesis = genesis_draft(tenant, signer.verifier_key().clone())?;
        let mut log = Self { head: Head::empty(), leaves: Vec::new(), signer: Arc::new(signer) };
        log.append(&[genesis], at)?;
        Ok(log)
    }

    /// Appends entries and says where the first of them stands.
    pub(super) fn append(&mut self, drafts: &[Draft], at: Timestamp) -> Result<Option<EntryRef>, Error> {
        let appended = append(&self.head, drafts, utc(at)?).map_err(|_| Error::Damaged)?;
        let first =
            appended.leaves.first().map(|leaf| EntryRef { index: leaf.index, leaf: leaf.hash.to_hex() });
        self.head = appended.head;
        self.leaves.extend(appended.leaves.into_iter().map(Arc::new));
        Ok(first)
    }

    fn sign(&self) -> Result<SignedCheckpoint, Error> {
        let tree = Tree::new(self.signer.verifier_key().name(), self.head.size(), self.head.root())
            .map_err(|_| Error::Damaged)?;
        SignedCheckpoint::sign(tree, &self.signer).map_err(|_| Error::Damaged)
    }

    fn proof(&self, index: u64) -> Result<String, Error> {
        if index >= self.head.size() {
            return Err(Error::NotFound);
        }
        let hashes: Vec<Hash> = self.leaves.iter().map(|leaf| leaf.hash).collect();
        let proof = Proof::new(&leaves_of(&hashes), index, self.sign()?).map_err(|_| Error::Damaged)?;
        Ok(proof.to_string())
    }
}

impl State {
    /// Appends entries to the ledger of a tenant.
    pub(super) fn append(
        &mut self,
        tenant: &TenantId,
        drafts: &[Draft],
        at: Timestamp,
    ) -> Result<Option<EntryRef>, Error> {
        self.cells.get_mut(tenant).ok_or(Error::NotFound)?.log.append(drafts, at)
    }

    fn log(&self, tenant: &TenantId) -> Result<&Log, Error> {
        Ok(&self.cells.get(tenant).ok_or(Error::NotFound)?.log)
    }
}

impl EvidenceLog for Reference {
    fn record_denial<'a>(&'a self, denied: &'a Denied, at: Timestamp) -> Fut<'a, Result<(), Error>> {
        Box::pin(async move {
            self.write(|state, env| {
                // Who was erased has no key, and gets none for being denied (I-9).
                let known = denied.bound_subject().filter(|who| state.is_active(denied.tenant(), who));
                let owner = known.map(|subject| Owner::Subject(subject.clone()));
                let person = owner.map(|owner| state.tag_key(denied.tenant(), &owner, env));
                let draft = denial_draft(denied, person.as_ref(), &event_id(env))?;
                state.append(denied.tenant(), &[draft], at)?;
                Ok(())
            })
        })
    }

    fn entries<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        from: u64,
        max: u32,
    ) -> Fut<'a, Result<Vec<Vec<u8>>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let leaves = state.log(&view.tenant)?.leaves.iter().filter(|leaf| leaf.index >= from);
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                Ok(leaves.take(max).map(|leaf| leaf.bytes.clone()).collect())
            })
        })
    }

    fn checkpoint<'a>(&'a self, pass: &'a Pass<'_, class::Evidence>) -> Fut<'a, Result<Checkpoint, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let log = state.log(&view.tenant)?;
                Ok(Checkpoint {
                    note: log.sign()?.to_string(),
                    size: log.head.size(),
                    verifier_key: log.signer.verifier_key().to_string(),
                })
            })
        })
    }

    fn proof<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        index: u64,
    ) -> Fut<'a, Result<String, Error>> {
        Box::pin(async move { self.under(pass, |state, view| state.log(&view.tenant)?.proof(index)) })
    }
}
