//! Project chats as memories, one statement per bullet of their plan: how many tokens a typed pack needs for the
//! same evidence as a flat list. Kinds are those of the set, or those that a client sets by plain rules on
//! the words alone.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use merkwelt_authz::Request;
use merkwelt_domain::memory::Kind;
use merkwelt_domain::routing::StateChoice;
use merkwelt_inference::Role;
use merkwelt_store::query::Turns;
use serde::Deserialize;

use super::sheet::{Sheet, share};
use super::stage::{Note, Stage, Way};
use super::{Options, rows};

#[derive(Deserialize)]
struct Message {
    chat: u32,
    id: u32,
    index: Option<String>,
}

#[derive(Deserialize)]
struct Bullet {
    chat: u32,
    batch: u32,
    bullet: u32,
    label: String,
    text: String,
}

#[derive(Deserialize)]
struct Question {
    chat: u32,
    category: String,
    question: String,
    source_ids: Vec<u32>,
}

type BulletKey = (u32, u32, u32);

/// The memories of one chat under one way of typing.
struct Shelf {
    who: Request,
    bullets: BTreeMap<String, BTreeSet<BulletKey>>,
    tokens: BTreeMap<String, u32>,
}

/// How kinds are set.
#[derive(Clone, Copy)]
enum Typing {
    /// Everything is one kind and ranked.
    Flat,
    /// As the set says.
    Oracle,
    /// As a client's rules say.
    Client,
}

const TOP: [usize; 11] = [3, 5, 8, 10, 15, 20, 30, 40, 50, 60, 80];
const DEPTH: u16 = 80;
const BUDGETS: [u32; 9] = [300, 350, 400, 500, 600, 700, 800, 1000, 1500];

