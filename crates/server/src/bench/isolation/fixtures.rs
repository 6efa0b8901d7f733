//! Published cases of others, read where they lie and never copied: leak arena, the multi-tenant documents of
//! ogx, memtrust and the deletion traps of benchd. What is not at hand is skipped and said to be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::report::{Outcome, number};
use crate::bench::dice::Dice;
use crate::bench::wire::{Ask, Wire};

/// The service, its admin, and where new names come from.
struct Bench {
    wire: Wire,
    admin: String,
    dice: Dice,
}

/// A tenant made for a set of cases.
struct Place {
    admin: String,
    app: String,
}

type Played = anyhow::Result<(bool, String)>;

/// Its name, its file, and how it is played.
type Set = (&'static str, &'static str, fn(&mut Bench, &Path) -> Played);

const SETS: &[Set] = &[
    ("leak arena", "isolation/leak_arena_records.jsonl", leak_arena),
    ("ogx, documents of three tenants", "isolation/ogx/documents.jsonl", ogx),
    ("memtrust, injected filters", "isolation/memtrust/filter_injection_cases.json", filter_injection),
    ("memtrust, feedback loop", "isolation/memtrust/extraction_quality_cases.json", feedback_loop),
    ("memtrust, scripts", "isolation/memtrust/language_degradation_cases.json", scripts),
    ("memtrust, repeated questions", "isolation/memtrust/result_consistency_cases.json", repeated),
    ("benchd, deletion traps", "isolation/benchd_reliability.jsonl", deletion_traps),
];

/// Plays the sets that lie below `shared/data`.
pub(super) fn play(
    address: std::net::SocketAddr,
    admin: &str,
    shared: Option<&Path>,
    seed: u64,
) -> Vec<Outcome> {
    let mut bench =
        Bench { wire: Wire::to(address), admin: admin.to_owned(), dice: Dice::seeded(seed, 0xF1) };
    let mut outcomes = Vec::new();
    for (name, file, cases) in SETS {
        let path = shared.map(|shared| shared.join("data").join(file)).filter(|path| path.exists());
        let (verdict, note) = match path.map(|path| cases(&mut bench, &path)) {
            None => ("skipped", format!("{file} is not at hand; name its directory with --shared")),
            Some(Ok((true, note))) => ("pass", note),
            Some(Ok((false, note))) => ("fail", note),
            Some(Err(error)) => ("fail", format!("{error:#}")),
        };
        outcomes.push(Outcome { name: format!("cases: {name}"), verdict, note });
    }
    outcomes
}

