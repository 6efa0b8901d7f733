//! The ports of `merkwelt_store` over cells. Each method takes what it needs out of the capability, hands
//! the work to the pool and waits; a capability itself never leaves the caller's task.

use std::sync::Arc;

use merkwelt_authz::{
    Class, Credential, CredentialSource, Denied, Fut, GrantError, GrantSource, Grants, Pass, Principal,
    Scope, class,
};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{
    ConversationId, FaultPoint, GroupName, KeyId, SubjectId, SubjectRef, TenantId, Timestamp,
};
use merkwelt_ledger::entry::EntryType;
use merkwelt_store::change::{Batch, EntryRef, Part, Receipt};
use merkwelt_store::evidence::{denial_draft, erasure_requested_draft, read_drafts};
use merkwelt_store::keys::may_end;
use merkwelt_store::query::{Key, ModelId, RecallQuery, ScanQuery};
use merkwelt_store::record::{FlatCost, Found, Page, Recalled};
use merkwelt_store::{
    Checkpoint, Directory, DirectoryChange, Erased, Error, EvidenceLog, Group, KeyInfo, NewKey, Registry,
    Residue, Store, Tenant,
};

use crate::cell::{Cell, signer};
use crate::change::{Prepared, Read, commit_read, commit_writes, random_id, text_of};
use crate::crypt::OwnerKeys;
use crate::instance::{Inner, Sqlite};
use crate::log;
use crate::pool::lock;
use crate::present::Who;
use crate::recall::recall;
use crate::snapshot::{Snapshot, Viewer, admit};
use crate::witness::Witness;
use crate::writer::Work;

/// Bytes of text that are analysed on the caller's task; more goes to the pool.
const ANALYSED_HERE_MAX: usize = 4096;

impl Sqlite {
    async fn cell(&self, tenant: &TenantId) -> Result<Arc<Cell>, Error> {
        if let Some(cell) = self.inner.open_cell(tenant) {
            return Ok(cell);
        }
        let (inner, tenant) = (Arc::clone(&self.inner), tenant.clone());
        self.pool.run(move || inner.cell(&tenant)).await
    }

    /// Blocking work on the capability's cell.
    pub(crate) async fn on_cell<T: Send + 'static, C: Class>(
        &self,
        pass: &Pass<'_, C>,
        work: impl FnOnce(&Inner, &Cell, Viewer) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (inner, tenant, viewer) =
            (Arc::clone(&self.inner), pass.scope().tenant().clone(), Viewer::of(pass));
        self.pool
            .run(move || {
                let cell = inner.cell(&tenant)?;
                let done = work(&inner, &cell, viewer);
                inner.noting(&tenant, done)
            })
            .await
    }

    /// Reads in one admitted snapshot of the capability's cell.
    pub(crate) async fn look<T: Send + 'static, C: Class>(
        &self,
        pass: &Pass<'_, C>,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.on_cell(pass, move |_, cell, viewer| cell.read(&viewer, work)).await
    }

    /// Queues a batch for the group commit and waits for its durable end.
    async fn write<T: Send + 'static>(
        &self,
        cell: Arc<Cell>,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let tenant = cell.tenant.clone();
        let (answered, start) = cell.submit(work);
        if start {
            self.pool.spawn(move || cell.drain());
        }
        self.inner.noting(&tenant, answered.await.unwrap_or(Err(Error::Unavailable)))
    }

    async fn owner_keys(&self, cell: &Arc<Cell>, owner: &str) -> Result<Arc<OwnerKeys>, Error> {
        if let Some(keys) = cell.ring.cached(owner) {
            return Ok(keys);
        }
        let (cell, owner) = (Arc::clone(cell), owner.to_owned());
        self.pool.run(move || cell.owner_keys(&owner)).await
    }

    async fn commit_part(&self, batch: Batch<'_>) -> Result<Receipt, Error> {
        match batch.into_parts() {
            (Part::Writes(pass, writes), idempotency, at) => {
                let cell = self.cell(pass.scope().tenant()).await?;
                let (viewer, witness) = (Viewer::of(pass), Witness::of(pass));
                let length: usize = writes.iter().filter_map(text_of).map(str::len).sum();
                let mark = cell.analysis;
                let prepare = move || Ok(writes.into_iter().map(|write| Prepared::of(mark, write)).collect());
                let writes: Vec<Prepared> =
                    if length > ANALYSED_HERE_MAX { self.pool.run(prepare).await? } else { prepare()? };
                self.write(cell, move |work| {
                    commit_writes(work, &viewer, &witness, writes, idempotency.as_ref(), at)
                })
                .await
            }
            (Part::Read(pass, record), _, at) => {
                let cell = self.cell(pass.scope().tenant()).await?;
                let viewer = Viewer::of(pass);
                let keys = match viewer.subject() {
                    // Without its key a subject has been erased since the capability was minted.
                    Some(subject) => Some(self.owner_keys(&cell, subject).await.map_err(|error| {
                        if error == Error::NotFound { Error::GrantsMoved } else { error }
                    })?),
                    None => None,
                };
                let (read, event) = Read::of(*record);
                let drafts = read_drafts(pass, event, keys.as_ref().map(|keys| &keys.tags))?;
                self.write(cell, move |work| commit_read(work, &viewer, &drafts, &read, at)).await
            }
        }
    }
}