pub(super) fn measure(
    stage: &Stage,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Sheet>> {
    let dir = options.data.join("beam100k");
    let bullets: Vec<Bullet> = rows::read(&dir.join("plan_bullets.jsonl"))?;
    let messages: Vec<Message> = rows::read(&dir.join("chats.jsonl.xz"))?;
    let questions: Vec<Question> = rows::read(&dir.join("questions.jsonl"))?;
    let known = bullets.iter().map(|bullet| (bullet.chat, bullet.batch, bullet.bullet)).collect();
    let sources = Sources::of(&messages, &known);
    let mut asked: Vec<(&Question, Vec<BulletKey>)> = questions
        .iter()
        .map(|q| (q, sources.evidence(q)))
        .filter(|(_, evidence)| !evidence.is_empty())
        .collect();
    asked.truncate(options.limit.unwrap_or(usize::MAX));
    stage.warm(Role::Passage, &bullets.iter().map(|b| b.text.as_str()).collect::<Vec<_>>(), say)?;
    stage.warm(Role::Query, &asked.iter().map(|(q, _)| q.question.as_str()).collect::<Vec<_>>(), say)?;
    let columns = ["recall", "tokens", "new", "of BM25", "of fused"].map(str::to_owned);
    let note = "share of the evidence, tokens of the whole text, tokens outside of the stable prefix, and the \
                tokens as a share of what the flat list of the same recall needs, ranked by words and fused";
    let mut sheet = Sheet::new("BEAM, typed against flat", note, columns);
    let flat = shelves(stage, &bullets, "flat", Typing::Flat)?;
    for (question, evidence) in &asked {
        let shelf = flat.get(&question.chat).context("a question without its chat")?;
        for way in [Some(&stage.lexical), stage.fused.as_ref()].into_iter().flatten() {
            list(stage, way, shelf, question, evidence, &mut sheet)?;
        }
    }
    for (name, typing) in [("oracle kinds", Typing::Oracle), ("client's kinds", Typing::Client)] {
        say(&format!("packing with {name}"));
        let shelves = shelves(stage, &bullets, name, typing)?;
        for (question, evidence) in &asked {
            let shelf = shelves.get(&question.chat).context("a question without its chat")?;
            for budget in BUDGETS {
                pack(stage, shelf, name, budget, question, evidence, &mut sheet)?;
            }
        }
    }
    compare(&mut sheet, stage);
    Ok(vec![sheet])
}

/// From messages to the bullets they were made of.
struct Sources {
    /// The bullet of each message of a person; answers and follow-ups belong to the bullet before them.
    bullets: BTreeMap<(u32, u32), BulletKey>,
}

impl Sources {
    fn of(messages: &[Message], known: &BTreeSet<BulletKey>) -> Self {
        let key = |message: &Message| {
            let mut numbers = message.index.as_deref()?.split(',').map(|part| part.trim().parse().ok());
            Some((message.chat, numbers.next()??, numbers.next()??)).filter(|key| known.contains(key))
        };
        let bullets = messages.iter().filter_map(|message| Some(((message.chat, message.id), key(message)?)));
        Self { bullets: bullets.collect() }
    }

    fn evidence(&self, question: &Question) -> Vec<BulletKey> {
        let before = |id: &u32| {
            self.bullets
                .range((question.chat, 0)..=(question.chat, *id))
                .next_back()
                .map(|(_, bullet)| *bullet)
        };
        let found: BTreeSet<BulletKey> = question.source_ids.iter().filter_map(before).collect();
        found.into_iter().collect()
    }
}

fn shelves(
    stage: &Stage,
    bullets: &[Bullet],
    name: &str,
    typing: Typing,
) -> anyhow::Result<BTreeMap<u32, Shelf>> {
    let mut shelves = BTreeMap::new();
    for group in bullets.chunk_by(|a, b| a.chat == b.chat) {
        let Some(first) = group.first() else { continue };
        let who = stage.person(&format!("beam {name} {}", first.chat))?;
        let notes: Vec<Note<'_>> =
            group.iter().map(|b| Note { kind: typing.kind(b), text: &b.text, slot: None }).collect();
        let ids = stage.remember(&who, &notes)?;
        let mut shelf = Shelf { who, bullets: BTreeMap::new(), tokens: BTreeMap::new() };
        for (id, bullet) in ids.into_iter().zip(group) {
            let (id, key) = (id.to_string(), (bullet.chat, bullet.batch, bullet.bullet));
            shelf.tokens.insert(id.clone(), stage.count(&format!("- {}\n", bullet.text)));
            shelf.bullets.entry(id).or_default().insert(key);
        }
        shelves.insert(first.chat, shelf);
    }
    Ok(shelves)
}

impl Typing {
    fn kind(self, bullet: &Bullet) -> Kind {
        match self {
            Self::Flat => Kind::ProjectState,
            Self::Oracle => oracle(&bullet.label),
            Self::Client => client(&bullet.text),
        }
    }
}

/// The kind by the label that the authors of the set gave.
fn oracle(label: &str) -> Kind {
    if label.starts_with("User Instruction") {
        Kind::Feedback
    } else if label.starts_with("Preference Statement") || label.starts_with("Personal Introduction") {
        Kind::UserFact
    } else {
        Kind::ProjectState
    }
}

/// The kind as a client without a language model sets it, by words alone.
fn client(text: &str) -> Kind {
    let lower = text.to_lowercase().replace('\u{2019}', "'");
    let any = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if any(&["always ", "never use", "whenever i ", "when i ask", "immer ", "nie "])
        && !any(&["never written", "i've never"])
    {
        Kind::Feedback
    } else if lower.starts_with("i'm ") && any(&["year-old", "a ", "an "])
        || any(&["i prefer", "prefer ", "i like ", "i love ", "my name is", "ich bevorzuge", "ich mag "])
    {
        Kind::UserFact
    } else {
        Kind::ProjectState
    }
}

/// The flat list: the first k statements, one per line, without any frame.
fn list(
    stage: &Stage,
    way: &Way,
    shelf: &Shelf,
    question: &Question,
    evidence: &[BulletKey],
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let hits = stage.recall(way, &shelf.who, &question.question, Turns::None, DEPTH)?;
    for k in TOP {
        let ids = || hits.iter().take(k).map(|(id, _)| id.as_str());
        let found = shelf.found(ids());
        let tokens = f64::from(ids().filter_map(|id| shelf.tokens.get(id)).sum::<u32>());
        sheet.add(
            &flat_line(way, k),
            &question.category,
            &[share(evidence, &found), tokens, tokens, 0.0, 0.0],
        );
    }
    Ok(())
}

fn flat_line(way: &Way, k: usize) -> String {
    format!("flat {}, top {k}", way.name)
}

fn typed_line(name: &str, budget: u32) -> String {
    format!("{name}, {budget}")
}

fn pack(
    stage: &Stage,
    shelf: &Shelf,
    name: &str,
    budget: u32,
    question: &Question,
    evidence: &[BulletKey],
    sheet: &mut Sheet,
) -> anyhow::Result<()> {
    let (who, words) = (&shelf.who, &question.question);
    let packed = stage.pack(stage.best(), who, words, None, budget, StateChoice::Auto)?;
    // Rules that need more than the budget are refused; such a question found nothing and paid nothing.
    let (found, total, new) = match &packed {
        Some(pack) => {
            let found = shelf.found(pack.items.iter().map(|item| item.id.as_str()));
            (found, pack.tokens.total, pack.tokens.turn)
        }
        None => (BTreeSet::new(), 0, 0),
    };
    let values = [share(evidence, &found), f64::from(total), f64::from(new), 0.0, 0.0];
    sheet.add(&typed_line(name, budget), &question.category, &values);
    Ok(())
}

impl Shelf {
    fn found<'i>(&self, ids: impl Iterator<Item = &'i str>) -> BTreeSet<BulletKey> {
        ids.filter_map(|id| self.bullets.get(id)).flatten().copied().collect()
    }
}

