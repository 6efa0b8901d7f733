//! The attack itself, with its clients, and what is looked at when it is over.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indicatif::{ProgressBar, ProgressStyle};
use merkwelt_ledger::verify_export;
use serde_json::{Value, json};

use super::Options;
use super::attack::Attacker;
use super::catalogue::{Operation, operations};
use super::judge::{Seen, Tally, Wrong};
use super::marks::{Marks, Owner};
use super::world::{Company, Item, MALLORY, Person, World};
use crate::bench::dice::Dice;
use crate::bench::wire::{Ask, Wire};
use crate::bench::{child, clock};

/// How many of a hundred rounds an owner looks for what is theirs.
const OWNER_PERCENT: usize = 8;

/// Attacks with all clients at once.
pub(super) fn attack(
    options: &Options,
    world: &World,
    say: &mut dyn FnMut(String),
) -> anyhow::Result<(Tally, Vec<Operation>)> {
    let document = Wire::to(world.address).send(&Ask::new("GET", "/openapi.json"))?.success()?;
    let operations = operations(&document)?;
    say(format!("attacking {} operations with {} clients", operations.len(), options.clients));
    let bar = progress(options.attempts);
    let clients = options.clients.max(1);
    let each = options.attempts.div_ceil(u64::try_from(clients)?);
    let mut sum = Tally::default();
    let finished: Vec<anyhow::Result<Tally>> = std::thread::scope(|scope| {
        let client = |number: usize| {
            let (bar, operations) = (&bar, &operations);
            scope.spawn(move || one_client(options.seed, number, each, world, operations, bar))
        };
        let running: Vec<_> = (0..clients).map(client).collect();
        let gone = |_| Err(anyhow::anyhow!("a client died"));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(gone)).collect()
    });
    for tally in finished {
        sum.add(tally?);
    }
    bar.finish_and_clear();
    Ok((sum, operations))
}

fn progress(attempts: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} attempts, {per_sec}, {eta} left");
    let bar = ProgressBar::new(attempts);
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

fn one_client(
    seed: u64,
    number: usize,
    attempts: u64,
    world: &World,
    operations: &[Operation],
    bar: &ProgressBar,
) -> anyhow::Result<Tally> {
    let part = u64::try_from(number)?;
    let mut attacker = Attacker { world, operations, dice: Dice::seeded(seed, part + 1) };
    let mut dice = Dice::seeded(seed, part + 1_000_000);
    let mut wire = Wire::to(world.address);
    let mut tally = Tally::default();
    while tally.attempts < attempts {
        let before = tally.attempts;
        if dice.chance(OWNER_PERCENT) {
            owner_looks(world, &mut wire, &mut dice, &mut tally)?;
        } else {
            let attempt = attacker.next();
            let sent = attempt.ask.bytes();
            let answer = wire.raw(&sent, attempt.ask.method == "HEAD")?;
            tally.judge(&world.marks, &attempt, &sent, &answer);
            if let Some(twin) = &attempt.twin {
                let sent = twin.bytes();
                let other = wire.raw(&sent, twin.method == "HEAD")?;
                tally.judge(&world.marks, &attempt, &sent, &other);
                tally.same(&attempt, &answer, &other);
            }
        }
        if number == 0 && tally.attempts % 512 == 0 {
            public(world, &mut wire, &mut tally)?;
        }
        bar.inc(tally.attempts - before);
    }
    tally.broken = wire.broken;
    Ok(tally)
}

/// What everybody may read must hold nothing of anybody.
fn public(world: &World, wire: &mut Wire, tally: &mut Tally) -> anyhow::Result<()> {
    for path in ["/metrics", "/readyz", "/healthz", "/openapi.json"] {
        let answer = wire.send(&Ask::new("GET", path))?;
        for mark in world.marks.any(&answer.body) {
            tally.blame(Wrong::Spill, path, "anybody", mark);
        }
    }
    Ok(())
}

/// An owner asks for something of their own, by its words or by its id; it counts as an attempt.
fn owner_looks(world: &World, wire: &mut Wire, dice: &mut Dice, tally: &mut Tally) -> anyhow::Result<()> {
    let victims: Vec<usize> = (0..world.companies.len())
        .filter(|n| world.companies.get(*n).is_some_and(|company| !company.hostile))
        .collect();
    let tenant = dice.pick(&victims).copied().context("no tenant")?;
    let n_people = world.companies.get(tenant).map_or(0, |company| company.people.len());
    let subject = (MALLORY + 1 + dice.below(n_people.saturating_sub(1))).min(n_people - 1);
    let (company, person, sight) = world.owner(tenant, subject).context("no person")?;
    let item = chosen(company, person, dice).context("nothing was planted")?;
    let by_id = dice.chance(20);
    let ask = if by_id {
        Ask::new("GET", &format!("/v1/memories/{}", item.id))
    } else {
        let question = format!("Which depot has the gate code {}?", item.mark);
        Ask::new("POST", "/v1/recall").json(&json!({"question": question, "k": 3}))
    };
    let ask = ask.key(&company.app).subject(&person.name);
    let started = clock::now();
    let answer = wire.send(&ask)?;
    if !by_id {
        tally.recall_millis.push(clock::millis_since(started));
    }
    tally.attempts += 1;
    *tally.by_class.entry("owners look for their own").or_default() += 1;
    tally.asked += 1;
    let seen = Seen { place: "owner", who: "the owner", sight: &sight, sent: b"" };
    tally.look(&world.marks, &seen, &answer);
    let items = if by_id { "/items" } else { "/hits" };
    let found = answer.value();
    let found = found.pointer(items).and_then(Value::as_array);
    if found.is_some_and(|items| items.iter().any(|hit| same_item(hit, item))) {
        tally.found += 1;
    } else {
        let how = if by_id { "by its id" } else { "by its words" };
        tally.blame(Wrong::Lost, "owner", &person.name, format!("{} {how}: {}", item.id, answer.status));
    }
    Ok(())
}

