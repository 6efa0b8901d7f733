//! HTML: the words that a reader of the page sees, with its headings, lists and tables. Nothing is loaded and
//! nothing runs. Scripts, styles, navigation and forms are dropped; what markup or style hides is dropped and
//! counted, because hidden words are addressed to machines.

mod open;

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};

use crate::document::BlockKind;
use crate::draft::Draft;
use crate::limits::Meter;
use crate::refusal::Refusal;
use open::{Open, Skip};

/// Adds the blocks of a page or of a part of one.
pub(crate) fn read(text: &str, draft: &mut Draft, meter: &mut Meter<'_>) -> Result<(), Refusal> {
    meter.steps(text.len())?;
    let mut emitter = DefaultEmitter::default();
    // Scripts, styles and titles are read as one text each, not as markup.
    emitter.naively_switch_states(true);
    let mut page = Page::new(draft, meter);
    for token in Tokenizer::new_with_emitter(text, emitter).flatten() {
        page.meter.steps(1)?;
        page.token(token)?;
    }
    page.flush()
}

/// A table being read.
#[derive(Default)]
struct Table {
    cells: Vec<String>,
    in_cell: bool,
}

struct Page<'d, 'm, 'l> {
    draft: &'d mut Draft,
    meter: &'m mut Meter<'l>,
    open: Open,
    tables: Vec<Table>,
    /// The next number of each open list, `None` for one without numbers.
    lists: Vec<Option<u32>>,
    heading: Option<u8>,
    in_item: bool,
    n_pre: usize,
    in_title: bool,
    words: String,
}

impl<'d, 'm, 'l> Page<'d, 'm, 'l> {
    fn new(draft: &'d mut Draft, meter: &'m mut Meter<'l>) -> Self {
        Self {
            draft,
            meter,
            open: Open::default(),
            tables: Vec::new(),
            lists: Vec::new(),
            heading: None,
            in_item: false,
            n_pre: 0,
            in_title: false,
            words: String::new(),
        }
    }

    fn token(&mut self, token: Token) -> Result<(), Refusal> {
        match token {
            Token::StartTag(tag) => self.start(&tag),
            Token::EndTag(tag) => {
                let name = lower(&tag.name);
                for closed in self.open.close(&name) {
                    self.end(&closed)?;
                }
                Ok(())
            }
            Token::String(text) => {
                if self.in_title {
                    self.draft.title(&String::from_utf8_lossy(&text.value));
                } else if !self.open.skips() {
                    self.text(&String::from_utf8_lossy(&text.value));
                }
                Ok(())
            }
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => Ok(()),
        }
    }

    /// White space means nothing outside of `<pre>`; there a line break is a line break.
    fn text(&mut self, text: &str) {
        if self.n_pre > 0 {
            self.words.push_str(text);
            return;
        }
        for (index, word) in text.split([' ', '\n', '\t', '\r', '\u{c}']).enumerate() {
            if index > 0 && !self.words.is_empty() && !self.words.ends_with([' ', '\n']) {
                self.words.push(' ');
            }
            self.words.push_str(word);
        }
    }

    fn start(&mut self, tag: &StartTag<()>) -> Result<(), Refusal> {
        let name = lower(&tag.name);
        for closed in self.open.implied_by(&name) {
            self.end(&closed)?;
        }
        let skip = Skip::of(&name, tag);
        if skip == Some(Skip::Hidden) && !self.open.skips() {
            self.draft.omitted().n_hidden += 1;
        }
        if open::is_void(&name) || tag.self_closing && open::is_foreign(&name) {
            return if self.open.skips() || skip.is_some() { Ok(()) } else { self.void(&name) };
        }
        let visible = !self.open.skips() && skip.is_none();
        self.open.push(name.clone(), skip);
        self.meter.depth(self.open.depth())?;
        if name == "title" && self.open.is_page_title() {
            self.in_title = true;
        }
        if visible { self.begin(&name, tag) } else { Ok(()) }
    }

