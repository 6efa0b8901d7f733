//! The text of a pack, as pure functions of records. A pack is rebuilt later by calling them again, so a
//! change here is a change of the pack format and needs a new [`FORMAT`].

use merkwelt_domain::conversation::Turn;
use merkwelt_domain::memory::{Expiry, Memory};
use merkwelt_domain::source::{Passage, Region};
use merkwelt_domain::text::{CLOSE, OPEN};
use merkwelt_store::record::Record;
use serde::{Deserialize, Serialize};

/// Version of the text format.
pub(crate) const FORMAT: u32 = 1;

/// Where a line stands. The order is the order of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Section {
    /// Rules for the agent.
    Rules,
    /// Facts about the subject in the stable prefix.
    Facts,
    /// Further facts that the question needs.
    RelatedFacts,
    /// Live state of running things.
    ProjectState,
    /// Pointers.
    References,
    /// Passages of documents.
    Documents,
    /// Recalled earlier turns.
    EarlierTurns,
    /// The last turns.
    Conversation,
}

impl Section {
    /// The sections of the turn's own block, in order.
    pub(crate) const TURN: [Self; 6] = [
        Self::RelatedFacts,
        Self::ProjectState,
        Self::References,
        Self::Documents,
        Self::EarlierTurns,
        Self::Conversation,
    ];

    /// The heading in the text.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Rules => "## Rules\n",
            Self::Facts => "## Facts\n",
            Self::RelatedFacts => "## Related facts\n",
            Self::ProjectState => "## Current state\n",
            Self::References => "## Where to look\n",
            Self::Documents => "## Documents\n",
            Self::EarlierTurns => "## Earlier in this conversation\n",
            Self::Conversation => "## Conversation\n",
        }
    }

    /// The name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Facts => "facts",
            Self::RelatedFacts => "related_facts",
            Self::ProjectState => "project_state",
            Self::References => "references",
            Self::Documents => "documents",
            Self::EarlierTurns => "earlier_turns",
            Self::Conversation => "conversation",
        }
    }
}

/// One line of the text for one record.
pub(crate) fn line(section: Section, record: &Record) -> String {
    match record {
        Record::Memory(memory) => memory_line(section, memory),
        Record::Turn(turn) => turn_line(section, turn),
        Record::Passage(passage) => passage_line(passage),
    }
}

fn memory_line(section: Section, memory: &Memory) -> String {
    let text = indented(memory.statement.text().expose());
    match (section, memory.statement.pointer(), memory.statement.expiry()) {
        (Section::References, Some(pointer), _) => {
            format!("- {text}: {} (resolve with {})\n", pointer.uri(), pointer.resolve())
        }
        (Section::ProjectState, _, Expiry::At(end)) => {
            let end = end.to_string();
            format!("- {text} (until {}Z)\n", end.get(..16).unwrap_or(&end))
        }
        _ => format!("- {text}\n"),
    }
}

fn turn_line(section: Section, turn: &Turn) -> String {
    let text = indented(turn.text.expose());
    if section == Section::EarlierTurns {
        format!("#{} {}: {text}\n", turn.number, turn.speaker.name())
    } else {
        format!("{}: {text}\n", turn.speaker.name())
    }
}

/// What a model needs to cite it stands before the words: source, revision, place and validity.
fn passage_line(passage: &Passage) -> String {
    let from = passage.valid_from.to_string();
    format!(
        "- [{}, {} revision {}, {}, valid from {}] {}\n",
        passage.title.expose(),
        passage.source,
        passage.revision.number(),
        place(&passage.region),
        from.get(..10).unwrap_or(&from),
        indented(passage.text.expose()),
    )
}

fn place(region: &Region) -> String {
    let (first, last) = region.lines();
    let unit = region.unit().name();
    let lines = if first == last { format!("{unit} {first}") } else { format!("{unit}s {first}-{last}") };
    region.page().map_or(lines.clone(), |page| format!("page {page}, {lines}"))
}

/// Lines of one record stay recognisable as one: no break of any kind starts a line of its own, so a text cannot
/// pretend to be a heading or another record.
fn indented(text: &str) -> String {
    let breaks = |c: char| matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}');
    let lines: Vec<_> = text.split(breaks).map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("\n  ")
}

/// A block of sections between the marks that keep it from being stored again (I-13); empty if no
/// section has a line.
pub(crate) fn block<'a>(sections: impl IntoIterator<Item = (Section, Vec<&'a str>)>) -> String {
    let mut body = String::new();
    for (section, lines) in sections {
        if lines.is_empty() {
            continue;
        }
        body.push_str(section.heading());
        lines.into_iter().for_each(|line| body.push_str(line));
    }
    if body.is_empty() { body } else { format!("{OPEN}\n{body}{CLOSE}\n") }
}
