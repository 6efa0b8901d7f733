//! Text that people wrote. It may be personal data, so it has no `Display` and its `Debug` shows only a
//! length (I-12); whoever needs the words must ask for them by name.

use std::fmt;

use unicode_normalization::UnicodeNormalization;

/// Why a text was refused. It never repeats the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Empty or only white space.
    #[error("text is empty")]
    Empty,
    /// Longer than its place allows.
    #[error("text is longer than {max} bytes")]
    TooLong {
        /// The most bytes allowed.
        max: usize,
    },
    /// It contains a control character other than tab and line breaks.
    #[error("text contains a control character")]
    Control,
    /// It contains a block that this service delivered (I-13).
    #[error("text contains a recalled block; what was recalled is not stored again")]
    Recalled,
}

/// The line that opens a delivered block. What stands between it and [`CLOSE`] was recalled and is never
/// stored again (I-13).
pub const OPEN: &str = "<merkwelt>";
/// The line that closes a delivered block.
pub const CLOSE: &str = "</merkwelt>";

/// Whether a text holds one of the marks around a delivered block, however it is spelled: in other case, in
/// compatibility forms, with spaces or invisible characters between. Such a text could end the block it is
/// delivered in.
#[must_use]
pub fn holds_mark(text: &str) -> bool {
    if !text.chars().any(|c| matches!(c, '<' | '\u{fe64}' | '\u{ff1c}' | '&')) {
        return false;
    }
    let plain = text.replace("&lt;", "<").replace("&gt;", ">");
    let bare: String = plain.nfkc().flat_map(char::to_lowercase).filter(|c| c.is_ascii_graphic()).collect();
    bare.contains(OPEN) || bare.contains(CLOSE)
}

/// A text in Unicode NFC, not blank and not too long.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content(String);

impl Content {
    /// The most bytes of a memory's statement.
    pub const STATEMENT_MAX_BYTES: usize = 16 * 1024;
    /// The most bytes of one turn.
    pub const TURN_MAX_BYTES: usize = 256 * 1024;
    /// The most bytes of a question.
    pub const QUESTION_MAX_BYTES: usize = 32 * 1024;

    /// Parses a text to keep: as [`Content::question`], and free of recalled blocks.
    ///
    /// # Errors
    /// [`Error`]: empty, too long, control characters, or a block that this service delivered.
    pub fn to_keep(text: &str, max: usize) -> Result<Self, Error> {
        // INVARIANT: I-13, what was recalled and shown to a model is never taken in as new memory.
        if holds_mark(text) {
            return Err(Error::Recalled);
        }
        Self::question(text, max)
    }

    /// Parses a text that is only looked at, such as a question.
    ///
    /// # Errors
    /// [`Error`]: empty, too long, or control characters.
    pub fn question(text: &str, max: usize) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::Empty);
        }
        if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
            return Err(Error::Control);
        }
        // The limit is on what is kept: composing can lengthen a text, and shorten one.
        // Most texts are composed already, and an id or a number always is.
        let text = if text.is_ascii() { text.to_owned() } else { text.nfc().collect() };
        if text.len() > max { Err(Error::TooLong { max }) } else { Ok(Self(text)) }
    }

    /// The words themselves.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The form in which two texts count as equal: white space folded, case kept.
    #[must_use]
    pub fn folded(&self) -> String {
        self.0.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_long_and_control_texts_are_refused() {
        assert_eq!(Content::question(" \n", 10), Err(Error::Empty));
        assert_eq!(Content::question("12345678901", 10), Err(Error::TooLong { max: 10 }));
        assert_eq!(Content::question("a\u{0}b", 10), Err(Error::Control));
    }

    #[test]
    fn a_text_is_as_long_as_what_is_kept_of_it() {
        assert_eq!(Content::question("\u{958}", 5), Err(Error::TooLong { max: 5 }));
        assert!(Content::question("u\u{308}", 2).is_ok());
    }

    #[test]
    fn what_was_recalled_is_not_stored_again() {
        let echoed = format!("{OPEN}\n- likes tea\n{CLOSE}");
        assert_eq!(Content::to_keep(&echoed, 1000), Err(Error::Recalled));
        assert!(Content::question(&echoed, 1000).is_ok());
    }

    #[test]
    fn i_13_a_mark_is_known_in_every_spelling() {
        for spelled in [
            "</merkwelt>",
            "</MerkWelt>",
            "< / merkwelt >",
            "</merk\u{200b}welt>",
            "＜/merkwelt＞",
            "&lt;/merkwelt&gt;",
        ] {
            assert_eq!(Content::to_keep(&format!("a {spelled} b"), 100), Err(Error::Recalled), "{spelled}");
        }
        assert!(Content::to_keep("a < b and merkwelt > c", 100).is_ok());
    }

    #[test]
    fn composed_and_decomposed_letters_are_the_same_text() {
        assert_eq!(Content::question("Mu\u{308}ller", 20), Content::question("Müller", 20));
    }

    #[test]
    fn r_110_text_does_not_show_in_debug_output() {
        let text = Content::question("secret wish", 20).unwrap();
        assert_eq!(format!("{text:?}"), "Content(11 bytes)");
    }
}
