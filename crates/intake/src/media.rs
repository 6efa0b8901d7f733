//! Which kind of document the bytes are. The declared type is never believed alone: what the bytes say must
//! agree with it, so that nobody reads a PDF as text or runs an archive through the wrong reader.

use std::fmt;

use crate::refusal::Refusal;

/// The kinds of document that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Media {
    /// Plain text.
    Text,
    /// Markdown (CommonMark with tables).
    Markdown,
    /// HTML.
    Html,
    /// Word document in Office Open XML.
    Docx,
    /// PDF.
    Pdf,
}

impl Media {
    /// The kind named by a media type such as `text/html; charset=utf-8`.
    #[must_use]
    pub fn of_type(name: &str) -> Option<Self> {
        let name = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match name.as_str() {
            "text/plain" => Some(Self::Text),
            "text/markdown" | "text/x-markdown" => Some(Self::Markdown),
            "text/html" | "application/xhtml+xml" => Some(Self::Html),
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => Some(Self::Docx),
            "application/pdf" => Some(Self::Pdf),
            _ => None,
        }
    }

    /// The media type by which this kind is declared.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Text => "text/plain",
            Self::Markdown => "text/markdown",
            Self::Html => "text/html",
            Self::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            Self::Pdf => "application/pdf",
        }
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}

/// Kinds of file that are recognised in order to be refused by name.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"{\\rtf", "a Rich Text file"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"II*\0", "a picture"),
    (b"MM\0*", "a picture"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"%!PS", "a PostScript file"),
    (b"SQLite format 3", "a database"),
    (b"\x7fELF", "a program"),
];

/// Legacy Office files, and what an encrypted Office document is wrapped in.
const COMPOUND: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

/// Refuses bytes that are not what they were declared to be.
pub(crate) fn agree(bytes: &[u8], declared: Media) -> Result<(), Refusal> {
    if let Some((_, name)) = FOREIGN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(Refusal::Unsupported(name));
    }
    if bytes.starts_with(COMPOUND) {
        let package: Vec<u8> = "EncryptedPackage".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let encrypted = bytes.windows(package.len()).any(|window| window == package.as_slice());
        return Err(if encrypted {
            Refusal::Encrypted
        } else {
            Refusal::Unsupported("an Office file in the format before 2007")
        });
    }
    match (sniff(bytes), declared) {
        (Some(found), declared) if found == declared => Ok(()),
        (Some(found), declared) => Err(Refusal::Mismatch { declared, found }),
        (None, Media::Text | Media::Markdown) => Ok(()),
        (None, Media::Html) if holds_tag(bytes) => Ok(()),
        (None, Media::Html) => Err(Refusal::Mismatch { declared, found: Media::Text }),
        (None, Media::Docx) => Err(Refusal::Broken("it does not begin like a Word document")),
        (None, Media::Pdf) => Err(Refusal::Broken("it does not begin like a PDF")),
    }
}

/// The kind that the bytes show beyond doubt.
fn sniff(bytes: &[u8]) -> Option<Media> {
    let head = bytes.get(..1024).unwrap_or(bytes);
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        return Some(Media::Docx);
    }
    // Some programs write a few bytes before the mark; a text that only speaks of PDF has none at a line's start.
    let at_start = |window: &[u8]| window == b"%PDF-";
    let found = head.windows(5).position(at_start);
    if found.is_some_and(|at| at == 0 || !head.is_ascii() || head.get(at - 1) == Some(&b'\n')) {
        return Some(Media::Pdf);
    }
    // NUL bytes fall away, so that UTF-16 is recognised too.
    let plain: Vec<u8> = head.iter().copied().filter(|b| *b != 0).map(|b| b.to_ascii_lowercase()).collect();
    let plain = plain.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&plain);
    let plain = plain.strip_prefix(b"\xff\xfe").or(plain.strip_prefix(b"\xfe\xff")).unwrap_or(plain);
    let plain = plain.trim_ascii_start();
    (plain.starts_with(b"<!doctype html") || plain.starts_with(b"<html")).then_some(Media::Html)
}

fn holds_tag(bytes: &[u8]) -> bool {
    let plain: Vec<u8> = bytes.iter().copied().filter(|b| *b != 0).collect();
    plain.windows(2).any(|pair| matches!(pair, [b'<', b'/' | b'!' | b'a'..=b'z' | b'A'..=b'Z']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declared_type_is_not_believed() {
        let pdf = b"%PDF-1.4 ...";
        let found = Media::Pdf;
        assert_eq!(agree(pdf, Media::Text), Err(Refusal::Mismatch { declared: Media::Text, found }));
        assert_eq!(agree(pdf, Media::Pdf), Ok(()));
        let html = b"\xef\xbb\xbf \n<!DOCTYPE html><p>a";
        assert_eq!(
            agree(html, Media::Markdown),
            Err(Refusal::Mismatch { declared: Media::Markdown, found: Media::Html })
        );
        assert_eq!(
            agree(b"only words", Media::Html),
            Err(Refusal::Mismatch { declared: Media::Html, found: Media::Text })
        );
        assert_eq!(agree(b"a note about %PDF- files", Media::Text), Ok(()));
        assert_eq!(agree(b"<p align=center>Markdown</p>", Media::Markdown), Ok(()));
    }

    #[test]
    fn what_is_not_read_is_named() {
        assert_eq!(agree(b"{\\rtf1", Media::Text), Err(Refusal::Unsupported("a Rich Text file")));
        let mut old = COMPOUND.to_vec();
        old.resize(600, 0);
        assert!(matches!(agree(&old, Media::Docx), Err(Refusal::Unsupported(_))));
        old.extend("EncryptedPackage".encode_utf16().flat_map(u16::to_le_bytes));
        assert_eq!(agree(&old, Media::Docx), Err(Refusal::Encrypted));
    }

    #[test]
    fn media_types_are_read_with_their_parameters() {
        assert_eq!(Media::of_type("Text/HTML; charset=utf-8"), Some(Media::Html));
        assert_eq!(Media::of_type("application/zip"), None);
        for media in [Media::Text, Media::Markdown, Media::Html, Media::Docx, Media::Pdf] {
            assert_eq!(Media::of_type(media.type_name()), Some(media));
        }
    }
}