fn same_item(hit: &Value, item: &Item) -> bool {
    let is = |field: &str, text: &str| hit.get(field).and_then(Value::as_str) == Some(text);
    is("id", &item.id) && is("text", &item.text)
}

fn chosen<'w>(company: &'w Company, person: &'w Person, dice: &mut Dice) -> Option<&'w Item> {
    match dice.below(5) {
        0 => dice.pick(&company.shared),
        1 => {
            let group = dice.pick(&person.groups)?;
            company.group_items.iter().find(|item| item.owner == Owner::Group(*group))
        }
        _ => dice.pick(&person.items),
    }
}

/// What was looked at after the attack.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(super) struct Afterwards {
    /// Planted memories and turns that were read again and are as they were.
    pub(super) unchanged: u64,
    /// Entries of all ledgers, verified.
    pub(super) ledger_entries: u64,
    /// Delivered answers whose read event stands in the ledger.
    pub(super) reads_recorded: u64,
}

/// Looks whether everything planted is as it was, and whether the ledgers hold every read and no text.
pub(super) fn afterwards(world: &World, tally: &mut Tally) -> anyhow::Result<Afterwards> {
    let mut done = Afterwards::default();
    let mut wire = Wire::to(world.address);
    for (tenant, company) in world.companies.iter().enumerate() {
        for subject in 0..company.people.len() {
            if !company.hostile && subject != MALLORY {
                done.unchanged += unchanged(world, tenant, subject, &mut wire, tally)?;
            }
        }
        let answer = wire.send(&Ask::new("GET", "/v1/ledger/export").key(&company.admin))?;
        match verify_export(answer.body.as_slice(), None, None) {
            Ok(report) => done.ledger_entries += report.size,
            Err(failure) => tally.blame(Wrong::Changed, "ledger", "the auditor", failure.to_string()),
        }
        let recorded = entries(&answer.body, &world.marks, tally);
        for read in tally.reads.remove(&tenant).unwrap_or_default() {
            if recorded.contains(&read) {
                done.reads_recorded += 1;
            } else {
                tally.blame(Wrong::Unrecorded, "ledger", "the auditor", read);
            }
        }
    }
    Ok(done)
}

/// The read ids of an export; whatever stands in an entry as readable text is blamed.
fn entries(export: &[u8], marks: &Marks, tally: &mut Tally) -> BTreeSet<String> {
    let mut reads = BTreeSet::new();
    for line in export.split(|byte| *byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
        let Some(leaf) = line.get("leaf").and_then(Value::as_str) else { continue };
        let leaf = STANDARD.decode(leaf).unwrap_or_default();
        for mark in marks.any_text(&leaf) {
            tally.blame(Wrong::Spill, "ledger", "the auditor", mark);
        }
        let entry: Value = serde_json::from_slice(&leaf).unwrap_or_default();
        reads.extend(entry.get("read_id").and_then(Value::as_str).map(ToOwned::to_owned));
    }
    reads
}

fn unchanged(
    world: &World,
    tenant: usize,
    subject: usize,
    wire: &mut Wire,
    tally: &mut Tally,
) -> anyhow::Result<u64> {
    let Some((company, person, sight)) = world.owner(tenant, subject) else { return Ok(0) };
    let mut good = 0;
    let seen = Seen { place: "afterwards", who: "the owner", sight: &sight, sent: b"" };
    let mut asked = |target: &str, tally: &mut Tally| -> anyhow::Result<Value> {
        let answer = wire.send(&Ask::new("GET", target).key(&company.app).subject(&person.name))?;
        tally.look(&world.marks, &seen, &answer);
        Ok(answer.value())
    };
    for item in person.items.iter().chain(&company.shared) {
        let found = asked(&format!("/v1/memories/{}", item.id), tally)?;
        let found = found.pointer("/items/0").cloned().unwrap_or_default();
        if same_item(&found, item) && found.get("revision") == Some(&json!(1)) {
            good += 1;
        } else {
            tally.blame(Wrong::Changed, "afterwards", &person.name, format!("{}: {found}", item.id));
        }
    }
    let turns = asked(&format!("/v1/conversations/{}", person.conversation), tally)?;
    let turns = turns.pointer("/turns").and_then(Value::as_array).cloned().unwrap_or_default();
    let texts: Vec<&str> = turns.iter().filter_map(|turn| turn.get("text")?.as_str()).collect();
    if texts == person.turns {
        good += 1;
    } else {
        tally.blame(Wrong::Changed, "afterwards", &person.name, format!("{} turns", texts.len()));
    }
    Ok(good)
}

/// Searches every file of the data for texts and names in plain. Only names that an operator chose may stand
/// there: of tenants and keys in the control file, of groups in the cells. Tells how many bytes were searched.
pub(super) fn files(data: &Path, marks: &Marks, tally: &mut Tally) -> u64 {
    let mut n_bytes = 0;
    for path in child::files(data) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        n_bytes += u64::try_from(bytes.len()).unwrap_or(0);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let cell = name.starts_with("cell.db");
        for mark in marks.any_text(&bytes) {
            let owner = marks.owner(&mark).map(|mark| mark.owner);
            let chosen = owner == Some(Owner::Directory) || (owner == Some(Owner::Instance) && !cell);
            if !chosen {
                tally.blame(Wrong::Spill, &name, "whoever has the disk", mark);
            }
        }
    }
    n_bytes
}
