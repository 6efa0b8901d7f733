//! Replays real histories of policies and laws into a running service, and asks after every event what the
//! service says now: in a conversation that began before the replacement, in one that began after it, and from
//! the answer cache.
//!
//! ```sh
//! MERKWELT_KEY=<app key> cargo run --release --example policy_history -- http://127.0.0.1:7777 ../shared/data/policy_history
//! ```
//!
//! With `--revisions FILE`, the unpacked `revisions.jsonl` of the set, whole documents are replayed instead of the
//! sections around the questions. With `--keep-old` nothing is ever removed: every revision becomes a source of its own. That run
//! must look bad, or this one could not fail. Nothing of the data is part of this repository.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};

use anyhow::{Context, bail};
use merkwelt_server::bench::quality::Place;
use merkwelt_server::cli::Client;
use serde_json::{Value, json};

const BUDGET: u32 = 2_000;
const K: u32 = 5;

/// What was seen over the whole replay.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    asked: u64,
    /// Hits of a revision that is not the current one.
    stale_revisions: u64,
    /// Hits that say an obsolete value, whatever their revision.
    stale_hits: u64,
    /// Questions with such a hit among the first five.
    stale_questions: u64,
    /// Questions for which a pack says an obsolete value.
    stale_values: u64,
    /// Questions whose current value was to be found, and how many packs held it.
    answerable: u64,
    current_found: u64,
    tokens: u64,
    stale_answers: u64,
    cached_answers: u64,
    found_after_delete: u64,
    deletes: u64,
    restored: u64,
    found_after_restore: u64,
    embedded: u64,
    reused: u64,
}

struct Question {
    text: String,
    place: Place,
    stale: BTreeSet<String>,
    timeline: BTreeMap<u64, String>,
    ambiguous: bool,
}

struct Document {
    source: Option<String>,
    revision: u64,
    approved: BTreeMap<String, String>,
    current: Option<String>,
    conversation: String,
}

struct Replay {
    client: Client,
    keep_old: bool,
    texts: BTreeMap<(String, u64), String>,
    questions: BTreeMap<String, Vec<Question>>,
    documents: BTreeMap<String, Document>,
    counts: Counts,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, folder, options @ ..] = arguments.as_slice() else { bail!(USAGE) };
    let (mut keep_old, mut revisions) = (false, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match (option.as_str(), revisions.is_none()) {
            ("--keep-old", _) => keep_old = true,
            ("--revisions", true) => revisions = Some(options.next().context(USAGE)?.clone()),
            _ => bail!(USAGE),
        }
    }
    #[expect(clippy::disallowed_methods, reason = "the documented way to hand a key to a command")]
    let key = std::env::var("MERKWELT_KEY").context("MERKWELT_KEY is not set")?;
    let mut replay = Replay {
        client: Client::new(url, &key),
        keep_old,
        texts: texts(revisions.as_ref().unwrap_or(&format!("{folder}/mini_revisions.jsonl")))?,
        questions: questions(folder, revisions.is_some())?,
        documents: BTreeMap::new(),
        counts: Counts::default(),
    };
    for event in lines(&format!("{folder}/events.jsonl"))? {
        replay.event(&event)?;
    }
    let mut out = std::io::stdout();
    replay.report(&mut out)
}

const USAGE: &str =
    "usage: policy_history URL FOLDER [--keep-old] [--revisions FILE], with an app key in MERKWELT_KEY";

fn lines(path: &str) -> anyhow::Result<Vec<Value>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {path}"))?;
    BufReader::new(file).lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}

