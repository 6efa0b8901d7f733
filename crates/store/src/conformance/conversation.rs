//! Conversations: opened before their first turn, kept on request, deleted with everything of theirs and
//! nothing else.

use merkwelt_domain::basis::{Basis, RestsOn};
use merkwelt_domain::conversation::{Retention, Turn};
use merkwelt_domain::memory::Revision;
use merkwelt_domain::summary::SummaryOf;
use merkwelt_domain::{ConversationId, SourceId, SummaryRule};

use super::Failure;
use super::actor::{app, listed_text, parse};
use super::failure::{ensure, refused, same};
use super::note::{ask, note};
use super::subject::Subject;
use crate::change::{NewOwner, Outcome};
use crate::error::Error;
use crate::query::{Key, KindSet, Listing, Turns};
use crate::record::{Found, Listed, Record};

fn memories() -> Listing {
    Listing::Memories { kinds: KindSet::all(), conversation: None }
}

/// The turns and the memories of the conversation go, everything else stays.
pub fn r_026_deleting_a_conversation_leaves_everything_else(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let (gone, stays, of_bob) = (anna.open()?, anna.open()?, bob.open()?);
    for (who, conversation) in [(anna, &gone), (anna, &stays), (bob, &of_bob)] {
        who.say(conversation, "violins, one")?;
        who.say(conversation, "violins, two")?;
    }
    let from_it = anna.keep(note("said in it").said_in(&gone))?;
    anna.keep(note("shared in it").said_in(&gone).owner(NewOwner::Tenant))?;
    anna.keep(note("said elsewhere").said_in(&stays))?;
    anna.keep(note("said nowhere"))?;
    bob.keep(note("said by bob").said_in(&of_bob))?;
    let outcome = anna.delete(&gone)?;
    let expected = Outcome::ConversationDeleted { id: gone.clone(), turns: 2, memories: 2 };
    same(outcome, expected, "outcome")?;
    ensure(anna.memory(&from_it)?.is_none(), "a memory of the conversation is found")?;
    ensure(anna.fetch(Key::Conversation(gone.clone()))?.is_none(), "the conversation is found")?;
    ensure(anna.fetch(Key::Turn(gone.clone(), 1))?.is_none(), "a turn of it is found")?;
    refused(anna.list(Listing::Turns(gone.clone())), Error::NotFound)?;
    refused(anna.say(&gone, "again"), Error::NotFound)?;
    refused(anna.delete(&gone), Error::NotFound)?;
    let mut left: Vec<String> = anna.list(memories())?.iter().map(listed_text).collect();
    left.sort();
    same(left, ["said elsewhere", "said nowhere"].map(str::to_owned).into(), "memories left")?;
    same(anna.list(Listing::Turns(stays))?.len(), 2, "turns of the other conversation")?;
    same(bob.list(Listing::Turns(of_bob))?.len(), 2, "turns of bob")?;
    same(bob.list(memories())?.len(), 1, "memories of bob")?;
    let mut query = ask(s, "violins")?;
    query.turns = Turns::All;
    same(anna.recall(&query)?.considered, 4, "records left to search")
}

/// Correcting what was said in a conversation does not detach it from there.
pub fn r_026_a_correction_does_not_wash_off_the_origin(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let conversation = anna.open()?;
    let id = anna.keep(note("said in it").said_in(&conversation))?;
    anna.correct(&id, None, note("said in it, in other words"))?;
    anna.delete(&conversation)?;
    ensure(anna.memory(&id)?.is_none(), "a corrected memory of the conversation is left")?;
    same(anna.list(memories())?.len(), 0, "memories left")
}

/// A turn needs a conversation that was recorded before, and an id is recorded once.
pub fn r_027_a_turn_needs_a_recorded_conversation(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    refused(anna.say(&ConversationId::random(s.env()), "hello"), Error::NotFound)?;
    let conversation = anna.open()?;
    match anna.fetch(Key::Conversation(conversation.clone()))? {
        Some(Found::Conversation(found, 0)) => {
            same(found.owner, anna.id()?, "owner")?;
            same(found.retention, Retention::KeptDays(30), "retention")?;
            same(found.opened_at, s.env_now(), "time of opening")?;
        }
        _ => return Err(Failure::new("a recorded conversation is not found without turns")),
    }
    let bob = app(s, "bob").id()?;
    let (id, opened_at) = (ConversationId::random(s.env()), s.env_now());
    let (retention, owner) = (Retention::Session, bob);
    let foreign = merkwelt_domain::conversation::Conversation { id, owner, retention, opened_at };
    refused(anna.commit(vec![crate::change::Write::Open(foreign)], None), Error::NotFound)?;
    let owner = anna.id()?;
    let again = merkwelt_domain::conversation::Conversation { id: conversation, owner, retention, opened_at };
    refused(anna.commit(vec![crate::change::Write::Open(again)], None), Error::Exists)
}

