//! Looking at everything of a tenant at once, while nobody else moves: what somebody is shown must be exactly
//! what the oracle says, and the ledger must hold exactly what was read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use merkwelt_app::{App, ListRequest, PageRequest};
use merkwelt_authz::{ApiKey, Request, action, authorize};
use merkwelt_domain::memory::Kind;
use merkwelt_domain::{ConversationId, GroupName, Purpose, SubjectId, SubjectRef};
use merkwelt_ledger::ExceptionReason;
use merkwelt_ledger::checkpoint::SignedCheckpoint;
use merkwelt_ledger::export::{Header, Writer};
use merkwelt_ledger::note::VerifierKey;
use merkwelt_ledger::verify::verify_export;
use merkwelt_store::query::{KindSet, PageSize};
use merkwelt_store::{Backend, Residue};
use serde_json::Value;

use crate::act::run_of;
use crate::env::TaskId;
use crate::failure::{Found, Property, holds};
use crate::marker::{Serial, words_in};
use crate::model::{Life, Tenant};
use crate::world::at_once;

/// A word and the id under which it is stored.
type Ids = BTreeMap<Serial, String>;

async fn asked(app: &App, key: &ApiKey, subject: Option<&SubjectRef>) -> Option<Request> {
    let caller = app.authenticate(key).await.ok()?;
    Some(Request::new(caller, subject.cloned(), Purpose::default()))
}

/// What somebody is shown of memories, by a listing without a limit that matters.
fn memories(app: &App, key: &ApiKey, subject: &SubjectRef) -> Option<Value> {
    let list = ListRequest {
        kinds: KindSet::all(),
        conversation: None,
        interval: None,
        after: None,
        limit: PageSize::new(PageSize::MAX).ok()?,
        run: run_of(0),
    };
    at_once(async {
        let request = asked(app, key, Some(subject)).await?;
        let released = app.list_memories(&request, &list).await.ok()?;
        serde_json::from_slice(released.body()).ok()
    })
    .flatten()
}

fn conversations(app: &App, key: &ApiKey, subject: &SubjectRef) -> Option<Value> {
    let page = PageRequest { after: None, limit: PageSize::new(PageSize::MAX).ok()?, run: run_of(0) };
    at_once(async {
        let request = asked(app, key, Some(subject)).await?;
        let released = app.list_conversations(&request, &page).await.ok()?;
        serde_json::from_slice(released.body()).ok()
    })
    .flatten()
}

fn turns(app: &App, key: &ApiKey, subject: &SubjectRef, id: &ConversationId) -> Option<String> {
    let page = PageRequest { after: None, limit: PageSize::new(PageSize::MAX).ok()?, run: run_of(0) };
    at_once(async {
        let request = asked(app, key, Some(subject)).await?;
        let released = app.read_conversation(&request, id, &page).await.ok()?;
        Some(String::from_utf8_lossy(released.body()).into_owned())
    })
    .flatten()
}

fn ids_in(answer: &Value, pointer: &str) -> Ids {
    let items = answer.pointer(pointer).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(|item| {
            let serial = words_in(item.get("text")?.as_str()?).into_iter().next()?;
            Some((serial, item.get("id")?.as_str()?.to_owned()))
        })
        .collect()
}

/// Compares everything one person is shown with the oracle, and learns ids that got lost on the way.
pub(crate) fn person(
    app: &App,
    key: &ApiKey,
    subject: &SubjectRef,
    tenant: &mut Tenant,
    (life, now): (Life, i64),
) -> Result<(), Found> {
    let missing = || (Property::Answered, "a listing was refused without a fault".to_owned());
    let shown = memories(app, key, subject).ok_or_else(missing)?;
    let ids = ids_in(&shown, "/items");
    let expected = tenant.serials(Some(life), now, &Kind::ALL);
    let found: BTreeSet<Serial> = ids.keys().copied().collect();
    let extra = found.difference(&expected).next().and_then(|serial| tenant.item(*serial));
    let property = match extra {
        Some(item) if tenant.sees(Some(life), item.whose) => Property::Current,
        Some(_) => Property::Apart,
        None => Property::Durable,
    };
    holds(found == expected, property, || {
        format!("person {life:?} is shown {found:?} and should see {expected:?}")
    })?;
    for item in tenant.items.iter_mut().filter(|item| item.id.is_none()) {
        item.id = ids.get(&item.serial).and_then(|id| id.parse().ok());
    }
    talks(app, key, subject, tenant, (life, now))
}

