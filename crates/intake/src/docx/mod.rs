//! DOCX: the body of a Word document as a reader sees it with all changes accepted. Tracked deletions, comments
//! and hidden text are left out and counted; headers and footers, which repeat on every page, are left out.
//! Regions are paragraph numbers, because pages come into being only when Word lays the text out.

mod archive;
mod markup;
mod styles;

use quick_xml::events::BytesStart;

use crate::document::BlockKind;
use crate::draft::Draft;
use crate::limits::Meter;
use crate::refusal::Refusal;
use archive::Archive;
use markup::{Step, attribute, is_on, local, walk};
use styles::{Lists, Numbering, Styles};

/// Adds the paragraphs of a Word document.
pub(crate) fn read(bytes: &[u8], draft: &mut Draft, meter: &mut Meter<'_>) -> Result<(), Refusal> {
    let archive = Archive::open(bytes, meter)?;
    let main = main_part(&archive, meter)?;
    let folder = main.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let beside = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let styles = match archive.part(&beside("styles.xml"), meter)? {
        Some(xml) => Styles::read(&xml, meter)?,
        None => Styles::default(),
    };
    let lists = match archive.part(&beside("numbering.xml"), meter)? {
        Some(xml) => Lists::read(&xml, meter)?,
        None => Lists::default(),
    };
    let body = archive.part(&main, meter)?.ok_or(Refusal::Broken("its main part is missing"))?;
    let mut reading = Reading::new(draft, styles, lists);
    reading.part(&body, meter)?;
    // Notes stand at the foot of a page; here they follow the text.
    for name in ["footnotes.xml", "endnotes.xml"] {
        if let Some(xml) = archive.part(&beside(name), meter)? {
            reading.part(&xml, meter)?;
        }
    }
    Ok(())
}

/// The part that holds the text, as the list of content types says.
fn main_part(archive: &Archive<'_>, meter: &mut Meter<'_>) -> Result<String, Refusal> {
    let Some(types) = archive.part("[Content_Types].xml", meter)? else {
        let is_open = archive.holds("mimetype") && archive.holds("content.xml");
        return Err(Refusal::Unsupported(if is_open { "an OpenDocument file" } else { "an archive" }));
    };
    let mut found = None;
    let mut refused = None;
    walk(&types, meter, |step, _| {
        if let Step::Start(tag) = step
            && let (Some(part), Some(kind)) = (attribute(&tag, "PartName"), attribute(&tag, "ContentType"))
        {
            if kind.ends_with("wordprocessingml.document.main+xml") {
                found = Some(part.trim_start_matches('/').to_owned());
            } else if kind.contains("ms-word.document.macroEnabled.main") {
                refused = Some("a Word document with macros");
            } else if kind.ends_with("spreadsheetml.sheet.main+xml") {
                refused = Some("a spreadsheet");
            } else if kind.ends_with("presentationml.presentation.main+xml") {
                refused = Some("a presentation");
            }
        }
        Ok(())
    })?;
    found.ok_or(Refusal::Unsupported(refused.unwrap_or("an archive")))
}

/// A paragraph being read.
#[derive(Debug, Default)]
struct Paragraph {
    words: String,
    style: Option<String>,
    outline: Option<u8>,
    numbering: Numbering,
    in_properties: bool,
    /// Whether the run being read is hidden.
    is_hidden: bool,
}

struct Reading<'d> {
    draft: &'d mut Draft,
    styles: Styles,
    lists: Lists,
    /// Text boxes put paragraphs into paragraphs.
    open: Vec<Paragraph>,
    n_tables: usize,
    cells: Vec<String>,
    /// How deep inside an element whose content is left out.
    n_skipped: usize,
    in_text: bool,
}

impl<'d> Reading<'d> {
    fn new(draft: &'d mut Draft, styles: Styles, lists: Lists) -> Self {
        let (open, cells) = (Vec::new(), Vec::new());
        Self { draft, styles, lists, open, n_tables: 0, cells, n_skipped: 0, in_text: false }
    }

    fn part(&mut self, xml: &str, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        walk(xml, meter, |step, meter| match step {
            Step::Start(tag) => {
                self.start(&tag);
                Ok(())
            }
            Step::End(name) => self.end(&name, meter),
            Step::Text(text) => {
                if self.in_text && self.n_skipped == 0 {
                    self.push(&text);
                }
                Ok(())
            }
        })
    }

