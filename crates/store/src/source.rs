//! The register of sources as a store keeps it: what may be changed, what is listed, and what a look for
//! leftovers finds. Only a capability of the trusted backend opens it; what a person may be shown of
//! it goes through [`crate::Store`] like everything else.

use std::collections::BTreeSet;

use merkwelt_authz::{Fut, Pass, class};
use merkwelt_domain::memory::Revision;
use merkwelt_domain::source::{Approval, Audience, Region, SourceState, Terms, Title};
use merkwelt_domain::{Content, GroupName, RevisionId, SourceId, Timestamp};
use merkwelt_ledger::commitment::OpeningKey;

use crate::change::EntryRef;
use crate::error::Error;
use crate::query::Vector;
use crate::record::Epochs;

/// Who is to be shown a source. Groups are named; the store resolves them, and refuses a name it does not
/// know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewAudience {
    /// Everybody in the tenant.
    Tenant,
    /// Members of any of these groups.
    Groups(BTreeSet<GroupName>),
}

/// A source to register.
#[derive(Debug, Clone)]
pub struct NewSource {
    /// Its id.
    pub id: SourceId,
    /// What people call it.
    pub title: Title,
    /// Where it comes from, such as an address or a path; it may be personal data and is kept encrypted.
    /// One tenant has one source per origin.
    pub origin: Option<Content>,
    /// Who may be shown it.
    pub audience: NewAudience,
    /// What is recorded beside it.
    pub terms: Terms,
}

/// A passage to index.
#[derive(Debug, Clone)]
pub struct NewPassage {
    /// The words.
    pub text: Content,
    /// Headings above it, outermost first.
    pub headings: Vec<Title>,
    /// Where it stands.
    pub region: Region,
    /// SHA-256 of its text, by which an unchanged passage is recognised.
    pub digest: [u8; 32],
    /// Tokens of its text.
    pub tokens: u32,
    /// Its vector. Without one the store takes over the vector of an equal passage of the source, or the
    /// passage is found by words only.
    pub vector: Option<Vector>,
}

/// A revision to take in. It is served to nobody until it is published.
#[derive(Debug)]
pub struct NewRevision {
    /// Its id.
    pub id: RevisionId,
    /// The source.
    pub source: SourceId,
    /// SHA-256 of the document as it was received.
    pub digest: [u8; 32],
    /// What it was: a media type.
    pub media: String,
    /// From when it holds.
    pub valid_from: Timestamp,
    /// Its passages in order; none may be missing.
    pub passages: Vec<NewPassage>,
    /// Opens the commitment to the document's digest in the ledger.
    pub opening: OpeningKey,
}

/// One change of the register. Publishing, withdrawing, deleting and restoring are separate operations
///
#[derive(Debug)]
pub enum SourceChange {
    /// Register a source. [`Error::Exists`] if another has the origin.
    Register(NewSource),
    /// Take in a revision as a draft.
    Stage(NewRevision),
    /// Make a taken-in revision the current one: the former is superseded in the same transaction.
    Publish {
        /// The source.
        source: SourceId,
        /// The revision.
        revision: RevisionId,
    },
    /// Throw away a draft.
    Discard {
        /// The source.
        source: SourceId,
        /// The revision.
        revision: RevisionId,
    },
    /// Change who may be shown it.
    Admit {
        /// The source.
        source: SourceId,
        /// Who.
        audience: NewAudience,
    },
    /// Serve nothing of it any more; it can be restored.
    Withdraw {
        /// The source.
        source: SourceId,
    },
    /// Make an approved revision, whose passages are still kept, current again.
    Restore {
        /// The source.
        source: SourceId,
        /// The revision.
        revision: RevisionId,
        /// Vectors of its passages in order, where the index no longer has them; empty if none were made.
        vectors: Vec<Vector>,
    },
    /// Remove every passage of every revision.
    Delete {
        /// The source.
        source: SourceId,
    },
}

impl SourceChange {
    /// The source it changes.
    #[must_use]
    pub fn source(&self) -> &SourceId {
        match self {
            Self::Register(new) => &new.id,
            Self::Stage(new) => &new.source,
            Self::Publish { source, .. }
            | Self::Discard { source, .. }
            | Self::Admit { source, .. }
            | Self::Withdraw { source }
            | Self::Restore { source, .. }
            | Self::Delete { source } => source,
        }
    }

