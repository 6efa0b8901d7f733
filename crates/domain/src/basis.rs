//! What an answer rested on, and whether that still holds. A turn of an old conversation names the revisions its
//! words came from; what became of them is decided when it is read, for the caller who reads it.

use std::fmt;
use std::str::FromStr;

use crate::ids::SourceId;
use crate::memory::Revision;
use crate::source::SourceHead;
use crate::time::Timestamp;

/// Why a list of sources was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There are too many.
    #[error("rests_on must name at most 256 revisions")]
    TooMany,
    /// It is not the text form of a basis.
    #[error("a basis is a source id, an @, and the number of a revision, counted from one")]
    Form,
}

/// A revision of a source that something rests on. It is what a caller says, and no proof that the source exists;
/// so naming an unknown one and a foreign one is the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Basis {
    /// The source.
    pub source: SourceId,
    /// The revision that was delivered.
    pub revision: Revision,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.source, self.revision.number())
    }
}

impl FromStr for Basis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (source, number) = text.split_once('@').ok_or(Error::Form)?;
        let number = number.parse().ok().filter(|number| *number > 0).ok_or(Error::Form)?;
        Ok(Self { source: source.parse().map_err(|_| Error::Form)?, revision: Revision::from_number(number) })
    }
}

/// All revisions that something rests on: each once, in order, at most 256.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestsOn(Vec<Basis>);

impl RestsOn {
    /// The most revisions.
    pub const MAX: usize = 256;

    /// Sorts and bounds what was named.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn new(bases: impl IntoIterator<Item = Basis>) -> Result<Self, Error> {
        let sorted: std::collections::BTreeSet<Basis> = bases.into_iter().collect();
        if sorted.len() > Self::MAX { Err(Error::TooMany) } else { Ok(Self(sorted.into_iter().collect())) }
    }

    /// The revisions.
    #[must_use]
    pub fn bases(&self) -> &[Basis] {
        &self.0
    }
}

/// Whether a basis still holds, for one caller at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Footing {
    /// It is the current revision.
    Current,
    /// Another revision is current; what was said is historical.
    Superseded {
        /// The revision that is current.
        by: Revision,
        /// From when it holds.
        valid_from: Timestamp,
    },
    /// Which revision is current cannot be told: the source was withdrawn, deleted or has ended, or is not for this
    /// caller. The reasons are alike to who reads.
    Undetermined,
}

impl Footing {
    /// Of a basis, given what the caller may know of its source.
    #[must_use]
    pub fn of(basis: &Basis, head: Option<&SourceHead>) -> Self {
        match head.filter(|head| head.id == basis.source) {
            None => Self::Undetermined,
            Some(head) if head.revision == basis.revision => Self::Current,
            Some(head) => Self::Superseded { by: head.revision, valid_from: head.valid_from },
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Superseded { .. } => "superseded",
            Self::Undetermined => "undetermined",
        }
    }
}

/// What is done with a turn whose source can no longer be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AfterRemoval {
    /// It is delivered, marked as historical. The default: what was said was said.
    #[default]
    Mark,
    /// It is delivered nowhere.
    Withhold,
}

impl FromStr for AfterRemoval {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "mark" => Ok(Self::Mark),
            "withhold" => Ok(Self::Withhold),
            _ => Err("must be mark or withhold"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::fixed::FixedEnv;
    use crate::memory::{Expiry, NoExpiryReason};
    use crate::{KnowledgeEpoch, RevisionId};

    fn head(revision: u32) -> SourceHead {
        let env = FixedEnv::seeded(1_000, 1);
        SourceHead {
            id: SourceId::random(&env),
            title: "Returns".parse().unwrap(),
            revision: Revision::from_number(revision),
            revision_id: RevisionId::random(&env),
            valid_from: Timestamp::from_millis(500),
            expiry: Expiry::Never(NoExpiryReason::ALL[0]),
            knowledge: KnowledgeEpoch::from_number(1),
        }
    }

    #[test]
    fn r_058_what_rests_on_a_superseded_revision_is_historical_and_names_the_current_one() {
        let head = head(2);
        let basis = |number| Basis { source: head.id.clone(), revision: Revision::from_number(number) };
        let by = Footing::Superseded { by: head.revision, valid_from: head.valid_from };
        assert_eq!(Footing::of(&basis(2), Some(&head)), Footing::Current);
        // A later revision that was taken back is no more current than an earlier one.
        assert_eq!([1, 3].map(|n| Footing::of(&basis(n), Some(&head))), [by.clone(), by]);
    }

    #[test]
    fn r_059_without_a_current_revision_nothing_is_said_to_be_current() {
        let (own, other) = (head(2), SourceId::random(&FixedEnv::seeded(1_000, 2)));
        let basis = Basis { source: other, revision: own.revision };
        assert_eq!(Footing::of(&basis, None), Footing::Undetermined);
        assert_eq!(Footing::of(&basis, Some(&own)), Footing::Undetermined, "the head of another source");
    }

    #[test]
    fn a_basis_reads_its_own_form_and_refuses_others() {
        let basis = Basis { source: head(1).id, revision: Revision::from_number(7) };
        assert_eq!(basis.to_string().parse(), Ok(basis.clone()));
        for bad in ["", "@1", &format!("{}@0", basis.source), &format!("{}@x", basis.source), "src_x@1"] {
            assert_eq!(bad.parse::<Basis>(), Err(Error::Form), "{bad}");
        }
    }

    #[test]
    fn each_revision_is_named_once_and_there_is_a_most() {
        let source = head(1).id;
        let basis = |n| Basis { source: source.clone(), revision: Revision::from_number(n) };
        assert_eq!(RestsOn::new([basis(2), basis(1), basis(2)]).unwrap().bases(), [basis(1), basis(2)]);
        assert!(RestsOn::new((1..=256).map(basis)).is_ok());
        assert_eq!(RestsOn::new((1..=257).map(basis)), Err(Error::TooMany));
    }
}
