//! Current: nothing is served before it holds or after it ended, on any path, whether or not a sweep ran.

use merkwelt_authz::action;
use merkwelt_domain::memory::{Kind, Revision};
use merkwelt_domain::{MemoryId, PackId, ReadId, Timestamp};

use super::actor::{Actor, app, group, later, listed_text, tenant_admin, texts};
use super::failure::{ensure, refused, same, there};
use super::note::{ask, between, note, reading};
use super::subject::{START, Subject};
use super::{Failure, block};
use crate::change::{Batch, NewOwner};
use crate::error::Error;
use crate::query::{Key, KindSet, Listing, PageSize, ScanQuery, Turns};
use crate::record::{Pack, Record};

/// Whether a memory is served; search, list, key and cost must agree.
fn served(who: Actor<'_>, id: &MemoryId) -> Result<bool, Failure> {
    let found = who.recall(&ask(who.subject, "state")?)?.candidates.len() == 1;
    let listing = Listing::Memories { kinds: KindSet::all(), conversation: None };
    same(who.list(listing)?.len() == 1, found, "list and search")?;
    same(who.memory(id)?.is_some(), found, "key and search")?;
    same(who.cost(None)?.items == 1, found, "flat cost and search")?;
    Ok(found)
}

/// The first and the last millisecond of the window are in, the end is out.
pub fn r_011_a_memory_is_served_inside_its_window_only(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let state = note("state of the order").kind(Kind::ProjectState).from(START + 1000).until(START + 2000);
    let id = anna.keep(state)?;
    for (millis, expected) in
        [(0, false), (999, false), (1000, true), (1999, true), (2000, false), (9000, false)]
    {
        s.env().set(START + millis);
        same(served(anna, &id)?, expected, &format!("served after {millis} ms"))?;
    }
    let past = anna.fetch(Key::MemoryAt(id.clone(), Revision::FIRST))?;
    ensure(past.is_none(), "an expired revision is found by its number")?;
    s.env().set(START + 1500);
    let memory = there(anna.memory(&id)?, "memory")?;
    s.env().set(START + 2000);
    refused(anna.deliver(&[Record::Memory(memory)]), Error::ContentMoved)
}

/// A narrower interval excludes what does not touch it.
pub fn r_011_a_narrower_interval_excludes_what_does_not_touch_it(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    anna.keep(note("state until two").kind(Kind::ProjectState).until(START + 2000))?;
    anna.keep(note("state until nine").kind(Kind::ProjectState).until(START + 9000))?;
    anna.keep(note("state from five").kind(Kind::ProjectState).from(START + 5000).until(START + 9000))?;
    for (now, from, until, expected) in [
        (1000, 1000, 3000, 2),
        (1000, 1999, 3000, 2),
        (1000, 2000, 3000, 1),
        (1000, 9000, 9999, 0),
        // What begins where the interval ends does not touch it.
        (6000, 3000, 5000, 1),
        (6000, 3000, 5001, 2),
    ] {
        s.env().set(START + now);
        let interval = Some(between(START + from, START + until)?);
        let mut query = ask(s, "state")?;
        query.interval = interval;
        let found = anna.recall(&query)?;
        same(found.candidates.len(), expected, "found in the interval")?;
        same(usize::try_from(found.considered).unwrap_or(0), expected, "considered in the interval")?;
        let listing = Listing::Memories { kinds: KindSet::all(), conversation: None };
        let page = ScanQuery { listing, after: None, limit: PageSize::default(), interval, now: s.env_now() };
        same(anna.scan(&page)?.records.len(), expected, "listed in the interval")?;
    }
    Ok(())
}