    fn start(&mut self, tag: &BytesStart<'_>) {
        let name = local(tag);
        if self.n_skipped > 0 || is_left_out(&name) {
            self.n_skipped += 1;
            if self.n_skipped == 1 && matches!(name.as_str(), "del" | "moveFrom") {
                self.draft.omitted().n_deletions += 1;
            }
            return;
        }
        match name.as_str() {
            "tbl" => self.n_tables += 1,
            "tr" if self.n_tables == 1 => self.cells.clear(),
            "tc" if self.n_tables == 1 => self.cells.push(String::new()),
            "p" => self.open.push(Paragraph::default()),
            "t" => self.in_text = true,
            "tab" | "ptab" if !self.in_properties() => self.push("\t"),
            "br" | "cr" => self.push("\n"),
            "noBreakHyphen" => self.push("-"),
            "commentReference" => self.draft.omitted().n_comments += 1,
            "pic" | "imagedata" => self.draft.omitted().n_pictures += 1,
            _ => self.property(&name, tag),
        }
    }

    fn property(&mut self, name: &str, tag: &BytesStart<'_>) {
        let hidden_style = name == "rStyle" && self.styles.is_hidden(attribute(tag, "val").as_deref());
        let Some(open) = self.open.last_mut() else { return };
        match name {
            "pPr" => open.in_properties = true,
            "pStyle" => open.style = attribute(tag, "val"),
            "outlineLvl" => open.outline = attribute(tag, "val").and_then(|value| styles::outline(&value)),
            "numId" => open.numbering.list = attribute(tag, "val").and_then(|value| value.parse().ok()),
            "ilvl" => open.numbering.level = attribute(tag, "val").and_then(|value| value.parse().ok()),
            "r" => open.is_hidden = false,
            "vanish" | "webHidden" if !open.in_properties && is_on(tag) => self.hide(),
            "rStyle" if hidden_style => self.hide(),
            _ => {}
        }
    }

    fn hide(&mut self) {
        if let Some(open) = self.open.last_mut().filter(|open| !open.is_hidden) {
            open.is_hidden = true;
            self.draft.omitted().n_hidden += 1;
        }
    }

    fn in_properties(&self) -> bool {
        self.open.last().is_some_and(|open| open.in_properties)
    }

    fn push(&mut self, text: &str) {
        if let Some(open) = self.open.last_mut().filter(|open| !open.is_hidden && !open.in_properties) {
            open.words.push_str(text);
        }
    }

    fn end(&mut self, name: &str, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        if self.n_skipped > 0 {
            self.n_skipped -= 1;
            return Ok(());
        }
        match name {
            "t" => self.in_text = false,
            "pPr" => {
                if let Some(open) = self.open.last_mut() {
                    open.in_properties = false;
                }
            }
            "p" => {
                if let Some(paragraph) = self.open.pop() {
                    return self.close(&paragraph, meter);
                }
            }
            "tr" if self.n_tables == 1 => return self.row(meter),
            "tbl" => self.n_tables = self.n_tables.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, paragraph: &Paragraph, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        let style = paragraph.style.as_deref();
        if paragraph.words.trim().is_empty() {
            return Ok(());
        }
        if self.styles.is_hidden(style) {
            self.draft.omitted().n_hidden += 1;
            return Ok(());
        }
        let of_style = self.styles.numbering(style);
        let numbering = Numbering {
            list: paragraph.numbering.list.or(of_style.list).filter(|list| *list > 0),
            level: paragraph.numbering.level.or(of_style.level),
        };
        let label = if numbering.list.is_some() { self.lists.next(numbering) } else { String::new() };
        let words =
            if label.is_empty() { paragraph.words.clone() } else { format!("{label} {}", paragraph.words) };
        if let Some(cell) = self.cells.last_mut().filter(|_| self.n_tables > 0) {
            if !cell.is_empty() {
                cell.push('\n');
            }
            cell.push_str(words.trim());
            return Ok(());
        }
        let heading = match paragraph.outline {
            Some(level) => Some(level).filter(|level| *level > 0),
            None => self.styles.heading(style),
        };
        let kind = match (heading, numbering.list) {
            (Some(level), _) => BlockKind::Heading { level },
            (None, Some(_)) => BlockKind::Item { depth: numbering.level.unwrap_or(0).min(8) },
            (None, None) => BlockKind::Paragraph,
        };
        self.draft.paragraph(kind, &words, meter)
    }

    fn row(&mut self, meter: &mut Meter<'_>) -> Result<(), Refusal> {
        let cells = std::mem::take(&mut self.cells);
        if cells.iter().all(|cell| cell.is_empty()) {
            return Ok(());
        }
        // A row of one cell is a layout, not a table.
        let kind = if cells.len() > 1 { BlockKind::Row } else { BlockKind::Paragraph };
        self.draft.paragraph(kind, &cells.join(" | "), meter)
    }
}

/// Elements whose content a reader does not see once all changes are accepted, or sees elsewhere: deletions, the
/// place a text was moved from, the older twin of a drawing, properties before a change.
fn is_left_out(name: &str) -> bool {
    matches!(
        name,
        "del"
            | "moveFrom"
            | "Fallback"
            | "rPrChange"
            | "pPrChange"
            | "tblPrChange"
            | "sectPrChange"
            | "numberingChange"
    )
}
