//! Several at once: real threads against one backend.

use std::collections::BTreeSet;
use std::thread::{ScopedJoinHandle, scope};

use merkwelt_authz::{ApiKey, Role};
use merkwelt_domain::MemoryId;
use merkwelt_domain::memory::Revision;

use super::Failure;
use super::actor::{actor, app, tenant_admin};
use super::failure::{ensure, refused, same, there};
use super::note::{ask, note};
use super::revocation::{add_key, end_key};
use super::subject::{Subject, new_key};
use crate::change::{Shown, Write};
use crate::error::Error;
use crate::query::{KindSet, Listing};
use crate::record::Record;

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, Failure> {
    thread.join().map_err(|_| Failure::new("a thread panicked"))
}

/// Of corrections that were made for the same revision exactly one is kept.
pub fn r_017_of_two_corrections_of_one_revision_one_wins(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let id = anna.keep(note("starts"))?;
    for round in 1..=5_u32 {
        let outcomes = scope(|threads| {
            let correct = |n: u32| {
                let id = &id;
                threads.spawn(move || {
                    app(s, "anna").correct(id, Some(round), note(&format!("round {round} by {n}")))
                })
            };
            [correct(1), correct(2)].map(join)
        });
        let (mut won, mut lost) = (0, 0);
        for outcome in outcomes {
            match outcome? {
                Ok(_) => won += 1,
                Err(failure) => {
                    same(failure.error(), Some(Error::RevisionConflict), "refusal")?;
                    lost += 1;
                }
            }
        }
        same((won, lost), (1, 1), "won and lost")?;
    }
    same(there(anna.memory(&id)?, "memory")?.revision, Revision::from_number(6), "revision")
}

/// Of two administrators who end each other's keys at once, one can still make keys afterwards.
pub fn r_036_administrators_who_end_each_other_at_once_leave_one(s: &dyn Subject) -> Result<(), Failure> {
    let first = tenant_admin(s);
    let tenant = first.tenant()?;
    let mut left = None;
    for _ in 0..4 {
        let (a, b) = (ApiKey::random(s.env()), ApiKey::random(s.env()));
        let former: &ApiKey = left.as_ref().unwrap_or(&s.keys().tenant_admin);
        for key in [&a, &b] {
            add_key(s, &actor(s, former, None), new_key(key, &tenant, Role::TenantAdmin))?;
        }
        end_key(s, &actor(s, &a, None), former.id())?;
        let outcomes = scope(|threads| {
            let end = |by, whose: &ApiKey| {
                let whose = whose.id().clone();
                threads.spawn(move || end_key(s, &actor(s, by, None), &whose))
            };
            [end(&a, &b), end(&b, &a)].map(join)
        });
        let mut n_ended = 0;
        for outcome in outcomes {
            n_ended += usize::from(outcome?.is_ok());
        }
        same(n_ended, 1, "keys that were ended")?;
        left = [a, b].into_iter().find(|key| actor(s, key, None).caller().is_ok());
        ensure(left.is_some(), "nobody can make keys any more")?;
    }
    Ok(())
}

/// Turns that are appended at the same time get different numbers without a gap.
pub fn racing_appends_are_numbered_without_a_gap(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    // The first requests for a person register them once, however many come at once.
    let ids = scope(|threads| {
        let first = || threads.spawn(move || app(s, "dora").id());
        [first(), first(), first(), first()].map(join)
    });
    let ids = ids.into_iter().map(|id| id?).collect::<Result<BTreeSet<_>, Failure>>()?;
    same(ids.len(), 1, "pseudonyms of one person")?;
    let conversation = anna.open()?;
    let numbers = scope(|threads| {
        let append = |n: u32| {
            let conversation = &conversation;
            threads.spawn(move || {
                let say = |m| app(s, "anna").say(conversation, &format!("turn {n} {m}"));
                (0..5).map(say).collect::<Result<Vec<u32>, Failure>>()
            })
        };
        [append(0), append(1), append(2), append(3)].map(join)
    });
    let mut all = Vec::new();
    for part in numbers {
        let part = part??;
        ensure(part.is_sorted(), "later turns of one thread have smaller numbers")?;
        all.extend(part);
    }
    all.sort_unstable();
    same(all, (1..=20).collect(), "numbers")?;
    same(anna.list(Listing::Turns(conversation))?.len(), 20, "turns")
}

