//! Listings in pages.

use std::collections::BTreeMap;

use merkwelt_domain::memory::Kind;

use super::Failure;
use super::actor::{Actor, app, listed_text};
use super::failure::{ensure, refused, same, there};
use super::note::note;
use super::subject::Subject;
use crate::error::Error;
use crate::query::{Cursor, KindSet, Listing, PageSize, ScanQuery};
use crate::record::{Listed, Page};

fn memories() -> Listing {
    Listing::Memories { kinds: KindSet::all(), conversation: None }
}

fn page(who: Actor<'_>, listing: Listing, after: Option<Cursor>, limit: u16) -> Result<Page, Failure> {
    let limit = PageSize::new(limit).map_err(|e| Failure::new(e.to_string()))?;
    who.scan(&ScanQuery { listing, after, limit, interval: None, now: who.subject.env_now() })
}

/// All pages of a listing; `between` runs after each.
fn walk(
    who: Actor<'_>,
    listing: &Listing,
    limit: u16,
    mut between: impl FnMut() -> Result<(), Failure>,
) -> Result<Vec<Listed>, Failure> {
    let (mut all, mut after) = (Vec::new(), None);
    for _ in 0..100 {
        let mut found = page(who, listing.clone(), after, limit)?;
        ensure(found.records.len() <= usize::from(limit), "a page is larger than asked for")?;
        ensure(!found.records.is_empty() || found.next.is_none(), "an empty page goes on")?;
        all.append(&mut found.records);
        match found.next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
        between()?;
    }
    Err(Failure::new("the pages do not end"))
}

/// What stood when the listing began comes exactly once, also among records of one millisecond, and whatever
/// is written meanwhile.
pub fn paging_visits_each_record_once_while_others_are_written(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    for n in 0..25 {
        anna.keep(note(&format!("old {n}")))?;
        if n % 10 == 9 {
            s.env().advance(1000);
        }
    }
    let mut new = 0;
    let all = walk(anna, &memories(), 4, || {
        new += 1;
        bob.keep(note(&format!("of bob {new}")))?;
        anna.keep(note(&format!("new {new}"))).map(|_| ())
    })?;
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for record in &all {
        *counts.entry(listed_text(record)).or_default() += 1;
    }
    for n in 0..25 {
        same(counts.get(&format!("old {n}")).copied(), Some(1), &format!("visits of record {n}"))?;
    }
    ensure(counts.values().all(|count| *count == 1), "a record came twice")?;
    ensure(!counts.keys().any(|text| text.starts_with("of bob")), "a record of somebody else came")?;
    let times: Vec<_> = all.iter().map(written_at).collect();
    ensure(times.is_sorted_by(|a, b| a >= b), "not newest first")
}

fn written_at(listed: &Listed) -> i64 {
    match listed {
        Listed::Memory(memory) => memory.written_at.millis(),
        Listed::Turn(turn) => turn.at.millis(),
        Listed::Conversation(conversation, _) => conversation.opened_at.millis(),
    }
}

/// Oldest first and newest first.
pub fn turns_are_listed_in_both_directions(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let conversation = anna.open()?;
    let texts: Vec<String> = (0..11).map(|n| format!("turn {n}")).collect();
    for text in &texts {
        anna.say(&conversation, text)?;
    }
    let forwards = walk(anna, &Listing::Turns(conversation.clone()), 3, || Ok(()))?;
    same(forwards.iter().map(listed_text).collect::<Vec<_>>(), texts.clone(), "oldest first")?;
    let backwards = walk(anna, &Listing::TurnsBackwards(conversation.clone()), 3, || Ok(()))?;
    same(backwards.iter().rev().map(listed_text).collect::<Vec<_>>(), texts, "newest first")?;
    let exact = page(anna, Listing::Turns(conversation), None, 11)?;
    ensure(exact.next.is_none(), "a page that holds everything goes on")
}

/// A cursor of another listing, a damaged and an invented one are refused; one of somebody else shows nothing
/// of them.
pub fn a_cursor_belongs_to_its_listing(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let conversation = anna.open()?;
    for n in 0..5 {
        anna.keep(note(&format!("note {n}")))?;
        anna.keep(note(&format!("rule {n}")).kind(Kind::Feedback))?;
        anna.say(&conversation, "hello")?;
        bob.keep(note(&format!("of bob {n}")))?;
    }
    let cursor = there(page(anna, memories(), None, 2)?.next, "cursor")?;
    let rules = Listing::Memories { kinds: KindSet::of([Kind::Feedback]), conversation: None };
    for other in [
        rules,
        Listing::Memories { kinds: KindSet::all(), conversation: Some(conversation.clone()) },
        Listing::Turns(conversation.clone()),
        Listing::TurnsBackwards(conversation.clone()),
        Listing::Conversations,
    ] {
        refused(page(anna, other, Some(cursor.clone()), 2), Error::Cursor)?;
    }
    let backwards =
        there(page(anna, Listing::TurnsBackwards(conversation.clone()), None, 2)?.next, "cursor")?;
    refused(page(anna, Listing::Turns(conversation), Some(backwards), 2), Error::Cursor)?;
    for bad in ["x", "0", "a.b.c", "....", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        refused(page(anna, memories(), Some(Cursor::parse(bad)?), 2), Error::Cursor)?;
    }
    match page(bob, memories(), Some(cursor), 9) {
        Err(failure) => same(failure.error(), Some(Error::Cursor), "refusal of a foreign cursor"),
        Ok(found) => {
            let own = found.records.iter().all(|record| listed_text(record).starts_with("of bob"));
            ensure(own, "a foreign cursor shows foreign records")
        }
    }
}

/// The subject's conversations, newest first, each with the number of its turns.
pub fn r_028_conversations_are_listed_for_their_subject_only(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let mut expected = Vec::new();
    for n in 0..5_u32 {
        s.env().advance(1000);
        let conversation = anna.open()?;
        for _ in 0..n {
            anna.say(&conversation, "hello")?;
        }
        expected.insert(0, (conversation, n));
        bob.open()?;
    }
    let found: Vec<_> = walk(anna, &Listing::Conversations, 2, || Ok(()))?
        .into_iter()
        .filter_map(|listed| match listed {
            Listed::Conversation(conversation, turns) => Some((conversation.id, turns)),
            Listed::Memory(_) | Listed::Turn(_) => None,
        })
        .collect();
    same(found, expected, "conversations")
}
