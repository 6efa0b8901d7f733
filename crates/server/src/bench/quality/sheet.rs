//! Means of measured values, by line and group of questions.

use std::collections::BTreeMap;

use serde::Serialize;

/// A table of means.
#[derive(Debug, Serialize)]
pub struct Sheet {
    /// The set and what was measured on it.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// Names of the values.
    pub columns: Vec<String>,
    /// One row per line and group, in the order of lines.
    pub rows: Vec<Row>,
    #[serde(skip)]
    places: BTreeMap<(String, String), usize>,
}

/// The means of one line over one group of questions.
#[derive(Debug, Serialize)]
pub struct Row {
    /// How it was ranked or packed.
    pub line: String,
    /// Which questions.
    pub group: String,
    /// How many questions.
    pub questions: u64,
    /// The means, in the order of the columns.
    pub means: Vec<f64>,
}

/// The group of all questions.
pub(super) const ALL: &str = "all";

impl Sheet {
    pub(super) fn new(title: &str, note: &str, columns: impl IntoIterator<Item = String>) -> Self {
        Self {
            title: title.to_owned(),
            note: note.to_owned(),
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// Takes in the values of one question, for its group and for all.
    pub(super) fn add(&mut self, line: &str, group: &str, values: &[f64]) {
        self.add_to(line, ALL, values);
        if group != ALL {
            self.add_to(line, group, values);
        }
    }

    fn add_to(&mut self, line: &str, group: &str, values: &[f64]) {
        let next = self.rows.len();
        let at = *self.places.entry((line.to_owned(), group.to_owned())).or_insert(next);
        if at == next {
            let (line, group) = (line.to_owned(), group.to_owned());
            self.rows.push(Row { line, group, questions: 0, means: vec![0.0; values.len()] });
        }
        let Some(row) = self.rows.get_mut(at) else { return };
        row.questions += 1;
        let n = row.questions as f64;
        for (mean, value) in row.means.iter_mut().zip(values) {
            *mean += (value - *mean) / n;
        }
    }

    /// The means of a line over all questions.
    pub(super) fn means(&self, line: &str) -> Option<&[f64]> {
        let at = self.places.get(&(line.to_owned(), ALL.to_owned()))?;
        self.rows.get(*at).map(|row| row.means.as_slice())
    }

    /// Sets the last values of a line over all questions, which are no means.
    pub(super) fn set_last(&mut self, line: &str, values: &[f64]) {
        let Some(at) = self.places.get(&(line.to_owned(), ALL.to_owned())) else { return };
        let Some(row) = self.rows.get_mut(*at) else { return };
        for (to, value) in row.means.iter_mut().rev().zip(values.iter().rev()) {
            *to = *value;
        }
    }

    /// The table as lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let width = |pick: fn(&Row) -> &str, least: usize| {
            self.rows.iter().map(|row| pick(row).chars().count()).max().unwrap_or(0).max(least)
        };
        let (line_width, group_width) = (width(|row| &row.line, 4), width(|row| &row.group, 5));
        let mut lines = vec![String::new(), format!("{} ({})", self.title, self.note)];
        let heads: String = self.columns.iter().map(|name| format!(" {name:>9}")).collect();
        lines.push(format!("{:line_width$} {:group_width$} {:>6}{heads}", "line", "group", "n"));
        lines.extend(self.rows.iter().map(|row| {
            let values: String = row.means.iter().map(|mean| number(*mean)).collect();
            format!("{:line_width$} {:group_width$} {:>6}{values}", row.line, row.group, row.questions)
        }));
        lines
    }
}

fn number(mean: f64) -> String {
    if mean >= 10.0 { format!(" {mean:>9.0}") } else { format!(" {mean:>9.3}") }
}

/// The share of `evidence` that is in `found`.
pub(super) fn share<T: Ord>(evidence: &[T], found: &std::collections::BTreeSet<T>) -> f64 {
    let hit = evidence.iter().filter(|item| found.contains(item)).count();
    hit as f64 / evidence.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_kept_per_group_and_over_all() {
        let mut sheet = Sheet::new("t", "n", ["a".to_owned()]);
        sheet.add("x", "one", &[1.0]);
        sheet.add("x", "two", &[0.0]);
        sheet.add("x", "one", &[0.5]);
        assert_eq!(sheet.means("x"), Some(&[0.5][..]));
        assert_eq!(sheet.rows.iter().map(|r| r.questions).collect::<Vec<_>>(), [3, 2, 1]);
        assert!((sheet.rows[1].means[0] - 0.75).abs() < 1e-12);
        assert_eq!(sheet.lines().len(), 6);
    }

    #[test]
    fn the_share_counts_evidence_not_hits() {
        let found = [1, 2, 9].into();
        assert!((share(&[1, 2, 3, 4], &found) - 0.5).abs() < 1e-12);
    }
}