fn talks(
    app: &App,
    key: &ApiKey,
    subject: &SubjectRef,
    tenant: &mut Tenant,
    (life, now): (Life, i64),
) -> Result<(), Found> {
    let missing = || (Property::Answered, "a listing was refused without a fault".to_owned());
    let shown = conversations(app, key, subject).ok_or_else(missing)?;
    let rows = shown.pointer("/conversations").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut ids: BTreeMap<String, bool> = rows.iter().filter_map(shown_talk).collect();
    let own = |talk: &&mut crate::model::Talk| talk.owner == life && !talk.gone;
    let count = tenant.talks.iter_mut().filter(own).count();
    holds(rows.len() == count, Property::Durable, || {
        format!("person {life:?} is shown {} conversations and has {count}", rows.len())
    })?;
    for talk in tenant.talks.iter_mut().filter(own) {
        if let Some(id) = &talk.id {
            let there = ids.remove(id.as_str()).is_some();
            holds(there, Property::Durable, || "a conversation is missing".to_owned())?;
        }
    }
    for talk in tenant.talks.iter_mut().filter(own).filter(|talk| talk.id.is_none()) {
        // Which of several is no matter: nobody was told an id of any of them, and nothing was said in them.
        let alike = ids.iter().find(|(_, kept)| **kept == talk.kept_days.is_some());
        let id = alike.map(|(id, _)| id.clone()).unwrap_or_default();
        ids.remove(&id);
        talk.id = id.parse().ok();
    }
    let places: Vec<usize> = (0..tenant.talks.len()).collect();
    for place in places {
        let Some(talk) = tenant.own_talk(place, life).filter(|talk| talk.kept_days.is_some()) else {
            continue;
        };
        let Some(id) = talk.id.clone() else { continue };
        let shown = turns(app, key, subject, &id).ok_or_else(missing)?;
        let (found, expected) = (words_in(&shown), tenant.turns(Some(life), now, Some(place)));
        holds(found == expected, Property::Durable, || {
            format!("a conversation shows turns {found:?} and has {expected:?}")
        })?;
    }
    Ok(())
}

/// The id of a listed conversation and whether its turns are kept.
fn shown_talk(row: &Value) -> Option<(String, bool)> {
    let id = row.get("id")?.as_str()?.to_owned();
    Some((id, row.get("retention")?.as_str()? == "kept"))
}

/// A ledger as it stands: its entries and its signed head.
pub(crate) struct Ledger {
    pub(crate) entries: Vec<Vec<u8>>,
    pub(crate) note: String,
    key: String,
}

/// Reads the ledger of a tenant as its auditor does.
pub(crate) fn ledger(app: &App, auditor: &ApiKey) -> Result<Ledger, Found> {
    let read = at_once(async {
        let request = asked(app, auditor, None).await?;
        let head = app.ledger_head(&request).await.ok()?;
        let entries = app.ledger_entries(&request, 0, u32::MAX).await.ok()?;
        Some(Ledger { entries, note: head.note, key: head.verifier_key })
    });
    read.flatten().ok_or_else(|| (Property::Ledger, "the ledger cannot be read".to_owned()))
}

