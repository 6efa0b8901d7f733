//! The ports. [`Store`] holds content in six verbs of the domain; [`Directory`], [`Registry`] and
//! [`EvidenceLog`] stand beside it because they give other guarantees: who may, who exists, and what
//! cannot be taken back. No method works without a capability, and none takes a free filter.

use merkwelt_authz::{Credential, CredentialSource, Denied, Fut, GrantSource, Pass, Scope, class};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{GroupId, GroupName, KeyId, SubjectId, SubjectRef, TenantId, TenantName, Timestamp};

use crate::change::{Batch, EntryRef, Receipt};
use crate::error::Error;
use crate::query::{Key, ModelId, RecallQuery, ScanQuery};
use crate::record::{FlatCost, Found, Page, Recalled};
use crate::source::Library;

/// The system of record for content. Each read compares the capability's grant epoch and re-reads
/// membership in the same snapshot (I-2), applies scope, kind and time before ranking, and
/// finds nothing outside the scope.
pub trait Store: Send + Sync {
    /// Searches. Returns k hits wherever the scope holds k records that pass the filters, whether or not
    /// they share a word with the question: the rest is ranked by recency.
    fn recall<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a RecallQuery,
    ) -> Fut<'a, Result<Recalled, Error>>;

    /// The model whose vectors the tenant of a scope takes now; `None` as long as any may be the first. It may
    /// have changed when the answer arrives: what counts is compared where vectors are read and written (I-14).
    fn vector_model<'a>(&'a self, scope: &'a Scope) -> Fut<'a, Result<Option<ModelId>, Error>>;

    /// Reads by key, in the order of the keys; `None` for what is unknown, of somebody else, or may not be
    /// served at `now`. For [`Key::MemoryAt`] past revisions are found too, but nothing that is expired,
    /// restricted or erased.
    fn fetch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        keys: &'a [Key],
        now: Timestamp,
    ) -> Fut<'a, Result<Vec<Option<Found>>, Error>>;

    /// Lists what is current. A listing of an unknown or foreign conversation's turns is
    /// [`Error::NotFound`].
    fn scan<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        query: &'a ScanQuery,
    ) -> Fut<'a, Result<Page, Error>>;

    /// What everything current in scope would cost as one flat list, with the kept turns of
    /// `conversation` if one is named.
    fn flat_cost<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        conversation: Option<&'a merkwelt_domain::ConversationId>,
        now: Timestamp,
    ) -> Fut<'a, Result<FlatCost, Error>>;

    /// Until when the rules and facts in scope stay the same as long as nobody writes: the earliest
    /// `valid_from` or `expires_at` of one of them after `now`. The default says that nothing is known.
    fn prefix_holds_until<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Read>,
        now: Timestamp,
    ) -> Fut<'a, Result<Timestamp, Error>> {
        let _ = pass;
        Box::pin(async move { Ok(now) })
    }

    /// Makes a batch and its evidence durable together, or nothing. Returns after the durable commit.
    fn commit<'a>(&'a self, batch: Batch<'a>) -> Fut<'a, Result<Receipt, Error>>;

    /// Erases the subject of the scope: tombstone, key, derived data, rows, in the order of DESIGN
    /// section 4. Idempotent: once the subject is erased, the capability that did it repeats and proves the
    /// erasure although the grant epoch moved, so that nobody has to register the person again for it.
    fn erase<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        now: Timestamp,
    ) -> Fut<'a, Result<Erased, Error>>;

    /// Looks for what is left of a subject, by asking every part that could hold something.
    fn residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Erase>,
        subject: &'a SubjectId,
    ) -> Fut<'a, Result<Residue, Error>>;
}

/// What an erasure removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// Whose data.
    pub subject: SubjectId,
    /// Revisions of memories.
    pub memories: u64,
    /// Conversations.
    pub conversations: u64,
    /// Turns.
    pub turns: u64,
    /// Openings and packs.
    pub evidence: u64,
}

/// What is left of a subject, by place. All zero is the only proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Residue {
    /// Rows of the system of record.
    pub rows: u64,
    /// Entries of the search index.
    pub indexed: u64,
    /// Keys of the keyring.
    pub keys: u64,
    /// Memberships.
    pub memberships: u64,
}

impl Residue {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// Its name.
    pub name: GroupName,
    /// How many members it has.
    pub members: u64,
}

/// A change of the directory. Each raises the grant epoch and is an entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryChange {
    /// Create a group.
    CreateGroup {
        /// The id it gets.
        id: GroupId,
        /// Its name.
        name: GroupName,
    },
    /// Delete a group; what it owns is visible to nobody any more.
    DeleteGroup {
        /// Its name.
        name: GroupName,
    },
    /// Make a subject a member.
    AddMember {
        /// The group.
        group: GroupName,
        /// The subject, registered if new.
        subject: SubjectRef,
    },
    /// End a membership.
    RemoveMember {
        /// The group.
        group: GroupName,
        /// The subject.
        subject: SubjectRef,
    },
    /// Say what goes along when a person changes the organisation.
    SetSwitch(OrganisationSwitch),
}

