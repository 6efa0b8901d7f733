//! The stage on which a backend plays: every call of a port lets others run before and after it, may be made
//! to fail before or after it acted, and is written to the journal. Nothing is answered differently here.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use merkwelt_authz::{
    Credential, CredentialSource, Denied, Fut, GrantError, GrantSource, Grants, Pass, Principal, Scope, class,
};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{
    ConversationId, FaultPoint, GroupName, KeyId, SubjectId, SubjectRef, TenantId, Timestamp,
};
use merkwelt_store::change::{Batch, EntryRef, Part, Receipt};
use merkwelt_store::query::{Key, ModelId, RecallQuery, ScanQuery};
use merkwelt_store::record::{FlatCost, Found, Page, Recalled};
use merkwelt_store::{
    Backend, Checkpoint, Directory, DirectoryChange, Erased, Error, EvidenceLog, Group, KeyInfo, NewKey,
    Registry, Residue, Store, Tenant,
};

use crate::env::SimEnv;
use crate::journal::{Call, Event, Journal, Recorded};

/// Where a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Before it acted.
    Before,
    /// After it acted, so that nobody is told.
    After,
}

/// A failure of the next call of a port by a task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Misses(Arc<Mutex<Option<Miss>>>);

impl Misses {
    pub(crate) fn arm(&self, miss: Option<Miss>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = miss;
    }

    fn take(&self) -> Option<Miss> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A backend on the stage.
pub(crate) struct Stage {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) env: Arc<SimEnv>,
    pub(crate) journal: Journal,
    pub(crate) misses: Misses,
}

/// Lets the scheduler run somebody else once.
async fn pause() {
    let mut waited = false;
    std::future::poll_fn(
        |_| {
            if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
        },
    )
    .await;
}

impl Stage {
    /// Runs a call; `call` names it by its outcome, which is `None` where it took effect and nobody was told how.
    async fn play<T>(
        &self,
        inner: impl Future<Output = Result<T, Error>>,
        call: impl FnOnce(Option<&T>) -> Call,
    ) -> Result<T, Error> {
        let task = self.env.task();
        if task == 0 {
            return inner.await;
        }
        pause().await;
        let miss = self.misses.take();
        let fired = self.env.fired();
        self.env.begin_step();
        let result = if miss == Some(Miss::Before) { Err(Error::Unavailable) } else { inner.await };
        // INVARIANT: a transaction that passed this point is durable, whatever went wrong afterwards.
        let committed = self.env.passed(FaultPoint::AfterCommit) > 0;
        let silent = committed && matches!(result, Err(Error::Unavailable));
        let landed = result.is_ok() || silent;
        let call = call(result.as_ref().ok());
        let faulted = miss.is_some() || self.env.fired() > fired;
        let result = if miss == Some(Miss::After) { Err(Error::Unavailable) } else { result };
        let told = result.as_ref().map(|_| ()).map_err(|error| *error);
        self.journal.write(Event { task, call, landed, told, silent, faulted });
        pause().await;
        result
    }

    async fn look<T>(&self, inner: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.play(inner, |_| Call::Look).await
    }
}

impl Store for Stage {
    fn recall<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a RecallQuery,
    ) -> Fut<'a, Result<Recalled, Error>> {
        Box::pin(self.play(self.inner.recall(pass, query), |_| Call::Recall(query.now)))
    }

    fn vector_model<'a>(&'a self, scope: &'a Scope) -> Fut<'a, Result<Option<ModelId>, Error>> {
        // No step of its own: nothing is released by it, and whatever it says is compared again.
        self.inner.vector_model(scope)
    }

    fn fetch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        keys: &'a [Key],
        now: Timestamp,
    ) -> Fut<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(self.play(self.inner.fetch(pass, keys, now), move |_| Call::Fetch(now)))
    }

    fn scan<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a ScanQuery,
    ) -> Fut<'a, Result<Page, Error>> {
        Box::pin(self.play(self.inner.scan(pass, query), |_| Call::Scan(query.now)))
    }

    fn flat_cost<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        conversation: Option<&'a ConversationId>,
        now: Timestamp,
    ) -> Fut<'a, Result<FlatCost, Error>> {
        Box::pin(self.play(self.inner.flat_cost(pass, conversation, now), move |_| Call::Flat(now)))
    }

    fn prefix_holds_until<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        now: Timestamp,
    ) -> Fut<'a, Result<Timestamp, Error>> {
        Box::pin(self.look(self.inner.prefix_holds_until(pass, now)))
    }

    fn commit<'a>(&'a self, batch: Batch<'a>) -> Fut<'a, Result<Receipt, Error>> {
        let (part, idempotency, at) = batch.into_parts();
        match part {
            Part::Writes(pass, writes) => {
                let batch = Batch::writes(pass, writes, idempotency, at);
                Box::pin(self.play(self.inner.commit(batch), move |receipt: Option<&Receipt>| {
                    Call::Write(at, receipt.cloned())
                }))
            }
            Part::Read(pass, record) => {
                let mut recorded = Recorded {
                    id: record.event.id.to_string(),
                    entry: None,
                    result: record.event.result,
                    openings: record.openings.clone(),
                    items: record.event.items.len(),
                    tokens: record.event.tokens,
                    pack: record.event.content_kept == "pack" && record.pack.is_none(),
                };
                let batch = Batch::read(pass, *record, at);
                Box::pin(self.play(self.inner.commit(batch), move |receipt: Option<&Receipt>| {
                    recorded.entry = receipt.and_then(|receipt| receipt.entry.clone());
                    Call::Read(at, Box::new(recorded))
                }))
            }
        }
    }

    fn erase<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        now: Timestamp,
    ) -> Fut<'a, Result<Erased, Error>> {
        Box::pin(self.play(self.inner.erase(pass, now), |_| {
            Call::Erase(pass.scope().subject().cloned(), self.env.passed(FaultPoint::AfterCommit))
        }))
    }

    fn residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        subject: &'a SubjectId,
    ) -> Fut<'a, Result<Residue, Error>> {
        Box::pin(self.look(self.inner.residue(pass, subject)))
    }
}

