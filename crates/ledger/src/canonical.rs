//! The JSON of the ledger: strings, booleans, integers up to 2⁵³ − 1, arrays and objects, written by RFC 8785
//! and read by a validator that refuses every text with a second meaning (L-26). Two different inputs never
//! share one canonical form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::reader::Reader;

/// Deepest nesting of arrays and objects that is read.
pub const DEPTH_MAX: usize = 32;

/// Largest magnitude of an integer: 2⁵³ − 1 (RFC 7493, 2.2).
pub const INTEGER_MAX: i64 = 9_007_199_254_740_991;

/// What made a text unacceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The bytes are not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// A character that the grammar does not allow here.
    #[error("unexpected character")]
    Unexpected,
    /// The text ends inside a value.
    #[error("the text ends too early")]
    EndsEarly,
    /// Something follows the value.
    #[error("bytes after the end of the value")]
    TrailingBytes,
    /// An object names a key twice.
    #[error("duplicate key")]
    DuplicateKey,
    /// A number with a fraction, an exponent, a leading zero or a negative zero.
    #[error("number is not a plain integer")]
    NotInteger,
    /// An integer beyond 2⁵³ − 1.
    #[error("integer beyond 2^53 - 1")]
    IntegerTooLarge,
    /// Half of a surrogate pair.
    #[error("lone surrogate")]
    LoneSurrogate,
    /// A code point that Unicode reserves for internal use (RFC 7493, 2.1).
    #[error("noncharacter")]
    Noncharacter,
    /// A control character that was not escaped.
    #[error("unescaped control character")]
    ControlCharacter,
    /// The literal `null`: an absent field is left out.
    #[error("null is not used")]
    Null,
    /// More than [`DEPTH_MAX`] levels.
    #[error("nested too deeply")]
    TooDeep,
}

/// Why and where a text was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {offset}")]
pub struct Error {
    /// What was wrong.
    pub reason: Reason,
    /// Byte offset from the start of the text.
    pub offset: usize,
}

/// A whole number between −(2⁵³ − 1) and 2⁵³ − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Integer(i64);

impl Integer {
    /// `None` beyond 2⁵³ − 1 in magnitude.
    #[must_use]
    pub fn new(value: i64) -> Option<Self> {
        (-INTEGER_MAX..=INTEGER_MAX).contains(&value).then_some(Self(value))
    }

    /// `None` beyond 2⁵³ − 1.
    #[must_use]
    pub fn from_count(value: u64) -> Option<Self> {
        i64::try_from(value).ok().and_then(Self::new)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl From<u32> for Integer {
    fn from(value: u32) -> Self {
        Self(i64::from(value))
    }
}

impl From<i32> for Integer {
    fn from(value: i32) -> Self {
        Self(i64::from(value))
    }
}

/// A JSON value without floats and null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(String),
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(Integer),
    /// An array.
    List(Vec<Value>),
    /// An object; every key once.
    Object(BTreeMap<String, Value>),
}

impl Value {
    /// The RFC 8785 form: no white space, keys in the order of their UTF-16 units, shortest escapes.
    #[must_use]
    pub fn to_canonical(&self) -> Vec<u8> {
        let mut out = String::new();
        self.write(&mut out);
        out.into_bytes()
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The integer, if it is one.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(value.get()) } else { None }
    }

    /// The elements, if it is an array.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// The named member, if it is an object that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        if let Self::Object(members) = self { members.get(key) } else { None }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => write_text(text, out),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Int(value) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "{}", value.get());
            }
            Self::List(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => write_object(members, out),
        }
    }
}

/// Reads one value and refuses everything that is not exactly one I-JSON value of the kinds in [`Value`].
///
/// White space between tokens is accepted; whether the text is canonical is told by writing it again.
///
/// # Errors
/// [`Error`] with the first reason found and its offset.
pub fn parse_strict(bytes: &[u8]) -> Result<Value, Error> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error { reason: Reason::NotUtf8, offset: error.valid_up_to() })?;
    Reader::new(text).document()
}

/// Reads one value and also demands that the bytes are its canonical form.
///
/// Returns `Ok(None)` for a well-formed text that is spelled otherwise.
///
/// # Errors
/// As [`parse_strict`].
pub fn parse_canonical(bytes: &[u8]) -> Result<Option<Value>, Error> {
    let value = parse_strict(bytes)?;
    Ok((value.to_canonical() == bytes).then_some(value))
}

fn write_object(members: &BTreeMap<String, Value>, out: &mut String) {
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    // The map orders by code point; UTF-16 units differ from that only beyond the basic plane.
    sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    out.push('{');
    for (position, (key, value)) in sorted.into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_text(key, out);
        out.push(':');
        value.write(out);
    }
    out.push('}');
}

/// RFC 8785, 3.2.2.2: only the quote, the backslash and the control characters are escaped.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.push_str(text);
    } else {
        text.chars().for_each(|character| write_char(character, out));
    }
    out.push('"');
}

fn write_char(character: char, out: &mut String) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\u{c}' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        control if control < ' ' => {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(control));
        }
        other => out.push(other),
    }
}
