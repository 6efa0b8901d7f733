//! Markdown: CommonMark with tables, read into the same blocks as the other kinds. Emphasis is dropped, links
//! keep their target, HTML inside is read as HTML.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::document::BlockKind;
use crate::draft::Draft;
use crate::html;
use crate::limits::Meter;
use crate::refusal::Refusal;

/// Adds the blocks of a Markdown text.
pub(crate) fn read(text: &str, draft: &mut Draft, meter: &mut Meter<'_>) -> Result<(), Refusal> {
    meter.steps(text.len())?;
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let mut reading = Reading {
        draft,
        meter,
        lists: Vec::new(),
        at: Vec::new(),
        words: String::new(),
        html: String::new(),
        links: Vec::new(),
    };
    for event in Parser::new_ext(text, options) {
        reading.meter.steps(1)?;
        reading.event(event)?;
    }
    reading.flush()
}

/// What the words being collected belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Heading(u8),
    Code,
    Row,
    Metadata,
    Html,
}

struct Reading<'d, 'm, 'l> {
    draft: &'d mut Draft,
    meter: &'m mut Meter<'l>,
    /// The next number of each open list, `None` for one without numbers.
    lists: Vec<Option<u64>>,
    at: Vec<Place>,
    words: String,
    html: String,
    /// Targets of the links that are open.
    links: Vec<String>,
}

impl Reading<'_, '_, '_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Refusal> {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.at.last() == Some(&Place::Html) => {
                self.html.push_str(&text);
                Ok(())
            }
            Event::Text(text) => {
                self.words.push_str(&text);
                Ok(())
            }
            Event::Code(code) => {
                self.words.push('`');
                self.words.push_str(&code);
                self.words.push('`');
                Ok(())
            }
            Event::Html(html) => {
                self.html.push_str(&html);
                Ok(())
            }
            Event::SoftBreak => {
                self.words.push(' ');
                Ok(())
            }
            Event::HardBreak => {
                self.words.push('\n');
                Ok(())
            }
            Event::TaskListMarker(done) => {
                self.words.push_str(if done { "[x] " } else { "[ ] " });
                Ok(())
            }
            Event::InlineHtml(html) => {
                if html.starts_with("<!--") {
                    self.draft.omitted().n_comments += 1;
                } else if html.starts_with("<br") {
                    self.words.push('\n');
                }
                Ok(())
            }
            Event::Rule => self.flush(),
            Event::InlineMath(_) | Event::DisplayMath(_) | Event::FootnoteReference(_) => Ok(()),
        }
    }

    fn start(&mut self, tag: Tag<'_>) -> Result<(), Refusal> {
        match tag {
            Tag::Heading { level, .. } => {
                self.flush()?;
                self.at.push(Place::Heading(level as u8));
            }
            Tag::List(number) => {
                self.flush()?;
                self.lists.push(number);
                self.meter.depth(self.lists.len())?;
            }
            Tag::Item => {
                self.flush()?;
                if let Some(Some(number)) = self.lists.last_mut() {
                    self.words.push_str(&format!("{number}. "));
                    *number = number.saturating_add(1);
                }
            }
            Tag::CodeBlock(_) => {
                self.flush()?;
                self.at.push(Place::Code);
            }
            Tag::HtmlBlock => {
                self.flush()?;
                self.at.push(Place::Html);
            }
            Tag::MetadataBlock(_) => {
                self.flush()?;
                self.at.push(Place::Metadata);
            }
            Tag::TableHead | Tag::TableRow => {
                self.flush()?;
                self.at.push(Place::Row);
            }
            Tag::TableCell if !self.words.is_empty() => self.words.push_str(" | "),
            // A paragraph inside an item continues it: its number is already there.
            Tag::Paragraph if self.lists.is_empty() => self.flush()?,
            Tag::Link { dest_url, .. } => self.links.push(dest_url.into_string()),
            Tag::Image { .. } => self.draft.omitted().n_pictures += 1,
            Tag::Paragraph
            | Tag::BlockQuote(_)
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Table(_)
            | Tag::TableCell
            | Tag::Emphasis
            | Tag::Strong
            | Tag::Strikethrough
            | Tag::Superscript
            | Tag::Subscript => {}
        }
        Ok(())
    }

    fn end(&mut self, tag: TagEnd) -> Result<(), Refusal> {
        match tag {
            TagEnd::List(_) => {
                self.flush()?;
                self.lists.pop();
                Ok(())
            }
            TagEnd::Heading(_)
            | TagEnd::CodeBlock
            | TagEnd::MetadataBlock(_)
            | TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::HtmlBlock => {
                self.flush()?;
                self.at.pop();
                Ok(())
            }
            TagEnd::Link => {
                if let Some(url) =
                    self.links.pop().filter(|url| url.contains(':') && !self.words.ends_with(url))
                {
                    self.words.push_str(&format!(" ({url})"));
                }
                Ok(())
            }
            TagEnd::Paragraph | TagEnd::Item | TagEnd::BlockQuote(_) => self.flush(),
            TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Table
            | TagEnd::TableCell
            | TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::Image => Ok(()),
        }
    }

    /// Writes what was collected as a block of its place.
    fn flush(&mut self) -> Result<(), Refusal> {
        let html = std::mem::take(&mut self.html);
        if !html.is_empty() {
            html::read(&html, self.draft, self.meter)?;
        }
        let words = std::mem::take(&mut self.words);
        let depth = u8::try_from(self.lists.len().saturating_sub(1)).unwrap_or(u8::MAX);
        let kind = match self.at.last() {
            Some(Place::Heading(level)) => BlockKind::Heading { level: *level },
            Some(Place::Code) => BlockKind::Code,
            Some(Place::Row) => BlockKind::Row,
            Some(Place::Metadata) => return Ok(()),
            Some(Place::Html) | None if self.lists.is_empty() => BlockKind::Paragraph,
            Some(Place::Html) | None => BlockKind::Item { depth },
        };
        if words.trim_end_matches([' ', '|']).is_empty() {
            return Ok(());
        }
        self.draft.paragraph(kind, &words, self.meter)
    }
}