/// Sets the last two columns: a pack's tokens as a share of the flat list's at the same recall.
fn compare(sheet: &mut Sheet, stage: &Stage) {
    let curve = |way: Option<&Way>| -> Vec<(f64, f64)> {
        let Some(way) = way else { return Vec::new() };
        let points = TOP.iter().filter_map(|k| sheet.means(&flat_line(way, *k)));
        points.filter_map(|means| Some((*means.first()?, *means.get(1)?))).collect()
    };
    let curves = [curve(Some(&stage.lexical)), curve(stage.fused.as_ref())];
    for name in ["oracle kinds", "client's kinds"] {
        for budget in BUDGETS {
            let line = typed_line(name, budget);
            let Some([recall, tokens, ..]) =
                sheet.means(&line).and_then(|means| means.first_chunk::<2>()).copied()
            else {
                continue;
            };
            let ratios = curves
                .each_ref()
                .map(|curve| at_recall(curve, recall).map_or(f64::NAN, |flat| tokens / flat));
            sheet.set_last(&line, &ratios);
        }
    }
}

/// The tokens at which a curve reaches a recall, between its points in a straight line; nothing outside of it.
fn at_recall(curve: &[(f64, f64)], recall: f64) -> Option<f64> {
    curve.windows(2).find_map(|pair| {
        let [(r0, t0), (r1, t1)] = pair else { return None };
        let inside = *r0 <= recall && recall <= *r1 && r0 < r1;
        inside.then(|| t0 + (t1 - t0) * (recall - r0) / (r1 - r0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_at_a_recall_lie_on_the_curve_and_not_beyond_it() {
        let curve = [(0.5, 100.0), (0.7, 300.0)];
        assert!((at_recall(&curve, 0.6).unwrap() - 200.0).abs() < 1e-9);
        assert_eq!(at_recall(&curve, 0.8), None);
    }

    #[test]
    fn answers_belong_to_the_bullet_before_them() {
        let message = |id, index: Option<&str>| Message { chat: 1, id, index: index.map(str::to_owned) };
        let messages =
            [message(0, Some("1,1")), message(1, None), message(2, Some("1, 2")), message(3, None)];
        let sources = Sources::of(&messages, &[(1, 1, 1), (1, 1, 2)].into());
        let question =
            |source_ids| Question { chat: 1, category: String::new(), question: String::new(), source_ids };
        assert_eq!(sources.evidence(&question(vec![1])), [(1, 1, 1)]);
        assert_eq!(sources.evidence(&question(vec![2, 3, 0])), [(1, 1, 1), (1, 1, 2)]);
    }
}