/// What changed between search and release is not released (I-7).
pub fn i_007_what_changed_after_the_search_is_not_released(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let id = anna.keep(note("lives in Bonn"))?;
    let found: Vec<Record> =
        anna.recall(&ask(s, "Bonn")?)?.candidates.into_iter().map(|c| c.record).collect();
    same(found.len(), 1, "hits")?;
    let _ = anna.deliver(&found)?;
    refused(bob.deliver(&found), Error::ContentMoved)?;
    let entries = tenant_admin(s).entries()?.len();
    anna.correct(&id, None, note("lives in Kiel"))?;
    refused(anna.deliver(&found), Error::ContentMoved)?;
    same(tenant_admin(s).entries()?.len(), entries + 1, "entries after a refused release")
}

/// What may be shown is asked for everything that is about to be shown: kept turns, the conversation of a sitting,
/// and what a pack showed once (I-7).
pub fn i_007_what_is_gone_is_released_neither_as_a_turn_nor_as_past(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let conversation = anna.open()?;
    anna.say(&conversation, "moves to Bonn")?;
    let id = anna.keep(note("lives in Bonn").said_in(&conversation))?;
    let turn = Shown::Turn(conversation.clone(), 1);
    let sitting = Shown::Sitting(conversation.clone());
    let (past, current) =
        (Shown::Past(id.clone(), Revision::FIRST), Shown::Current(id.clone(), Revision::FIRST));
    for shown in [&turn, &sitting, &past, &current] {
        let _ = anna.show(shown.clone())?;
        refused(bob.show(shown.clone()), Error::ContentMoved)?;
    }
    anna.correct(&id, None, note("lives in Kiel"))?;
    refused(anna.show(current), Error::ContentMoved)?;
    let _ = anna.show(past.clone())?;
    refused(anna.show(Shown::Turn(conversation.clone(), 2)), Error::ContentMoved)?;
    anna.delete(&conversation)?;
    for shown in [turn, sitting, past] {
        refused(anna.show(shown), Error::ContentMoved)?;
    }
    Ok(())
}

/// One bad part, and nothing of the batch is kept: no row, no entry, no generation (I-11).
pub fn i_011_a_batch_is_kept_as_a_whole_or_not_at_all(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let stands = anna.keep(note("stands"))?;
    let before = (tenant_admin(s).entries()?.len(), anna.recall(&ask(s, "x")?)?.epochs);
    let at = s.env_now();
    let writes = vec![
        Write::Remember(note("one").build(s)?),
        Write::Retract { id: stands.clone(), at },
        Write::Remember(note("two").slot("s").build(s)?),
        Write::Retract { id: MemoryId::random(s.env()), at },
    ];
    refused(anna.commit(writes, None), Error::NotFound)?;
    let listing = Listing::Memories { kinds: KindSet::all(), conversation: None };
    same(anna.list(listing)?.len(), 1, "memories")?;
    ensure(anna.memory(&stands)?.is_some(), "a part of a refused batch was kept")?;
    same(
        (tenant_admin(s).entries()?.len(), anna.recall(&ask(s, "x")?)?.epochs),
        before,
        "entries, generations",
    )?;
    let writes = vec![
        Write::Remember(note("one").build(s)?),
        Write::Remember(note("one").build(s)?),
        Write::Retract { id: stands, at },
    ];
    let receipt = anna.commit(writes, None)?;
    same(receipt.outcomes.len(), 3, "outcomes")?;
    let entry = there(receipt.entry, "entry")?;
    same(usize::try_from(entry.index).unwrap_or(0), before.0, "place of the first entry")?;
    same(tenant_admin(s).entries()?.len(), before.0 + 2, "one entry per write that changed something")
}
