//! Random histories: the same requests go to the backend under test and to the reference, and each answer is
//! compared. What the other checks name one by one, this one mixes.

use std::sync::Arc;

use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::memory::{Kind, Revision};
use merkwelt_domain::{ConversationId, Env, GroupId, MemoryId, Timestamp};

use super::Failure;
use super::actor::{Actor, actor, app, group, parse, tenant_admin};
use super::failure::{same, there};
use super::note::{Note, ask, between, content, note, opening, top};
use super::subject::{Instance, START, Subject, founding};
use crate::change::{NewOwner, NewTurn, Outcome, Write};
use crate::error::Error;
use crate::ports::DirectoryChange;
use crate::query::{Key, KindSet, Listing, PageSize, RecallQuery, ScanQuery, Turns};
use crate::record::{Found, Listed};
use crate::reference::Reference;

const PEOPLE: [&str; 3] = ["anna", "bob", "carl"];
const GROUPS: [&str; 2] = ["sales", "board"];
const SLOTS: [&str; 3] = ["eta:17", "drink", "home"];
const WORDS: [&str; 12] = [
    "delivery", "violin", "Thursday", "Rechnung", "Geige", "order", "A-4711", "late", "tea", "the",
    "concert", "paid",
];

/// Backend and reference agree on a random history.
pub fn r_119_a_random_history_is_answered_as_the_reference_does(s: &dyn Subject) -> Result<(), Failure> {
    history(s, 1, 150)
}

/// Runs a history of `steps` requests drawn from `seed` against a fresh backend and the reference.
///
/// # Errors
/// The first difference, with the number of its step.
pub fn history(subject: &dyn Subject, seed: u64, steps: u32) -> Result<(), Failure> {
    let env = Arc::new(FixedEnv::at(START));
    let (founding, keys) = founding(&env);
    let reference = Instance::new(Reference::found(founding, env.clone())?, env, keys);
    let mut history = History {
        sides: [subject, &reference],
        dice: FixedEnv::seeded(START, seed),
        memories: Vec::new(),
        conversations: Vec::new(),
    };
    for name in GROUPS {
        history.administrate(|admin| admin.create_group(name))?;
    }
    for step in 0..steps {
        let what = format!("seed {seed}, step {step}");
        history.step().map_err(|failure| Failure::new(format!("{what}: {failure}")))?;
        history.compare().map_err(|failure| Failure::new(format!("{what}: {failure}")))?;
    }
    Ok(())
}

struct History<'s> {
    /// The backend under test and the reference.
    sides: [&'s dyn Subject; 2],
    /// Draws everything that is random, so that both sides get the same.
    dice: FixedEnv,
    memories: Vec<MemoryId>,
    conversations: Vec<ConversationId>,
}

/// What an act came to, as far as both sides have to agree: the store's refusals, but no texts of failures.
type Answer<T> = Result<T, Option<Error>>;

fn answer<T>(result: Result<T, Failure>) -> Answer<T> {
    result.map_err(|failure| failure.error())
}

