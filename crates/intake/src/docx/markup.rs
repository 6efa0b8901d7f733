//! XML as events with one error and bounded depth. Entities other than the five of XML itself are not resolved
//! and a document type is refused, so nothing expands and nothing outside is named.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::limits::Meter;
use crate::refusal::Refusal;

const DAMAGED: Refusal = Refusal::Broken("its XML is not well formed");

/// What a reader of a part is told.
#[derive(Debug)]
pub(super) enum Step<'x> {
    Start(BytesStart<'x>),
    /// The local name of an element that ends.
    End(String),
    Text(String),
}

/// Calls `each` for every step of the XML. An empty element starts and ends.
pub(super) fn walk(
    xml: &str,
    meter: &mut Meter<'_>,
    mut each: impl FnMut(Step<'_>, &mut Meter<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut reader = Reader::from_str(xml.trim_start_matches('\u{feff}'));
    let mut depth = 0usize;
    loop {
        meter.steps(1)?;
        match reader.read_event().map_err(|_| DAMAGED)? {
            Event::Start(tag) => {
                depth += 1;
                meter.depth(depth)?;
                each(Step::Start(tag), meter)?;
            }
            Event::Empty(tag) => {
                let name = local(&tag);
                each(Step::Start(tag), meter)?;
                each(Step::End(name), meter)?;
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                each(Step::End(tag.local_name().as_ref().to_owned()), meter)?;
            }
            Event::Text(text) => each(Step::Text(text.xml10_content().into_owned()), meter)?,
            Event::CData(text) => each(Step::Text(text.xml10_content().into_owned()), meter)?,
            Event::GeneralRef(entity) => {
                let c = match entity.resolve_char_ref().map_err(|_| DAMAGED)? {
                    Some(c) => Some(c),
                    None => match entity.into_inner().as_ref() {
                        "lt" => Some('<'),
                        "gt" => Some('>'),
                        "amp" => Some('&'),
                        "quot" => Some('"'),
                        "apos" => Some('\''),
                        _ => None,
                    },
                };
                each(Step::Text(c.ok_or(DAMAGED)?.to_string()), meter)?;
            }
            Event::DocType(_) => return Err(DAMAGED),
            Event::Eof if depth > 0 => return Err(DAMAGED),
            Event::Eof => return Ok(()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

pub(super) fn local(tag: &BytesStart<'_>) -> String {
    tag.local_name().as_ref().to_owned()
}

/// The value of an attribute, whatever its prefix.
pub(super) fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = tag.attributes().flatten().find(|attribute| attribute.key.local_name().as_ref() == name)?;
    quick_xml::escape::unescape(&found.value).ok().map(std::borrow::Cow::into_owned)
}

/// Whether a property that is there is on: `<w:vanish/>` is, `<w:vanish w:val="0"/>` is not.
pub(super) fn is_on(tag: &BytesStart<'_>) -> bool {
    !attribute(tag, "val").is_some_and(|value| matches!(value.as_str(), "0" | "false" | "off"))
}
