//! What a probe found, as a table for people and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Options;
use super::catalogue::Operation;
use super::judge::{Finding, Tally, Wrong};
use super::run::Afterwards;

/// A named result.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    /// `pass`, `fail`, `not applicable` or `skipped`.
    pub(super) verdict: &'static str,
    pub(super) note: String,
}

/// What a probe found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    seed: u64,
    clients: usize,
    attempts: u64,
    seconds: f64,
    attempts_per_second: f64,
    answer_bytes: u64,
    /// Bytes of logs that were searched.
    pub(super) log_bytes: u64,
    /// Bytes of files that were searched.
    pub(super) file_bytes: u64,
    connections_broken: u64,
    by_class: BTreeMap<&'static str, u64>,
    by_status: BTreeMap<u16, u64>,
    operations: BTreeMap<String, u64>,
    pairs: u64,
    recall_asked: u64,
    recall_found: u64,
    recall: f64,
    recall_p50_ms: f64,
    recall_p99_ms: f64,
    afterwards: Afterwards,
    wrong: BTreeMap<Wrong, u64>,
    findings: Vec<Finding>,
    /// Scenarios of others and fixtures.
    pub(super) outcomes: Vec<Outcome>,
}

impl Report {
    pub(super) fn new(
        options: &Options,
        seconds: f64,
        operations: &[Operation],
        afterwards: Afterwards,
    ) -> Self {
        Self {
            seed: options.seed,
            clients: options.clients,
            attempts: 0,
            seconds,
            attempts_per_second: 0.0,
            answer_bytes: 0,
            log_bytes: 0,
            file_bytes: 0,
            connections_broken: 0,
            by_class: BTreeMap::new(),
            by_status: BTreeMap::new(),
            operations: operations.iter().map(|operation| (operation.name(), 0)).collect(),
            pairs: 0,
            recall_asked: 0,
            recall_found: 0,
            recall: 0.0,
            recall_p50_ms: 0.0,
            recall_p99_ms: 0.0,
            afterwards,
            wrong: BTreeMap::new(),
            findings: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    /// Takes in what was counted.
    pub(super) fn take(&mut self, mut tally: Tally) {
        self.attempts = tally.attempts;
        self.attempts_per_second = (number(tally.attempts) / self.seconds).round();
        self.answer_bytes = tally.bytes;
        self.connections_broken = tally.broken;
        self.by_class = tally.by_class;
        self.by_status = tally.by_status;
        self.operations.extend(tally.by_operation);
        self.pairs = tally.pairs;
        self.recall_asked = tally.asked;
        self.recall_found = tally.found;
        self.recall = number(tally.found) / number(tally.asked.max(1));
        tally.recall_millis.sort_by(f64::total_cmp);
        self.recall_p50_ms = at(&tally.recall_millis, 50);
        self.recall_p99_ms = at(&tally.recall_millis, 99);
        self.wrong = tally.n_wrong;
        self.findings = tally.findings;
    }

    /// Whether every promise held.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.wrong.is_empty()
            && self.recall_asked == self.recall_found
            && self.operations.values().all(|n| *n > 0)
            && self.outcomes.iter().all(|outcome| outcome.verdict != "fail")
    }

    /// The table for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let of = |wrong| self.wrong.get(&wrong).copied().unwrap_or_default();
        let n_attacked = self.operations.values().filter(|n| **n > 0).count();
        let status: Vec<String> = self.by_status.iter().map(|(status, n)| format!("{status}: {n}")).collect();
        let mut lines = vec![
            "| what | result |".to_owned(),
            "|---|---|".to_owned(),
            row(
                "attempts",
                format!(
                    "{} in {:.0} s with {} clients, seed {}",
                    self.attempts, self.seconds, self.clients, self.seed
                ),
            ),
            row("operations attacked", format!("{n_attacked} of {}", self.operations.len())),
            row("answers by status", status.join(", ")),
            row("foreign marks or ids in answers", of(Wrong::Leak)),
            row("texts or names in refusals, logs, metrics, ledgers, files", of(Wrong::Spill)),
            row("5xx", of(Wrong::ServerError)),
            row(
                "unknown and foreign ids compared, different",
                format!("{}, {}", self.pairs, of(Wrong::Difference)),
            ),
            row("accepted though to be refused", of(Wrong::Accepted)),
            row(
                "recall of owners during the attack",
                format!("{:.4} ({} of {})", self.recall, self.recall_found, self.recall_asked),
            ),
            row(
                "recall p50, p99 during the attack",
                format!("{:.2} ms, {:.2} ms", self.recall_p50_ms, self.recall_p99_ms),
            ),
            row(
                "planted things read again, changed",
                format!("{}, {}", self.afterwards.unchanged, of(Wrong::Changed)),
            ),
            row("ledger entries verified", self.afterwards.ledger_entries),
            row(
                "reads delivered and recorded, unrecorded",
                format!("{}, {}", self.afterwards.reads_recorded, of(Wrong::Unrecorded)),
            ),
            row(
                "bytes searched: answers, logs, files",
                format!("{}, {}, {}", self.answer_bytes, self.log_bytes, self.file_bytes),
            ),
        ];
        for (class, n) in &self.by_class {
            lines.push(row(&format!("attempts: {class}"), n));
        }
        for outcome in &self.outcomes {
            lines.push(row(&outcome.name, format!("{}: {}", outcome.verdict, outcome.note)));
        }
        for (operation, _) in self.operations.iter().filter(|(_, n)| **n == 0) {
            lines.push(row("not attacked", operation));
        }
        for finding in &self.findings {
            let Finding { wrong, place, who, detail } = finding;
            lines.push(row("**found**", format!("{wrong:?} at {place}, {who}: {}", cut(detail))));
        }
        lines.push(row(
            "verdict",
            if self.passed() { "every promise held" } else { "**a promise was broken**" },
        ));
        lines
    }
}

