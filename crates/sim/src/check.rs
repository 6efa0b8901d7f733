//! Compares an answer with what the request could see. Each comparison is a property; the first that does not
//! hold ends the run.

#![expect(clippy::wildcard_enum_match_arm, reason = "each part knows its own kinds of requests")]

use std::collections::BTreeSet;

use merkwelt_app::{Conflict, Error, Released};
use merkwelt_ledger::commitment::{Opening, OpeningKey};
use merkwelt_ledger::token::Token;
use serde_json::Value;

use crate::act::{Answer, Outcome, Refused};
use crate::failure::{Found, Property, holds};
use crate::marker::{Serial, words_in};
use crate::model::{Asker, Model, Whose};
use crate::plan::{Op, Plan};
use crate::view::{Landed, View, words_at};

/// Checks the outcome of a plan.
pub(crate) fn outcome(outcome: &Outcome, plan: &Plan, view: &View, model: &Model) -> Result<(), Found> {
    holds(view.landed.len() <= 1, Property::Evidence, || {
        format!("{} read events of one request", view.landed.len())
    })?;
    if let Some(landed) = view.landed.first() {
        holds(!landed.key_ended, Property::Keys, || "a revoked key read".to_owned())?;
    }
    match outcome {
        Ok(answer) => {
            holds(view.live != Some(false), Property::Keys, || {
                format!("a revoked key was served: {:?}", plan.op)
            })?;
            given(answer, plan, view, model)
        }
        Err(refused) => refusal(refused, plan, view),
    }
}

fn given(answer: &Answer, plan: &Plan, view: &View, model: &Model) -> Result<(), Found> {
    match answer {
        Answer::Released(released) => self::released(released, plan, view, model),
        Answer::Names(names) => directory(names, plan, model),
        Answer::Erased(left) => {
            holds(left.is_none(), Property::Forgotten, || format!("an erasure left {left:?}"))
        }
        Answer::Written => {
            holds(view.wrote, Property::Durable, || "a write was acknowledged and never made".to_owned())
        }
        Answer::Said(_) | Answer::Done | Answer::Key(_) => Ok(()),
    }
}

fn released(released: &Released, plan: &Plan, view: &View, model: &Model) -> Result<(), Found> {
    let body = String::from_utf8_lossy(released.body());
    let landed = view.landed.first();
    let landed = landed.ok_or_else(|| (Property::Evidence, "released without a read event".to_owned()))?;
    evidence(released, landed)?;
    for serial in words_in(&body) {
        holds(landed.allowed.contains(&serial), foreign_or_stale(serial, plan, landed.asker, model), || {
            format!("word {serial} in the answer to {:?} as {:?}", plan.op, landed.asker)
        })?;
    }
    let answer: Value = serde_json::from_slice(released.body())
        .map_err(|_| (Property::Answered, "an answer is no JSON".to_owned()))?;
    match &plan.op {
        Op::Recall { .. } => recall(&answer, plan, view, landed),
        Op::Read { .. } => {
            counts(&answer, "/items", landed)?;
            holds(view.found == Some(true), Property::Current, || "a memory that is not there".to_owned())
        }
        Op::List { limit, .. } => listing(&answer, "/items", usize::from(*limit), view, landed),
        Op::ReadTalk { talk, limit } => {
            holds(view.found == Some(true), Property::Apart, || "a foreign conversation".to_owned())?;
            let kept = model.tenants.get(talk.0).and_then(|tenant| tenant.talks.get(talk.1));
            if kept.is_some_and(|talk| talk.kept_days.is_some()) {
                listing(&answer, "/turns", usize::from(*limit), view, landed)
            } else {
                counts(&answer, "/turns", landed)
            }
        }
        Op::Context { budget, talk, .. } => {
            let session = talk.as_ref().is_some_and(|talk| {
                let found = model.tenants.get(talk.0).and_then(|tenant| tenant.talks.get(talk.1));
                found.is_none_or(|talk| talk.kept_days.is_none())
            });
            pack(&answer, *budget, session, view, landed)
        }
        Op::Pack { body: before, owner, .. } => {
            holds(owner.0 == plan.tenant && owner.1 == landed.asker, Property::Apart, || {
                "a foreign pack was made again".to_owned()
            })?;
            holds(before.0 == released.body(), Property::Evidence, || "a pack came back otherwise".to_owned())
        }
        _ => Ok(()),
    }
}

