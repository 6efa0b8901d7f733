//! Long dialogues of two people: which turns hold the answer. A dialogue is one kept conversation; each turn is
//! said at its time, with the name of the speaker before it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use merkwelt_authz::Request;
use merkwelt_domain::conversation::Speaker;
use merkwelt_domain::routing::StateChoice;
use merkwelt_domain::{ConversationId, Timestamp};
use merkwelt_inference::Role;
use merkwelt_store::analysis::turn_passage;
use merkwelt_store::query::Turns;
use serde::Deserialize;

use super::sheet::{Sheet, share};
use super::stage::{Stage, Way, fuse_ranks};
use super::{Options, rows};

#[derive(Deserialize)]
struct Turn {
    sample_id: String,
    date: String,
    dia_id: String,
    speaker: String,
    text: String,
    caption: Option<String>,
}

impl Turn {
    /// The words as they are kept. What a picture shows is part of what was said.
    fn words(&self) -> String {
        match &self.caption {
            Some(caption) => format!("{}: {} [shares {caption}]", self.speaker, self.text),
            None => format!("{}: {}", self.speaker, self.text),
        }
    }
}

#[derive(Deserialize)]
struct Question {
    sample_id: String,
    category: String,
    question: String,
    evidence_fixed: Vec<String>,
}

struct Dialogue {
    who: Request,
    conversation: ConversationId,
    first_speaker: String,
    /// From the set's name of a turn to its number.
    numbers: BTreeMap<String, u32>,
}

const DEPTH: u16 = 50;
const AT: [usize; 4] = [5, 10, 20, 50];
const BUDGETS: [u32; 4] = [500, 750, 1000, 2000];

pub(super) fn measure(
    stage: &Stage,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Sheet>> {
    let dir = options.data.join("locomo");
    let turns: Vec<Turn> = rows::read(&dir.join("turns.jsonl"))?;
    let mut questions: Vec<Question> = rows::read(&dir.join("questions.jsonl"))?;
    questions.retain(|question| !question.evidence_fixed.is_empty());
    questions.truncate(options.limit.unwrap_or(usize::MAX));
    let said = in_time(&turns)?;
    let passages = passages(&said);
    stage.warm(Role::Passage, &passages.iter().map(String::as_str).collect::<Vec<_>>(), say)?;
    stage.warm(Role::Query, &questions.iter().map(|q| q.question.as_str()).collect::<Vec<_>>(), say)?;
    let dialogues = keep(stage, &said)?;
    let columns = AT.map(|k| format!("R@{k}"));
    let note = "share of the evidence turns among the first k turns of the dialogue";
    let mut recall = Sheet::new("LoCoMo, turns", note, columns);
    let note = "share of the evidence turns in the context pack, and its tokens";
    let mut packs = Sheet::new("LoCoMo, packs", note, ["recall".to_owned(), "tokens".to_owned()]);
    for (done, question) in questions.iter().enumerate() {
        if done % 200 == 0 {
            say(&format!("asked {done} of {} questions", questions.len()));
        }
        let dialogue = dialogues.get(&question.sample_id).context("a question without its dialogue")?;
        let evidence = question
            .evidence_fixed
            .iter()
            .map(|name| dialogue.numbers.get(name).copied().context("evidence that is no turn"))
            .collect::<anyhow::Result<Vec<u32>>>()?;
        ask(stage, dialogue, question, &evidence, &mut recall)?;
        for budget in BUDGETS {
            pack(stage, stage.best(), dialogue, question, &evidence, budget, &mut packs)?;
        }
        if stage.fused.is_some() {
            pack(stage, &stage.lexical, dialogue, question, &evidence, 1000, &mut packs)?;
        }
    }
    Ok(vec![recall, packs])
}

/// A turn with its time and the words that are kept.
struct Said<'t> {
    at: Timestamp,
    turn: &'t Turn,
    words: String,
}

/// All turns of all dialogues in the order of time, because the clock never goes back. Within a session the set
/// knows no times; there twenty seconds pass from turn to turn.
fn in_time(turns: &[Turn]) -> anyhow::Result<Vec<Said<'_>>> {
    let mut dated = Vec::with_capacity(turns.len());
    for turn in turns {
        dated.push((time_of(&turn.date)?, turn));
    }
    // Stable: turns of a session keep their order.
    dated.sort_by_key(|(time, _)| *time);
    let mut last = (i64::MIN, 0);
    let said = |(time, turn): (i64, &'_ Turn)| {
        last = if last.0 == time { (time, last.1 + 20_000) } else { (time, 0) };
        (Timestamp::from_millis(time + last.1), turn.words())
    };
    let timed: Vec<(Timestamp, String)> = dated.iter().copied().map(said).collect();
    Ok(timed.into_iter().zip(dated).map(|((at, words), (_, turn))| Said { at, turn, words }).collect())
}