impl GrantSource for Stage {
    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
        Box::pin(async move {
            let inner = async { self.inner.grants(tenant, principal).await.map_err(|_| Error::Unavailable) };
            self.play(inner, |_| Call::Grants).await.map_err(|_| GrantError::Unavailable)
        })
    }
}

impl CredentialSource for Stage {
    fn credential<'a>(&'a self, key: &'a KeyId) -> Fut<'a, Option<Credential>> {
        Box::pin(async move {
            let inner = async { Ok(self.inner.credential(key).await) };
            self.play(inner, |_| Call::Credential).await.ok().flatten()
        })
    }
}

impl Directory for Stage {
    fn change<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Directory>,
        change: DirectoryChange,
        at: Timestamp,
    ) -> Fut<'a, Result<Option<EntryRef>, Error>> {
        Box::pin(self.play(self.inner.change(pass, change, at), |_| Call::Directory))
    }

    fn groups<'a>(&'a self, pass: &'a Pass<'_, class::DirectoryRead>) -> Fut<'a, Result<Vec<Group>, Error>> {
        Box::pin(self.look(self.inner.groups(pass)))
    }

    fn members<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
        group: &'a GroupName,
    ) -> Fut<'a, Result<Vec<SubjectRef>, Error>> {
        Box::pin(self.look(self.inner.members(pass, group)))
    }

    fn organisation_switch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
    ) -> Fut<'a, Result<OrganisationSwitch, Error>> {
        Box::pin(self.look(self.inner.organisation_switch(pass)))
    }
}

impl Registry for Stage {
    fn create_tenant<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Instance>,
        tenant: Tenant,
        first: NewKey,
    ) -> Fut<'a, Result<(), Error>> {
        Box::pin(self.look(self.inner.create_tenant(pass, tenant, first)))
    }

    fn tenants<'a>(&'a self, pass: &'a Pass<'_, class::Instance>) -> Fut<'a, Result<Vec<Tenant>, Error>> {
        Box::pin(self.look(self.inner.tenants(pass)))
    }

    fn add_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: NewKey,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        Box::pin(self.play(self.inner.add_key(pass, key, at), |_| Call::AddKey))
    }

    fn revoke_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: &'a KeyId,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        Box::pin(self.play(self.inner.revoke_key(pass, key, at), |_| Call::RevokeKey(key.clone())))
    }

    fn keys<'a>(&'a self, pass: &'a Pass<'_, class::Keys>) -> Fut<'a, Result<Vec<KeyInfo>, Error>> {
        Box::pin(self.look(self.inner.keys(pass)))
    }
}

impl EvidenceLog for Stage {
    fn record_denial<'a>(&'a self, denied: &'a Denied, at: Timestamp) -> Fut<'a, Result<(), Error>> {
        Box::pin(self.play(self.inner.record_denial(denied, at), |_| Call::Denial))
    }

    fn entries<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        from: u64,
        max: u32,
    ) -> Fut<'a, Result<Vec<Vec<u8>>, Error>> {
        Box::pin(self.look(self.inner.entries(pass, from, max)))
    }

    fn checkpoint<'a>(&'a self, pass: &'a Pass<'_, class::Evidence>) -> Fut<'a, Result<Checkpoint, Error>> {
        Box::pin(self.look(self.inner.checkpoint(pass)))
    }

    fn proof<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        index: u64,
    ) -> Fut<'a, Result<String, Error>> {
        Box::pin(self.look(self.inner.proof(pass, index)))
    }
}