fn text_of(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number_of(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn texts(path: &str) -> anyhow::Result<BTreeMap<(String, u64), String>> {
    let rows = lines(path)?;
    Ok(rows.iter().map(|r| ((text_of(r, "doc_id"), number_of(r, "rev")), text_of(r, "text"))).collect())
}

fn questions(folder: &str, whole: bool) -> anyhow::Result<BTreeMap<String, Vec<Question>>> {
    let mut found: BTreeMap<String, Vec<Question>> = BTreeMap::new();
    let ambiguous = if whole { "regex_ambiguous_in_doc" } else { "regex_ambiguous_in_mini" };
    for row in lines(&format!("{folder}/questions.jsonl"))? {
        if !whole && row.get("in_mini") != Some(&Value::Bool(true)) {
            continue;
        }
        let place = Place::of(&text_of(&row, "answer_regex"))?;
        let list = |name: &str| row.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let timeline = list("timeline");
        let timeline = timeline.iter().map(|step| (number_of(step, "rev"), text_of(step, "answer")));
        let question = Question {
            text: text_of(&row, "question"),
            place,
            stale: list("stale").iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
            timeline: timeline.collect(),
            ambiguous: row.get(ambiguous) == Some(&Value::Bool(true)),
        };
        found.entry(text_of(&row, "doc_id")).or_default().push(question);
    }
    Ok(found)
}

impl Replay {
    fn event(&mut self, event: &Value) -> anyhow::Result<()> {
        let (id, revision) = (text_of(event, "doc_id"), number_of(event, "rev"));
        let op = text_of(event, "op");
        let has_text = self.texts.contains_key(&(id.clone(), revision));
        if !self.questions.contains_key(&id) || (op != "delete" && !has_text) {
            return Ok(());
        }
        self.counts.events += 1;
        match op.as_str() {
            "delete" => self.delete(&id)?,
            _ => self.put(&id, revision, op == "restore")?,
        }
        self.ask(&id, op.as_str())
    }

    fn opened(&self) -> anyhow::Result<String> {
        let made = self.person().post("/v1/conversations", &json!({ "keep_days": 1 }), None)?.success()?;
        Ok(text_of(&made, "id"))
    }

    fn person(&self) -> Client {
        self.client.acting_for("reader")
    }

    fn register(&self) -> anyhow::Result<String> {
        let body = json!({ "title": "Policy", "evidence": "digest_with_copy" });
        Ok(text_of(&self.client.post("/v1/sources", &body, None)?.success()?, "id"))
    }

    fn put(&mut self, id: &str, revision: u64, restored: bool) -> anyhow::Result<()> {
        let text = self.texts.get(&(id.to_owned(), revision)).cloned().unwrap_or_default();
        if !self.documents.contains_key(id) {
            let document = Document {
                source: None,
                revision: 0,
                approved: BTreeMap::new(),
                current: None,
                conversation: self.opened()?,
            };
            self.documents.insert(id.to_owned(), document);
        }
        let known = self.documents.get(id).context("the document is there")?;
        let source = match known.source.clone().filter(|_| !self.keep_old) {
            Some(source) => source,
            None => self.register()?,
        };
        if let (true, Some(former)) = (restored && !self.keep_old, known.approved.get(&text)) {
            let path = format!("/v1/sources/{source}/restore");
            self.client.post(&path, &json!({ "revision_id": former }), None)?.success()?;
        } else {
            let (source, made) = self.send(source, &text)?;
            let document = self.documents.get_mut(id).context("the document is there")?;
            document.approved.insert(text, text_of(&made, "revision_id"));
            document.source = Some(source);
            self.counts.embedded += number_of(&made, "embedded");
            self.counts.reused += number_of(&made, "reused");
        }
        let document = self.documents.get_mut(id).context("the document is there")?;
        document.revision = revision;
        document.current =
            self.texts.get(&(id.to_owned(), revision)).and_then(|t| document.approved.get(t)).cloned();
        self.counts.restored += u64::from(restored);
        Ok(())
    }

    /// Sends a revision; a source that was deleted is registered anew.
    fn send(&self, source: String, text: &str) -> anyhow::Result<(String, Value)> {
        let path = |source: &str| format!("/v1/sources/{source}/revisions?publish=true");
        let answer = self.client.put(&path(&source), "text/markdown", text.as_bytes())?;
        if answer.status != 404 {
            return Ok((source, answer.success()?));
        }
        let source = self.register()?;
        let answer = self.client.put(&path(&source), "text/markdown", text.as_bytes())?;
        Ok((source, answer.success()?))
    }

    fn delete(&mut self, id: &str) -> anyhow::Result<()> {
        self.counts.deletes += 1;
        let Some(document) = self.documents.get_mut(id) else { return Ok(()) };
        document.revision = 0;
        document.current = None;
        let Some(source) = &document.source else { return Ok(()) };
        if self.keep_old {
            return Ok(());
        }
        let gone = self.client.delete(&format!("/v1/sources/{source}"))?.success()?;
        if gone.get("done") != Some(&Value::Bool(true)) {
            bail!("something is left of a deleted source: {gone}");
        }
        Ok(())
    }

    fn ask(&mut self, id: &str, op: &str) -> anyhow::Result<()> {
        let Some(document) = self.documents.get(id) else { return Ok(()) };
        let (old, revision) = (document.conversation.clone(), document.revision);
        let (source, current) = (document.source.clone(), document.current.clone());
        let new = self.opened()?;
        let questions = self.questions.remove(id).unwrap_or_default();
        for question in &questions {
            for conversation in [&old, &new] {
                self.ask_one(question, conversation, (revision, source.as_deref(), current.as_deref()), op)?;
            }
            self.ask_cache(question, source.as_deref(), revision)?;
        }
        self.questions.insert(id.to_owned(), questions);
        Ok(())
    }

    fn ask_one(
        &mut self,
        question: &Question,
        conversation: &str,
        (revision, source, current_id): (u64, Option<&str>, Option<&str>),
        op: &str,
    ) -> anyhow::Result<()> {
        let body = json!({ "question": question.text, "k": K });
        let found = self.person().post("/v1/recall", &body, None)?.success()?;
        let body = json!({ "question": question.text, "conversation": conversation, "budget": BUDGET });
        let pack = self.person().post("/v1/context", &body, None)?.success()?;
        // Another document may use the same words with another value; it is not what was asked about.
        let keep_old = self.keep_old;
        let own = |text: &str| keep_old || source.is_some_and(|source| text.contains(source));
        let turn = text_of(&pack, "turn");
        let said: Vec<&str> = turn.split("\n- [").filter(|passage| own(passage)).collect();
        let of_document = |hit: &&Value| hit.get("citation").is_some_and(|c| own(&text_of(c, "source_id")));
        let hits = found.get("hits").and_then(Value::as_array).cloned().unwrap_or_default();
        let of_revision =
            |hit: &&Value| hit.pointer("/citation/revision_id").and_then(Value::as_str) != current_id;
        let old = hits.iter().filter(of_document).filter(of_revision).count();
        self.counts.stale_revisions += u64::try_from(old)?;
        let hits: Vec<String> = hits.iter().filter(of_document).map(|hit| text_of(hit, "text")).collect();
        let current = question.timeline.range(..=revision).next_back().map(|(_, value)| value.clone());
        let current = current.filter(|value| revision > 0 && !value.is_empty());
        let counts = &mut self.counts;
        counts.asked += 1;
        counts.tokens += number_of(pack.get("tokens").unwrap_or(&Value::Null), "total");
        if question.ambiguous {
            return Ok(());
        }
        let says = |text: &str, value: &str| question.place.says(text, value);
        let stale = question.stale.iter().filter(|value| Some(*value) != current.as_ref());
        let stale: Vec<&String> = stale.collect();
        let obsolete = |text: &str| {
            stale.iter().any(|value| says(text, value))
                && !current.as_ref().is_some_and(|value| says(text, value))
        };
        let stale_hits = hits.iter().filter(|text| obsolete(text)).count();
        counts.stale_hits += u64::try_from(stale_hits)?;
        counts.stale_questions += u64::from(stale_hits > 0);
        counts.stale_values += u64::from(said.iter().any(|text| obsolete(text)));
        if let Some(current) = &current {
            let found = said.iter().any(|text| says(text, current));
            counts.answerable += 1;
            counts.current_found += u64::from(found);
            counts.found_after_restore += u64::from(op == "restore" && found);
            if !found {
                writeln!(std::io::stderr(), "missed: {} ({current})", question.text)?;
            }
        }
        if op == "delete" {
            let known = question.timeline.values().filter(|value| !value.is_empty());
            let texts = || hits.iter().map(String::as_str).chain(said.iter().copied());
            let anything = known.into_iter().any(|value| texts().any(|text| says(text, value)));
            counts.found_after_delete += u64::from(anything);
        }
        Ok(())
    }

    /// Looks for the kept answer first, which must be none or the current one, then keeps the current one.
    fn ask_cache(&mut self, question: &Question, source: Option<&str>, revision: u64) -> anyhow::Result<()> {
        let maker = json!({ "question": question.text, "model": "replay", "prompt": "1" });
        let found = self.person().post("/v1/answers/lookup", &maker, None)?.success()?;
        let current = question.timeline.range(..=revision).next_back().map(|(_, value)| value.clone());
        if found.get("hit") == Some(&Value::Bool(true)) {
            self.counts.cached_answers += 1;
            let answer = text_of(&found, "answer");
            self.counts.stale_answers += u64::from(revision == 0 || Some(answer) != current);
        }
        let (Some(source), Some(current)) = (source, current.filter(|v| revision > 0 && !v.is_empty()))
        else {
            return Ok(());
        };
        let record = self.client.get(&format!("/v1/sources/{source}"))?.success()?;
        let revisions = record.get("revisions").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_current = |r: &&Value| r.get("current") == Some(&Value::Bool(true));
        let Some(number) = revisions.iter().find(is_current).map(|r| number_of(r, "revision")) else {
            return Ok(());
        };
        let mut body = maker;
        if let Some(map) = body.as_object_mut() {
            map.insert("answer".to_owned(), json!(current));
            map.insert("sources".to_owned(), json!([{ "source_id": source, "revision": number }]));
        }
        self.person().post("/v1/answers", &body, None)?.success()?;
        Ok(())
    }

    fn report(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let c = &self.counts;
        writeln!(out, "{:#?}", c)?;
        let share = |part: u64, whole: u64| {
            if whole == 0 {
                0.0
            } else {
                f64::from(u32::try_from(part).unwrap_or(u32::MAX))
                    / f64::from(u32::try_from(whole).unwrap_or(u32::MAX))
            }
        };
        writeln!(out, "events replayed            {}", c.events)?;
        writeln!(out, "questions asked            {}", c.asked)?;
        writeln!(out, "hits of an old revision    {}", c.stale_revisions)?;
        writeln!(out, "stale value in the first 5 {:.3}", share(c.stale_questions, c.asked))?;
        writeln!(out, "stale value in the pack    {:.3}", share(c.stale_values, c.asked))?;
        writeln!(out, "stale cached answers       {} of {}", c.stale_answers, c.cached_answers)?;
        writeln!(
            out,
            "current value in the pack  {:.3} of {}",
            share(c.current_found, c.answerable),
            c.answerable
        )?;
        writeln!(out, "tokens per pack            {:.0}", share(c.tokens, c.asked))?;
        writeln!(out, "found after a deletion     {} of {} deletions", c.found_after_delete, c.deletes)?;
        writeln!(out, "found after a restoration  {} ({} restorations)", c.found_after_restore, c.restored)?;
        writeln!(out, "vectors made / taken over  {} / {}", c.embedded, c.reused)?;
        let stale = c.stale_revisions + c.stale_answers + c.found_after_delete;
        match (self.keep_old, stale) {
            (false, 1..) => bail!("{stale} times something old was served as if it held"),
            (true, 0) => {
                bail!("nothing old was served although nothing was removed: this run can show nothing")
            }
            _ => {}
        }
        Ok(())
    }
}