#[cfg(test)]
mod tests {
    use crate::document::Document;
    use crate::limits::Limits;
    use crate::media::Media;

    fn text(markdown: &str) -> Document {
        crate::read(markdown.as_bytes(), Media::Markdown, &Limits::default()).unwrap()
    }

    #[test]
    fn a_text_keeps_its_structure() {
        let read = text(
            "---\ntitle: x\n---\n# Fristen #\n\nEin *wichtiger*\nAbsatz mit [Formular](https://example.org/f).\n\n\
             1. eins\n   - tiefer\n2. zwei\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```rust\nlet x = 1;\n```\n\
             <!-- geheim -->\n<div>sichtbar</div>\n\n> Zitat\n\nUnten\n=====\n",
        );
        assert_eq!(
            read.text(),
            "# Fristen\n\nEin wichtiger Absatz mit Formular (https://example.org/f).\n\n1. eins\n  - tiefer\n\
             2. zwei\n\n| a | b |\n| 1 | 2 |\n\n```\nlet x = 1;\n```\n\nsichtbar\n\nZitat\n\n# Unten"
        );
        let paths: Vec<_> = read.blocks().iter().map(|block| read.heading_path(block).join("/")).collect();
        assert_eq!(paths.first().map(String::as_str), Some("Fristen"));
        assert_eq!(paths.last().map(String::as_str), Some("Unten"));
    }

    #[test]
    fn headings_nest_by_their_level() {
        let read = text("# A\n\n### B\n\nb\n\n## C\n\nc\n\n# D\n\nd");
        let paths: Vec<_> = read.blocks().iter().map(|block| read.heading_path(block).join("/")).collect();
        assert_eq!(paths, ["A", "A/B", "A/B", "A/C", "A/C", "D", "D"]);
    }
}
