//! The text of a pack, as pure functions of records. A pack is rebuilt later by calling them again, so a
//! change here is a change of the pack format and needs a new [`FORMAT`].

use merkwelt_domain::Timestamp;
use merkwelt_domain::basis::{Basis, Footing};
use merkwelt_domain::conversation::Turn;
use merkwelt_domain::memory::{Expiry, Memory};
use merkwelt_domain::source::{Passage, Region};
use merkwelt_domain::summary::SummaryOf;
use merkwelt_domain::text::{CLOSE, OPEN};
use merkwelt_store::record::Record;
use serde::{Deserialize, Serialize};

/// Version of the text format.
pub(crate) const FORMAT: u32 = 2;

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
    /// The summary of the conversation.
    Summary,
    /// Recalled earlier turns.
    EarlierTurns,
    /// The last turns.
    Conversation,
}

impl Section {
    /// The sections of the turn's own block, in order.
    pub(crate) const TURN: [Self; 7] = [
        Self::RelatedFacts,
        Self::ProjectState,
        Self::References,
        Self::Documents,
        Self::Summary,
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
            Self::Summary => "## Summary of this conversation\n",
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
            Self::Summary => "summary",
            Self::EarlierTurns => "earlier_turns",
            Self::Conversation => "conversation",
        }
    }
}

/// A record and what the text says of it beside its words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) record: &'a Record,
    /// Before the words of a turn.
    pub(crate) note: Option<&'a str>,
}

/// One line of the text for one record, at the time of the pack.
pub(crate) fn line(section: Section, shown: Shown<'_>, as_of: Timestamp) -> String {
    match shown.record {
        Record::Memory(memory) => memory_line(section, memory, as_of),
        Record::Turn(Turn { summary: Some(of), text, .. }) => {
            format!("- [{}, not authoritative] {}\n", origin(of), indented(text.expose()))
        }
        Record::Turn(turn) => {
            let note = shown.note.map(|note| format!("{note} ")).unwrap_or_default();
            format!("{}: {note}{}\n", turn.speaker.name(), indented(turn.text.expose()))
        }
        Record::Passage(passage) => passage_line(passage),
    }
}

fn memory_line(section: Section, memory: &Memory, as_of: Timestamp) -> String {
    let text = indented(memory.statement.text().expose());
    match (section, memory.statement.pointer(), memory.statement.expiry()) {
        (Section::References, Some(pointer), _) => {
            format!("- {text}: {} (resolve with {})\n", pointer.uri(), pointer.resolve())
        }
        (Section::ProjectState, _, Expiry::At(end)) => format!("- {text}{}\n", until(end, as_of)),
        _ => format!("- {text}\n"),
    }
}

/// The end of a state, as exactly as it matters: to the minute within two days, to the day within a month. What
/// ends later says so only in the list of items, because every word costs in every turn.
fn until(end: Timestamp, as_of: Timestamp) -> String {
    let left = end.millis().saturating_sub(as_of.millis());
    let text = end.to_string();
    let (day, time) = (text.get(..10).unwrap_or(&text), text.get(11..16).unwrap_or_default());
    match left / Timestamp::DAY_MILLIS {
        ..2 => format!(" (until {day} {time}Z)"),
        2..31 => format!(" (until {day})"),
        _ => String::new(),
    }
}

/// What stands between an earlier turn and the one before it: the day, if it is another one, or a mark that turns
/// were left out. Days are said once and not per turn.
fn joint(before: Option<&Record>, record: &Record) -> Option<String> {
    let Record::Turn(turn) = record else { return None };
    let day = |turn: &Turn| turn.at.to_string().get(..10).map(str::to_owned);
    let same = match before {
        Some(Record::Turn(before)) => Some(before).filter(|before| day(before) == day(turn)),
        Some(Record::Memory(_) | Record::Passage(_)) | None => None,
    };
    match same {
        None => day(turn).map(|day| format!("[{day}]\n")),
        Some(before) if before.number.checked_add(1) == Some(turn.number) => None,
        Some(_) => Some("[…]\n".to_owned()),
    }
}

/// Where a summary comes from.
fn origin(of: &SummaryOf) -> String {
    let rule = of.rule().as_str();
    match of.through() {
        0 => format!("carried over from elsewhere, made by {rule}"),
        1 => format!("stands for turn 1, made by {rule}"),
        through => format!("stands for turns 1-{through}, made by {rule}"),
    }
}

/// The most revisions that a mark names; all of them stand in the list of items.
const NOTED_MAX: usize = 3;

/// What the text says of a turn that rests on what is not current: which revision is, and from when it holds, or
/// that it cannot be told. It has ids and numbers only: a title would outlive its source in kept
/// packs.
pub(crate) fn note(footings: &[(Basis, Footing)]) -> Option<String> {
    let said = footings.iter().filter_map(|(basis, footing)| {
        let rests = format!("rests on revision {} of {}", basis.revision.number(), basis.source);
        match footing {
            Footing::Current => None,
            Footing::Superseded { by, valid_from } => {
                let from = valid_from.to_string();
                let from = from.get(..10).unwrap_or(&from);
                Some(format!("{rests}; revision {} is current, valid from {from}", by.number()))
            }
            Footing::Undetermined => Some(format!("{rests}; what holds now cannot be determined")),
        }
    });
    let mut said: Vec<String> = said.collect();
    if let Some(more) = said.len().checked_sub(NOTED_MAX).filter(|more| *more > 0) {
        said.truncate(NOTED_MAX);
        said.push(format!("rests on {more} more revisions that are not known to be current"));
    }
    (!said.is_empty()).then(|| format!("[historical: {}]", said.join(". ")))
}

/// What a model needs to cite it stands before the words: source, revision, place and validity.
fn passage_line(passage: &Passage) -> String {
    let from = passage.valid_from.to_string();
    format!(
        "- [{}, {} revision {}, {}, valid from {}] {}\n",
        // Brackets are the mark's own, so a title cannot end it and begin another.
        passage.title.expose().replace('[', "(").replace(']', ")"),
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
/// section has a record.
pub(crate) fn block<'a>(
    sections: impl IntoIterator<Item = (Section, Vec<Shown<'a>>)>,
    as_of: Timestamp,
) -> String {
    let mut body = String::new();
    for (section, records) in sections {
        if records.is_empty() {
            continue;
        }
        body.push_str(section.heading());
        let mut before = None;
        for shown in records {
            if section == Section::EarlierTurns {
                body.extend(joint(before, shown.record));
            }
            body.push_str(&line(section, shown, as_of));
            before = Some(shown.record);
        }
    }
    if body.is_empty() { body } else { format!("{OPEN}\n{body}{CLOSE}\n") }
}