impl Store for Sqlite {
    fn recall<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a RecallQuery,
    ) -> Fut<'a, Result<Recalled, Error>> {
        Box::pin(async move {
            let query = query.clone();
            self.on_cell(pass, move |inner, cell, viewer| {
                let found = recall(cell, &viewer, &query);
                inner.fit_shards(&cell.tenant);
                found
            })
            .await
        })
    }

    fn vector_model<'a>(&'a self, scope: &'a Scope) -> Fut<'a, Result<Option<ModelId>, Error>> {
        Box::pin(async move { Ok(self.cell(scope.tenant()).await?.model_now()) })
    }

    fn fetch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        keys: &'a [Key],
        now: Timestamp,
    ) -> Fut<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(async move {
            let keys = keys.to_vec();
            self.look(pass, move |snapshot| snapshot.fetch(&keys, now)).await
        })
    }

    fn scan<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a ScanQuery,
    ) -> Fut<'a, Result<Page, Error>> {
        Box::pin(async move {
            let query = query.clone();
            self.look(pass, move |snapshot| snapshot.scan(&query)).await
        })
    }

    fn flat_cost<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        conversation: Option<&'a ConversationId>,
        now: Timestamp,
    ) -> Fut<'a, Result<FlatCost, Error>> {
        Box::pin(async move {
            let conversation = conversation.cloned();
            self.look(pass, move |snapshot| snapshot.flat_cost(conversation.as_ref(), now)).await
        })
    }

    fn prefix_holds_until<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        now: Timestamp,
    ) -> Fut<'a, Result<Timestamp, Error>> {
        Box::pin(self.look(pass, move |snapshot| snapshot.prefix_holds_until(now)))
    }

    fn commit<'a>(&'a self, batch: Batch<'a>) -> Fut<'a, Result<Receipt, Error>> {
        Box::pin(self.commit_part(batch))
    }

    fn erase<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        now: Timestamp,
    ) -> Fut<'a, Result<Erased, Error>> {
        let (actor, requested) = (pass.key().clone(), erasure_requested_draft(pass));
        Box::pin(self.on_cell(pass, move |inner, cell, viewer| {
            let requested = requested?;
            let subject = viewer.subject.clone().ok_or(Error::NotFound)?;
            // Marked before it begins, so that the next start knows where to look.
            lock(&inner.control).mark_erasing(&cell.tenant, true)?;
            if !cell.tombstone(viewer, actor, requested, now)? {
                return Ok(nothing(subject));
            }
            lock(&inner.control).unbind(&cell.tenant, &subject, now)?;
            // The mark stays until the next start looks: another removal may be on its way meanwhile.
            cell.finish_erasure(subject.as_str(), now)
        }))
    }

    fn residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        subject: &'a SubjectId,
    ) -> Fut<'a, Result<Residue, Error>> {
        let subject = subject.clone();
        Box::pin(self.on_cell(pass, move |_, cell, viewer| cell.residue(&viewer, &subject)))
    }
}

/// A repeated erasure finds nothing.
fn nothing(subject: SubjectId) -> Erased {
    Erased { subject, memories: 0, conversations: 0, turns: 0, evidence: 0 }
}

