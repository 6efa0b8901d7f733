//! Whether a question needs the state of running things at all. A purely conceptual question
//! ("what is a retention period?") causes no lookup of `project_state`. The rule is deterministic and
//! leans towards looking: only a question that opens like a definition and mentions nothing of the
//! asker's own, no time, number or status, is skipped.

use serde::{Deserialize, Serialize};

/// How a caller wants `project_state` treated in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateChoice {
    /// The router decides.
    #[default]
    Auto,
    /// Always look.
    Include,
    /// Never look.
    Exclude,
}

/// What was decided about `project_state`, and why. It is told in every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateRoute {
    /// Looked up: the question may need it.
    NeededByQuestion,
    /// Looked up: the caller asked for it.
    IncludedByCaller,
    /// Skipped: the question is purely conceptual.
    SkippedConceptual,
    /// Skipped: the caller excluded it.
    ExcludedByCaller,
}

impl StateRoute {
    /// Whether `project_state` is looked up.
    #[must_use]
    pub fn looks(self) -> bool {
        matches!(self, Self::NeededByQuestion | Self::IncludedByCaller)
    }

    /// The reason as a sentence for people.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NeededByQuestion => "the question may depend on the state of running things",
            Self::IncludedByCaller => "the caller asked for it",
            Self::SkippedConceptual => "the question is purely conceptual",
            Self::ExcludedByCaller => "the caller excluded it",
        }
    }
}

/// Decides whether `project_state` is looked up for `question`.
#[must_use]
pub fn route(question: &str, choice: StateChoice) -> StateRoute {
    match choice {
        StateChoice::Include => StateRoute::IncludedByCaller,
        StateChoice::Exclude => StateRoute::ExcludedByCaller,
        StateChoice::Auto if is_conceptual(question) => StateRoute::SkippedConceptual,
        StateChoice::Auto => StateRoute::NeededByQuestion,
    }
}

/// Openings of definitions in English and German.
const OPENINGS: [&str; 18] = [
    "what is a ",
    "what is an ",
    "what are ",
    "what does ",
    "what is meant by ",
    "explain ",
    "define ",
    "how does ",
    "how do ",
    "why is ",
    "why are ",
    "was ist ein ",
    "was ist eine ",
    "was sind ",
    "was bedeutet ",
    "was versteht man unter ",
    "erkläre ",
    "wie funktioniert ",
];

/// Words that tie a question to the asker, to a time or to a running thing.
const TIES: [&str; 64] = [
    "my",
    "mine",
    "our",
    "ours",
    "we",
    "us",
    "i",
    "me",
    "your",
    "his",
    "her",
    "their",
    "this",
    "that",
    "these",
    "those",
    "today",
    "tomorrow",
    "yesterday",
    "now",
    "currently",
    "current",
    "latest",
    "still",
    "yet",
    "when",
    "status",
    "eta",
    "due",
    "deadline",
    "order",
    "ticket",
    "invoice",
    "contract",
    "project",
    "delivery",
    "mein",
    "meine",
    "meinem",
    "meinen",
    "meiner",
    "unser",
    "unsere",
    "unserem",
    "unseren",
    "wir",
    "uns",
    "ich",
    "mir",
    "mich",
    "dieser",
    "diese",
    "dieses",
    "heute",
    "morgen",
    "gestern",
    "jetzt",
    "aktuell",
    "aktuelle",
    "wann",
    "stand",
    "lieferung",
    "auftrag",
    "projekt",
];

fn is_conceptual(question: &str) -> bool {
    let lower = question.trim().to_lowercase();
    let opens = OPENINGS.iter().any(|opening| lower.starts_with(opening));
    let is_tied = |word: &str| word.chars().any(|c| c.is_ascii_digit()) || TIES.contains(&word);
    opens && !lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).any(is_tied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_013_a_purely_conceptual_question_skips_project_state() {
        for question in [
            "What is a retention period?",
            "Explain two-stage retrieval",
            "How does supersession work?",
            "Was ist ein Auftragsverarbeiter?",
            "Was bedeutet Rechtsgrundlage?",
            "Wie funktioniert eine Löschkaskade?",
        ] {
            assert_eq!(route(question, StateChoice::Auto), StateRoute::SkippedConceptual, "{question}");
        }
    }

    #[test]
    fn a_question_tied_to_the_asker_a_time_or_a_thing_looks() {
        for question in [
            "What is the status of my order?",
            "When does the delivery arrive?",
            "What are our deadlines?",
            "What does order 4711 contain?",
            "Was ist eine gute ETA für unsere Lieferung?",
            "Wann kommt die Lieferung?",
            "Erkläre den aktuellen Stand",
            "",
        ] {
            assert_eq!(route(question, StateChoice::Auto), StateRoute::NeededByQuestion, "{question}");
        }
    }

    #[test]
    fn r_013_the_caller_overrides_the_router_in_both_directions() {
        assert_eq!(route("What is a memory?", StateChoice::Include), StateRoute::IncludedByCaller);
        assert_eq!(route("Where is my order?", StateChoice::Exclude), StateRoute::ExcludedByCaller);
        assert!(!route("Where is my order?", StateChoice::Exclude).looks());
    }
}
