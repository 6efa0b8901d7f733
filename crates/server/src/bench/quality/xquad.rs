//! German and English questions: the sentence with the answer, in the same and in the other language, and in a
//! pool of both. Sentences and passages are memories of one person per pool.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use merkwelt_authz::Request;
use merkwelt_domain::memory::Kind;
use merkwelt_inference::Role;
use merkwelt_store::query::Turns;
use serde::Deserialize;

use super::sheet::Sheet;
use super::stage::{Note, Stage, fuse_ranks};
use super::{Options, rows};

#[derive(Deserialize)]
struct Passage {
    pid: String,
    text: String,
}

#[derive(Deserialize)]
struct Question {
    qid: String,
    pid: String,
    question: String,
    answers: Vec<String>,
}

/// One language's side of the set.
struct Side {
    sentences: Vec<(String, String)>,
    passages: Vec<(String, String)>,
    questions: Vec<Question>,
    /// By question, the sentences of its passage that hold the answer.
    gold: BTreeMap<String, BTreeSet<String>>,
}

/// The memories of one person, and the names of the texts by memory.
struct Pool {
    who: Request,
    names: BTreeMap<String, BTreeSet<String>>,
}

const DEPTH: u16 = 50;
const AT: [usize; 4] = [1, 5, 10, 20];

