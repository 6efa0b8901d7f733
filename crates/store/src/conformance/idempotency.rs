//! Repeated requests.

use super::Failure;
use super::actor::{Actor, actor, app, later};
use super::failure::{ensure, refused, same};
use super::note::note;
use super::subject::{START, Subject};
use crate::change::{Idempotency, IdempotencyKey, Receipt, Write};
use crate::error::Error;
use crate::query::{KindSet, Listing};

fn once(s: &dyn Subject, key: &str, request: u8) -> Result<Idempotency, Failure> {
    let key: IdempotencyKey = super::actor::parse(key)?;
    Ok(Idempotency { key, request: [request; 32], keep_until: later(s, 10_000) })
}

fn write(who: Actor<'_>, text: &str, key: &str, request: u8) -> Result<Receipt, Failure> {
    let new = note(text).build(who.subject)?;
    who.commit(vec![Write::Remember(new)], Some(once(who.subject, key, request)?))
}

fn n_memories(who: Actor<'_>) -> Result<usize, Failure> {
    Ok(who.list(Listing::Memories { kinds: KindSet::all(), conversation: None })?.len())
}

/// The same answer, and nothing happens again.
pub fn a_repeated_request_gets_the_first_answer(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let first = write(anna, "one", "k1", 1)?;
    ensure(!first.replayed, "the first answer is called a repetition")?;
    s.env().advance(100);
    // The repetition carries other ids, as a retry by the app does.
    let again = write(anna, "one", "k1", 1)?;
    ensure(again.replayed, "a repetition is not called one")?;
    same((again.outcomes, again.entry), (first.outcomes, first.entry), "answer")?;
    same(n_memories(anna)?, 1, "memories")?;
    let refused_first = anna.commit(
        vec![Write::Retract { id: merkwelt_domain::MemoryId::random(s.env()), at: s.env_now() }],
        Some(once(s, "k2", 1)?),
    );
    refused(refused_first, Error::NotFound)?;
    // A refusal is not remembered: the key is free for the request that succeeds.
    ensure(!write(anna, "two", "k2", 2)?.replayed, "a refusal was remembered")
}

/// Another request under the same key is refused and does nothing.
pub fn a_key_with_another_request_is_a_conflict(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let _ = write(anna, "one", "k1", 1)?;
    refused(write(anna, "two", "k1", 2), Error::IdempotencyConflict)?;
    same(n_memories(anna)?, 1, "memories")?;
    // Keys are per API key.
    let agent = actor(s, &s.keys().agent, Some("anna"));
    ensure(!write(agent, "two", "k1", 2)?.replayed, "keys of two API keys are mixed up")?;
    same(n_memories(anna)?, 2, "memories")
}

/// The same key and request for somebody else never shows ids of the first.
pub fn r_034_a_remembered_answer_is_not_given_to_another_subject(s: &dyn Subject) -> Result<(), Failure> {
    let first = write(app(s, "anna"), "one", "k1", 1)?;
    match write(app(s, "bob"), "one", "k1", 1) {
        Err(failure) => same(failure.error(), Some(Error::IdempotencyConflict), "refusal"),
        Ok(receipt) => ensure(receipt.outcomes != first.outcomes, "the answer shows a foreign id"),
    }
}

/// After its time a key is free again.
pub fn a_remembered_answer_ends_at_its_time(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let _ = write(anna, "one", "k1", 1)?;
    s.env().set(START + 9_999);
    refused(write(anna, "two", "k1", 2), Error::IdempotencyConflict)?;
    s.env().set(START + 10_000);
    ensure(!write(anna, "two", "k1", 2)?.replayed, "remembered beyond its time")
}