/// Groups and members: the system of record that [`GrantSource`] reads.
pub trait Directory: GrantSource {
    /// Changes the directory. [`Error::Exists`] for a group that exists, [`Error::NotFound`] for one that
    /// does not. Adding a member twice or removing none is no error.
    fn change<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Directory>,
        change: DirectoryChange,
        at: Timestamp,
    ) -> Fut<'a, Result<Option<EntryRef>, Error>>;

    /// All groups by name.
    fn groups<'a>(&'a self, pass: &'a Pass<'_, class::DirectoryRead>) -> Fut<'a, Result<Vec<Group>, Error>>;

    /// The members of a group as the customer refers to them.
    fn members<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
        group: &'a GroupName,
    ) -> Fut<'a, Result<Vec<SubjectRef>, Error>>;

    /// What goes along when a person changes the organisation.
    fn organisation_switch<'a>(
        &'a self,
        pass: &'a Pass<'_, class::DirectoryRead>,
    ) -> Fut<'a, Result<OrganisationSwitch, Error>>;
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: TenantName,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// What is kept of it; its tenant must be the scope's, its subject is set by the store.
    pub credential: Credential,
    /// The subject to bind it to.
    pub subject: Option<SubjectRef>,
    /// A label for people; letters, digits, `.`, `_`, `-`.
    pub label: TenantName,
}

/// A key as it is listed. The secret is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// What is kept of it.
    pub credential: Credential,
    /// Its label.
    pub label: TenantName,
    /// When it was created.
    pub created_at: Timestamp,
}

/// Tenants and keys of the instance.
pub trait Registry: CredentialSource {
    /// Creates a tenant together with its first key.
    fn create_tenant<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Instance>,
        tenant: Tenant,
        first: NewKey,
    ) -> Fut<'a, Result<(), Error>>;

    /// All tenants but the instance's own, by name.
    fn tenants<'a>(&'a self, pass: &'a Pass<'_, class::Instance>) -> Fut<'a, Result<Vec<Tenant>, Error>>;

    /// Adds a key to the scope's tenant.
    fn add_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: NewKey,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>>;

    /// Revokes a key of the scope's tenant, from the next request on. [`Error::LastAdmin`] where nobody could make
    /// keys for the tenant afterwards ([`crate::keys::may_end`]).
    fn revoke_key<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Keys>,
        key: &'a KeyId,
        at: Timestamp,
    ) -> Fut<'a, Result<(), Error>>;

    /// The keys of the scope's tenant.
    fn keys<'a>(&'a self, pass: &'a Pass<'_, class::Keys>) -> Fut<'a, Result<Vec<KeyInfo>, Error>>;
}

/// The ledger of a tenant, append-only: nothing here can change or remove an entry.
pub trait EvidenceLog: Send + Sync {
    /// Appends a denial (L-28). Durable when it returns.
    fn record_denial<'a>(&'a self, denied: &'a Denied, at: Timestamp) -> Fut<'a, Result<(), Error>>;

    /// The exact bytes of up to `max` entries from index `from` on.
    fn entries<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Evidence>,
        from: u64,
        max: u32,
    ) -> Fut<'a, Result<Vec<Vec<u8>>, Error>>;

    /// A signed checkpoint over everything durable now.
    fn checkpoint<'a>(&'a self, pass: &'a Pass<'_, class::Evidence>) -> Fut<'a, Result<Checkpoint, Error>>;

    /// A C2SP `tlog-proof` for one entry.
    fn proof<'a>(&'a self, pass: &'a Pass<'_, class::Evidence>, index: u64)
    -> Fut<'a, Result<String, Error>>;
}

/// A signed checkpoint and the key that verifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The C2SP signed note.
    pub note: String,
    /// Number of entries it covers.
    pub size: u64,
    /// The verifier key as C2SP writes it.
    pub verifier_key: String,
}

/// A backend: everything the app needs of storage, behind one pointer.
pub trait Backend: Store + Directory + Registry + EvidenceLog + Library {}

impl<T: Store + Directory + Registry + EvidenceLog + Library> Backend for T {}

/// The first tenants and keys of a new instance. A backend takes it once, when it creates its data.
#[derive(Debug)]
pub struct Founding {
    /// The instance's own tenant: its ledger holds what concerns the instance, and it has no content.
    pub system: TenantId,
    /// The first instance admin; a key of [`Founding::system`].
    pub admin: NewKey,
    /// The first tenant.
    pub tenant: Tenant,
    /// Its keys.
    pub keys: Vec<NewKey>,
    /// When.
    pub at: Timestamp,
}