/// Why a word may not be in an answer.
fn foreign_or_stale(serial: Serial, plan: &Plan, asker: Asker, model: &Model) -> Property {
    let Some(tenant) = model.tenants.get(plan.tenant) else { return Property::Apart };
    if model.tenant_of(serial) != Some(plan.tenant) {
        return Property::Apart;
    }
    let of_item = tenant.items.iter().find(|item| item.serial == serial).map(|item| item.whose);
    let of_turn = tenant.talks.iter().find(|talk| talk.said.iter().any(|said| said.serial == serial));
    let whose = of_item.or(of_turn.map(|talk| Whose::Person(talk.owner)));
    match whose {
        Some(whose) if !tenant.sees(asker, whose) => Property::Apart,
        Some(_) => Property::Current,
        // It was written by nobody who was told so.
        None => Property::Durable,
    }
}

/// The read event is the answer's: same id, same bytes.
fn evidence(released: &Released, landed: &Landed) -> Result<(), Found> {
    let recorded = &landed.recorded;
    holds(recorded.id == released.read_id().to_string(), Property::Evidence, || {
        "the read event of another answer".to_owned()
    })?;
    holds(recorded.entry.as_ref() == Some(released.entry()), Property::Evidence, || {
        "the answer names another entry".to_owned()
    })?;
    // Keys come in the order request, result, records.
    let key: Option<[u8; 32]> = recorded.openings.get(32..64).and_then(|key| key.try_into().ok());
    let opens = key.zip(Token::parse("result").ok()).is_some_and(|(key, label)| {
        Opening::new(OpeningKey::from_bytes(key), label).opens(&recorded.result, released.body())
    });
    holds(opens, Property::Evidence, || "the read event commits to other bytes".to_owned())
}

fn length(answer: &Value, pointer: &str) -> usize {
    answer.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len)
}

/// The read event counts what was delivered.
fn counts(answer: &Value, pointer: &str, landed: &Landed) -> Result<(), Found> {
    let (delivered, counted) = (length(answer, pointer), landed.recorded.items);
    holds(delivered == counted, Property::Evidence, || {
        format!("{delivered} records delivered, {counted} in the read event")
    })
}

fn recall(answer: &Value, plan: &Plan, view: &View, landed: &Landed) -> Result<(), Found> {
    counts(answer, "/hits", landed)?;
    let Op::Recall { aim, k, .. } = &plan.op else { return Ok(()) };
    let expected = view.considered.unwrap_or(0);
    let considered = answer.get("considered").and_then(Value::as_u64).unwrap_or(u64::MAX);
    holds(usize::try_from(considered) == Ok(expected), Property::Apart, || {
        format!("{considered} records considered, {expected} may be seen")
    })?;
    let hits = length(answer, "/hits");
    holds(hits == expected.min(usize::from(*k)), Property::Complete, || {
        format!("{hits} hits of {expected} that may be seen, {k} asked for")
    })?;
    let first = answer.pointer("/hits/0").map(ToString::to_string).unwrap_or_default();
    if let Some(aim) = aim.filter(|_| view.aimed) {
        holds(words_in(&first).contains(&aim), Property::Complete, || {
            format!("word {aim} was asked for and is not the first hit")
        })?;
    }
    Ok(())
}

fn listing(answer: &Value, pointer: &str, limit: usize, view: &View, landed: &Landed) -> Result<(), Found> {
    counts(answer, pointer, landed)?;
    let expected = view.listed.clone().unwrap_or_default();
    let shown = answer.pointer(pointer).map(ToString::to_string).unwrap_or_default();
    let shown = words_in(&shown);
    holds(shown.is_subset(&expected), Property::Current, || format!("{shown:?} listed of {expected:?}"))?;
    let wanted = expected.len().min(limit);
    holds(shown.len() == wanted, Property::Complete, || {
        format!("{} listed of {} that may be seen", shown.len(), expected.len())
    })?;
    let more = answer.get("next").is_some_and(|next| !next.is_null());
    holds(more == (expected.len() > limit), Property::Complete, || {
        format!("a page of {limit} of {} says that there is more: {more}", expected.len())
    })
}

