//! The register of sources on the wire. Titles and origins are shown to whoever may manage or oversee sources;
//! no passage's text is among it.

use merkwelt_app::view::hex;
use merkwelt_app::{RemovalReceipt, RevisionReceipt};
use merkwelt_domain::RevisionId;
use merkwelt_domain::memory::Expiry;
use merkwelt_domain::source::{Audience, PassageId};
use merkwelt_store::source::{ManifestEntry, RevisionRecord, SourceReceipt, SourceRecord};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::LedgerView;

/// A source that was registered.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct CreatedSourceView {
    /// Its id; it stays the same through all revisions.
    pub id: String,
}

/// A revision of a source.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct RevisionView {
    /// Its id.
    pub id: String,
    /// Its number.
    pub revision: u32,
    /// `draft` or `approved`.
    pub approval: String,
    /// Whether it is the current one.
    pub current: bool,
    /// SHA-256 of the document, in hexadecimal.
    pub document_sha256: String,
    /// Its media type.
    pub media: String,
    /// When it was received; RFC 3339.
    pub received_at: String,
    /// From when it holds; RFC 3339.
    pub valid_from: String,
    /// When it was first made current; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_at: Option<String>,
    /// How many passages it has or had.
    pub passages: u32,
    /// Whether their texts are still kept.
    pub kept: bool,
}

/// A source of the register.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct SourceView {
    /// Its id.
    pub id: String,
    /// Its title; gone with the texts of a deleted source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// `draft`, `active`, `withdrawn` or `deleted`.
    pub state: String,
    /// Ids of the groups whose members may be shown it; absent if everybody in the tenant may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// When it ends; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Why it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_expiry_reason: Option<String>,
    /// What is kept for evidence after a deletion.
    pub evidence: String,
    /// What it is processed for, if that is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// When it was registered; RFC 3339.
    pub registered_at: String,
    /// Oldest first.
    pub revisions: Vec<RevisionView>,
}

impl SourceView {
    pub(super) fn of(record: SourceRecord) -> Self {
        let (expires_at, no_expiry_reason) = match record.terms.expiry {
            Expiry::At(end) => (Some(end.to_string()), None),
            Expiry::Never(reason) => (None, Some(reason.name().to_owned())),
        };
        let groups = match &record.audience {
            Audience::Tenant => None,
            Audience::Groups(groups) => Some(groups.iter().map(ToString::to_string).collect()),
        };
        let revision = |revision: &RevisionRecord| RevisionView {
            id: revision.id.to_string(),
            revision: revision.number.number(),
            approval: revision.approval.name().to_owned(),
            current: record.current.as_ref() == Some(&revision.id),
            document_sha256: hex(&revision.digest),
            media: revision.media.clone(),
            received_at: revision.received_at.to_string(),
            valid_from: revision.valid_from.to_string(),
            published_at: revision.published_at.map(|at| at.to_string()),
            passages: revision.passages,
            kept: revision.kept,
        };
        Self {
            id: record.id.to_string(),
            title: record.title.as_ref().map(|title| title.expose().to_owned()),
            origin: record.origin.as_ref().map(|origin| origin.expose().to_owned()),
            state: record.state.name().to_owned(),
            groups,
            expires_at,
            no_expiry_reason,
            evidence: record.terms.evidence.name().to_owned(),
            purpose: record.terms.purpose.as_ref().map(|purpose| purpose.as_str().to_owned()),
            registered_at: record.registered_at.to_string(),
            revisions: record.revisions.iter().map(revision).collect(),
        }
    }
}

/// A page of the register.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct SourcesView {
    /// By id.
    pub sources: Vec<SourceView>,
    /// The `after` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One passage of a manifest.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ManifestEntryView {
    /// The passage, as citations name it.
    pub id: String,
    /// Its place in the revision.
    pub number: u32,
    /// SHA-256 of headings and text, in hexadecimal.
    pub sha256: String,
    /// The page, where there are pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
    /// What `first` and `last` count.
    pub unit: String,
    /// The first line or paragraph.
    pub first: u32,
    /// The last.
    pub last: u32,
    /// Whether its text is kept.
    pub kept: bool,
    /// Whether the index holds it.
    pub indexed: bool,
}

