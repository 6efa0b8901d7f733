//! Names in a folder: which are taken in, which are passed over without a word, and which are refused; and how
//! a path becomes the origin of a source.

use std::fmt::Write as _;
use std::path::Path;

use merkwelt_domain::source::Title;
use merkwelt_domain::{Content, TenantName};
use merkwelt_intake::Media;

use super::Refusal;

/// Bytes of an origin that the register takes.
const ORIGIN_BYTES_MAX: usize = 2048;
/// Bytes of a path inside the folder.
pub(super) const PATH_BYTES_MAX: usize = 1024;

/// The name under which a folder's sources are registered: `folder:<label>/<path>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label(TenantName);

impl Label {
    /// Parses a label.
    ///
    /// # Errors
    /// It is no plain name.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let label = text.parse().map_err(|_| {
            anyhow::anyhow!("`{text}` is not a name: use lower-case letters, digits, `.`, `_` and `-`")
        })?;
        Ok(Self(label))
    }

    /// The label as text.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The origin of a file.
    pub(crate) fn origin(&self, path: &str) -> Result<Content, Refusal> {
        Content::question(&format!("folder:{}/{path}", self.as_str()), ORIGIN_BYTES_MAX)
            .map_err(|_| Refusal::NameUnfit)
    }

    /// The path of an origin, if it is of this folder.
    pub(crate) fn path<'o>(&self, origin: &'o str) -> Option<&'o str> {
        origin.strip_prefix("folder:")?.strip_prefix(self.as_str())?.strip_prefix('/')
    }
}

/// What a name alone says about an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Class {
    /// Says who may read what lies beside it; for one file if a name is given, in folded form.
    Rights(Option<String>),
    /// Hidden, temporary, or of the system: nobody put it here to be read.
    Passed,
    /// Any other name.
    Plain,
}

const TEMPORARY: [&str; 7] = [".tmp", ".temp", ".part", ".crdownload", ".swp", ".bak", "~"];
const OF_SYSTEMS: [&str; 2] = ["thumbs.db", "desktop.ini"];

/// The form in which two names count as the same: composed, and without upper case.
pub(super) fn folded(name: &str) -> String {
    composed(name).to_lowercase()
}

/// Composed characters, as the register keeps them.
pub(super) fn composed(name: &str) -> String {
    Content::question(name, usize::MAX).map_or_else(|_| name.to_owned(), |text| text.expose().to_owned())
}

pub(super) fn classify(name: &str) -> Class {
    let folded = folded(name);
    if folded == ".acl" {
        return Class::Rights(None);
    }
    // A side file is recognised however it is spelled: passing it over would publish without its rights.
    if let Some(of) = folded.strip_suffix(".acl") {
        return Class::Rights(Some(of.to_owned()));
    }
    let temporary = TEMPORARY.iter().any(|end| folded.ends_with(end));
    let passed = folded.starts_with('.') || folded.starts_with("~$") || temporary;
    if passed || OF_SYSTEMS.contains(&folded.as_str()) { Class::Passed } else { Class::Plain }
}

/// The kind of document that an ending stands for.
pub(super) fn media(name: &str) -> Option<Media> {
    let ending = Path::new(name).extension()?.to_str()?.to_lowercase();
    match ending.as_str() {
        "txt" | "text" => Some(Media::Text),
        "md" | "markdown" => Some(Media::Markdown),
        "html" | "htm" | "xhtml" => Some(Media::Html),
        "docx" => Some(Media::Docx),
        "pdf" => Some(Media::Pdf),
        _ => None,
    }
}

/// What people call a file: its name without the ending.
pub(super) fn title(name: &str) -> Result<Title, Refusal> {
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).ok_or(Refusal::NameUnfit)?;
    stem.parse().map_err(|_| Refusal::NameUnfit)
}

/// A name as a terminal or a report may show it: what would move the cursor or turn the line is written out.
pub(crate) fn shown(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        let invisible = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if invisible {
            // Writing into a `String` cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_file_is_recognised_however_it_is_spelled() {
        assert_eq!(classify("Travel.PDF.ACL"), Class::Rights(Some("travel.pdf".to_owned())));
        assert_eq!(classify(".Acl"), Class::Rights(None));
        for name in [".git", "~$a.docx", "a.docx.part", "Thumbs.db", "a.txt~"] {
            assert_eq!(classify(name), Class::Passed, "{name}");
        }
        assert_eq!(classify("a.txt"), Class::Plain);
    }

    #[test]
    fn an_origin_is_of_its_folder_only() {
        let (a, ab) = (Label::parse("a").unwrap(), Label::parse("ab").unwrap());
        let origin = ab.origin("x/y.txt").unwrap();
        assert_eq!(ab.path(origin.expose()), Some("x/y.txt"));
        assert_eq!(a.path(origin.expose()), None);
        assert!(Label::parse("a/b").is_err() && Label::parse("").is_err());
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(shown("a\u{1b}[2J\n\u{202e}b"), "a\\u{1b}[2J\\u{a}\\u{202e}b");
    }
}
