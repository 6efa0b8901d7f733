//! Defects of committing, erasing and counting what is left.

#![expect(clippy::wildcard_enum_match_arm, reason = "each part knows its own defects")]

use merkwelt_authz::{
    ApiKey, Authorized, Credential, CredentialSource, Fut, GrantError, GrantSource, Grants, Pass, Principal,
    Request, Role, action, authenticate, authorize, class,
};
use merkwelt_domain::memory::Revision;
use merkwelt_domain::{KeyId, ReadId, SubjectId, TenantId, Timestamp};
use merkwelt_store::change::{
    Batch, EntryRef, Idempotency, Outcome, ReadEvent, ReadRecord, Receipt, Shown, Write,
};
use merkwelt_store::record::Epochs;
use merkwelt_store::{Erased, Error, Residue};

use super::{Broken, Mutant};

impl Broken {
    pub(super) async fn written(
        &self,
        pass: &Pass<'_, class::Write>,
        writes: Vec<Write>,
        idempotency: Option<Idempotency>,
        at: Timestamp,
    ) -> Result<Receipt, Error> {
        let (texts, ids) = (texts_of(&writes), ids_of(&writes));
        let receipt = match self.mutant {
            Mutant::LostWrite if self.every(4) && ids.len() == writes.len() => {
                let created = |id: &merkwelt_domain::MemoryId| Outcome::Created {
                    id: id.clone(),
                    revision: Revision::FIRST,
                };
                let outcomes = ids.iter().map(created).collect();
                Receipt { outcomes, entry: Some(nowhere()), epochs: Epochs::default(), replayed: false }
            }
            Mutant::HalfABatch if writes.len() > 1 && idempotency.is_none() => {
                self.one_by_one(pass, writes, at).await?
            }
            _ => self.inner.commit(Batch::writes(pass, writes, idempotency, at)).await?,
        };
        let (tenant, subject) = (pass.scope().tenant().clone(), pass.scope().subject().cloned());
        let mut memo = self.memo();
        memo.texts.extend(texts.into_iter().map(|text| (tenant.clone(), text)));
        if let Some(subject) = subject {
            memo.index.entry((tenant, subject)).or_default().extend(ids);
        }
        Ok(receipt)
    }

    async fn one_by_one(
        &self,
        pass: &Pass<'_, class::Write>,
        writes: Vec<Write>,
        at: Timestamp,
    ) -> Result<Receipt, Error> {
        let mut all: Option<Receipt> = None;
        for write in writes {
            let one = self.inner.commit(Batch::writes(pass, vec![write], None, at)).await?;
            match &mut all {
                None => all = Some(one),
                Some(all) => all.outcomes.extend(one.outcomes),
            }
        }
        all.ok_or(Error::Unavailable)
    }

    pub(super) async fn recorded(
        &self,
        pass: &Pass<'_, class::Read>,
        mut record: ReadRecord,
        at: Timestamp,
    ) -> Result<Receipt, Error> {
        match self.mutant {
            Mutant::LedgerAfterRelease if self.every(4) => {
                let epochs = Epochs::default();
                return Ok(Receipt { outcomes: Vec::new(), entry: Some(nowhere()), epochs, replayed: false });
            }
            Mutant::NotAskedAgain | Mutant::HeadsRemembered => {
                record.standing.retain(|shown| !matches!(shown, Shown::Passage(_) | Shown::Cited(_)));
                record.knowledge = None;
            }
            Mutant::DoubleEvent if self.every(4) => {
                let again = again(&record, ReadId::random(&*self.env));
                let receipt = self.inner.commit(Batch::read(pass, record, at)).await?;
                let _ = self.inner.commit(Batch::read(pass, again, at)).await?;
                return Ok(receipt);
            }
            Mutant::StaleGrants if self.inner.flat_cost(pass, None, at).await == Err(Error::GrantsMoved) => {
                return self.anew(pass, record, at).await;
            }
            Mutant::NoTenantCheck | Mutant::SupersededServed | Mutant::PrefixOfAnybody => {
                let memo = self.memo();
                record.standing.retain(|shown| match shown {
                    Shown::Current(id, revision) => !memo.put_in.contains(&(id.clone(), *revision)),
                    Shown::Past(..)
                    | Shown::Turn(..)
                    | Shown::Sitting(_)
                    | Shown::Passage(_)
                    | Shown::Cited(_) => true,
                });
            }
            Mutant::WrongCounters => record.event.tokens += 1,
            _ => {}
        }
        self.inner.commit(Batch::read(pass, record, at)).await
    }

