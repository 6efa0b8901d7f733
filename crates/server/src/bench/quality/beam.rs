//! Project chats as memories, one statement per bullet of their plan: how many tokens a typed pack needs for the
//! same evidence as a flat list, with 20, 50 and all notes of a person. Kinds are those of the set, or those
//! that a client sets by plain rules on the words alone.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

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
/// Notes of a person; none is all of them.
const SIZES: [Option<usize>; 3] = [Some(20), Some(50), None];

pub(super) fn measure(
    stage: &Stage,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Sheet>> {
    let dir = options.data.join("beam100k");
    let bullets: Vec<Bullet> = rows::read(&dir.join("plan_bullets.jsonl"))?;
    let messages: Vec<Message> = rows::read(&dir.join("chats.jsonl.xz"))?;
    let questions: Vec<Question> = rows::read(&dir.join("questions.jsonl"))?;
    let known = bullets.iter().map(Bullet::key).collect();
    let sources = Sources::of(&messages, &known);
    let mut asked: Vec<Asked<'_>> = questions
        .iter()
        .map(|q| (q, sources.evidence(q)))
        .filter(|(_, evidence)| !evidence.is_empty())
        .collect();
    asked.truncate(options.limit.unwrap_or(usize::MAX));
    stage.warm(Role::Passage, &bullets.iter().map(|b| b.text.as_str()).collect::<Vec<_>>(), say)?;
    stage.warm(Role::Query, &asked.iter().map(|(q, _)| q.question.as_str()).collect::<Vec<_>>(), say)?;
    SIZES.iter().map(|size| compared(stage, &bullets, &asked, *size, say)).collect()
}

/// A question with the bullets that answer it.
type Asked<'q> = (&'q Question, Vec<BulletKey>);

/// All lists and packs over so many notes of a person.
fn compared(
    stage: &Stage,
    bullets: &[Bullet],
    asked: &[Asked<'_>],
    size: Option<usize>,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Sheet> {
    let columns = ["recall", "tokens", "new", "of BM25", "of fused"].map(str::to_owned);
    let note = "share of the evidence, tokens of the whole text, tokens outside of the stable prefix, and the \
                tokens as a share of what the flat list of the same recall needs, ranked by words and fused";
    let notes = size.map_or_else(|| "all notes".to_owned(), |size| format!("{size} notes of a person"));
    let mut sheet = Sheet::new(&format!("BEAM, typed against flat, {notes}"), note, columns);
    for (name, typing) in
        [("flat", Typing::Flat), ("oracle kinds", Typing::Oracle), ("client's kinds", Typing::Client)]
    {
        say(&format!("{notes}, {name}"));
        let mut shelves = BTreeMap::new();
        for (n, (question, evidence)) in asked.iter().enumerate() {
            let chat: Vec<&Bullet> = bullets.iter().filter(|bullet| bullet.chat == question.chat).collect();
            let chosen = sample(&chat, evidence, size);
            // Everything is the same for all questions of a chat; a sample is made for one.
            let place = size.map_or((question.chat, 0), |_| (question.chat, n + 1));
            let shelf = match shelves.entry(place) {
                Entry::Occupied(shelf) => shelf.into_mut(),
                Entry::Vacant(free) => free.insert(Shelf::fill(stage, (name, size, place), &chosen, typing)?),
            };
            let asked = (*question, evidence.as_slice());
            if matches!(typing, Typing::Flat) {
                for way in [Some(&stage.lexical), stage.fused.as_ref()].into_iter().flatten() {
                    list(stage, way, shelf, asked, &mut sheet)?;
                }
            } else {
                for budget in BUDGETS {
                    pack(stage, shelf, (name, budget), asked, &mut sheet)?;
                }
            }
        }
    }
    compare(&mut sheet, stage);
    Ok(sheet)
}

/// So many notes of a chat in their order: those that answer, and others at even distances.
fn sample<'b>(chat: &[&'b Bullet], evidence: &[BulletKey], size: Option<usize>) -> Vec<&'b Bullet> {
    let answers = |bullet: &Bullet| evidence.contains(&bullet.key());
    let n_others = chat.iter().filter(|bullet| !answers(bullet)).count();
    let room = size.map_or(n_others, |size| size.saturating_sub(chat.len() - n_others)).min(n_others);
    let mut seen = 0;
    let mut chosen = |bullet: &&&Bullet| {
        if answers(bullet) {
            return true;
        }
        seen += 1;
        // The n-th of the others is taken where the count that falls to it rises.
        seen * room / n_others > (seen - 1) * room / n_others
    };
    chat.iter().filter(|bullet| chosen(bullet)).copied().collect()
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
    (question, evidence): (&Question, &[BulletKey]),
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
    (name, budget): (&str, u32),
    (question, evidence): (&Question, &[BulletKey]),
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

impl Bullet {
    fn key(&self) -> BulletKey {
        (self.chat, self.batch, self.bullet)
    }
}

impl Shelf {
    /// Remembers notes of one person of its own.
    fn fill(
        stage: &Stage,
        name: impl std::fmt::Debug,
        notes: &[&Bullet],
        typing: Typing,
    ) -> anyhow::Result<Self> {
        let who = stage.person(&format!("beam {name:?}"))?;
        let said = notes.iter().map(|b| Note { kind: typing.kind(b), text: &b.text, slot: None });
        let ids = stage.remember(&who, &said.collect::<Vec<_>>())?;
        let mut shelf = Self { who, bullets: BTreeMap::new(), tokens: BTreeMap::new() };
        for (id, bullet) in ids.into_iter().zip(notes) {
            let id = id.to_string();
            shelf.tokens.insert(id.clone(), stage.count(&format!("- {}\n", bullet.text)));
            shelf.bullets.entry(id).or_default().insert(bullet.key());
        }
        Ok(shelf)
    }

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
    fn a_sample_holds_what_answers_and_others_at_even_distances() {
        let bullet = |bullet| Bullet { chat: 1, batch: 1, bullet, label: String::new(), text: String::new() };
        let all: Vec<Bullet> = (0..10).map(bullet).collect();
        let chat: Vec<&Bullet> = all.iter().collect();
        let evidence = [(1, 1, 4), (1, 1, 5)];
        let chosen = |size| sample(&chat, &evidence, size).iter().map(|b| b.bullet).collect::<Vec<_>>();
        assert_eq!(chosen(None), (0..10).collect::<Vec<_>>());
        assert_eq!(chosen(Some(6)), [1, 3, 4, 5, 7, 9]);
        assert_eq!(chosen(Some(2)), [4, 5]);
        assert_eq!(chosen(Some(100)).len(), 10);
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