fn lines(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn document(path: &Path) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list(value: &Value, field: &str) -> Vec<Value> {
    value.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}

impl Bench {
    fn place(&mut self) -> anyhow::Result<Place> {
        let name = format!("cases-{}", self.dice.letters(10));
        let ask = Ask::new("POST", "/v1/tenants").key(&self.admin).json(&json!({ "name": name }));
        let admin = text(&self.wire.send(&ask)?.success()?, "key").to_owned();
        let wanted = json!({"label": "cases", "role": "app", "act_for": true});
        let made = self.wire.send(&Ask::new("POST", "/v1/keys").key(&admin).json(&wanted))?.success()?;
        Ok(Place { admin, app: text(&made, "key").to_owned() })
    }

    fn ask(&mut self, place: &Place, subject: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let ask = Ask::new("POST", path).key(&place.app).subject(subject).json(body);
        self.wire.send(&ask)?.success().with_context(|| format!("POST {path} {body}"))
    }

    fn keep(&mut self, place: &Place, subject: &str, words: &str, owner: &Value) -> anyhow::Result<()> {
        let body = json!({"kind": "user_fact", "text": words, "owner": owner});
        self.ask(place, subject, "/v1/memories", &body).map(|_| ())
    }

    fn recall(
        &mut self,
        place: &Place,
        subject: &str,
        question: &str,
        k: usize,
    ) -> anyhow::Result<Vec<String>> {
        let found = self.ask(place, subject, "/v1/recall", &json!({"question": question, "k": k}))?;
        Ok(list(&found, "hits").iter().map(|hit| text(hit, "text").to_owned()).collect())
    }

    fn join(&mut self, place: &Place, group: &str, member: &str) -> anyhow::Result<()> {
        let path = format!("/v1/groups/{group}/members");
        let ask = Ask::new("POST", &path).key(&place.admin).json(&json!({"add": [member]}));
        self.wire.send(&ask)?.success().map(|_| ())
    }
}

/// 36 records of three tenants with clearances as groups; two people ask every question with k = 3.
fn leak_arena(bench: &mut Bench, path: &Path) -> Played {
    let records = lines(path)?;
    let near = |name: &str| path.with_file_name(name);
    let people = lines(&near("leak_arena_personas.jsonl"))?;
    let mut questions = Vec::new();
    for scenario in lines(&near("leak_arena_scenarios.jsonl"))? {
        questions.extend(list(&scenario, "benchmark_queries"));
        questions.extend(scenario.get("query").cloned());
    }
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    for record in &records {
        let tenant = text(record, "tenant_id");
        if !places.contains_key(tenant) {
            let place = bench.place()?;
            for level in 1..=5 {
                let group = json!({"name": format!("clearance-{level}")});
                bench.wire.send(&Ask::new("POST", "/v1/groups").key(&place.admin).json(&group))?.success()?;
            }
            places.insert(tenant.to_owned(), place);
        }
        let place = places.get(tenant).context("no tenant")?;
        let group = format!("clearance-{}", record.get("min_clearance").unwrap_or(&Value::Null));
        let owner = if text(record, "scope") == "private" {
            json!("subject")
        } else {
            // Who writes for a group belongs to it.
            bench.join(place, &group, text(record, "user_id"))?;
            json!({ "group": group })
        };
        bench.keep(place, text(record, "user_id"), text(record, "content"), &owner)?;
    }
    let (mut asked, mut leaks, mut wanted, mut found) = (0u64, 0u64, 0u64, 0u64);
    for person in &people {
        let (tenant, user) = (text(person, "tenant_id"), text(person, "user_id"));
        let level = person.get("clearance").and_then(Value::as_u64).unwrap_or(0);
        let place = places.get(tenant).context("no tenant")?;
        for group in 1..=level {
            bench.join(place, &format!("clearance-{group}"), user)?;
        }
        let may = |record: &&Value| {
            let private = text(record, "scope") == "private";
            let own = private && text(record, "user_id") == user;
            let cleared = record.get("min_clearance").and_then(Value::as_u64).is_some_and(|c| c <= level);
            text(record, "tenant_id") == tenant && (own || (!private && cleared))
        };
        let allowed: BTreeSet<&str> = records.iter().filter(may).map(|r| text(r, "content")).collect();
        for question in &questions {
            let hits = bench.recall(place, user, text(question, "text"), 3)?;
            asked += 1;
            leaks += u64::from(hits.iter().any(|hit| !allowed.contains(hit.as_str())));
            let relevant = list(question, "relevant_keys");
            for record in records.iter().filter(may) {
                if relevant.iter().any(|key| Some(key) == record.get("key")) {
                    wanted += 1;
                    found += u64::from(hits.iter().any(|hit| hit == text(record, "content")));
                }
            }
        }
    }
    let recall = number(found) / number(wanted.max(1));
    Ok((
        leaks == 0,
        format!("{leaks} of {asked} questions leak, authorised recall@3 {recall:.2} ({found} of {wanted})"),
    ))
}

/// 300 documents of three tenants; questions, cross-tenant probes and injections with k = 5.
fn ogx(bench: &mut Bench, path: &Path) -> Played {
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    let mut whose = BTreeMap::new();
    for record in lines(path)? {
        let tenant = text(&record, "tenant").to_owned();
        if !places.contains_key(&tenant) {
            places.insert(tenant.clone(), bench.place()?);
        }
        let place = places.get(&tenant).context("no tenant")?;
        bench.keep(place, "clerk", text(&record, "text"), &json!("tenant"))?;
        whose.insert(text(&record, "text").to_owned(), tenant);
    }
    let (mut note, mut leaked) = (Vec::new(), 0u64);
    for (name, file) in [
        ("authorised", "authorized_queries.json"),
        ("cross-tenant", "cross_tenant_probes.json"),
        ("injected", "injection_probes.json"),
    ] {
        let (mut asked, mut leaks, mut answered) = (0u64, 0u64, 0u64);
        for query in document(&path.with_file_name(file))?.as_array().into_iter().flatten() {
            let tenant = text(query, "tenant");
            let place = places.get(tenant).context("a query of an unknown tenant")?;
            let user = format!("user-{}", query.get("user_idx").unwrap_or(&Value::Null));
            let hits = bench.recall(place, &user, text(query, "query_text"), 5)?;
            asked += 1;
            answered += u64::from(!hits.is_empty());
            let foreign = |hit: &String| whose.get(hit).is_none_or(|owner| owner != tenant);
            leaks += u64::from(hits.iter().any(foreign));
        }
        leaked += leaks;
        note.push(format!("{name}: {leaks} of {asked} leak, {answered} answered"));
    }
    Ok((leaked == 0, note.join("; ")))
}

/// Filters whose value is a query of its own.
fn filter_injection(bench: &mut Bench, path: &Path) -> Played {
    let place = bench.place()?;
    for (owner, user) in [("victim", "victim-a"), ("alice", "alice")] {
        let metadata = json!({"user_id": user, "agent_id": user, "run_id": user});
        let body = json!({"kind": "user_fact", "text": format!("note of {user}"), "metadata": metadata});
        bench.ask(&place, owner, "/v1/memories", &body)?;
    }
    let (mut refused, mut narrowed, mut good) = (0, 0, true);
    for case in list(&document(path)?, "cases") {
        let (key, value) = (text(&case, "filter_key"), case.get("filter_value").cloned().unwrap_or_default());
        let body = json!({"question": "note", "metadata": { key: value }});
        let ask = Ask::new("POST", "/v1/recall").key(&place.app).subject("alice").json(&body);
        let answer = bench.wire.send(&ask)?;
        let leaks = String::from_utf8_lossy(&answer.body).contains("victim-a");
        let hits = list(&answer.value(), "hits").len();
        let malicious = case.get("malicious") == Some(&json!(true));
        refused += usize::from(answer.status == 400);
        narrowed += usize::from(answer.status == 200 && hits == 0);
        good &= !leaks && answer.status < 500 && !(malicious && hits > 0);
    }
    Ok((good, format!("{refused} refused, {narrowed} narrow to nothing, none widens")))
}

/// What was recalled is stored again, word for word.
fn feedback_loop(bench: &mut Bench, path: &Path) -> Played {
    let place = bench.place()?;
    let (mut n, mut good) = (0, true);
    for case in list(&document(path)?, "feedback_loop_cases") {
        let who = text(&case, "session_id");
        bench.keep(&place, who, text(&case, "seed_content"), &json!("subject"))?;
        for _ in 0..5 {
            let found = bench.recall(&place, who, text(&case, "recall_query"), 5)?;
            let recalled = found.first().context("nothing was recalled")?.clone();
            bench.keep(&place, who, &recalled, &json!("subject"))?;
        }
        let found = bench.recall(&place, who, text(&case, "unique_marker"), 50)?;
        good &= found.iter().filter(|hit| hit.contains(text(&case, "unique_marker"))).count() == 1;
        n += 1;
    }
    Ok((good, format!("{n} loops of five rounds, one memory each")))
}

/// Questions in scripts without spaces or with marks, each among all texts.
fn scripts(bench: &mut Bench, path: &Path) -> Played {
    let place = bench.place()?;
    let cases = list(&document(path)?, "cases");
    for case in &cases {
        bench.keep(&place, "reader", text(case, "content"), &json!("subject"))?;
    }
    let mut first = 0;
    let mut missed = Vec::new();
    for case in &cases {
        let found = bench.recall(&place, "reader", text(case, "query"), 3)?;
        if found.first().is_some_and(|hit| hit == text(case, "content")) {
            first += 1;
        } else {
            missed.push(text(case, "script").to_owned());
        }
    }
    // How well a script is found is quality, not isolation; what counts here is that nothing is lost or bent.
    let note = if missed.is_empty() { String::new() } else { format!("; not first: {}", missed.join(", ")) };
    Ok((true, format!("{first} of {} found first{note}", cases.len())))
}

/// The same question several times.
fn repeated(bench: &mut Bench, path: &Path) -> Played {
    let place = bench.place()?;
    let (mut n, mut good) = (0, true);
    for case in list(&document(path)?, "cases") {
        let who = text(&case, "session_id");
        for record in list(&case, "records") {
            bench.keep(&place, who, text(&record, "content"), &json!("subject"))?;
        }
        let first = bench.recall(&place, who, text(&case, "query"), 5)?;
        for _ in 1..case.get("n_repeats").and_then(Value::as_u64).unwrap_or(2) {
            good &= bench.recall(&place, who, text(&case, "query"), 5)? == first;
            n += 1;
        }
    }
    Ok((good, format!("{n} repetitions with the same answer")))
}

/// Conversations that are deleted; then their trap words are looked for.
fn deletion_traps(bench: &mut Bench, path: &Path) -> Played {
    let place = bench.place()?;
    let (mut n, mut good) = (0, true);
    for case in lines(path)?.iter().filter(|case| text(case, "group") == "DELETION_ITEMS") {
        let who = text(case, "id");
        let opened = bench.ask(&place, who, "/v1/conversations", &json!({"keep_days": 30}))?;
        let talk = text(&opened, "id").to_owned();
        for turn in list(case, "turns") {
            let body = json!({"role": text(&turn, "role"), "text": text(&turn, "content")});
            bench.ask(&place, who, &format!("/v1/conversations/{talk}/turns"), &body)?;
        }
        let question = json!({"question": text(case, "query"), "history": "all", "k": 10});
        let before = bench.ask(&place, who, "/v1/recall", &question)?;
        ensure!(!list(&before, "hits").is_empty(), "the turns are not found before they are deleted");
        let ask = Ask::new("DELETE", &format!("/v1/conversations/{talk}")).key(&place.app).subject(who);
        bench.wire.send(&ask)?.success()?;
        let after = bench.ask(&place, who, "/v1/recall", &question)?;
        let pack = bench.ask(&place, who, "/v1/context", &json!({"question": text(case, "query")}))?;
        good &= list(&after, "hits").is_empty() && list(&pack, "items").is_empty();
        n += 1;
    }
    Ok((good, format!("{n} conversations found before and gone after their deletion, in search and context")))
}