pub(super) fn measure(
    stage: &Stage,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Sheet>> {
    let (german, english) = (Side::read("de", options)?, Side::read("en", options)?);
    for side in [&german, &english] {
        let kept = side.sentences.iter().chain(&side.passages);
        stage.warm(Role::Passage, &kept.map(|(_, text)| text.as_str()).collect::<Vec<_>>(), say)?;
        let asked = side.questions.iter().map(|question| question.question.as_str());
        stage.warm(Role::Query, &asked.collect::<Vec<_>>(), say)?;
    }
    let note = "share of questions with a sentence that holds the answer among the first k";
    let mut sentences = Sheet::new("XQuAD, sentences", note, AT.map(|k| format!("R@{k}")));
    let note = "share of questions with their passage among the first k";
    let mut passages = Sheet::new("XQuAD, passages", note, AT.map(|k| format!("R@{k}")));
    let de = Pool::fill(stage, "xquad-de", &[&german.sentences])?;
    let en = Pool::fill(stage, "xquad-en", &[&english.sentences])?;
    let mixed = Pool::fill(stage, "xquad-mixed", &[&german.sentences, &english.sentences])?;
    let de_passages = Pool::fill(stage, "xquad-passages-de", &[&german.passages])?;
    let en_passages = Pool::fill(stage, "xquad-passages-en", &[&english.passages])?;
    let runs = [
        ("de to de", &german, &de, &german.gold),
        ("en to en", &english, &en, &english.gold),
        ("de to en", &german, &en, &english.gold),
        ("en to de", &english, &de, &german.gold),
        ("mixed pool, de", &german, &mixed, &german.gold),
        ("mixed pool, en", &english, &mixed, &english.gold),
    ];
    for (name, asks, pool, gold) in runs {
        say(&format!("asking {name}"));
        for question in &asks.questions {
            // An answer that no single sentence holds is no question about sentences.
            let Some(gold) = gold.get(&question.qid).filter(|gold| !gold.is_empty()) else { continue };
            pool.ask(stage, name, &question.question, gold, &mut sentences)?;
        }
    }
    let runs = [
        ("de to de", &german, &de_passages, "de"),
        ("en to en", &english, &en_passages, "en"),
        ("de to en", &german, &en_passages, "en"),
        ("en to de", &english, &de_passages, "de"),
    ];
    for (name, asks, pool, language) in runs {
        say(&format!("asking {name}, passages"));
        for question in &asks.questions {
            let gold = [format!("{language} {}", question.pid)].into();
            pool.ask(stage, name, &question.question, &gold, &mut passages)?;
        }
    }
    Ok(vec![sentences, passages])
}

impl Side {
    fn read(language: &str, options: &Options) -> anyhow::Result<Self> {
        let dir = options.data.join("retrieval");
        let read: Vec<Passage> = rows::read(&dir.join(format!("xquad_{language}_passages.jsonl")))?;
        let mut questions: Vec<Question> =
            rows::read(&dir.join(format!("xquad_{language}_questions.jsonl")))?;
        questions.truncate(options.limit.unwrap_or(usize::MAX));
        let mut by_passage: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
        for passage in &read {
            let name = |n: usize| format!("{language} {} {n}", passage.pid);
            let split = sentences_of(&passage.text).into_iter().enumerate();
            by_passage.insert(&passage.pid, split.map(|(n, text)| (name(n), text.to_owned())).collect());
        }
        let mut gold = BTreeMap::new();
        for question in &questions {
            let split = by_passage.get(question.pid.as_str()).context("a question without its passage")?;
            let holds = |text: &str| question.answers.iter().any(|answer| text.contains(answer.as_str()));
            let names = split.iter().filter(|(_, text)| holds(text)).map(|(name, _)| name.clone()).collect();
            gold.insert(question.qid.clone(), names);
        }
        let sentences = by_passage.into_values().flatten().collect();
        let passages = read.into_iter().map(|p| (format!("{language} {}", p.pid), p.text)).collect();
        Ok(Self { sentences, passages, questions, gold })
    }
}

impl Pool {
    fn fill(stage: &Stage, name: &str, texts: &[&Vec<(String, String)>]) -> anyhow::Result<Self> {
        let who = stage.person(name)?;
        let texts: Vec<&(String, String)> = texts.iter().copied().flatten().collect();
        let notes: Vec<Note<'_>> =
            texts.iter().map(|(_, text)| Note { kind: Kind::UserFact, text, slot: None }).collect();
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // Equal sentences are one memory.
        for (id, (name, _)) in stage.remember(&who, &notes)?.into_iter().zip(texts) {
            names.entry(id.to_string()).or_default().insert(name.clone());
        }
        Ok(Self { who, names })
    }

    fn ask(
        &self,
        stage: &Stage,
        group: &str,
        question: &str,
        gold: &BTreeSet<String>,
        sheet: &mut Sheet,
    ) -> anyhow::Result<()> {
        let mut lists = Vec::new();
        for way in stage.ways() {
            lists.push((way.name, stage.recall(way, &self.who, question, Turns::None, DEPTH)?));
        }
        if let [(_, words), (_, vectors), ..] = lists.as_slice() {
            let ranks = fuse_ranks(&[words, vectors]);
            lists.insert(2, ("RRF", ranks));
        }
        for (way, list) in &lists {
            let is_gold = |(id, _): &(String, u32)| {
                self.names.get(id).is_some_and(|names| names.iter().any(|name| gold.contains(name)))
            };
            let first = list.iter().position(is_gold);
            let values = AT.map(|k| if first.is_some_and(|rank| rank < k) { 1.0 } else { 0.0 });
            sheet.add(way, group, &values);
        }
        Ok(())
    }
}

/// Splits after a full stop, question or exclamation mark that is followed by white space and a capital letter,
/// a digit or an opening quotation mark.
fn sentences_of(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut rest = text;
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|tail| tail.find(['.', '?', '!'])).map(|at| from + at) {
        from = at + 1;
        let Some((sentence, tail)) = rest.split_at_checked(from) else { break };
        let tail = tail.trim_start_matches(['"', '”', '“', '»', ')']);
        let closed = rest.len() - tail.len();
        let next = tail.trim_start();
        let begins =
            next.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || "„“\"«(".contains(c));
        if next.len() < tail.len() && begins && sentence.len() > 3 {
            sentences.extend(rest.get(..closed).map(str::trim));
            rest = next;
            from = 0;
        }
    }
    if !rest.trim().is_empty() {
        sentences.push(rest.trim());
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::sentences_of;

    #[test]
    fn passages_are_split_at_the_ends_of_sentences() {
        let text = "He said \"yes.\" It cost 3.5 million. Was it z.B. so? 1990 began";
        assert_eq!(
            sentences_of(text),
            ["He said \"yes.\"", "It cost 3.5 million.", "Was it z.B. so?", "1990 began"]
        );
        assert_eq!(sentences_of(""), Vec::<&str>::new());
    }
}
