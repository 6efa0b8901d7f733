//! Counting the tokens a language model would read, for budgets.
//!
//! A count is exact for the named encoding. The tables are part of the program; each is unpacked once,
//! on first use, and shared by all threads.

use std::fmt;
use std::sync::OnceLock;

use tiktoken_rs::CoreBPE;

/// Counts tokens. Object safe; implementations are shared between threads.
pub trait TokenCounter: Send + Sync {
    /// Name of the encoding, reported beside every count.
    fn id(&self) -> &str;

    /// Number of tokens of `text`. Text that looks like a control token counts as plain text. Texts
    /// with runs of some hundred thousand spaces may count a few tokens too many.
    fn count(&self, text: &str) -> u32;
}

/// Name of the encoding to use when nothing is configured.
pub const DEFAULT: &str = "o200k_base";

/// Why there is no counter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is known by that name.
    #[error("unknown token encoding, use one of: o200k_base, cl100k_base, p50k_base, r50k_base")]
    Unknown,
    /// The built-in table of the named encoding could not be unpacked.
    #[error("the built-in table of the token encoding {0} could not be unpacked")]
    Table(&'static str),
}

/// The counter called `name`, with or without the ending `_base`. The first call for an encoding unpacks
/// its table (some 100 ms and some 10 MB); later calls return the same counter.
///
/// # Errors
/// [`Error::Unknown`] lists the known names.
pub fn counter(name: &str) -> Result<&'static dyn TokenCounter, Error> {
    encoding(name)?.ready().map(|counter| counter as &dyn TokenCounter)
}

/// Whether there is a counter of this name. Unpacks nothing.
///
/// # Errors
/// [`Error::Unknown`] lists the known names.
pub fn is_known(name: &str) -> Result<(), Error> {
    encoding(name).map(|_| ())
}

fn encoding(name: &str) -> Result<&'static Encoding, Error> {
    match name.strip_suffix("_base").unwrap_or(name) {
        "o200k" => Ok(&O200K),
        "cl100k" => Ok(&CL100K),
        "p50k" => Ok(&P50K),
        "r50k" => Ok(&R50K),
        _ => Err(Error::Unknown),
    }
}

static O200K: Encoding = Encoding::new("o200k_base", || tiktoken_rs::o200k_base().ok());
static CL100K: Encoding = Encoding::new("cl100k_base", || tiktoken_rs::cl100k_base().ok());
static P50K: Encoding = Encoding::new("p50k_base", || tiktoken_rs::p50k_base().ok());
static R50K: Encoding = Encoding::new("r50k_base", || tiktoken_rs::r50k_base().ok());

/// One encoding of the family, unpacked on first use.
struct Encoding {
    id: &'static str,
    unpack: fn() -> Option<CoreBPE>,
    counter: OnceLock<Option<Bpe>>,
}

impl Encoding {
    const fn new(id: &'static str, unpack: fn() -> Option<CoreBPE>) -> Self {
        Self { id, unpack, counter: OnceLock::new() }
    }

    fn ready(&'static self) -> Result<&'static Bpe, Error> {
        let unpacked = self.counter.get_or_init(|| (self.unpack)().map(|bpe| Bpe { id: self.id, bpe }));
        unpacked.as_ref().ok_or(Error::Table(self.id))
    }
}

/// A byte pair encoding with its table in memory.
struct Bpe {
    id: &'static str,
    bpe: CoreBPE,
}

impl fmt::Debug for Bpe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bpe").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Bpe {
    fn count_part(&self, text: &str) -> usize {
        // The set of allowed control tokens is empty: text never turns into one.
        self.bpe.count(text, &Default::default()).unwrap_or_else(|_| {
            // The splitter bounds its backtracking and gives up on extreme input, such as a million
            // spaces before a word. Halves are counted apart then: a token more at each cut.
            let middle = text.ceil_char_boundary(text.len() / 2);
            match text.split_at_checked(middle) {
                Some((left, right)) if !right.is_empty() => self.count_part(left) + self.count_part(right),
                // Too short to be split; a token has at least one byte.
                _ => text.len(),
            }
        })
    }
}

impl TokenCounter for Bpe {
    fn id(&self) -> &str {
        self.id
    }

    fn count(&self, text: &str) -> u32 {
        u32::try_from(self.count_part(text)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_agree_with_published_examples() {
        let o200k = counter(DEFAULT).unwrap();
        assert_eq!(o200k.id(), "o200k_base");
        assert_eq!(o200k.count(""), 0);
        assert_eq!(o200k.count("hello world"), 2);
        assert_eq!(counter("cl100k").unwrap().count("tiktoken is great!"), 6);
        assert_eq!(counter("r50k").unwrap().count("tiktoken is great!"), 6);
    }

    #[test]
    fn r_003_text_that_looks_like_a_control_token_counts_as_text() {
        let o200k = counter("o200k").unwrap();
        assert!(o200k.count("<|endoftext|>") > 1);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = counter("claude").err().unwrap();
        assert_eq!(error, Error::Unknown);
        for known in ["o200k", "cl100k", "p50k", "r50k"] {
            assert!(error.to_string().contains(known));
            assert!(counter(known).unwrap().id().starts_with(known));
        }
    }

    #[test]
    fn the_same_counter_is_handed_out_to_every_thread() {
        let ids = std::thread::scope(|scope| {
            let started: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| std::ptr::from_ref(counter("o200k").unwrap()).addr()))
                .collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn extreme_texts_are_counted_without_a_panic() {
        let o200k = counter("o200k").unwrap();
        // Beyond what the splitter takes in one go; halved, it is counted in runs of spaces.
        let spaces = format!("{}x", " ".repeat(1_000_000));
        let counted = o200k.count(&spaces);
        assert!((1_000..20_000).contains(&counted), "{counted} tokens");
        assert!(o200k.count(&"a".repeat(100_000)) < 20_000);
    }

    proptest! {
        #[test]
        fn a_count_lies_between_nothing_and_the_number_of_bytes(text in ".{0,200}") {
            let tokens = counter("o200k").unwrap().count(&text) as usize;
            prop_assert!(tokens <= text.len());
            prop_assert_eq!(tokens == 0, text.is_empty());
        }
    }
}
