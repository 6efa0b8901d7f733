//! Real histories of laws and policies: after every revision was kept in its slots, a question finds the present
//! value and no old one. Each section is cut into parts; a part has a slot, so a new text takes the place of the
//! old one, and parts that are gone are withdrawn.

use std::collections::{BTreeMap, BTreeSet};

use merkwelt_authz::Request;
use merkwelt_domain::MemoryId;
use merkwelt_domain::memory::Kind;
use merkwelt_inference::Role;
use merkwelt_store::query::Turns;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::place::Place;
use super::sheet::Sheet;
use super::stage::{Note, Stage, fuse_ranks};
use super::{Options, rows};

#[derive(Deserialize)]
struct RevisionText {
    doc_id: String,
    rev: u32,
    text: String,
}

#[derive(Deserialize)]
struct Event {
    doc_id: String,
    op: String,
}

#[derive(Deserialize)]
struct Question {
    question: String,
    lang: String,
    answer_regex: String,
    current: Option<String>,
    stale: Vec<String>,
    #[serde(default)]
    in_mini: Option<bool>,
    #[serde(default)]
    regex_ambiguous_in_mini: Option<bool>,
}

const PART_BYTES_MAX: usize = 1_200;
const AT: [usize; 2] = [1, 5];
const DEPTH_OF_STALE: usize = 5;
const DEPTH: u16 = 50;

/// The parts of one revision by their slots.
type Parts = BTreeMap<String, String>;