fn row(what: &str, result: impl std::fmt::Display) -> String {
    format!("| {what} | {result} |")
}

fn cut(text: &str) -> String {
    text.chars().take(600).collect()
}

/// The same for a length.
pub(in crate::bench) fn count(n: usize) -> f64 {
    number(u64::try_from(n).unwrap_or(u64::MAX))
}

/// A count as a number to calculate with.
pub(in crate::bench) fn number(n: u64) -> f64 {
    u32::try_from(n).map_or(f64::from(u32::MAX), f64::from)
}

/// The value at a percentile of a sorted list.
pub(in crate::bench) fn at(sorted: &[f64], percent: usize) -> f64 {
    let place = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(change: impl FnOnce(&mut Tally)) -> Report {
        let options = Options {
            attempts: 1,
            clients: 1,
            seed: 1,
            running: None,
            arguments: Vec::new(),
            shared: None,
            timing_samples: 0,
        };
        let mut tally = Tally { asked: 4, found: 4, ..Tally::default() };
        change(&mut tally);
        let mut report = Report::new(&options, 1.0, &[], Afterwards::default());
        report.take(tally);
        report
    }

    #[test]
    fn a_report_passes_only_if_nothing_at_all_was_wrong() {
        assert!(report(|_| ()).passed());
        assert!(!report(|tally| tally.found = 3).passed());
        assert!(!report(|tally| tally.blame(Wrong::Leak, "", "", String::new())).passed());
        assert!(!report(|tally| tally.blame(Wrong::ServerError, "", "", String::new())).passed());
        let mut with = report(|_| ());
        with.operations.insert("GET /new".to_owned(), 0);
        assert!(!with.passed(), "an operation that was not attacked is no success");
        let mut with = report(|_| ());
        with.outcomes.push(Outcome { name: "L1".to_owned(), verdict: "fail", note: String::new() });
        assert!(!with.passed());
    }
}