impl GrantSource for Sqlite {
    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
        Box::pin(async move {
            if let Some(cell) = self.inner.open_cell(tenant)
                && let Some(grants) = cell.present.of(&Who::of(principal, &cell.keys))
            {
                return Ok(Some(grants));
            }
            let (inner, tenant, principal) = (Arc::clone(&self.inner), tenant.clone(), principal.clone());
            let grants = self.pool.run(move || match inner.cell(&tenant) {
                Ok(cell) => inner.noting(&tenant, cell.grants(&principal)),
                Err(Error::NotFound) => Ok(None),
                Err(error) => Err(error),
            });
            grants.await.map_err(|error| {
                if error == Error::Damaged {
                    GrantError::Damaged
                } else if error == Error::Full {
                    GrantError::Full
                } else {
                    GrantError::Unavailable
                }
            })
        })
    }
}

impl Directory for Sqlite {
    fn change<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Directory>,
        change: DirectoryChange,
        at: Timestamp,
    ) -> Fut<'a, Result<Option<EntryRef>, Error>> {
        let witness = Witness::of(pass);
        Box::pin(
            self.on_cell(pass, move |_, cell, viewer| cell.change_directory(viewer, witness, change, at)),
        )
    }

    fn groups<'a>(&'a self, pass: &'a Pass<'_, class::DirectoryRead>) -> Fut<'a, Result<Vec<Group>, Error>> {
        Box::pin(self.look(pass, |snapshot| snapshot.all_groups()))
    }

    fn members<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
        group: &'a GroupName,
    ) -> Fut<'a, Result<Vec<SubjectRef>, Error>> {
        let group = group.clone();
        Box::pin(self.look(pass, move |snapshot| snapshot.members(&group)))
    }

    fn organisation_switch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
    ) -> Fut<'a, Result<OrganisationSwitch, Error>> {
        Box::pin(self.look(pass, |snapshot| snapshot.organisation_switch()))
    }
}

impl CredentialSource for Sqlite {
    fn credential<'a>(&'a self, key: &'a KeyId) -> Fut<'a, Option<Credential>> {
        Box::pin(async move { lock(&self.inner.control).key(key).map(|info| info.credential.clone()) })
    }
}

impl Registry for Sqlite {
    fn create_tenant<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Instance>,
        tenant: Tenant,
        first: NewKey,
    ) -> Fut<'a, Result<(), Error>> {
        let witness = Witness::of(pass);
        Box::pin(self.on_cell(pass, move |inner, cell, viewer| {
            let at = tenant.created_at;
            // Asked before files are made, and again where the entry is written.
            cell.read(&viewer, |_| Ok(()))?;
            if lock(&inner.control).system()? != cell.tenant {
                return Err(Error::NotFound);
            }
            let id = tenant.id.clone();
            inner.add_tenant(&tenant, first, || {
                cell.write_blocking(move |work| {
                    admit(work.db, &viewer, &work.state)?;
                    let draft = witness.admin(EntryType::TenantChanged, "created", id.as_str(), None)?;
                    work.append(&[draft], at).map(|_| ())
                })
            })
        }))
    }

    fn tenants<'a>(&'a self, pass: &'a Pass<'_, class::Instance>) -> Fut<'a, Result<Vec<Tenant>, Error>> {
        Box::pin(self.on_cell(pass, |inner, cell, viewer| {
            cell.read(&viewer, |_| Ok(()))?;
            let control = lock(&inner.control);
            if control.system()? == cell.tenant { Ok(control.tenants()) } else { Err(Error::NotFound) }
        }))
    }

    fn add_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: NewKey,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        let witness = Witness::of(pass);
        Box::pin(self.on_cell(pass, move |inner, cell, viewer| {
            cell.read(&viewer, |_| Ok(()))?;
            if lock(&inner.control).key(&key.credential.key).is_some() {
                return Err(Error::Exists);
            }
            let info = inner.bind(cell, key, at)?;
            let (id, bound) = (info.credential.key.clone(), info.credential.subject.is_some());
            cell.key_entry(viewer, witness, ("created", id, bound), at)?;
            inner.env.reach(FaultPoint::AfterEntry).map_err(|_| Error::Unavailable)?;
            lock(&inner.control).add_key(info)
        }))
    }

    fn revoke_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: &'a KeyId,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        let (witness, key) = (Witness::of(pass), key.clone());
        Box::pin(self.on_cell(pass, move |inner, cell, viewer| {
            cell.read(&viewer, |_| Ok(()))?;
            // From the look at the other keys to the end of this one: two that end at once would each see the other.
            let _one_at_a_time = lock(&inner.revoking);
            let keys = lock(&inner.control).keys_of(&cell.tenant);
            let all = || keys.iter().map(|info| &info.credential);
            let credential = all().find(|credential| credential.key == key).ok_or(Error::NotFound)?;
            if credential.revoked_at.is_some() {
                return Ok(());
            }
            may_end(credential, all(), at)?;
            cell.key_entry(viewer, witness, ("revoked", key.clone(), false), at)?;
            inner.env.reach(FaultPoint::AfterEntry).map_err(|_| Error::Unavailable)?;
            lock(&inner.control).revoke_key(&key, at)?;
            // A capability that was minted for this key is worth nothing from now on. Only now, because one that
            // was minted before the key's row said so would live on.
            cell.write_blocking(|work| {
                work.raise_grants();
                Ok(())
            })
        }))
    }

    fn keys<'a>(&'a self, pass: &'a Pass<'_, class::Keys>) -> Fut<'a, Result<Vec<KeyInfo>, Error>> {
        Box::pin(self.on_cell(pass, |inner, cell, viewer| {
            cell.read(&viewer, |_| Ok(lock(&inner.control).keys_of(&cell.tenant)))
        }))
    }
}