pub(super) fn measure(
    stage: &Stage,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Sheet>> {
    let dir = options.data.join("policy_history");
    let mut revisions: Vec<RevisionText> = rows::read(&dir.join("mini_revisions.jsonl"))?;
    revisions.sort_by(|a, b| a.doc_id.cmp(&b.doc_id).then(a.rev.cmp(&b.rev)));
    let events: Vec<Event> = rows::read(&dir.join("events.jsonl"))?;
    let mut questions: Vec<Question> = rows::read(&dir.join("questions.jsonl"))?;
    let is_sure = |q: &Question| q.in_mini == Some(true) && q.regex_ambiguous_in_mini != Some(true);
    questions.retain(|question| is_sure(question) && question.current.is_some());
    questions.truncate(options.limit.unwrap_or(usize::MAX));
    let last: BTreeMap<&str, &str> = events.iter().map(|e| (e.doc_id.as_str(), e.op.as_str())).collect();
    let cut: Vec<(&RevisionText, Parts)> = revisions.iter().map(|r| (r, parts_of(r))).collect();
    let texts: BTreeSet<&str> =
        cut.iter().flat_map(|(_, parts)| parts.values().map(String::as_str)).collect();
    stage.warm(Role::Passage, &texts.into_iter().collect::<Vec<_>>(), say)?;
    stage.warm(Role::Query, &questions.iter().map(|q| q.question.as_str()).collect::<Vec<_>>(), say)?;
    let who = stage.person("policies")?;
    let mut kept: BTreeMap<&str, BTreeMap<String, MemoryId>> = BTreeMap::new();
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for (revision, parts) in &cut {
        let standing = kept.entry(&revision.doc_id).or_default();
        replace(stage, &who, standing, parts, &mut shown)?;
    }
    for (doc, standing) in &mut kept {
        if last.get(doc) == Some(&"delete") {
            replace(stage, &who, standing, &Parts::new(), &mut shown)?;
        }
    }
    let columns = ["current@1", "current@5", "stale@5"].map(str::to_owned);
    let note = "share of questions whose present value, or an old one, is in a text among the first k";
    let mut sheet = Sheet::new("Policy histories", note, columns);
    for question in &questions {
        ask(stage, &who, question, &shown, &mut sheet)?;
    }
    Ok(vec![sheet])
}

/// Brings a document to a revision: new and changed parts are kept, parts that are gone are withdrawn.
fn replace(
    stage: &Stage,
    who: &Request,
    standing: &mut BTreeMap<String, MemoryId>,
    parts: &Parts,
    shown: &mut BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let gone: Vec<String> = standing.keys().filter(|slot| !parts.contains_key(*slot)).cloned().collect();
    for slot in gone {
        if let Some(id) = standing.remove(&slot) {
            stage.retract(who, &id)?;
            shown.remove(id.as_str());
        }
    }
    let is_new = |(slot, text): &(&String, &String)| {
        standing.get(*slot).and_then(|id| shown.get(id.as_str())) != Some(*text)
    };
    let changed: Vec<(&String, &String)> = parts.iter().filter(is_new).collect();
    let notes: Vec<Note<'_>> =
        changed.iter().map(|(slot, text)| Note { kind: Kind::UserFact, text, slot: Some(slot) }).collect();
    for (id, (slot, text)) in stage.remember(who, &notes)?.into_iter().zip(changed) {
        shown.insert(id.to_string(), text.clone());
        standing.insert(slot.clone(), id);
    }
    Ok(())
}

fn ask(
    stage: &Stage,
    who: &Request,
    question: &Question,
    shown: &BTreeMap<String, String>,
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let place = Place::of(&question.answer_regex)?;
    let mut lists = Vec::new();
    for way in stage.ways() {
        lists.push((way.name, stage.recall(way, who, &question.question, Turns::None, DEPTH)?));
    }
    if let [(_, words), (_, vectors), ..] = lists.as_slice() {
        let ranks = fuse_ranks(&[words, vectors]);
        lists.insert(2, ("RRF", ranks));
    }
    for (name, list) in &lists {
        let current = question.current.clone().unwrap_or_default();
        let texts = |k: usize| list.iter().take(k).filter_map(|(id, _)| shown.get(id));
        let holds = |k: usize| texts(k).any(|text| place.says(text, &current));
        let [first, five] = AT.map(holds);
        let old = |text: &String| {
            let others = question.stale.iter().filter(|value| **value != current);
            others.into_iter().any(|value| place.says(text, value)) && !place.says(text, &current)
        };
        let row = [first, five, texts(DEPTH_OF_STALE).any(old)].map(|is| f64::from(u8::from(is)));
        sheet.add(name, &question.lang, &row);
    }
    Ok(())
}

/// Sections by their headings, cut at empty lines. The slot is made of document, heading and place.
fn parts_of(revision: &RevisionText) -> Parts {
    let mut parts = Parts::new();
    for section in revision.text.split("\n## ") {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        let mut part = String::new();
        let mut keep = |part: &mut String| {
            if part.trim().is_empty() {
                return;
            }
            let place =
                (0..).map(|n| slot(&revision.doc_id, heading, n)).find(|slot| !parts.contains_key(slot));
            parts.extend(place.map(|slot| (slot, format!("{}\n{}", heading.trim(), part.trim()))));
            part.clear();
        };
        for paragraph in body.split("\n\n") {
            if part.len() + paragraph.len() > PART_BYTES_MAX {
                keep(&mut part);
            }
            part.push_str(paragraph);
            part.push_str("\n\n");
        }
        keep(&mut part);
    }
    parts
}

fn slot(doc: &str, heading: &str, n: u32) -> String {
    let digest = digest(&SHA256, format!("{doc}\0{heading}").as_bytes());
    let hex: String = digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}:{n}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_paragraph_changes_its_part_and_no_other() {
        let parts =
            |text: &str| parts_of(&RevisionText { doc_id: "d".to_owned(), rev: 1, text: text.to_owned() });
        let (one, two) =
            (parts("# T\n\nintro\n## A\nold\n## B\nsame"), parts("# T\n\nintro\n## A\nnew\n## B\nsame"));
        assert_eq!(one.len(), 3);
        assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
        assert_eq!(one.iter().filter(|(slot, text)| two.get(*slot) != Some(text)).count(), 1);
        assert_eq!(parts(&format!("# T\n{}", "word word word\n\n".repeat(300))).len(), 4);
    }
}
