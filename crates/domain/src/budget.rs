//! Token budgets.

/// Why a number is not a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Outside of what this service assembles.
    #[error("budget must be between 200 and 128000 tokens")]
    OutOfRange,
}

/// The most tokens an assembled context may have: 200 to 128,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenBudget(u32);

impl TokenBudget {
    /// The smallest budget.
    pub const MIN: u32 = 200;
    /// The largest budget.
    pub const MAX: u32 = 128_000;

    /// A budget in tokens.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn new(tokens: u32) -> Result<Self, Error> {
        if (Self::MIN..=Self::MAX).contains(&tokens) { Ok(Self(tokens)) } else { Err(Error::OutOfRange) }
    }

    /// The number of tokens.
    #[must_use]
    pub fn tokens(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_003_budgets_reach_from_200_to_128000() {
        assert_eq!(TokenBudget::new(199), Err(Error::OutOfRange));
        assert_eq!(TokenBudget::new(128_001), Err(Error::OutOfRange));
        for tokens in [200, 8_000, 128_000] {
            assert_eq!(TokenBudget::new(tokens).map(TokenBudget::tokens), Ok(tokens));
        }
    }
}
