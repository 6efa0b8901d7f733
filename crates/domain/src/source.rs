//! Sources: registered origins with a stable id, their revisions, and the passages that are delivered from
//! the current one. Which revision is current is decided by the register and by nothing else
//!

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::epoch::KnowledgeEpoch;
use crate::freshness::{Evidence, Standing, Validity};
use crate::ids::{GroupId, Purpose, RevisionId, SourceId, is_invisible};
use crate::memory::{Expiry, Revision};
use crate::text::{Content, holds_mark};
use crate::time::Timestamp;

/// Why something about a source was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The title is empty, too long, of more than one line, or holds a mark of a delivered block.
    #[error("title must be one line of 1 to 300 characters without control or invisible characters")]
    Title,
    /// The evidence policy is none of the closed list.
    #[error("evidence must be one of digest_with_version, digest_with_copy")]
    EvidencePolicy,
    /// A region that ends before it begins, or counts from zero.
    #[error("a region counts from one and does not end before it begins")]
    Region,
    /// An audience that names no group, although it is to be restricted to groups.
    #[error("groups must name at least one group; leave it out for everybody in the tenant")]
    Audience,
}

/// The name that people know a source by. One line, so that it can stand in a citation. It may hold personal
/// data, so its `Debug` shows nothing (I-12).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Title(String);

impl Title {
    /// The most characters.
    pub const MAX_CHARS: usize = 300;

    /// The title itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Title {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text: String = text.trim().nfc().collect();
        let hidden =
            |c: char| c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}' | '\u{85}');
        let fits = (1..=Self::MAX_CHARS).contains(&text.chars().count());
        // INVARIANT: I-13, a title can neither end the block it is delivered in nor begin a line of it.
        if fits && !text.chars().any(hidden) && !holds_mark(&text) {
            Ok(Self(text))
        } else {
            Err(Error::Title)
        }
    }
}

impl fmt::Debug for Title {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Title(..)")
    }
}

/// Who may be shown a source: everybody in the tenant, or the present members of any of some groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// Everybody in the tenant.
    Tenant,
    /// Whoever is now a member of one of them; none of them means nobody.
    Groups(BTreeSet<GroupId>),
}

/// What is kept of a source for evidence once it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidencePolicy {
    /// Digests and version numbers only. The default.
    DigestWithVersion,
    /// Also the texts of the passages, encrypted and served to nobody.
    DigestWithCopy,
}

impl EvidencePolicy {
    /// All policies.
    pub const ALL: [Self; 2] = [Self::DigestWithVersion, Self::DigestWithCopy];

    /// The name on the wire and in evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DigestWithVersion => "digest_with_version",
            Self::DigestWithCopy => "digest_with_copy",
        }
    }
}

impl FromStr for EvidencePolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or(Error::EvidencePolicy)
    }
}

/// What became of a source as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// Registered, and nothing of it was published yet.
    Draft,
    /// One of its revisions is current.
    Active,
    /// Taken back; nothing of it is served until it is restored.
    Withdrawn,
    /// Its passages are gone; only ids, digests and times are left.
    Deleted,
}

impl SourceState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Active, Self::Withdrawn, Self::Deleted];

    /// The name on the wire and in evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Active => "active",
            Self::Withdrawn => "withdrawn",
            Self::Deleted => "deleted",
        }
    }
}

/// What became of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Taken in and indexed, not approved: it is served to nobody.
    Draft,
    /// It was made current at least once; whether it is now, the register says.
    Approved,
}

impl Approval {
    /// The name on the wire and in evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Approved => "approved",
        }
    }
}

/// What the numbers of a region count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionUnit {
    /// Lines of a page or of a text.
    Line,
    /// Paragraphs.
    Paragraph,
}

impl RegionUnit {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Paragraph => "paragraph",
        }
    }
}

/// Where in its document a passage stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    page: Option<u32>,
    unit: RegionUnit,
    first: u32,
    last: u32,
    bounds: Option<[i32; 4]>,
}

impl Region {
    /// From line or paragraph `first` to `last`, counted from one, on a page where there are pages.
    /// `bounds` is left, bottom, right and top in hundredths of a point, as PDF measures a page.
    ///
    /// # Errors
    /// [`Error::Region`].
    pub fn new(
        page: Option<u32>,
        unit: RegionUnit,
        (first, last): (u32, u32),
        bounds: Option<[i32; 4]>,
    ) -> Result<Self, Error> {
        let ordered = first >= 1 && last >= first && page != Some(0);
        if ordered { Ok(Self { page, unit, first, last, bounds }) } else { Err(Error::Region) }
    }

    /// The page, counted from one.
    #[must_use]
    pub fn page(&self) -> Option<u32> {
        self.page
    }

