//! Current: what was replaced or withdrawn is never served as valid.

use merkwelt_authz::action;
use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::{Kind, Memory, Revision};
use merkwelt_domain::{MemoryId, Timestamp};

use super::Failure;
use super::actor::{Actor, app, listed_text};
use super::failure::{ensure, refused, same, there};
use super::note::{ask, note};
use super::subject::{START, Subject};
use crate::change::{NewOwner, Outcome};
use crate::error::Error;
use crate::query::{Key, KindSet, Listing};
use crate::record::{Epochs, Found, Record};

const WEEK: i64 = 7 * Timestamp::DAY_MILLIS;

fn listed(who: Actor<'_>) -> Result<Vec<String>, Failure> {
    let listing = Listing::Memories { kinds: KindSet::all(), conversation: None };
    Ok(who.list(listing)?.iter().map(listed_text).collect())
}

fn revision(who: Actor<'_>, id: &MemoryId, number: u32) -> Result<Option<Memory>, Failure> {
    match who.fetch(Key::MemoryAt(id.clone(), Revision::from_number(number)))? {
        Some(Found::Memory(memory)) => Ok(Some(memory)),
        None => Ok(None),
        Some(
            Found::Conversation(..) | Found::Turn(_) | Found::Pack(_) | Found::Passage(_) | Found::Source(_),
        ) => Err(Failure::new("a memory's key found something else")),
    }
}

/// Monday says Tuesday, Thursday says Friday: from Thursday on nobody hears of Tuesday.
pub fn r_017_a_slot_delivers_its_last_value_only(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let eta = |text: &str| note(text).kind(Kind::ProjectState).slot("eta:order-17").until(START + WEEK);
    let id = anna.keep(eta("order 17 arrives on Tuesday"))?;
    s.env().set(START + 3 * Timestamp::DAY_MILLIS);
    let outcome = anna.remember(eta("order 17 arrives on Friday"))?;
    let revision_two = Revision::from_number(2);
    same(outcome, Outcome::Superseded { id: id.clone(), revision: revision_two }, "outcome")?;
    let only = vec!["order 17 arrives on Friday".to_owned()];
    same(anna.texts("When does order 17 arrive? Tuesday?")?, only.clone(), "found by search")?;
    same(listed(anna)?, only.clone(), "listed")?;
    let current = there(anna.memory(&id)?, "memory")?;
    same(current.statement.text().expose().to_owned(), there(only.first().cloned(), "text")?, "by key")?;
    same(current.revision, revision_two, "revision")?;
    same(anna.cost(None)?.items, 1, "items of the flat cost")
}

/// A, B, A again: three revisions, and A is current.
pub fn r_017_a_change_back_to_an_old_value_makes_it_current(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let mut id = None;
    for text in ["likes tea", "likes coffee", "likes tea"] {
        s.env().advance(1000);
        id = Some(anna.keep(note(text).slot("drink"))?);
    }
    let id = there(id, "id")?;
    same(listed(anna)?, vec!["likes tea".to_owned()], "listed")?;
    same(there(anna.memory(&id)?, "memory")?.revision.number(), 3, "revision")?;
    for (number, text) in [(1, "likes tea"), (2, "likes coffee"), (3, "likes tea")] {
        let past = there(revision(anna, &id, number)?, "revision")?;
        same(past.statement.text().expose(), text, "text of a revision")?;
    }
    // Without a slot a text that stood before and was corrected is a new statement of its own.
    let fact = anna.keep(note("lives in Bonn"))?;
    anna.correct(&fact, Some(1), note("lives in Kiel"))?;
    anna.correct(&fact, Some(2), note("lives in Bonn"))?;
    same(there(anna.memory(&fact)?, "memory")?.revision.number(), 3, "revision")
}

/// A correction keeps id and owner, and minds the revision it was made for.
pub fn r_017_a_correction_takes_the_place_of_the_old_revision(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let id = anna.keep(note("lives in Bonn"))?;
    refused(anna.correct(&id, Some(2), note("lives in Kiel")), Error::RevisionConflict)?;
    let shared = note("lives in Kiel").owner(NewOwner::Tenant);
    let outcome = anna.correct(&id, Some(1), shared)?;
    same(outcome, Outcome::Superseded { id: id.clone(), revision: Revision::from_number(2) }, "outcome")?;
    refused(anna.correct(&id, Some(1), note("lives in Köln")), Error::RevisionConflict)?;
    same(anna.texts("Where does Anna live? Bonn?")?, vec!["lives in Kiel".to_owned()], "found")?;
    same(app(s, "bob").texts("Kiel")?.len(), 0, "a correction changed the owner; found by others")
}

/// What is withdrawn is gone from every path, once.
pub fn r_017_what_is_retracted_is_gone_from_every_path(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let id = anna.keep(note("may be called at night"))?;
    let memory = there(anna.memory(&id)?, "memory")?;
    same(anna.retract(&id)?, Outcome::Retracted { id: id.clone() }, "outcome")?;
    same(anna.texts("called at night")?.len(), 0, "found by search")?;
    same(listed(anna)?.len(), 0, "listed")?;
    ensure(anna.memory(&id)?.is_none(), "found by key")?;
    same(anna.cost(None)?.items, 0, "items of the flat cost")?;
    refused(anna.deliver(&[Record::Memory(memory)]), Error::ContentMoved)?;
    refused(anna.retract(&id), Error::NotFound)?;
    refused(anna.correct(&id, None, note("x")), Error::NotFound)?;
    let again = anna.remember(note("may be called at night"))?;
    ensure(matches!(again, Outcome::Created { .. }), "a new statement merged into one that was withdrawn")
}