/// Unless it was asked for, no turn is kept.
pub fn r_002_turns_of_a_session_are_not_kept(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let session = anna.open_as(Retention::Session)?;
    refused(anna.say(&session, "hello"), Error::NotKept)?;
    same(anna.list(Listing::Turns(session.clone()))?.len(), 0, "turns")?;
    // Memories may come from it all the same.
    anna.keep(note("said in a session").said_in(&session))?;
    let listing = Listing::Memories { kinds: KindSet::all(), conversation: Some(session) };
    same(anna.list(listing)?.len(), 1, "memories of the session")
}

/// What a turn rests on is read with it on every path; whether the source is there is nobody's question when it
/// is written.
pub fn r_058_a_turn_keeps_what_it_rests_on(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let conversation = anna.open()?;
    let source = SourceId::random(s.env());
    let bases = [1, 2].map(|n| Basis { source: source.clone(), revision: Revision::from_number(n) });
    let rests_on = RestsOn::new(bases).map_err(|_| Failure::new("two bases are too many"))?;
    anna.say(&conversation, "violins, how long?")?;
    anna.say_from(&conversation, "violins, thirty days", rests_on.clone())?;
    let expected = [RestsOn::default(), rests_on];
    let of = |turn: &Turn| turn.rests_on.clone();
    let listed = anna.list(Listing::Turns(conversation.clone()))?;
    let listed: Vec<_> =
        listed.iter().filter_map(|l| if let Listed::Turn(t) = l { Some(of(t)) } else { None }).collect();
    same(listed, expected.to_vec(), "bases of the listed turns")?;
    match anna.fetch(Key::Turn(conversation.clone(), 2))? {
        Some(Found::Turn(turn)) => same(of(&turn), expected[1].clone(), "bases of the fetched turn")?,
        _ => return Err(Failure::new("a turn is not found by its number")),
    }
    let mut query = ask(s, "violins")?;
    query.turns = Turns::Of(conversation);
    let mut found: Vec<_> = anna
        .recall(&query)?
        .candidates
        .into_iter()
        .filter_map(|c| match c.record {
            Record::Turn(turn) => Some((turn.number, turn.rests_on)),
            Record::Memory(_) | Record::Passage(_) => None,
        })
        .collect();
    found.sort_by_key(|(number, _)| *number);
    same(found.into_iter().map(|(_, bases)| bases).collect(), expected.to_vec(), "bases of the turns found")
}

/// A summary is a turn that says what it stands for; the newest is found by the conversation.
pub fn r_018_the_newest_summary_of_a_conversation_is_found(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let (conversation, other) = (anna.open()?, anna.open()?);
    let key = |of: &ConversationId, approved| Key::Summary { of: of.clone(), approved };
    let found = |of: &ConversationId, approved| match anna.fetch(key(of, approved))? {
        Some(Found::Turn(turn)) => Ok(Some((turn.number, turn.text.expose().to_owned(), turn.summary))),
        None => Ok(None),
        Some(_) => Err(Failure::new("a summary is no turn")),
    };
    let newest = |of: &ConversationId| found(of, false);
    anna.say(&conversation, "violins, one")?;
    same(newest(&conversation)?, None, "summary before there is one")?;
    let rule: SummaryRule = parse("support-7")?;
    let about = |through, approved| {
        SummaryOf::new(through, rule.clone(), approved).map_err(|_| Failure::new("a summary of no turn"))
    };
    anna.sum_up(&conversation, "first", about(1, true)?)?;
    anna.say(&conversation, "violins, two")?;
    anna.sum_up(&conversation, "second", about(3, false)?)?;
    anna.say(&conversation, "violins, three")?;
    same(newest(&conversation)?, Some((4, "second".to_owned(), Some(about(3, false)?))), "newest summary")?;
    let approved = Some((2, "first".to_owned(), Some(about(1, true)?)));
    same(found(&conversation, true)?, approved, "newest approved summary")?;
    same(newest(&other)?, None, "summary of another conversation")?;
    ensure(bob.fetch(key(&conversation, false))?.is_none(), "somebody else's summary is found")?;
    anna.delete(&conversation)?;
    same(newest(&conversation)?, None, "summary of a deleted conversation")
}

/// The store numbers turns; what the caller wrote is ignored.
pub fn turns_are_numbered_from_one(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let (first, second) = (anna.open()?, anna.open()?);
    same(anna.say(&first, "one")?, 1, "number")?;
    same(anna.say(&second, "one")?, 1, "number in another conversation")?;
    same(anna.say(&first, "two")?, 2, "number")?;
    match anna.fetch(Key::Turn(first.clone(), 2))? {
        Some(Found::Turn(turn)) => {
            same(turn.text.expose(), "two", "text of the turn")?;
            same(turn.number, 2, "its number")?;
        }
        _ => return Err(Failure::new("a turn is not found by its number")),
    }
    match anna.fetch(Key::Conversation(first))? {
        Some(Found::Conversation(_, 2)) => Ok(()),
        _ => Err(Failure::new("the conversation does not count its turns")),
    }
}
