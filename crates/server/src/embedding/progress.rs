//! How far a change of the embedding model is, for `/readyz` and the metrics.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// What a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Vectors of the coming model are made; the present one answers.
    Gathering,
    /// The same, but the engine of the coming model is away or cannot be used.
    Waiting,
    /// Tenants change, one after another.
    Switching,
    /// The coming model is the model of the data.
    Complete,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Gathering, Self::Waiting, Self::Switching, Self::Complete];

    /// As it is told.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gathering => "gathering",
            Self::Waiting => "waiting",
            Self::Switching => "switching",
            Self::Complete => "complete",
        }
    }
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// The coming model, as its engine calls it.
    pub(crate) model: String,
    pub(crate) stage: Stage,
    /// Vectors made since the start of the process.
    pub(crate) made: u64,
    /// Rows that are known to be without.
    pub(crate) left: u64,
    /// Those of them whose texts the engine did not take.
    pub(crate) refused: u64,
}

/// The same, shared between who works on it and who tells it. Empty without a change.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<Option<Told>>>);

impl Progress {
    /// A change to a model.
    #[must_use]
    pub fn to(model: &str, stage: Stage) -> Self {
        let told = Told { model: model.to_owned(), stage, made: 0, left: 0, refused: 0 };
        Self(Arc::new(Mutex::new(Some(told))))
    }

    pub(super) fn tell(&self, stage: Stage, (made, left, refused): (u64, u64, u64)) {
        if let Some(told) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            (told.stage, told.made, told.left, told.refused) = (stage, made, left, refused);
        }
    }

    pub(crate) fn told(&self) -> Option<Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// In the Prometheus text format; nothing without a change.
    pub(crate) fn render(&self) -> String {
        let Some(told) = self.told() else { return String::new() };
        let mut out = String::from(
            "# HELP merkwelt_embedding_change_stage What the change of the embedding model is about.\n\
             # TYPE merkwelt_embedding_change_stage gauge\n",
        );
        // Writing into a `String` cannot fail.
        for stage in Stage::ALL {
            let (name, is_now) = (stage.name(), u8::from(stage == told.stage));
            let _ = writeln!(out, "merkwelt_embedding_change_stage{{stage=\"{name}\"}} {is_now}");
        }
        out += "# HELP merkwelt_embedding_change_rows Rows by whether they have a vector of the coming model: made \
                since the start of the process, without one, and those of them that the engine refused.\n\
                # TYPE merkwelt_embedding_change_rows gauge\n";
        for (state, n) in [("made", told.made), ("left", told.left), ("refused", told.refused)] {
            let _ = writeln!(out, "merkwelt_embedding_change_rows{{state=\"{state}\"}} {n}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_as_prometheus_reads_it_and_no_change_is_not() {
        assert_eq!(Progress::default().render(), "");
        let progress = Progress::to("bge-m3", Stage::Gathering);
        progress.tell(Stage::Waiting, (7, 5, 1));
        let text = progress.render();
        for expected in [
            "merkwelt_embedding_change_stage{stage=\"gathering\"} 0\n",
            "merkwelt_embedding_change_stage{stage=\"waiting\"} 1\n",
            "merkwelt_embedding_change_rows{state=\"left\"} 5\n",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        assert_eq!(text.matches("# TYPE").count(), 2);
    }
}