fn pack(answer: &Value, budget: u32, session: bool, view: &View, landed: &Landed) -> Result<(), Found> {
    counts(answer, "/items", landed)?;
    let rules = words_at(answer, "/system/rules");
    holds(rules == view.rules, Property::Complete, || format!("rules {rules:?} of {:?}", view.rules))?;
    let total = answer.pointer("/tokens/total").and_then(Value::as_u64).unwrap_or(u64::MAX);
    holds(
        total <= u64::from(budget) && total == u64::from(landed.recorded.tokens),
        Property::Evidence,
        || format!("{total} tokens of {budget}, {} in the read event", landed.recorded.tokens),
    )?;
    if length(answer, "/left_out") == 0 {
        let mut facts = words_at(answer, "/system/facts");
        facts.extend(words_at(answer, "/turn"));
        holds(view.facts.is_subset(&facts), Property::Complete, || {
            format!("facts {facts:?} of {:?} and nothing left out", view.facts)
        })?;
    }
    if let Some((_, words)) = view.flat.filter(|_| !session) {
        let flat = answer.pointer("/tokens/flat").and_then(Value::as_u64).unwrap_or(u64::MAX);
        holds(usize::try_from(flat) == Ok(words), Property::Apart, || {
            format!("everything in scope costs {flat} tokens, {words} may be seen")
        })?;
    }
    Ok(())
}

fn directory(names: &[String], plan: &Plan, model: &Model) -> Result<(), Found> {
    for serial in words_in(&names.join(" ")) {
        holds(model.tenant_of(serial) == Some(plan.tenant), Property::Apart, || {
            format!("name {serial} of another tenant")
        })?;
    }
    Ok(())
}

fn refusal(refused: &Refused, plan: &Plan, view: &View) -> Result<(), Found> {
    let text = match refused {
        Refused::App(error) => format!("{error} {error:?}"),
        Refused::Key => String::new(),
        Refused::Plan => return Err((Property::Answered, format!("no words for {:?}", plan.op))),
    };
    let words: BTreeSet<Serial> = words_in(&text);
    holds(words.is_empty(), Property::Apart, || format!("words {words:?} in an error"))?;
    let excused = view.faulted || view.disturbed;
    let allowed = match refused {
        Refused::Key => excused || view.live != Some(true),
        Refused::App(error) => excused || expected(error, plan, view),
        Refused::Plan => false,
    };
    // What was not found is recorded as a read of nothing.
    holds(allowed, Property::Answered, || {
        format!("{refused:?} to {:?} by {:?} (found {:?})", plan.op, plan.role, view.found)
    })
}

/// Whether an error is the right answer where no fault was injected.
fn expected(error: &Error, plan: &Plan, view: &View) -> bool {
    match error {
        Error::NotFound => view.found == Some(false) || view.writable == Some(false) || pack_or_name(plan),
        Error::Denied => view.denials > 0,
        Error::Invalid { .. } => matches!(plan.op, Op::Remember { .. } | Op::Correct { .. }),
        Error::Conflict(Conflict::Revision | Conflict::Exists) => view.writable == Some(false),
        Error::Conflict(
            Conflict::Idempotency
            | Conflict::Switch
            | Conflict::NoSummary
            | Conflict::SourceChanged
            | Conflict::NotApproved
            | Conflict::Approved
            | Conflict::Outdated
            | Conflict::LastAdmin,
        ) => false,
        Error::BudgetTooSmall { .. } => matches!(plan.op, Op::Context { .. }),
        Error::NotRetained => matches!(plan.op, Op::Pack { .. }),
        Error::Busy => view.moved >= 15,
        Error::KeyEnded => view.live == Some(false),
        Error::Unavailable | Error::Full | Error::Damaged | Error::Erasing => false,
    }
}

fn pack_or_name(plan: &Plan) -> bool {
    matches!(plan.op, Op::Pack { .. } | Op::Members { .. })
}
