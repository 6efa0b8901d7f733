//! The exported log: one text file of JSON lines that carries the exact bytes of every entry. A header names
//! the log and its key, each entry has a line, and a signed checkpoint ends it. Every line has one spelling
//! only, so that no byte of the file can change unnoticed.
//!
//! ```text
//! {"format":"merkwelt-ledger-export","key":"<verifier key>","origin":"<origin>","v":1}
//! {"index":0,"leaf":"<base64 of the canonical entry>"}
//! {"checkpoint":"<signed note>"}
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::canonical::{self, Value};
use crate::checkpoint::{self, SignedCheckpoint, parse_decimal};
use crate::entry::LEAF_MAX;
use crate::note::{self, VerifierKey};

/// The `format` of the header.
pub const FORMAT: &str = "merkwelt-ledger-export";

/// The only version there is.
pub const VERSION: u32 = 1;

/// Longest line that is read: the largest leaf in base64, or the largest note with every byte escaped.
const LINE_MAX: u64 = 2 * note::BYTES_MAX as u64;

/// Why an export could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The writer or the reader underneath failed.
    #[error("the export cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// The first line is not a header.
    #[error("the header is malformed")]
    Header,
    /// The header is of a version or a format this crate does not know.
    #[error("the format version is not supported")]
    Version,
    /// A line is not an entry or a checkpoint in its only spelling.
    #[error("the line is malformed")]
    Line,
    /// The checkpoint line does not hold a checkpoint note.
    #[error("the checkpoint is malformed: {0}")]
    Checkpoint(checkpoint::Error),
    /// The file ends before its checkpoint, or a line before its newline.
    #[error("the file ends too early")]
    Truncated,
    /// Something follows the checkpoint.
    #[error("lines after the checkpoint")]
    Trailing,
    /// A line is longer than any line of this format.
    #[error("the line is too long")]
    TooLong,
    /// Entries must be written from 0 on without a gap, and the checkpoint must be of their number.
    #[error("entry {expected} was expected")]
    Order {
        /// The index that should have come.
        expected: u64,
    },
}

/// What the first line says about the log. Nothing of it is trusted by being there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Identity of the log.
    pub origin: String,
    /// The key that is said to sign it.
    pub key: VerifierKey,
}

impl Header {
    fn to_line(&self) -> Vec<u8> {
        Value::Object(BTreeMap::from([
            ("format".to_owned(), Value::Text(FORMAT.to_owned())),
            ("key".to_owned(), Value::Text(self.key.to_string())),
            ("origin".to_owned(), Value::Text(self.origin.clone())),
            ("v".to_owned(), Value::Int(VERSION.into())),
        ]))
        .to_canonical()
    }

    fn parse(line: &[u8]) -> Result<Self, Error> {
        let value = canonical::parse_strict(line).map_err(|_| Error::Header)?;
        let text = |name: &str| value.get(name).and_then(Value::as_text).ok_or(Error::Header);
        let version = value.get("v").and_then(Value::as_int).ok_or(Error::Header)?;
        if text("format")? != FORMAT || version != i64::from(VERSION) {
            return Err(Error::Version);
        }
        let key = VerifierKey::parse(text("key")?).map_err(|_| Error::Header)?;
        let header = Self { origin: text("origin")?.to_owned(), key };
        if header.to_line() == line { Ok(header) } else { Err(Error::Header) }
    }
}

