//! What a turn rests on, on the wire.

use merkwelt_domain::basis::{Basis, Footing};
use merkwelt_domain::summary::SummaryOf;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A revision that a turn rests on, and what became of it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FootingView {
    /// The source.
    pub source_id: String,
    /// The number of the revision that was delivered.
    pub revision: u32,
    /// `current`, `superseded`, or `undetermined`: which revision is current cannot be told to this caller.
    pub state: String,
    /// For a superseded one: the revision that is current now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<u32>,
    /// From when that holds; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_valid_from: Option<String>,
}

impl FootingView {
    fn of((basis, footing): &(Basis, Footing)) -> Self {
        let (current_revision, current_valid_from) = match footing {
            Footing::Superseded { by, valid_from } => (Some(by.number()), Some(valid_from.to_string())),
            Footing::Current | Footing::Undetermined => (None, None),
        };
        Self {
            source_id: basis.source.to_string(),
            revision: basis.revision.number(),
            state: footing.name().to_owned(),
            current_revision,
            current_valid_from,
        }
    }
}

/// What a turn rests on. Nothing is said of a turn that named no source.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BasisView {
    /// Whether it must not be presented as what holds now: some of it rests on what is not current.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub historical: bool,
    /// The revisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rests_on: Vec<FootingView>,
}

impl BasisView {
    pub(crate) fn of(footings: &[(Basis, Footing)]) -> Self {
        let historical = footings.iter().any(|(_, footing)| *footing != Footing::Current);
        Self { historical, rests_on: footings.iter().map(FootingView::of).collect() }
    }
}

/// Where a summary comes from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SummaryView {
    /// The last turn it stands for; absent if it was carried over from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<u32>,
    /// The rule that made it.
    pub rule: String,
    /// Whether an application approved it.
    pub approved: bool,
    /// Always `false`: what must be right is fetched from where it is right.
    pub authoritative: bool,
}

impl SummaryView {
    pub(crate) fn of(summary: &SummaryOf) -> Self {
        Self {
            through: (summary.through() > 0).then(|| summary.through()),
            rule: summary.rule().as_str().to_owned(),
            approved: summary.approved(),
            authoritative: false,
        }
    }
}
