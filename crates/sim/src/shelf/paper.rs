//! The oracle of sources: which revision of which paper is current, and who may be shown it. It knows nothing of
//! epochs, indexes or manifests.

use std::collections::{BTreeMap, BTreeSet};

use merkwelt_domain::source::SourceState;
use merkwelt_domain::{RevisionId, SourceId};

use crate::marker::Serial;

/// A revision: its id and the word of its text.
#[derive(Debug, Clone)]
pub(super) struct Sheet {
    pub(super) number: u32,
    pub(super) id: RevisionId,
    pub(super) serial: Serial,
}

/// A source.
#[derive(Debug, Clone)]
pub(super) struct Paper {
    pub(super) id: SourceId,
    /// The only group that may be shown it; everybody if there is none.
    pub(super) group: Option<usize>,
    /// Whether a copy stays when it is deleted.
    pub(super) copied: bool,
    pub(super) state: SourceState,
    pub(super) sheets: Vec<Sheet>,
    /// The place of the current revision.
    pub(super) current: Option<usize>,
}

/// Everything there should be.
#[derive(Debug, Clone, Default)]
pub(super) struct Shelf {
    pub(super) papers: Vec<Paper>,
    /// Members of each group.
    pub(super) members: BTreeMap<usize, BTreeSet<usize>>,
}

impl Shelf {
    /// Whether somebody may be shown a paper that is active.
    pub(super) fn admits(&self, paper: &Paper, person: usize) -> bool {
        paper.group.is_none_or(|group| self.members.get(&group).is_some_and(|of| of.contains(&person)))
    }

    /// The current revision of a paper, if somebody may be shown it.
    pub(super) fn shown<'s>(&'s self, paper: &'s Paper, person: usize) -> Option<&'s Sheet> {
        let active = paper.state == SourceState::Active && self.admits(paper, person);
        paper.current.filter(|_| active).and_then(|place| paper.sheets.get(place))
    }

    /// The words of everything that somebody may be shown as current.
    pub(super) fn current(&self, person: usize) -> BTreeSet<Serial> {
        self.papers.iter().filter_map(|paper| self.shown(paper, person)).map(|sheet| sheet.serial).collect()
    }

    /// The words that a citation may resolve to: of current and of superseded revisions.
    pub(super) fn citable(&self, person: usize) -> BTreeSet<Serial> {
        let active = self.papers.iter().filter(|paper| self.shown(paper, person).is_some());
        active.flat_map(|paper| &paper.sheets).map(|sheet| sheet.serial).collect()
    }

    /// Whose word it is.
    pub(super) fn paper_of(&self, serial: Serial) -> Option<&Paper> {
        self.papers.iter().find(|paper| paper.sheets.iter().any(|sheet| sheet.serial == serial))
    }
}