impl History<'_> {
    fn roll(&self, sides: usize) -> usize {
        let mut bytes = [0_u8; 4];
        self.dice.fill(&mut bytes);
        usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(0) % sides.max(1)
    }

    fn pick<'t, T>(&self, from: &'t [T]) -> Option<&'t T> {
        from.get(self.roll(from.len()))
    }

    fn person(&self) -> Result<&'static str, Failure> {
        Ok(there(self.pick(&PEOPLE), "person")?)
    }

    /// Does the same on both sides, and fails unless they answer alike; what they answered, unless they
    /// refused.
    fn both<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        act: impl Fn(&dyn Subject) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let [found, expected] = self.sides.map(|side| answer(act(side)));
        if found != expected {
            return Err(Failure::new(format!("{what}: expected {expected:?}, found {found:?}")));
        }
        Ok(found.ok())
    }

    fn administrate(&self, act: impl Fn(Actor<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        self.both("directory", |side| act(tenant_admin(side))).map(|_| ())
    }

    /// One request that changes something, or tries to.
    fn step(&mut self) -> Result<(), Failure> {
        let millis = if self.roll(3) == 0 { 0 } else { i64::try_from(self.roll(4000)).unwrap_or(0) };
        for side in self.sides {
            side.env().advance(millis);
        }
        match self.roll(20) {
            0..=7 => self.remember(),
            8..=9 => self.correct(),
            10 => self.retract(),
            11..=12 => self.open(),
            13..=15 => self.append(),
            16 => self.delete(),
            17..=18 => self.directory(),
            _ => self.erase(),
        }
    }

    fn text(&self) -> String {
        let words = (0..=self.roll(4)).filter_map(|_| self.pick(&WORDS).copied());
        words.collect::<Vec<_>>().join(" ")
    }

    fn note(&self) -> Result<Note, Failure> {
        let now = self.sides.first().map_or(START, |side| side.env_now().millis());
        let soon = |history: &Self| now + 1 + i64::try_from(history.roll(30_000)).unwrap_or(0);
        let kind = *there(self.pick(&Kind::ALL), "kind")?;
        let mut new = note(&self.text()).kind(kind);
        if kind == Kind::ProjectState || self.roll(4) == 0 {
            new = new.until(soon(self) + 5000);
        }
        if self.roll(6) == 0 {
            new = new.from(now + i64::try_from(self.roll(5000)).unwrap_or(0));
        }
        if self.roll(3) == 0 {
            new = new.slot(there(self.pick(&SLOTS), "slot")?);
        }
        if self.roll(3) == 0
            && let Some(conversation) = self.pick(&self.conversations)
        {
            new = new.said_in(conversation);
        }
        if self.roll(4) == 0 {
            new = new.metadata("place", there(self.pick(&["Bonn", "Kiel"]), "place")?);
        }
        Ok(match self.roll(5) {
            0 => new.owner(NewOwner::Tenant),
            1 => new.owner(NewOwner::Group(group(there(self.pick(&GROUPS), "group")?)?)),
            _ => new,
        })
    }

    fn remember(&mut self) -> Result<(), Failure> {
        let (who, new, id) = (self.person()?, self.note()?, MemoryId::random(&self.dice));
        let outcome = self.both("remember", |side| {
            let mut new = new.clone().build(side)?;
            new.id = id.clone();
            commit(app(side, who), Write::Remember(new))
        })?;
        if let Some(Outcome::Created { id, .. }) = outcome {
            self.memories.push(id);
        }
        Ok(())
    }

    fn correct(&mut self) -> Result<(), Failure> {
        let Some(id) = self.pick(&self.memories).cloned() else { return Ok(()) };
        let (who, new) = (self.person()?, self.note()?);
        let expected = (self.roll(3) == 0).then(|| Revision::from_number(1));
        self.both("correct", |side| {
            let new = new.clone().build(side)?;
            commit(app(side, who), Write::Correct { id: id.clone(), expected, new })
        })?;
        Ok(())
    }

    fn retract(&mut self) -> Result<(), Failure> {
        let Some(id) = self.pick(&self.memories).cloned() else { return Ok(()) };
        let who = self.person()?;
        self.both("retract", |side| app(side, who).retract(&id))?;
        Ok(())
    }

    fn open(&mut self) -> Result<(), Failure> {
        let (who, id) = (self.person()?, ConversationId::random(&self.dice));
        let retention = if self.roll(4) == 0 { Retention::Session } else { Retention::KeptDays(1) };
        self.both("open", |side| {
            let (owner, opened_at) = (app(side, who).id()?, side.env_now());
            let opened = Conversation { id: id.clone(), owner, retention, opened_at };
            commit(app(side, who), Write::Open(opened))
        })?;
        self.conversations.push(id);
        Ok(())
    }

    fn append(&mut self) -> Result<(), Failure> {
        let Some(conversation) = self.pick(&self.conversations).cloned() else { return Ok(()) };
        let (who, text) = (self.person()?, self.text());
        let lives = i64::try_from(self.roll(60_000)).unwrap_or(0) + 1;
        self.both("append", |side| {
            let at = side.env_now();
            let turn = Turn {
                conversation: conversation.clone(),
                number: 0,
                speaker: Speaker::Person,
                text: content(&text)?,
                at,
                tokens: 5,
                expires_at: Timestamp::from_millis(at.millis() + lives),
                rests_on: RestsOn::default(),
                summary: None,
            };
            let new = NewTurn { turn, vector: None, opening: opening(side) };
            commit(app(side, who), Write::Append(new))
        })?;
        Ok(())
    }

    fn delete(&mut self) -> Result<(), Failure> {
        let Some(conversation) = self.pick(&self.conversations).cloned() else { return Ok(()) };
        let who = self.person()?;
        self.both("delete", |side| app(side, who).delete(&conversation))?;
        Ok(())
    }

    fn directory(&mut self) -> Result<(), Failure> {
        let (who, name) = (self.person()?, *there(self.pick(&GROUPS), "group")?);
        let (choice, id) = (self.roll(8), GroupId::random(&self.dice));
        self.administrate(|admin| match choice {
            0 => admin.change(DirectoryChange::DeleteGroup { name: group(name)? }),
            1 => admin.change(DirectoryChange::CreateGroup { id: id.clone(), name: parse(name)? }),
            2..=5 => admin.add(name, who),
            _ => admin.remove(name, who),
        })
    }

    fn erase(&mut self) -> Result<(), Failure> {
        if self.roll(4) != 0 {
            return Ok(());
        }
        let who = self.person()?;
        self.both("erase", |side| {
            let erased = actor(side, &side.keys().officer, Some(who)).erase()?;
            Ok((erased.memories, erased.conversations, erased.turns))
        })?;
        Ok(())
    }

    /// Asks both sides everything there is to ask for one person.
    fn compare(&self) -> Result<(), Failure> {
        let (who, text) = (self.person()?, self.text());
        let conversation = self.pick(&self.conversations);
        let (n, span) = (self.roll(6), i64::try_from(self.roll(20_000)).unwrap_or(0));
        let query = |side: &dyn Subject| -> Result<RecallQuery, Failure> {
            let mut query = ask(side, &text)?;
            query.k = top([1, 3, 10, 200].get(n % 4).copied().unwrap_or(10))?;
            query.turns = match (n % 3, conversation) {
                (0, _) => Turns::None,
                (1, Some(id)) => Turns::Of(id.clone()),
                _ => Turns::All,
            };
            if n == 4 {
                let now = query.now.millis();
                query.interval = Some(between(now, now + span)?);
                query.kinds = KindSet::of([Kind::ProjectState, Kind::UserFact]);
            }
            if n == 5 {
                query.conversation = conversation.cloned();
            }
            Ok(query)
        };
        self.both("recall", |side| {
            let found = app(side, who).recall(&query(side)?)?;
            let hits: Vec<_> = found
                .candidates
                .iter()
                .map(|c| (c.record.id(), c.scores.lexical.to_bits(), c.scores.total.to_bits()))
                .collect();
            Ok((hits, found.considered))
        })?;
        let all = Listing::Memories { kinds: KindSet::all(), conversation: None };
        let of = Listing::Memories { kinds: KindSet::all(), conversation: conversation.cloned() };
        let turns = conversation.map(|id| Listing::TurnsBackwards(id.clone()));
        for listing in [all, of, Listing::Conversations].into_iter().chain(turns) {
            self.both("scan", |side| pages(app(side, who), &listing))?;
        }
        self.both("flat cost", |side| app(side, who).cost(conversation))?;
        let nobody = self.both("recall for nobody", |side| {
            let found = actor(side, &side.keys().app, None).recall(&query(side)?)?;
            Ok(found.candidates.iter().map(|c| c.record.id()).collect::<Vec<_>>())
        })?;
        same(nobody.is_some(), true, "recall for nobody")?;
        self.keys(who)
    }

    fn keys(&self, who: &str) -> Result<(), Failure> {
        let mut keys = Vec::new();
        if let Some(id) = self.pick(&self.memories) {
            keys.push(Key::Memory(id.clone()));
            let number = u32::try_from(1 + self.roll(3)).unwrap_or(1);
            keys.push(Key::MemoryAt(id.clone(), Revision::from_number(number)));
        }
        if let Some(id) = self.pick(&self.conversations) {
            keys.push(Key::Conversation(id.clone()));
            keys.push(Key::Turn(id.clone(), u32::try_from(1 + self.roll(3)).unwrap_or(1)));
        }
        for key in keys {
            self.both("fetch", |side| Ok(app(side, who).fetch(key.clone())?.map(|found| shown(&found))))?;
        }
        Ok(())
    }
}