/// Turns and packs are found until their end and not from then on.
pub fn r_071_turns_and_packs_end_at_their_time(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let conversation = anna.open()?;
    anna.say(&conversation, "a word about violins")?;
    let pack = Pack {
        id: PackId::random(s.env()),
        read_id: ReadId::random(s.env()),
        at: s.env_now(),
        composition: vec![1, 2, 3],
        expires_at: later(s, 1000),
    };
    let (record, now) = (reading(s, &[], Some(pack.clone()))?, s.env_now());
    anna.act::<action::Assemble, _>(|pass| block::on(s.backend().commit(Batch::read(pass, record, now))))?;
    let key = Key::Pack(pack.id.clone());
    ensure(anna.fetch(key.clone())?.is_some(), "a delivered pack is not found")?;
    ensure(app(s, "bob").fetch(key.clone())?.is_none(), "a pack of somebody else is found")?;
    s.env().set(START + 1000);
    ensure(anna.fetch(key)?.is_none(), "an expired pack is found")?;
    let end = 30 * Timestamp::DAY_MILLIS;
    for (millis, expected) in [(end - 1, 1), (end, 0)] {
        s.env().set(START + millis);
        same(anna.list(Listing::Turns(conversation.clone()))?.len(), expected, "turns listed")?;
        let found = anna.fetch(Key::Turn(conversation.clone(), 1))?;
        same(usize::from(found.is_some()), expected, "turns found by key")?;
        let cost = anna.cost(Some(&conversation))?.items;
        same(usize::try_from(cost).unwrap_or(9), expected, "turns in the flat cost")?;
        let mut query = ask(s, "violins")?;
        query.turns = Turns::All;
        same(texts(&anna.recall(&query)?).len(), expected, "turns found by search")?;
    }
    Ok(())
}

/// To a writer, what is over is as if it were not there.
pub fn r_071_what_is_over_can_be_neither_corrected_nor_retracted(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let id = anna.keep(note("state").kind(Kind::ProjectState).until(START + 1000))?;
    s.env().set(START + 1000);
    refused(anna.correct(&id, None, note("changed")), Error::NotFound)?;
    refused(anna.retract(&id), Error::NotFound)?;
    let again = anna.keep(note("state").kind(Kind::ProjectState).until(START + 9000))?;
    ensure(again != id, "a new statement merged into one that is over")?;
    let listing = Listing::Memories { kinds: KindSet::all(), conversation: None };
    let listed: Vec<String> = anna.list(listing)?.iter().map(listed_text).collect();
    same(listed, vec!["state".to_owned()], "memories")
}

/// What a flat list would cost says how many of its items are facts: those that are current and visible.
pub fn r_010_the_facts_of_a_flat_list_are_counted(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, anna, bob) = (tenant_admin(s), app(s, "anna"), app(s, "bob"));
    admin.create_group("sales")?;
    admin.add("sales", "anna")?;
    anna.keep(note("a fact"))?;
    anna.keep(note("a fact for all").owner(NewOwner::Tenant))?;
    anna.keep(note("a fact of sales").owner(NewOwner::Group(group("sales")?)))?;
    anna.keep(note("a fact that ends").until(START + 1000))?;
    anna.keep(note("a rule").kind(Kind::Feedback))?;
    anna.keep(note("a state").kind(Kind::ProjectState).until(START + 2000))?;
    bob.keep(note("a fact of bob"))?;
    for (millis, of_anna, of_bob) in [(0, (6, 4), (2, 2)), (1000, (5, 3), (2, 2)), (2000, (4, 3), (2, 2))] {
        s.env().set(START + millis);
        for (who, expected) in [(anna, of_anna), (bob, of_bob)] {
            let cost = who.cost(None)?;
            same((cost.items, cost.facts), expected, "items, and facts among them")?;
            same(cost.tokens, 3 * cost.items, "tokens")?;
        }
    }
    Ok(())
}

/// The time told is that of the next change of the prefix in scope. States, what was retracted and what others have
/// are no part of it.
pub fn r_010_the_prefix_holds_until_a_rule_begins_or_ends(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    anna.keep(note("a fact").until(START + 9000))?;
    anna.keep(note("a rule to come").kind(Kind::Feedback).from(START + 5000))?;
    bob.keep(note("a fact of bob").until(START + 1000))?;
    anna.keep(note("a state").kind(Kind::ProjectState).until(START + 2000))?;
    let retracted = anna.keep(note("a fact that was wrong").until(START + 3000))?;
    anna.retract(&retracted)?;
    for (millis, next) in [(0, 5000), (4999, 5000), (5000, 9000), (8999, 9000)] {
        s.env().set(START + millis);
        let now = s.env_now();
        let until =
            anna.act::<action::Assemble, _>(|pass| block::on(s.backend().prefix_holds_until(pass, now)))?;
        same(until.millis(), START + next, "the next change of the prefix")?;
    }
    Ok(())
}