impl Cell {
    /// The evidence of a change of keys. It is durable before the key is, because the two stand in two files.
    fn key_entry(
        &self,
        viewer: Viewer,
        witness: Witness,
        (change, key, moves_grants): (&'static str, KeyId, bool),
        at: Timestamp,
    ) -> Result<(), Error> {
        self.write_blocking(move |work| {
            admit(work.db, &viewer, &work.state)?;
            if moves_grants {
                work.raise_grants();
            }
            let draft = witness.admin(EntryType::KeyChanged, change, key.as_str(), None)?;
            work.append(&[draft], at).map(|_| ())
        })
    }
}

impl EvidenceLog for Sqlite {
    fn record_denial<'a>(&'a self, denied: &'a Denied, at: Timestamp) -> Fut<'a, Result<(), Error>> {
        Box::pin(async move {
            let cell = self.cell(denied.tenant()).await?;
            let denied = denied.clone();
            self.write(cell, move |work| {
                let keys =
                    denied.bound_subject().and_then(|person| work.cell.owner_keys(person.as_str()).ok());
                let event = random_id(work.cell.env.as_ref());
                let draft = denial_draft(&denied, keys.as_ref().map(|keys| &keys.tags), &event)?;
                work.append(&[draft], at).map(|_| ())
            })
            .await
        })
    }

    fn entries<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        from: u64,
        max: u32,
    ) -> Fut<'a, Result<Vec<Vec<u8>>, Error>> {
        Box::pin(self.look(pass, move |snapshot| log::entries(snapshot.db, from, max)))
    }

    fn checkpoint<'a>(&'a self, pass: &'a Pass<'_, class::Evidence>) -> Fut<'a, Result<Checkpoint, Error>> {
        Box::pin(self.on_cell(pass, |inner, cell, viewer| {
            let secrets = lock(&inner.control).secrets(&cell.tenant)?.ok_or(Error::NotFound)?;
            let signer = signer(&cell.tenant, &secrets.seed)?;
            let signed = cell.read(&viewer, |snapshot| log::checkpoint(snapshot.db, &signer))?;
            Ok(Checkpoint {
                note: signed.to_string(),
                size: signed.checkpoint().size(),
                verifier_key: signer.verifier_key().to_string(),
            })
        }))
    }

    fn proof<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        index: u64,
    ) -> Fut<'a, Result<String, Error>> {
        Box::pin(self.on_cell(pass, move |inner, cell, viewer| {
            let secrets = lock(&inner.control).secrets(&cell.tenant)?.ok_or(Error::NotFound)?;
            let signer = signer(&cell.tenant, &secrets.seed)?;
            cell.read(&viewer, |snapshot| log::proof(snapshot.db, &signer, index))
        }))
    }
}