    /// The closed word for it in evidence.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Register(_) => "source_registered",
            Self::Stage(_) => "revision_staged",
            Self::Publish { .. } => "revision_published",
            Self::Discard { .. } => "revision_discarded",
            Self::Admit { .. } => "audience_changed",
            Self::Withdraw { .. } => "source_withdrawn",
            Self::Restore { .. } => "revision_restored",
            Self::Delete { .. } => "source_deleted",
        }
    }
}

/// The proof that a change is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceReceipt {
    /// Its evidence; `None` if nothing had to change.
    pub entry: Option<EntryRef>,
    /// The generations after it.
    pub epochs: Epochs,
    /// The revision that was touched, if one was.
    pub revision: Option<Revision>,
    /// How many of its vectors were taken over from equal passages and did not have to be made again.
    pub reused: u32,
}

/// A source as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRecord {
    /// Its id.
    pub id: SourceId,
    /// What people call it; gone with the texts of a deleted source.
    pub title: Option<Title>,
    /// Where it comes from.
    pub origin: Option<Content>,
    /// Who may be shown it.
    pub audience: Audience,
    /// What is recorded beside it.
    pub terms: Terms,
    /// What became of it.
    pub state: SourceState,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// The current revision, if it is active.
    pub current: Option<RevisionId>,
    /// Its revisions, oldest first.
    pub revisions: Vec<RevisionRecord>,
}

/// A revision as it is listed. It stays when its passages are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionRecord {
    /// Its id.
    pub id: RevisionId,
    /// Its number.
    pub number: Revision,
    /// SHA-256 of the document.
    pub digest: [u8; 32],
    /// Its media type.
    pub media: String,
    /// When it was received.
    pub received_at: Timestamp,
    /// From when it holds.
    pub valid_from: Timestamp,
    /// Whether it was ever approved.
    pub approval: Approval,
    /// When it was first made current.
    pub published_at: Option<Timestamp>,
    /// How many passages it has or had.
    pub passages: u32,
    /// Whether their texts are still kept.
    pub kept: bool,
}

/// One line of a manifest: a passage of a revision, and where it still is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Its place in the revision.
    pub number: u32,
    /// SHA-256 of its text.
    pub digest: [u8; 32],
    /// Where it stands in the document.
    pub region: Region,
    /// Whether the system of record still has its text.
    pub kept: bool,
    /// Whether the index has it.
    pub indexed: bool,
}

/// What is asked of the index about one passage: its own words and its own vector.
#[derive(Debug, Clone)]
pub struct SourceProbe {
    /// The words it had.
    pub text: Content,
    /// The vector it had.
    pub vector: Option<Vector>,
}

/// What a look for a source found. All zero is the only proof that it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceResidue {
    /// Passages that are found by their ids.
    pub by_id: u64,
    /// Passages that are found by the source they belong to, in records and index.
    pub by_filter: u64,
    /// Probes that found a passage of the source.
    pub by_similarity: u64,
}

impl SourceResidue {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The register of sources (R-048 … R-053). An unknown source is [`Error::NotFound`].
pub trait Library: Send + Sync {
    /// Makes one change and its evidence durable together, or nothing. A change that finds its end reached
    /// already is no error and has no entry. [`Error::NotRetained`]: the passages of the revision are gone.
    fn change_source<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        change: SourceChange,
        at: Timestamp,
    ) -> Fut<'a, Result<SourceReceipt, Error>>;

    /// Sources by id, from the one after `after` on.
    fn sources<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        after: Option<&'a SourceId>,
        limit: usize,
    ) -> Fut<'a, Result<Vec<SourceRecord>, Error>>;

    /// One source.
    fn source<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        id: &'a SourceId,
    ) -> Fut<'a, Result<SourceRecord, Error>>;

    /// The source of this origin, if there is one.
    fn source_of_origin<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        origin: &'a Content,
    ) -> Fut<'a, Result<Option<SourceId>, Error>>;

    /// The manifest of one revision, compared with what is there.
    fn manifest<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        source: &'a SourceId,
        revision: &'a RevisionId,
    ) -> Fut<'a, Result<Vec<ManifestEntry>, Error>>;

    /// The words and vectors of the passages of a source that are still kept, to look for them later.
    fn probes<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        source: &'a SourceId,
    ) -> Fut<'a, Result<Vec<SourceProbe>, Error>>;

    /// Looks for what can still be found of a source: by id, by filter, and by similarity with `probes`
    /// . Passages of its current revision count, so for an active source this is not none.
    fn source_residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        source: &'a SourceId,
        probes: &'a [SourceProbe],
        now: Timestamp,
    ) -> Fut<'a, Result<SourceResidue, Error>>;
}