/// Verifies it offline, as a continuation of what was seen before.
pub(crate) fn verified(ledger: &Ledger, before: Option<&Ledger>) -> Result<(), Found> {
    let broken = |what: &str| (Property::Ledger, what.to_owned());
    let key = VerifierKey::parse(&ledger.key).map_err(|_| broken("no verifier key"))?;
    let signed = SignedCheckpoint::parse(&ledger.note).map_err(|_| broken("no checkpoint"))?;
    let header = Header { origin: key.name().to_owned(), key: key.clone() };
    let written = || {
        let mut writer = Writer::new(Vec::new(), &header).ok()?;
        for (index, leaf) in (0_u64..).zip(&ledger.entries) {
            writer.entry(index, leaf).ok()?;
        }
        writer.finish(&signed).ok()
    };
    let file = written().ok_or_else(|| broken("entries and head do not fit"))?;
    let former = before.map(|before| SignedCheckpoint::parse(&before.note)).transpose();
    let former = former.map_err(|_| broken("no former checkpoint"))?;
    let report = verify_export(file.as_slice(), Some(&key), former.as_ref());
    let report = report.map_err(|failure| broken(&format!("it does not verify: {failure}")))?;
    // The clock does go back here, and the log says so.
    let unexplained =
        report.exceptions.iter().find(|exception| exception.reason != ExceptionReason::ClockBehind);
    holds(unexplained.is_none(), Property::Ledger, || format!("{unexplained:?}"))
}

/// Read entries of one run: how many, and what the first says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reads {
    pub(crate) count: usize,
    pub(crate) records: u64,
    pub(crate) tokens: u64,
}

/// Read entries by the task that caused them.
pub(crate) fn reads(ledger: &Ledger) -> BTreeMap<TaskId, Reads> {
    let mut by_task: BTreeMap<TaskId, Reads> = BTreeMap::new();
    for entry in &ledger.entries {
        let Ok(entry) = serde_json::from_slice::<Value>(entry) else { continue };
        let run = entry.get("run_id").and_then(Value::as_str).and_then(|run| run.strip_prefix("run-"));
        let task = run.and_then(|run| run.parse::<TaskId>().ok());
        if entry.get("type").and_then(Value::as_str) == Some("read")
            && let Some(task) = task
        {
            let reads = by_task.entry(task).or_default();
            reads.count += 1;
            let number = |name: &str| entry.get(name).and_then(Value::as_u64).unwrap_or(u64::MAX);
            (reads.records, reads.tokens) = (number("records_total"), number("tokens"));
        }
    }
    by_task
}

/// How many entries of a type there are.
pub(crate) fn count(ledger: &Ledger, name: &str) -> usize {
    let of_type = |entry: &&Vec<u8>| {
        let entry = serde_json::from_slice::<Value>(entry).ok();
        entry.is_some_and(|entry| entry.get("type").and_then(Value::as_str) == Some(name))
    };
    ledger.entries.iter().filter(of_type).count()
}

/// What is left of somebody, asked for with a capability for somebody else.
pub(crate) fn residue(
    app: &App,
    backend: &dyn Backend,
    officer: &ApiKey,
    other: &SubjectRef,
    subject: &SubjectId,
) -> Option<Residue> {
    at_once(async {
        let request = asked(app, officer, Some(other)).await?;
        let pass = authorize::<action::Erase>(backend, &request).await.ok()?;
        backend.residue(&pass, subject).await.ok()
    })
    .flatten()
}

/// The members of a group.
pub(crate) fn members(app: &App, admin: &ApiKey, group: &GroupName) -> Option<Vec<String>> {
    let members = at_once(async {
        let request = asked(app, admin, None).await?;
        app.list_members(&request, group).await.ok()
    })
    .flatten()?;
    Some(members.iter().map(|member| member.expose().to_owned()).collect())
}

/// All words that can be read in files below a folder.
pub(crate) fn words_in_files(root: &Path) -> BTreeSet<Serial> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                open.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                found.extend(words_in(&String::from_utf8_lossy(&bytes)));
            }
        }
    }
    found
}
