//! Where a value stands in a text, for histories of policies: the words before it and the word after it.

use anyhow::Context;

/// Where a value stands: after these words and before that one. The expressions of the data are made on the
/// marked-up text of whole documents; a passage has other marks, and may end behind the value.
#[derive(Debug, Clone)]
pub struct Place {
    before: Vec<String>,
    after: Option<String>,
}

impl Place {
    const WORDS_BEFORE: usize = 4;
    /// A preposition and an article may stand between.
    const WORDS_BETWEEN: usize = 2;

    /// The place that an expression of the set describes.
    ///
    /// # Errors
    /// It has no value.
    pub fn of(expression: &str) -> anyhow::Result<Self> {
        let plain = expression.replace(r"\s+", " ");
        let (before, rest) = plain.split_once("(\\S").context("an expression without a value")?;
        let after = rest.rsplit_once("\\S)?)").map_or("", |(_, after)| after);
        // A look ahead says where the value ends, and names no word.
        let after = if after.starts_with("(?") { "" } else { after };
        let mut before = words(before);
        before.drain(..before.len().saturating_sub(Self::WORDS_BEFORE));
        Ok(Self { before, after: words(after).into_iter().next() })
    }

    /// Whether a text says this value here.
    #[must_use]
    pub fn says(&self, text: &str, value: &str) -> bool {
        let (text, value) = (words(text), words(value));
        let starts = |at: usize, what: &[String]| text.get(at..).is_some_and(|rest| rest.starts_with(what));
        (0..text.len()).filter(|at| starts(*at, &self.before)).any(|at| {
            let from = at + self.before.len();
            (from..=from + Self::WORDS_BETWEEN).filter(|at| starts(*at, &value)).any(|at| {
                let next = text.get(at + value.len());
                next.is_none() || self.after.is_none() || next == self.after.as_ref()
            })
        })
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_said_where_its_words_stand_whatever_the_marks() {
        let place = Place::of(r"\*\s+within\s+a\s+period\s+of\s+(\S(?:.{0,28}?\S)?)\s+days\s+\*").unwrap();
        assert!(place.says("Return it within a period of thirty days.", "thirty"));
        assert!(
            place.says("- within a period\n  of up to thirty", "thirty"),
            "the passage ends behind the value"
        );
        assert!(!place.says("within a period of thirty weeks", "thirty"));
        assert!(!place.says("within a period of seven days, not thirty days", "thirty"));
        assert!(!place.says("a period of thirty days", "thirty"), "other words before it");
        let ahead = Place::of(r"up\s+to\s+US\s+(\S(?:.{0,28}?\S)?)(?=[\s]|$)").unwrap();
        assert!(ahead.says("damages up to US $5,000.", "$5,000") && !ahead.says("up to US $500", "$5,000"));
        assert!(Place::of("no value").is_err());
    }
}