    fn void(&mut self, name: &str) -> Result<(), Refusal> {
        match name {
            "br" => self.words.push('\n'),
            "wbr" => self.words.push('\u{200b}'),
            "hr" => self.flush()?,
            "img" => self.draft.omitted().n_pictures += 1,
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, name: &str, tag: &StartTag<()>) -> Result<(), Refusal> {
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.flush()?;
                self.heading = name.get(1..).and_then(|level| level.parse().ok());
            }
            "ul" | "menu" => {
                self.flush()?;
                self.lists.push(None);
            }
            "ol" => {
                self.flush()?;
                let start = tag.attributes.get(b"start".as_slice());
                let start =
                    start.and_then(|value| std::str::from_utf8(&value.value).ok()?.trim().parse().ok());
                self.lists.push(Some(start.unwrap_or(1)));
            }
            "li" => {
                self.flush()?;
                self.in_item = true;
                if let Some(Some(number)) = self.lists.last_mut() {
                    self.words.push_str(&format!("{number}. "));
                    *number = number.saturating_add(1);
                }
            }
            "pre" => {
                self.flush()?;
                self.n_pre += 1;
            }
            "table" => {
                self.flush()?;
                self.tables.push(Table::default());
            }
            "tr" => self.row()?,
            "td" | "th" => {
                self.cell();
                if let Some(table) = self.tables.last_mut() {
                    table.in_cell = true;
                }
            }
            name if open::is_block(name) => self.pause()?,
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, closed: &open::Closed) -> Result<(), Refusal> {
        if closed.name == "title" {
            self.in_title = false;
        }
        if !closed.was_visible {
            return Ok(());
        }
        match closed.name.as_str() {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.flush()?;
                self.heading = None;
            }
            "ul" | "ol" | "menu" => {
                self.flush()?;
                self.lists.pop();
                self.in_item = !self.lists.is_empty();
            }
            "li" => {
                self.flush()?;
                self.in_item = false;
            }
            "pre" => {
                self.flush()?;
                self.n_pre = self.n_pre.saturating_sub(1);
            }
            "td" | "th" => self.cell(),
            "tr" => self.row()?,
            "table" => {
                self.row()?;
                self.tables.pop();
                self.pause()?;
            }
            name if open::is_block(name) => self.pause()?,
            _ => {}
        }
        Ok(())
    }

    /// Ends a paragraph; inside a cell that is only a space.
    fn pause(&mut self) -> Result<(), Refusal> {
        if self.tables.last().is_some_and(|table| table.in_cell) {
            self.words.push(' ');
            Ok(())
        } else {
            self.flush()
        }
    }

    fn cell(&mut self) {
        if let Some(table) = self.tables.last_mut() {
            if table.in_cell {
                table.cells.push(std::mem::take(&mut self.words).trim().to_owned());
            }
            table.in_cell = false;
        }
    }

    fn row(&mut self) -> Result<(), Refusal> {
        self.cell();
        let cells = self.tables.last_mut().map(|table| std::mem::take(&mut table.cells)).unwrap_or_default();
        if cells.iter().all(|cell| cell.is_empty()) {
            return Ok(());
        }
        // A row of one cell is a layout, not a table.
        let kind = if cells.len() > 1 { BlockKind::Row } else { BlockKind::Paragraph };
        self.draft.paragraph(kind, &cells.join(" | "), self.meter)
    }

    /// Writes what was collected as a block of its place.
    fn flush(&mut self) -> Result<(), Refusal> {
        if self.tables.last().is_some_and(|table| table.in_cell && self.heading.is_none()) {
            // A list or a table in a cell: what came before it is a row of its own.
            self.row()?;
            if let Some(table) = self.tables.last_mut() {
                table.in_cell = true;
            }
            return Ok(());
        }
        let words = std::mem::take(&mut self.words);
        let depth = u8::try_from(self.lists.len().saturating_sub(1)).unwrap_or(u8::MAX);
        let kind = match self.heading {
            Some(level) => BlockKind::Heading { level },
            None if self.n_pre > 0 => BlockKind::Code,
            None if self.in_item && !self.lists.is_empty() => BlockKind::Item { depth },
            None => BlockKind::Paragraph,
        };
        self.draft.paragraph(kind, &words, self.meter)
    }
}

fn lower(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use crate::limits::Limits;
    use crate::media::Media;

    fn page(html: &str) -> Document {
        crate::read(html.as_bytes(), Media::Html, &Limits::default()).unwrap()
    }

    #[test]
    fn a_page_becomes_headings_lists_and_rows() {
        let read = page(
            "<!doctype html><title>Fristen</title><nav><a>Start</a></nav><h1>Widerruf</h1>\
             <p>Die Frist\n beträgt <b>14</b> Tage.<p>Sie beginnt heute.\
             <ul><li>schriftlich<li>per Mail<ol start=3><li>an uns</ol></ul>\
             <table><tr><th>Land<th>Tage<tr><td>DE<td>14</table>\
             <pre>a\n  b</pre><script>alert('<p>no')</script><style>p{}</style>",
        );
        assert_eq!(
            read.text(),
            "# Widerruf\n\nDie Frist beträgt 14 Tage.\n\nSie beginnt heute.\n\n- schriftlich\n- per Mail\n  \
             3. an uns\n\n| Land | Tage |\n| DE | 14 |\n\n```\na\n  b\n```"
        );
        assert_eq!(read.title(), Some("Fristen"));
    }

    #[test]
    fn what_a_reader_does_not_see_is_dropped_and_counted() {
        let read = page(
            "<p>seen<p hidden>one<p>seen too<div style='color:red; DISPLAY : none'>two<p>three</div>\
             <span style=visibility:hidden>four</span><template>five</template><!-- six -->\
             <span style='font-size:0px'>seven</span><noscript>eight</noscript><p>the end",
        );
        assert_eq!(read.text(), "seen\n\nseen too\n\nthe end");
        assert_eq!(read.omitted().n_hidden, 4);
    }

    #[test]
    fn unclosed_and_stray_tags_lose_no_words() {
        let read = page("<html></p></td><div><b>a</div>b<table><tr><td>c<table><tr><td>d</table>e</table>f");
        let words: Vec<_> = read.text().split_whitespace().collect();
        assert_eq!(words, ["a", "b", "c", "d", "e", "f"]);
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        let deep = "<div>".repeat(100_000);
        let refused = crate::read(deep.as_bytes(), Media::Html, &Limits::default());
        assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{refused:?}");
    }
}