/// Past revisions are found by number, with their standing, by those who may see the memory.
pub fn r_017_past_revisions_are_found_by_number_only(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let id = anna.keep(note("lives in Bonn"))?;
    s.env().advance(1000);
    anna.correct(&id, None, note("lives in Kiel"))?;
    let past = there(revision(anna, &id, 1)?, "past revision")?;
    let by = Revision::from_number(2);
    same(past.standing, Standing::Superseded { by, at: s.env_now() }, "standing of the past revision")?;
    same(there(revision(anna, &id, 2)?, "revision")?.standing, Standing::Active, "standing")?;
    ensure(revision(anna, &id, 3)?.is_none(), "a revision to come is found")?;
    ensure(revision(app(s, "bob"), &id, 1)?.is_none(), "a past revision of somebody else is found")?;
    refused(anna.deliver(&[Record::Memory(past)]), Error::ContentMoved)
}

/// An equal text of the same kind and owner is not kept twice; other particulars make a new revision.
pub fn the_same_text_is_kept_once(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let id = anna.keep(note("likes  tea"))?;
    s.env().advance(1000);
    let merged = Outcome::Merged { id: id.clone(), revision: Revision::FIRST };
    same(anna.remember(note(" likes tea "))?, merged, "outcome of the same text")?;
    let renewed = anna.remember(note("likes tea").until(START + WEEK))?;
    let superseded = Outcome::Superseded { id: id.clone(), revision: Revision::from_number(2) };
    same(renewed, superseded, "outcome of another expiry")?;
    for other in [
        note("likes tea").kind(Kind::Reference),
        note("likes tea").owner(NewOwner::Tenant),
        note("likes tea").slot("drink"),
        note("Likes tea"),
    ] {
        ensure(matches!(anna.remember(other)?, Outcome::Created { .. }), "merged into something else")?;
    }
    let repeated = anna.remember(note("likes tea").slot("drink"))?;
    ensure(matches!(repeated, Outcome::Merged { .. }), "the same value in a slot is not merged")?;
    let by_bob = app(s, "bob").remember(note("likes tea"))?;
    ensure(matches!(by_bob, Outcome::Created { .. }), "merged into a memory of somebody else")
}

/// The same slot of two owners is two slots.
pub fn a_slot_belongs_to_its_owner(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    anna.keep(note("anna drinks tea").slot("drink"))?;
    bob.keep(note("bob drinks milk").slot("drink"))?;
    anna.keep(note("guests get water").slot("drink").owner(NewOwner::Tenant))?;
    let mut seen = listed(anna)?;
    seen.sort();
    same(seen, ["anna drinks tea", "guests get water"].map(str::to_owned).into(), "anna sees")?;
    let mut seen = listed(bob)?;
    seen.sort();
    same(seen, ["bob drinks milk", "guests get water"].map(str::to_owned).into(), "bob sees")
}

/// A slot has one value: a correction cannot move a memory into a slot that another memory holds.
pub fn r_017_a_correction_cannot_take_the_slot_of_another_memory(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let first = anna.keep(note("drinks tea").slot("drink"))?;
    let second = anna.keep(note("eats bread").slot("food"))?;
    bob.keep(note("bob lives in Bonn").slot("home"))?;
    refused(anna.correct(&second, None, note("drinks milk").slot("drink")), Error::Exists)?;
    anna.correct(&first, None, note("drinks milk").slot("drink"))?;
    anna.correct(&second, None, note("lives in Kiel").slot("home"))?;
    let mut seen = listed(anna)?;
    seen.sort();
    same(seen, ["drinks milk", "lives in Kiel"].map(str::to_owned).into(), "memories")
}

fn epochs(who: Actor<'_>) -> Result<Epochs, Failure> {
    let query = ask(who.subject, "x")?;
    let recalled =
        who.act::<action::Recall, _>(|pass| super::block::on(who.subject.backend().recall(pass, &query)))?;
    Ok(recalled.epochs)
}

/// Content moves with every change; the prefix only with rules and facts; grants with neither.
pub fn r_010_only_rules_and_facts_raise_the_prefix(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let mut before = epochs(anna)?;
    let mut step = |content: bool, prefix: bool, what: &str| -> Result<(), Failure> {
        let now = epochs(anna)?;
        let moved = (now.content != before.content, now.prefix != before.prefix, now.grants != before.grants);
        before = now;
        same(moved, (content, prefix, false), what)
    };
    let state = || note("state").kind(Kind::ProjectState).until(START + WEEK);
    let id = anna.keep(state())?;
    step(true, false, "a state was written")?;
    anna.keep(state())?;
    step(false, false, "the same state was written")?;
    let fact = anna.keep(note("a fact"))?;
    step(true, true, "a fact was written")?;
    anna.keep(note("a rule").kind(Kind::Feedback))?;
    step(true, true, "a rule was written")?;
    anna.retract(&id)?;
    step(true, false, "a state was withdrawn")?;
    anna.correct(&fact, None, note("a pointer").kind(Kind::Reference))?;
    step(true, true, "a fact was corrected into a reference")?;
    let conversation = anna.open()?;
    anna.say(&conversation, "hello")?;
    step(true, false, "a turn was appended")?;
    anna.keep(note("said").said_in(&conversation))?;
    step(true, true, "a fact was written in a conversation")?;
    anna.delete(&conversation)?;
    step(true, true, "the conversation with its fact was deleted")?;
    anna.deliver(&[])?;
    step(false, false, "a read was recorded")
}
