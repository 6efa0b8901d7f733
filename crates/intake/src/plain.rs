//! Plain text: paragraphs are separated by blank lines. Nothing else is read into it.

use crate::document::BlockKind;
use crate::draft::Draft;
use crate::limits::Meter;
use crate::refusal::Refusal;

/// Adds the paragraphs of a text.
pub(crate) fn read(text: &str, draft: &mut Draft, meter: &mut Meter<'_>) -> Result<(), Refusal> {
    meter.steps(text.len())?;
    let text = text.replace("\r\n", "\n").replace(['\r', '\u{c}'], "\n");
    let mut paragraph = String::new();
    for line in text.lines() {
        if line.trim().is_empty() {
            draft.paragraph(BlockKind::Paragraph, &paragraph, meter)?;
            paragraph.clear();
        } else {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    draft.paragraph(BlockKind::Paragraph, &paragraph, meter)
}