    /// Records a read under a capability that was minted anew, so that it does not matter what moved.
    async fn anew(
        &self,
        stale: &Pass<'_, class::Read>,
        mut record: ReadRecord,
        at: Timestamp,
    ) -> Result<Receipt, Error> {
        let key = ApiKey::random(&*self.env);
        let (tenant, subject) = (stale.scope().tenant().clone(), stale.scope().subject().cloned());
        let epoch = self.inner.grants(&tenant, &Principal::Nobody).await.map_err(|_| Error::Unavailable)?;
        let epoch = epoch.ok_or(Error::NotFound)?.epoch;
        let credential = Credential {
            key: stale.key().clone(),
            digest: key.digest(),
            tenant,
            role: Role::App,
            subject: subject.clone(),
            act_for: false,
            expires_at: None,
            revoked_at: None,
        };
        let liar =
            Liar { credential, grants: Grants { epoch, subject, groups: stale.scope().groups().clone() } };
        let caller = authenticate(&liar, &key, at).await.map_err(|_| Error::Unavailable)?;
        let request = Request::new(caller, None, stale.purpose().clone());
        let fresh: Authorized<'_, action::Recall> =
            authorize(&liar, &request).await.map_err(|_| Error::Unavailable)?;
        record.standing.clear();
        self.inner.commit(Batch::read(&fresh, record, at)).await
    }

    pub(super) async fn erased(
        &self,
        pass: &Pass<'_, class::Erase>,
        now: Timestamp,
    ) -> Result<Erased, Error> {
        let erased = self.inner.erase(pass, now).await?;
        let owner = (pass.scope().tenant().clone(), erased.subject.clone());
        let mut memo = self.memo();
        memo.index.remove(&owner);
        if self.is(Mutant::TombstoneIgnored) {
            let late = merkwelt_domain::MemoryId::random(&*self.env);
            memo.index.entry(owner).or_default().push(late);
        }
        Ok(erased)
    }

    pub(super) async fn left(
        &self,
        pass: &Pass<'_, class::Erase>,
        subject: &SubjectId,
    ) -> Result<Residue, Error> {
        let mut left = self.inner.residue(pass, subject).await?;
        if self.is(Mutant::RowsBeforeDerived) || self.is(Mutant::TombstoneIgnored) {
            let owner = (pass.scope().tenant().clone(), subject.clone());
            let indexed = self.memo().index.get(&owner).map_or(0, Vec::len);
            left.indexed += u64::try_from(indexed).unwrap_or(u64::MAX);
        }
        Ok(left)
    }
}

fn nowhere() -> EntryRef {
    EntryRef { index: 0, leaf: "00".to_owned() }
}

fn texts_of(writes: &[Write]) -> Vec<String> {
    let text = |write: &Write| match write {
        Write::Remember(new) | Write::Correct { new, .. } => Some(new.statement.text().expose().to_owned()),
        Write::Append(new) => Some(new.turn.text.expose().to_owned()),
        Write::Retract { .. } | Write::Open(_) | Write::DeleteConversation { .. } => None,
    };
    writes.iter().filter_map(text).collect()
}

/// Ids of new memories.
fn ids_of(writes: &[Write]) -> Vec<merkwelt_domain::MemoryId> {
    let id = |write: &Write| match write {
        Write::Remember(new) => Some(new.id.clone()),
        Write::Correct { .. }
        | Write::Append(_)
        | Write::Retract { .. }
        | Write::Open(_)
        | Write::DeleteConversation { .. } => None,
    };
    writes.iter().filter_map(id).collect()
}

/// The same read under another id.
fn again(record: &ReadRecord, id: ReadId) -> ReadRecord {
    let event = &record.event;
    ReadRecord {
        event: ReadEvent {
            id,
            kind: event.kind,
            run: event.run.clone(),
            call: event.call.clone(),
            index: event.index.clone(),
            request: event.request,
            top_k: event.top_k,
            boundary: event.boundary.clone(),
            trace: event.trace.clone(),
            content_kept: event.content_kept,
            result: event.result,
            tokens: event.tokens,
            items: event.items.clone(),
        },
        standing: record.standing.clone(),
        knowledge: record.knowledge,
        openings: record.openings.clone(),
        keep_until: record.keep_until,
        pack: None,
    }
}

/// A source that says what it is told to say.
struct Liar {
    credential: Credential,
    grants: Grants,
}

impl CredentialSource for Liar {
    fn credential<'a>(&'a self, _key: &'a KeyId) -> Fut<'a, Option<Credential>> {
        Box::pin(async { Some(self.credential.clone()) })
    }
}

impl GrantSource for Liar {
    fn grants<'a>(
        &'a self,
        _tenant: &'a TenantId,
        _principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
        Box::pin(async { Ok(Some(self.grants.clone())) })
    }
}