/// Writes an export entry by entry.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    next: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn new(out: W, header: &Header) -> Result<Self, Error> {
        let mut writer = Self { out, next: 0 };
        writer.line(&header.to_line())?;
        Ok(writer)
    }

    /// Writes the exact bytes of the next entry.
    ///
    /// # Errors
    /// [`Error::Order`] if it is not the next one, [`Error::Io`].
    pub fn entry(&mut self, index: u64, leaf: &[u8]) -> Result<(), Error> {
        if index != self.next {
            return Err(Error::Order { expected: self.next });
        }
        self.line(format!("{{\"index\":{index},\"leaf\":\"{}\"}}", STANDARD.encode(leaf)).as_bytes())?;
        self.next += 1;
        Ok(())
    }

    /// Writes the checkpoint over all entries, ends the file and gives the writer back, flushed.
    ///
    /// # Errors
    /// [`Error::Order`] if the checkpoint is of another size, [`Error::Io`].
    pub fn finish(mut self, checkpoint: &SignedCheckpoint) -> Result<W, Error> {
        if checkpoint.checkpoint().size() != self.next {
            return Err(Error::Order { expected: self.next });
        }
        self.line(&checkpoint_line(&checkpoint.to_string()))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        self.out.write_all(line)?;
        self.out.write_all(b"\n")?;
        Ok(())
    }
}

/// One line behind the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An entry.
    Entry {
        /// Its position.
        index: u64,
        /// Its exact bytes.
        leaf: Vec<u8>,
    },
    /// The checkpoint; the file ends here.
    Checkpoint(Box<SignedCheckpoint>),
}

/// Reads an export line by line with bounded memory.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    buffer: Vec<u8>,
    line: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::Version`], [`Error::Truncated`], [`Error::TooLong`] or [`Error::Io`].
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut buffer = Vec::new();
        if !read_line(&mut input, &mut buffer)? {
            return Err(Error::Truncated);
        }
        let header = Header::parse(&buffer)?;
        Ok(Self { input, header, buffer, line: 1 })
    }

    /// What the first line says.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Number of the line read last, from 1.
    #[must_use]
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// The next entry or the checkpoint. After the checkpoint the end of the file has been checked.
    ///
    /// # Errors
    /// Any [`Error`] but those of the header.
    pub fn read(&mut self) -> Result<Item, Error> {
        self.line += 1;
        if !read_line(&mut self.input, &mut self.buffer)? {
            return Err(Error::Truncated);
        }
        let line = std::str::from_utf8(&self.buffer).map_err(|_| Error::Line)?;
        if let Some(rest) = line.strip_prefix("{\"index\":") {
            return parse_entry(rest).ok_or(Error::Line);
        }
        let value = canonical::parse_strict(&self.buffer).map_err(|_| Error::Line)?;
        let note = value.get("checkpoint").and_then(Value::as_text).ok_or(Error::Line)?;
        if checkpoint_line(note) != self.buffer {
            return Err(Error::Line);
        }
        let checkpoint = SignedCheckpoint::parse(note).map_err(Error::Checkpoint)?;
        if !self.input.fill_buf()?.is_empty() {
            return Err(Error::Trailing);
        }
        Ok(Item::Checkpoint(Box::new(checkpoint)))
    }
}

fn checkpoint_line(note: &str) -> Vec<u8> {
    Value::Object(BTreeMap::from([("checkpoint".to_owned(), Value::Text(note.to_owned()))])).to_canonical()
}

/// An entry line behind `{"index":`. Decimal and base64 are strict, so what is accepted has one spelling.
fn parse_entry(rest: &str) -> Option<Item> {
    let (index, rest) = rest.split_once(',')?;
    let encoded = rest.strip_prefix("\"leaf\":\"")?.strip_suffix("\"}")?;
    let leaf = STANDARD.decode(encoded).ok()?;
    (leaf.len() <= LEAF_MAX).then_some(Item::Entry { index: parse_decimal(index)?, leaf })
}

/// Reads one line without its newline; false at the end of the file.
fn read_line(input: &mut impl BufRead, buffer: &mut Vec<u8>) -> Result<bool, Error> {
    buffer.clear();
    let length = input.by_ref().take(LINE_MAX).read_until(b'\n', buffer)?;
    if buffer.pop_if(|byte| *byte == b'\n').is_some() {
        Ok(true)
    } else if length == 0 {
        Ok(false)
    } else if u64::try_from(length) == Ok(LINE_MAX) {
        Err(Error::TooLong)
    } else {
        Err(Error::Truncated)
    }
}