/// The manifest of a revision.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ManifestView {
    /// In order; none is missing.
    pub passages: Vec<ManifestEntryView>,
}

impl ManifestView {
    pub(super) fn of(revision: &RevisionId, entries: Vec<ManifestEntry>) -> Self {
        let view = |entry: ManifestEntry| {
            let (first, last) = entry.region.lines();
            let id = PassageId { revision: revision.clone(), number: entry.number };
            ManifestEntryView {
                id: id.to_string(),
                number: entry.number,
                sha256: hex(&entry.digest),
                page: entry.region.page(),
                unit: entry.region.unit().name().to_owned(),
                first,
                last,
                kept: entry.kept,
                indexed: entry.indexed,
            }
        };
        Self { passages: entries.into_iter().map(view).collect() }
    }
}

/// What became of a revision that was sent.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct RevisionReceiptView {
    /// The revision.
    pub revision_id: String,
    /// Its number.
    pub revision: u32,
    /// The same document is current already; nothing was written.
    pub unchanged: bool,
    /// Whether it is current now.
    pub published: bool,
    /// How many passages it has.
    pub passages: u32,
    /// How many of them the index holds, asked after the change.
    pub indexed: u32,
    /// How many vectors were made for it.
    pub embedded: u32,
    /// How many vectors were taken over from equal passages.
    pub reused: u32,
    /// Its last entry in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

impl From<RevisionReceipt> for RevisionReceiptView {
    fn from(receipt: RevisionReceipt) -> Self {
        Self {
            revision_id: receipt.revision.to_string(),
            revision: receipt.number.number(),
            unchanged: receipt.unchanged,
            published: receipt.published,
            passages: receipt.passages,
            indexed: receipt.indexed,
            embedded: receipt.embedded,
            reused: receipt.reused,
            ledger: receipt.entry.map(LedgerView::from),
        }
    }
}

/// A change of the register that is in force.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct SourceChangeView {
    /// Whether something changed; `false` if it was so already.
    pub changed: bool,
    /// The generation of sources and rights after it.
    pub knowledge_epoch: u64,
    /// Its entry in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

impl From<SourceReceipt> for SourceChangeView {
    fn from(receipt: SourceReceipt) -> Self {
        Self {
            changed: receipt.entry.is_some(),
            knowledge_epoch: receipt.epochs.knowledge.number(),
            ledger: receipt.entry.map(LedgerView::from),
        }
    }
}

/// What a look for a removed source found.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ResidueView {
    /// Passages found by their ids.
    pub by_id: u64,
    /// Passages found by their source, in records and index.
    pub by_filter: u64,
    /// Former passages, looked for by their own words and vectors, that found something of the source.
    pub by_similarity: u64,
}

/// A removal and what is left.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct RemovalView {
    /// Whether nothing is found any more.
    pub done: bool,
    /// How many passages were looked for.
    pub passages: u32,
    /// What is still found.
    pub residue: ResidueView,
    /// The generation of sources and rights after it.
    pub knowledge_epoch: u64,
    /// Its entry in the ledger; absent if it was removed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerView>,
}

impl From<RemovalReceipt> for RemovalView {
    fn from(receipt: RemovalReceipt) -> Self {
        let residue = receipt.residue;
        Self {
            done: residue.is_none(),
            passages: receipt.passages,
            residue: ResidueView {
                by_id: residue.by_id,
                by_filter: residue.by_filter,
                by_similarity: residue.by_similarity,
            },
            knowledge_epoch: receipt.epochs.knowledge.number(),
            ledger: receipt.entry.map(LedgerView::from),
        }
    }
}
