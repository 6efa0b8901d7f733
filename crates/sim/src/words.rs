//! Token counts for simulated answers: words. The real tables take longer to unpack than a run.

use merkwelt_inference::TokenCounter;

/// Counts words.
struct Words;

impl TokenCounter for Words {
    fn id(&self) -> &'static str {
        "words"
    }

    fn count(&self, text: &str) -> u32 {
        u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX)
    }
}

/// The counter of every simulated instance.
pub(crate) fn counter() -> &'static dyn TokenCounter {
    &Words
}
