//! Passages, citations and kept answers on the wire.

use merkwelt_authz::Scope;
use merkwelt_domain::Timestamp;
use merkwelt_domain::memory::{Expiry, Layer};
use merkwelt_domain::source::{Audience, Passage, SourceHead};
use merkwelt_store::record::Scores;
use serde::Serialize;
use utoipa::ToSchema;

use super::{BasisView, ItemView, OriginView, OwnerView, score};

/// Which source a passage is from, in which revision, and where it stands in it. A title alone is no
/// citation.
#[derive(Debug, Clone, Serialize, serde::Deserialize, ToSchema)]
pub struct SourceRefView {
    /// The source.
    pub source_id: String,
    /// Its title.
    pub title: String,
    /// The number of the revision.
    pub revision: u32,
    /// The id of the revision.
    pub revision_id: String,
    /// SHA-256 of the document, in hexadecimal.
    pub document_sha256: String,
    /// When the document was received; RFC 3339.
    pub received_at: String,
    /// From when the revision holds; RFC 3339.
    pub valid_from: String,
    /// Headings above the passage, outermost first.
    pub headings: Vec<String>,
    /// The page, counted from one, where there are pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
    /// What `first` and `last` count: `line` or `paragraph`.
    pub unit: String,
    /// The first line or paragraph.
    pub first: u32,
    /// The last.
    pub last: u32,
    /// Left, bottom, right and top in hundredths of a point, as PDF measures a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<[i32; 4]>,
}

/// A revision that is no longer the current one.
#[derive(Debug, Clone, Serialize, serde::Deserialize, ToSchema)]
pub struct SupersededView {
    /// Since when; RFC 3339.
    pub at: String,
    /// Whether the revision that is current now can be told. If not, nothing takes the place of the old one.
    pub current_known: bool,
    /// The number of the current revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<u32>,
    /// From when it holds; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_valid_from: Option<String>,
}

/// A citation, resolved.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CitationView {
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// Whether its revision is the current one.
    pub current: bool,
    /// If not: what took its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded: Option<SupersededView>,
    /// The passage.
    pub item: ItemView,
}

/// A source that a kept answer rests on.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerSourceView {
    /// The source.
    pub source_id: String,
    /// Its title.
    pub title: String,
    /// Its revision, which is the current one.
    pub revision: u32,
    /// From when it holds; RFC 3339.
    pub valid_from: String,
}

/// A kept answer that is still right for this caller.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerView {
    /// The read event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// `true`.
    pub hit: bool,
    /// The answer.
    pub answer: String,
    /// When it was kept; RFC 3339.
    pub stored_at: String,
    /// What it rests on.
    pub sources: Vec<AnswerSourceView>,
}

/// Whether somebody may see something now.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AuthorizationView {
    /// The event in the ledger.
    pub read_id: String,
    /// RFC 3339.
    pub as_of: String,
    /// Whether they may.
    pub allowed: bool,
    /// The generation of permissions it was decided by.
    pub grant_epoch: u64,
}

pub(crate) fn passage_item(passage: &Passage, scores: Option<&Scores>, scope: &Scope) -> ItemView {
    let (expires_at, no_expiry_reason) = match passage.expiry {
        Expiry::At(end) => (Some(end.to_string()), None),
        Expiry::Never(reason) => (None, Some(reason.name().to_owned())),
    };
    ItemView {
        id: passage.id.to_string(),
        revision: passage.revision.number(),
        layer: Layer::Document.name().to_owned(),
        kind: None,
        text: passage.text.expose().to_owned(),
        pointer: None,
        slot: None,
        metadata: None,
        owner: audience(&passage.audience, scope),
        origin: OriginView {
            author: "source".to_owned(),
            written_at: passage.received_at.to_string(),
            conversation: None,
        },
        valid_from: passage.valid_from.to_string(),
        expires_at,
        no_expiry_reason,
        score: scores.map(score),
        citation: Some(source_ref(passage)),
        basis: BasisView::default(),
    }
}

/// A source for groups names the one through which this caller may see it.
fn audience(audience: &Audience, scope: &Scope) -> OwnerView {
    let (kind, id) = match audience {
        Audience::Tenant => ("tenant", None),
        Audience::Groups(groups) => {
            ("group", groups.iter().find(|group| scope.groups().contains(group)).map(ToString::to_string))
        }
    };
    OwnerView { scope: kind.to_owned(), id, tenant: scope.tenant().to_string() }
}

fn source_ref(passage: &Passage) -> SourceRefView {
    let (first, last) = passage.region.lines();
    SourceRefView {
        source_id: passage.source.to_string(),
        title: passage.title.expose().to_owned(),
        revision: passage.revision.number(),
        revision_id: passage.id.revision.to_string(),
        document_sha256: hex(&passage.document),
        received_at: passage.received_at.to_string(),
        valid_from: passage.valid_from.to_string(),
        headings: passage.headings.iter().map(|heading| heading.expose().to_owned()).collect(),
        page: passage.region.page(),
        unit: passage.region.unit().name().to_owned(),
        first,
        last,
        bounds: passage.region.bounds(),
    }
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn superseded(at: Timestamp, current: Option<&SourceHead>) -> SupersededView {
    SupersededView {
        at: at.to_string(),
        current_known: current.is_some(),
        current_revision: current.map(|head| head.revision.number()),
        current_valid_from: current.map(|head| head.valid_from.to_string()),
    }
}
