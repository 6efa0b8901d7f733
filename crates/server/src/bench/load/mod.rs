//! What the promises cost: processor time, latency and memory of one run on one machine, with the yardsticks
//! measured in the same run. Every figure that has a goal says whether it meets it.

mod cost;
mod engine;
mod ledger;
mod search;
mod served;
mod tenants;

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context as _;
use serde::Serialize;

/// What to measure, and how much of it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where chance begins.
    pub seed: u64,
    /// About a minute, with small sizes.
    pub quick: bool,
    /// Parts by name; all if empty.
    pub only: Vec<String>,
    /// Rows of one scope to search in; the usual sizes if empty.
    pub rows: Vec<usize>,
    /// Instances of many tenants; the usual ones if empty.
    pub worlds: Vec<World>,
    /// Directory with the embedding model, for the context pack.
    pub model_dir: Option<PathBuf>,
}

/// An instance of many tenants, written as `500x2000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    /// How many tenants.
    pub tenants: usize,
    /// How many rows each.
    pub rows: usize,
}

impl FromStr for World {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (tenants, rows) = text.split_once('x').context("write it as 500x2000")?;
        Ok(Self { tenants: tenants.parse()?, rows: rows.parse()? })
    }
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    part: &'static str,
    what: String,
    value: f64,
    unit: &'static str,
    /// The figure is to be at most, or at least, this.
    goal: Option<f64>,
    at_least: bool,
    note: String,
}

impl Figure {
    pub(super) fn new(part: &'static str, what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { part, what: what.into(), value, unit, goal: None, at_least: false, note: String::new() }
    }

    pub(super) fn at_most(self, goal: f64) -> Self {
        Self { goal: Some(goal), ..self }
    }

    pub(super) fn at_least(self, goal: f64) -> Self {
        Self { goal: Some(goal), at_least: true, ..self }
    }

    pub(super) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    fn verdict(&self) -> &'static str {
        match self.goal {
            None => "",
            Some(goal) if (self.value >= goal) == self.at_least || self.value.total_cmp(&goal).is_eq() => {
                "met"
            }
            Some(_) => "missed",
        }
    }
}

/// All figures of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    seed: u64,
    processors: usize,
    figures: Vec<Figure>,
}

type Part = fn(&Options, &mut dyn FnMut(Figure)) -> anyhow::Result<()>;

const PARTS: &[(&str, Part)] = &[
    ("search", search::measure),
    ("cost", cost::measure),
    ("ledger", ledger::measure),
    ("served", served::measure),
    ("tenants", tenants::measure),
];

/// Measures all parts, or those that are named.
///
/// # Errors
/// A part could not be measured.
pub fn run(options: &Options, say: &mut dyn FnMut(String)) -> anyhow::Result<Report> {
    let mut figures = Vec::new();
    for (name, part) in PARTS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        say(format!("measuring: {name}"));
        let mut keep = |figure: Figure| {
            say(figure.line());
            figures.push(figure);
        };
        part(options, &mut keep)?;
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(Report { seed: options.seed, processors, figures })
}

impl Figure {
    fn line(&self) -> String {
        let goal = self.goal.map_or(String::new(), |goal| {
            format!("{} {goal} {}", if self.at_least { "≥" } else { "≤" }, self.unit)
        });
        let value = if self.value.abs() >= 100.0 {
            format!("{:.0}", self.value)
        } else {
            format!("{:.3}", self.value)
        };
        let Self { part, what, unit, note, .. } = self;
        format!("| {part} | {what} | {value} {unit} | {goal} | {} | {note} |", self.verdict())
    }
}

impl Report {
    /// The table for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let head = ["| part | what | measured | goal | verdict | note |", "|---|---|---|---|---|---|"];
        let rows = self.figures.iter().map(Figure::line);
        let met = self.figures.iter().filter(|figure| figure.verdict() == "met").count();
        let missed = self.figures.iter().filter(|figure| figure.verdict() == "missed").count();
        let sum =
            format!("{met} goals met, {missed} missed, {} processors, seed {}", self.processors, self.seed);
        head.map(ToOwned::to_owned).into_iter().chain(rows).chain([sum]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_or_missed_in_both_directions() {
        let figure = |value| Figure::new("p", "w", value, "ms");
        assert_eq!(figure(1.0).at_most(1.0).verdict(), "met");
        assert_eq!(figure(1.1).at_most(1.0).verdict(), "missed");
        assert_eq!(figure(1_000.0).at_least(1_000.0).verdict(), "met");
        assert_eq!(figure(999.0).at_least(1_000.0).verdict(), "missed");
        assert_eq!("500x2000".parse::<World>().unwrap(), World { tenants: 500, rows: 2_000 });
        assert!("500".parse::<World>().is_err() && "x".parse::<World>().is_err());
        assert_eq!(figure(1.0).verdict(), "");
        assert!(figure(2.0).at_most(1.0).line().contains("| ≤ 1 ms | missed |"));
    }
}