fn commit(who: Actor<'_>, write: Write) -> Result<Outcome, Failure> {
    there(who.commit(vec![write], None)?.outcomes.pop(), "outcome")
}

/// All pages of a listing, three records each.
fn pages(who: Actor<'_>, listing: &Listing) -> Result<Vec<String>, Failure> {
    let limit = PageSize::new(3).map_err(|e| Failure::new(e.to_string()))?;
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let now = who.subject.env_now();
        let query = ScanQuery { listing: listing.clone(), after, limit, interval: None, now };
        let page = who.scan(&query)?;
        all.extend(page.records.iter().map(|listed| match listed {
            Listed::Memory(memory) => shown(&Found::Memory(memory.clone())),
            Listed::Turn(turn) => shown(&Found::Turn(turn.clone())),
            Listed::Conversation(c, n) => shown(&Found::Conversation(c.clone(), *n)),
        }));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// Everything about a record that does not depend on pseudonyms and keys, which each side draws itself.
fn shown(found: &Found) -> String {
    match found {
        Found::Memory(m) => format!(
            "{} {} {:?} {} {:?} {:?} {:?} {:?} {}",
            m.id,
            m.revision.number(),
            m.standing,
            m.statement.text().expose(),
            m.statement.kind(),
            m.written_at,
            m.validity(),
            m.conversation,
            m.tokens,
        ),
        Found::Turn(t) => {
            format!("{} {} {} {:?} {:?}", t.conversation, t.number, t.text.expose(), t.at, t.expires_at)
        }
        Found::Conversation(c, n) => format!("{} {:?} {:?} {n}", c.id, c.retention, c.opened_at),
        Found::Pack(pack) => format!("{}", pack.id),
        Found::Passage(p) => format!("{} {:?} {} {:?}", p.id, p.standing, p.text.expose(), p.region),
        Found::Source(head) => format!("{} {:?} {}", head.id, head.revision, head.title.expose()),
    }
}