/// What the product embeds for each turn, so that it can be embedded ahead on all processors.
fn passages(said: &[Said<'_>]) -> Vec<String> {
    let mut before: BTreeMap<&str, (&str, Timestamp)> = BTreeMap::new();
    let mut passages = Vec::with_capacity(said.len());
    for Said { at, turn, words } in said {
        let previous = before.insert(&turn.sample_id, (words, *at));
        passages.push(turn_passage(previous, words, *at));
    }
    passages
}

/// Says every turn at its time.
fn keep(stage: &Stage, said: &[Said<'_>]) -> anyhow::Result<BTreeMap<String, Dialogue>> {
    let mut dialogues: BTreeMap<String, Dialogue> = BTreeMap::new();
    for Said { at, turn, words } in said {
        stage.clock(at.millis());
        if !dialogues.contains_key(&turn.sample_id) {
            let who = stage.person(&turn.sample_id)?;
            let conversation = stage.open(&who)?;
            let dialogue =
                Dialogue { who, conversation, first_speaker: turn.speaker.clone(), numbers: BTreeMap::new() };
            dialogues.insert(turn.sample_id.clone(), dialogue);
        }
        let dialogue = dialogues.get_mut(&turn.sample_id).context("a turn without its dialogue")?;
        let speaker =
            if turn.speaker == dialogue.first_speaker { Speaker::Person } else { Speaker::Assistant };
        let number = stage.say(&dialogue.who, &dialogue.conversation, speaker, words)?;
        dialogue.numbers.insert(turn.dia_id.clone(), number);
    }
    if let Some(last) = said.last() {
        stage.clock(last.at.plus_days(1).millis());
    }
    Ok(dialogues)
}

fn ask(
    stage: &Stage,
    dialogue: &Dialogue,
    question: &Question,
    evidence: &[u32],
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let mut lists = Vec::new();
    for way in stage.ways() {
        let turns = Turns::Of(dialogue.conversation.clone());
        lists.push((way.name, stage.recall(way, &dialogue.who, &question.question, turns, DEPTH)?));
    }
    if let [(_, words), (_, vectors), ..] = lists.as_slice() {
        let ranks = fuse_ranks(&[words, vectors]);
        lists.insert(2, ("RRF", ranks));
    }
    for (name, list) in &lists {
        let values = AT.map(|k| {
            let found: BTreeSet<u32> = list.iter().take(k).map(|(_, number)| *number).collect();
            share(evidence, &found)
        });
        sheet.add(name, &question.category, &values);
    }
    Ok(())
}

fn pack(
    stage: &Stage,
    way: &Way,
    dialogue: &Dialogue,
    question: &Question,
    evidence: &[u32],
    budget: u32,
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let (who, words) = (&dialogue.who, &question.question);
    let conversation = Some(&dialogue.conversation);
    let pack = stage.pack(way, who, words, conversation, budget, StateChoice::Auto)?;
    let Some(pack) = pack else { bail!("a pack of {budget} tokens was refused") };
    let found: BTreeSet<u32> =
        pack.items.iter().filter(|item| item.layer == "history").map(|item| item.revision).collect();
    let line = format!("{}, {budget}", way.name);
    sheet.add(&line, &question.category, &[share(evidence, &found), f64::from(pack.tokens.total)]);
    Ok(())
}

/// Milliseconds of a date such as `1:56 pm on 8 May, 2023`.
fn time_of(date: &str) -> anyhow::Result<i64> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let wrong = || format!("`{date}` is not a date of this set");
    let words: Vec<&str> = date.split([' ', ',', ':']).filter(|word| !word.is_empty()).collect();
    let [hour, minute, half, "on", day, month, year] = words.as_slice() else { bail!(wrong()) };
    let hour = hour.parse::<u32>().with_context(wrong)? % 12 + if *half == "pm" { 12 } else { 0 };
    let month = MONTHS.iter().position(|name| name == month).with_context(wrong)? + 1;
    let (day, minute): (u32, u32) = (day.parse()?, minute.parse()?);
    let text = format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:00Z");
    Ok(text.parse::<Timestamp>().with_context(wrong)?.millis())
}

#[cfg(test)]
mod tests {
    use super::time_of;

    #[test]
    fn dates_of_the_set_are_read() {
        let of = |text: &str| time_of(text).unwrap();
        assert_eq!(of("1:56 pm on 8 May, 2023"), of("12:56 pm on 8 May, 2023") + 3_600_000);
        assert_eq!(of("12:09 am on 13 September, 2023"), 1_694_563_740_000);
        assert!(time_of("yesterday").is_err());
    }
}