    /// What the numbers count.
    #[must_use]
    pub fn unit(&self) -> RegionUnit {
        self.unit
    }

    /// First and last line or paragraph.
    #[must_use]
    pub fn lines(&self) -> (u32, u32) {
        (self.first, self.last)
    }

    /// Left, bottom, right and top in hundredths of a point.
    #[must_use]
    pub fn bounds(&self) -> Option<[i32; 4]> {
        self.bounds
    }
}

/// Which passage: the revision it belongs to and its place in it, counted from one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassageId {
    /// The revision.
    pub revision: RevisionId,
    /// Its place.
    pub number: u32,
}

impl fmt::Display for PassageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.number)
    }
}

impl FromStr for PassageId {
    type Err = crate::ids::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = crate::ids::Error::Malformed("passage id");
        let (revision, number) = text.split_once('.').ok_or(malformed)?;
        // One passage has one spelling.
        let plain = number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0');
        match (revision.parse(), number.parse()) {
            (Ok(revision), Ok(number)) if plain => Ok(Self { revision, number }),
            _ => Err(malformed),
        }
    }
}

/// A passage of a source, as the system of record holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Which one.
    pub id: PassageId,
    /// The source.
    pub source: SourceId,
    /// The number of its revision.
    pub revision: Revision,
    /// The title of the source.
    pub title: Title,
    /// Headings above it, outermost first.
    pub headings: Vec<Title>,
    /// The words.
    pub text: Content,
    /// Where it stands in the document.
    pub region: Region,
    /// SHA-256 of the document it was taken from.
    pub document: [u8; 32],
    /// Who may be shown it.
    pub audience: Audience,
    /// When the document was received.
    pub received_at: Timestamp,
    /// From when the revision holds.
    pub valid_from: Timestamp,
    /// When the source ends.
    pub expiry: Expiry,
    /// What became of its revision.
    pub standing: Standing,
    /// Tokens of its text, in the instance's tokeniser.
    pub tokens: u32,
}

impl Evidence for Passage {
    fn validity(&self) -> Validity {
        Validity { from: self.valid_from, expiry: self.expiry }
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn written_at(&self) -> Timestamp {
        self.received_at
    }
}

/// What a caller may know of a source that is shown to it: which revision is current now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceHead {
    /// The source.
    pub id: SourceId,
    /// Its title.
    pub title: Title,
    /// The current revision.
    pub revision: Revision,
    /// Its id.
    pub revision_id: RevisionId,
    /// From when it holds.
    pub valid_from: Timestamp,
    /// When the source ends.
    pub expiry: Expiry,
    /// The generation of sources and rights in which this was so.
    pub knowledge: KnowledgeEpoch,
}

impl Evidence for SourceHead {
    fn validity(&self) -> Validity {
        Validity { from: self.valid_from, expiry: self.expiry }
    }

    fn standing(&self) -> Standing {
        Standing::Active
    }

    fn written_at(&self) -> Timestamp {
        self.valid_from
    }
}

/// What is recorded of a source beside its content. None of it decides who may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// When it ends, or why it does not.
    pub expiry: Expiry,
    /// What of it is kept for evidence after a deletion.
    pub evidence: EvidencePolicy,
    /// What it is processed for, if that is limited.
    pub purpose: Option<Purpose>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::fixed::FixedEnv;

    #[test]
    fn i_13_a_title_can_neither_end_its_block_nor_start_a_line() {
        for bad in ["", "  ", "a\nb", "a\u{2028}b", "x </merkwelt>", "x\u{200b}y", &"t".repeat(301)] {
            assert_eq!(bad.parse::<Title>(), Err(Error::Title), "{bad:?}");
        }
        assert_eq!(" Reisekosten ".parse::<Title>().unwrap().expose(), "Reisekosten");
    }

    #[test]
    fn a_passage_has_one_spelling() {
        let id = PassageId { revision: RevisionId::random(&FixedEnv::at(0)), number: 12 };
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        for bad in [format!("{}.012", id.revision), format!("{}.+1", id.revision), id.revision.to_string()] {
            assert!(bad.parse::<PassageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_region_counts_from_one() {
        let region = |page, first, last| Region::new(page, RegionUnit::Line, (first, last), None);
        assert!(region(Some(1), 1, 1).is_ok());
        assert_eq!(region(None, 0, 1), Err(Error::Region));
        assert_eq!(region(None, 3, 2), Err(Error::Region));
        assert_eq!(region(Some(0), 1, 2), Err(Error::Region));
    }

    #[test]
    fn r_110_a_title_does_not_show_in_debug_output() {
        let title: Title = "Kündigung Anna Schmidt".parse().unwrap();
        assert!(!format!("{title:?}").contains("Anna"));
    }
}
