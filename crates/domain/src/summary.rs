//! Summaries of conversations, and what becomes of a conversation when its person changes the organisation. A
//! summary is a turn that stands for the turns before it; it is never authoritative.

use std::fmt;
use std::str::FromStr;

use crate::ids::SummaryRule;

/// Why a summary was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It covers no turn.
    #[error("through must be the number of a turn, counted from one")]
    Through,
    /// It is not the text form of a summary's origin.
    #[error("the origin of a summary is a number, a rule, and draft or approved")]
    Form,
    /// The rule for a change of the organisation is none of the closed list.
    #[error("rule must be one of start_new, approved_summary, continue")]
    Switch,
}

/// Where a summary comes from: the turns it stands for and the rule that made it. Its scope is the
/// conversation's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryOf {
    through: u32,
    rule: SummaryRule,
    approved: bool,
}

impl SummaryOf {
    /// Of all turns up to this number.
    ///
    /// # Errors
    /// [`Error::Through`] for zero.
    pub fn new(through: u32, rule: SummaryRule, approved: bool) -> Result<Self, Error> {
        if through == 0 { Err(Error::Through) } else { Ok(Self { through, rule, approved }) }
    }

    /// Of a conversation elsewhere. Nobody here approved that it goes further.
    #[must_use]
    pub fn carried_over(rule: SummaryRule) -> Self {
        Self { through: 0, rule, approved: false }
    }

    /// The last turn it stands for; zero if it was carried over from elsewhere.
    #[must_use]
    pub fn through(&self) -> u32 {
        self.through
    }

    /// The rule that made it.
    #[must_use]
    pub fn rule(&self) -> &SummaryRule {
        &self.rule
    }

    /// Whether the application approved it; only then may it be carried over to another organisation.
    #[must_use]
    pub fn approved(&self) -> bool {
        self.approved
    }
}

impl fmt::Display for SummaryOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.approved { "approved" } else { "draft" };
        write!(f, "{} {} {state}", self.through, self.rule.as_str())
    }
}

impl FromStr for SummaryOf {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split(' ');
        let (Some(through), Some(rule), Some(state), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Error::Form);
        };
        let approved = match state {
            "approved" => true,
            "draft" => false,
            _ => return Err(Error::Form),
        };
        let (through, rule) = (through.parse().map_err(|_| Error::Form)?, rule.parse());
        let rule = rule.map_err(|_| Error::Form)?;
        if through == 0 && !approved {
            Ok(Self::carried_over(rule))
        } else {
            Self::new(through, rule, approved)
        }
    }
}

/// What of a conversation may go along when its person changes the organisation. Organisations are
/// tenants, so nothing goes by itself: one side hands over what its rule allows, the other takes in what its own
/// rule allows, and both are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrganisationSwitch {
    /// Nothing. The default.
    #[default]
    StartNew,
    /// The newest approved summary, if all it rests on is current.
    ApprovedSummary,
    /// The conversation.
    Continue,
}

impl OrganisationSwitch {
    /// All rules. The order is the code of a row.
    pub const ALL: [Self; 3] = [Self::StartNew, Self::ApprovedSummary, Self::Continue];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StartNew => "start_new",
            Self::ApprovedSummary => "approved_summary",
            Self::Continue => "continue",
        }
    }
}

impl FromStr for OrganisationSwitch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|rule| rule.name() == text).ok_or(Error::Switch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_018_a_summary_names_the_turns_it_stands_for_and_its_rule() {
        let rule: SummaryRule = "support-7".parse().unwrap();
        let summary = SummaryOf::new(12, rule.clone(), true).unwrap();
        assert_eq!(summary.to_string(), "12 support-7 approved");
        assert_eq!(summary.to_string().parse(), Ok(summary));
        assert_eq!(SummaryOf::new(0, rule.clone(), true), Err(Error::Through));
        let carried = SummaryOf::carried_over(rule);
        assert_eq!(carried.to_string().parse(), Ok(carried));
        for bad in
            ["", "12", "12 support-7", "12 support-7 maybe", "x support-7 draft", "1 A draft", "1 a draft b"]
        {
            assert_eq!(bad.parse::<SummaryOf>(), Err(Error::Form), "{bad}");
        }
    }

    #[test]
    fn r_033_a_rule_is_one_of_three_and_nothing_goes_along_unless_it_is_said() {
        assert_eq!(OrganisationSwitch::default(), OrganisationSwitch::StartNew);
        for rule in OrganisationSwitch::ALL {
            assert_eq!(rule.name().parse(), Ok(rule));
        }
        assert_eq!("everything".parse::<OrganisationSwitch>(), Err(Error::Switch));
    }
}
