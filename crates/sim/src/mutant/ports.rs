//! The ports over a backend with a defect: what is not defective is passed on.

use merkwelt_authz::{
    Credential, CredentialSource, Denied, Fut, GrantError, GrantSource, Grants, Pass, Principal, Scope, class,
};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{ConversationId, GroupName, KeyId, SubjectId, SubjectRef, TenantId, Timestamp};
use merkwelt_store::change::{Batch, EntryRef, Part, Receipt};
use merkwelt_store::query::{Key, ModelId, RecallQuery, ScanQuery};
use merkwelt_store::record::{FlatCost, Found, Page, Recalled};
use merkwelt_store::{
    Checkpoint, Directory, DirectoryChange, Erased, Error, EvidenceLog, Group, KeyInfo, NewKey, Registry,
    Residue, Store, Tenant,
};

use super::{Broken, Mutant};

impl Store for Broken {
    fn recall<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a RecallQuery,
    ) -> Fut<'a, Result<Recalled, Error>> {
        Box::pin(self.searched(pass, query))
    }

    fn vector_model<'a>(&'a self, scope: &'a Scope) -> Fut<'a, Result<Option<ModelId>, Error>> {
        self.inner.vector_model(scope)
    }

    fn fetch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        keys: &'a [Key],
        now: Timestamp,
    ) -> Fut<'a, Result<Vec<Option<Found>>, Error>> {
        Box::pin(self.fetched(pass, keys, now))
    }

    fn scan<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a ScanQuery,
    ) -> Fut<'a, Result<Page, Error>> {
        Box::pin(self.listed(pass, query))
    }

    fn flat_cost<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        conversation: Option<&'a ConversationId>,
        now: Timestamp,
    ) -> Fut<'a, Result<FlatCost, Error>> {
        self.inner.flat_cost(pass, conversation, now)
    }

    fn prefix_holds_until<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        now: Timestamp,
    ) -> Fut<'a, Result<Timestamp, Error>> {
        self.inner.prefix_holds_until(pass, now)
    }

    fn commit<'a>(&'a self, batch: Batch<'a>) -> Fut<'a, Result<Receipt, Error>> {
        let (part, idempotency, at) = batch.into_parts();
        match part {
            Part::Writes(pass, writes) => Box::pin(self.written(pass, writes, idempotency, at)),
            Part::Read(pass, record) => Box::pin(self.recorded(pass, *record, at)),
        }
    }

    fn erase<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        now: Timestamp,
    ) -> Fut<'a, Result<Erased, Error>> {
        Box::pin(self.erased(pass, now))
    }

    fn residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        subject: &'a SubjectId,
    ) -> Fut<'a, Result<Residue, Error>> {
        Box::pin(self.left(pass, subject))
    }
}

impl GrantSource for Broken {
    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
        self.inner.grants(tenant, principal)
    }
}

impl CredentialSource for Broken {
    fn credential<'a>(&'a self, key: &'a KeyId) -> Fut<'a, Option<Credential>> {
        Box::pin(async move {
            let found = self.inner.credential(key).await?;
            let taken = self.is(Mutant::RevokedKeyTaken);
            Some(if taken { Credential { revoked_at: None, ..found } } else { found })
        })
    }
}

impl Directory for Broken {
    fn change<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Directory>,
        change: DirectoryChange,
        at: Timestamp,
    ) -> Fut<'a, Result<Option<EntryRef>, Error>> {
        let ends = matches!(change, DirectoryChange::RemoveMember { .. });
        if ends && self.is(Mutant::RevocationLost) && self.env.task() != 0 {
            return Box::pin(async { Ok(None) });
        }
        self.inner.change(pass, change, at)
    }

    fn groups<'a>(&'a self, pass: &'a Pass<'_, class::DirectoryRead>) -> Fut<'a, Result<Vec<Group>, Error>> {
        self.inner.groups(pass)
    }

    fn members<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
        group: &'a GroupName,
    ) -> Fut<'a, Result<Vec<SubjectRef>, Error>> {
        self.inner.members(pass, group)
    }

    fn organisation_switch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
    ) -> Fut<'a, Result<OrganisationSwitch, Error>> {
        self.inner.organisation_switch(pass)
    }
}

impl Registry for Broken {
    fn create_tenant<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Instance>,
        tenant: Tenant,
        first: NewKey,
    ) -> Fut<'a, Result<(), Error>> {
        self.inner.create_tenant(pass, tenant, first)
    }

    fn tenants<'a>(&'a self, pass: &'a Pass<'_, class::Instance>) -> Fut<'a, Result<Vec<Tenant>, Error>> {
        self.inner.tenants(pass)
    }

    fn add_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: NewKey,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        self.inner.add_key(pass, key, at)
    }

    fn revoke_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: &'a KeyId,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>> {
        self.inner.revoke_key(pass, key, at)
    }

    fn keys<'a>(&'a self, pass: &'a Pass<'_, class::Keys>) -> Fut<'a, Result<Vec<KeyInfo>, Error>> {
        self.inner.keys(pass)
    }
}

impl EvidenceLog for Broken {
    fn record_denial<'a>(&'a self, denied: &'a Denied, at: Timestamp) -> Fut<'a, Result<(), Error>> {
        self.inner.record_denial(denied, at)
    }

    fn entries<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        from: u64,
        max: u32,
    ) -> Fut<'a, Result<Vec<Vec<u8>>, Error>> {
        self.inner.entries(pass, from, max)
    }

    fn checkpoint<'a>(&'a self, pass: &'a Pass<'_, class::Evidence>) -> Fut<'a, Result<Checkpoint, Error>> {
        self.inner.checkpoint(pass)
    }

    fn proof<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        index: u64,
    ) -> Fut<'a, Result<String, Error>> {
        self.inner.proof(pass, index)
    }
}
