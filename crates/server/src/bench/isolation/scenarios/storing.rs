//! Scenarios about deletion, currency, silent loss, languages and completeness.

use std::collections::BTreeSet;

use anyhow::ensure;
use merkwelt_domain::Timestamp;
use serde_json::{Value, json};

use super::Check;
use super::stage::{Player, Stage, refused};
use crate::bench::clock;
use crate::bench::isolation::report::at;
use crate::bench::wire::{Ask, Wire};
use crate::wiring;

type Result = anyhow::Result<Check>;

fn pass(note: impl Into<String>) -> Result {
    Ok(Check::Pass(note.into()))
}

fn in_millis(millis: i64) -> String {
    Timestamp::from_millis(wiring::system_env().now().millis() + millis).to_string()
}

/// Withdraw a memory and delete a conversation; both are on no path any more. That no file holds a readable
/// text is looked at when the service has stopped.
pub(super) fn d1(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(0);
    let (word, said) = (stage.word(), stage.word());
    let id = stage.remember(&who, &format!("the crane is {word}"))?;
    let opened = stage.ask(&who, "POST", "/v1/conversations", Some(&json!({"keep_days": 5})))?.success()?;
    let talk = opened.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let turn = json!({"role": "person", "text": format!("we said {said}")});
    stage.ask(&who, "POST", &format!("/v1/conversations/{talk}/turns"), Some(&turn))?.success()?;
    let derived =
        json!({"kind": "user_fact", "text": format!("from it follows {said}"), "conversation": talk});
    stage.keep(&who, &derived)?;
    stage.ask(&who, "DELETE", &format!("/v1/memories/{id}"), None)?.success()?;
    stage.ask(&who, "DELETE", &format!("/v1/conversations/{talk}"), None)?.success()?;
    ensure!(stage.everywhere(&who, &word)?.is_empty(), "the withdrawn memory is still found");
    ensure!(stage.everywhere(&who, &said)?.is_empty(), "something of the conversation is still found");
    refused(&stage.ask(&who, "GET", &format!("/v1/memories/{id}"), None)?, "the withdrawn memory")?;
    let history = json!({"question": said, "history": "all"});
    let found = stage.ask(&who, "POST", "/v1/recall", Some(&history))?.success()?;
    ensure!(!found.to_string().contains(&said), "turns are found");
    pass(
        "gone from search, list, context, history and by id; files are searched when the service has stopped",
    )
}

/// Erasing a person over HTTP.
pub(super) fn d2(stage: &mut Stage<'_>) -> Result {
    let known = stage.operations.iter().any(|operation| operation.path.contains("eras"));
    Ok(Check::NotApplicable(if known {
        "erasures over HTTP are tried by tests of their own"
    } else {
        "the document of the API has no operation that erases a person"
    }))
}

/// Fifty rounds in which an agent writes down what it was shown.
pub(super) fn s1(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(0);
    for number in 0..5 {
        let word = stage.word();
        stage.remember(&who, &format!("pallet {number} stands at {word}"))?;
    }
    let before = stage.list(&who)?.len();
    let (mut refusals, mut merged) = (0, 0);
    for round in 0..50 {
        let pack = stage.context(&who, "where is the pallet?")?;
        let text = if round % 2 == 0 { pack } else { stage.recall(&who, "pallet")?.concat() };
        let single = stage.recall(&who, "pallet")?.first().cloned().unwrap_or_default();
        let answer =
            stage.ask(&who, "POST", "/v1/memories", Some(&json!({"kind": "user_fact", "text": single})))?;
        merged += usize::from(answer.value().get("outcome") == Some(&json!("merged")));
        if round % 2 == 0 {
            let answer =
                stage.ask(&who, "POST", "/v1/memories", Some(&json!({"kind": "user_fact", "text": text})))?;
            refusals += usize::from((400..500).contains(&answer.status));
        }
    }
    let after = stage.list(&who)?.len();
    ensure!(after == before && refusals == 25, "{before} memories became {after}, {refusals} of 25 refused");
    pass(format!(
        "{before} memories before and after, {refusals} blocks refused, {merged} repetitions merged"
    ))
}

/// A slot that goes 10:00, 11:00, 10:00.
pub(super) fn s2(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(0);
    let (ten, eleven, order) = (stage.word(), stage.word(), stage.word());
    for value in [&ten, &eleven, &ten] {
        let body = json!({"kind": "project_state", "text": format!("{order} arrives at {value}"),
            "slot": format!("eta:{order}"), "expires_at": in_millis(3_600_000)});
        stage.keep(&who, &body)?;
    }
    let found = stage.everywhere(&who, &order)?;
    ensure!(
        !found.is_empty() && found.iter().all(|text| text.contains(&ten) && !text.contains(&eleven)),
        "{found:?}"
    );
    let listed = stage.ask(&who, "GET", "/v1/memories?limit=500", None)?.success()?;
    let revision = listed.pointer("/items").and_then(Value::as_array).and_then(|items| {
        items
            .iter()
            .find(|item| item.get("text").and_then(Value::as_str).is_some_and(|t| t.contains(&order)))?
            .get("revision")
            .cloned()
    });
    ensure!(revision == Some(json!(3)), "its revision is {revision:?}, not 3");
    pass("the last value is current on every path, as revision 3")
}

/// Something that ends in a second, read again and again until it has.
pub(super) fn s3(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(0);
    let word = stage.word();
    let body = json!({"kind": "project_state", "text": format!("ramp {word} is closed"), "expires_at": in_millis(1_500)});
    let id = stage.keep(&who, &body)?;
    ensure!(!stage.found(&who, &word)?.is_empty(), "it is not found while it holds");
    std::thread::sleep(std::time::Duration::from_millis(1_600));
    ensure!(stage.everywhere(&who, &word)?.is_empty(), "it is still served");
    refused(&stage.ask(&who, "GET", &format!("/v1/memories/{id}"), None)?, "what expired")?;
    let body = json!({"question": word});
    let considered = stage.ask(&who, "POST", "/v1/recall", Some(&body))?.success()?;
    let shared = u64::try_from(stage.a.shared.len())?;
    ensure!(considered.get("considered").and_then(Value::as_u64) >= Some(shared), "nothing was considered");
    for bad in ["tomorrow", "2099-13-01T00:00:00Z", "", "1", "2099-01-01"] {
        let body = json!({"kind": "project_state", "text": "x", "expires_at": bad});
        let answer = stage.ask(&who, "POST", "/v1/memories", Some(&body))?;
        ensure!(answer.status == 400, "the end `{bad}` was answered {}", answer.status);
    }
    pass(
        "absent from search, list, context and by id right after its end; reading did not prolong it; bad dates are 400",
    )
}

/// What a slot replaced, on every path.
pub(super) fn s4(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(0);
    let (old, new) = (stage.word(), stage.word());
    let fact = |word: &str| json!({"kind": "user_fact", "text": format!("the customer uses {word}"), "slot": "crm:use"});
    let first = stage.keep(&who, &fact(&old))?;
    stage.keep(&who, &fact(&new))?;
    ensure!(stage.everywhere(&who, &old)?.is_empty(), "the old value is served");
    ensure!(stage.everywhere(&who, &new)?.len() >= 3, "the new value is not on every path");
    let by_id = stage.ask(&who, "GET", &format!("/v1/memories/{first}"), None)?;
    ensure!(!String::from_utf8_lossy(&by_id.body).contains(&old), "the old value is read by its id");
    pass("search, list, context and by id show the new value only")
}

/// After each accepted write a search and a read by id.
pub(super) fn c1(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(0);
    for _ in 0..40 {
        let word = stage.word();
        let id = stage.remember(&who, &format!("the label says {word}"))?;
        ensure!(stage.found(&who, &word)?.len() == 1, "not found after 201");
        stage.ask(&who, "GET", &format!("/v1/memories/{id}"), None)?.success()?;
    }
    let lost = json!({"kind": "user_fact", "text": "for nobody", "owner": {"group": "no-such-group"}});
    refused(&stage.ask(&who, "POST", "/v1/memories", Some(&lost))?, "an unknown group")?;
    let none =
        json!({"kind": "user_fact", "text": "for nobody", "conversation": format!("con_{}", "a".repeat(26))});
    refused(&stage.ask(&who, "POST", "/v1/memories", Some(&none))?, "an unknown conversation")?;
    pass("40 of 40 found right after the answer; unknown places are refused")
}

/// 64 writers at once.
pub(super) fn c2(stage: &mut Stage<'_>) -> Result {
    const WRITERS: usize = 64;
    const EACH: usize = 25;
    let who = stage.player(0);
    let (address, word) = (stage.world.address, stage.word());
    let writer = |writer: usize, who: &Player, word: &str| -> anyhow::Result<usize> {
        let mut wire = Wire::to(address);
        let mut acknowledged = 0;
        for number in 0..EACH {
            let body =
                json!({"kind": "user_fact", "text": format!("{word} writer {writer} number {number}")});
            let ask = Ask::new("POST", "/v1/memories").key(&who.key).subject(&who.name).json(&body);
            let answer = wire.send(&ask)?;
            ensure!(answer.status < 500, "a write was answered {}", answer.status);
            acknowledged += usize::from(answer.status == 201);
        }
        Ok(acknowledged)
    };
    let acknowledged = std::thread::scope(|scope| {
        let start = |number| {
            let (who, word, writer) = (&who, &word, &writer);
            scope.spawn(move || writer(number, who, word))
        };
        let running: Vec<_> = (0..WRITERS).map(start).collect();
        let mut sum = 0;
        for thread in running {
            sum += thread.join().map_err(|_| anyhow::anyhow!("a writer died"))??;
        }
        anyhow::Ok(sum)
    })?;
    let kept = stage.list(&who)?.iter().filter(|text| text.contains(&word)).count();
    ensure!(kept == acknowledged && kept == WRITERS * EACH, "{acknowledged} acknowledged, {kept} kept");
    pass(format!("{kept} acknowledged and kept, no 5xx; kill -9 is tried by tests of their own"))
}

/// How long a plain write takes when nobody else writes.
pub(super) fn c3(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(1);
    let mut times = Vec::new();
    for _ in 0..200 {
        let word = stage.word();
        let started = clock::now();
        stage.remember(&who, &format!("a plain fact about {word}"))?;
        times.push(clock::millis_since(started));
    }
    times.sort_by(f64::total_cmp);
    let p95 = at(&times, 95);
    ensure!(p95 < 1_000.0, "p95 is {p95:.0} ms");
    pass(format!("p95 {p95:.1} ms of 200 durable writes; no model is asked on the write path"))
}

/// Commas, slashes, umlauts and emoji in names, slots, keys and values.
pub(super) fn c4(stage: &mut Stage<'_>) -> Result {
    let strange = [
        "a,b",
        "a/b",
        "a:b",
        "a b",
        "Müller-Straße",
        "İstanbul",
        "🦀 crab",
        "{}|@",
        "\"quoted\"",
        "back\\slash",
    ];
    let mut n = 0;
    for text in strange {
        let word = stage.word();
        let who = Player { name: format!("{text} {word}"), ..stage.player(0) };
        let body = json!({"kind": "user_fact", "text": format!("{text} {word}"), "metadata": {text: text, "tag": text}});
        let id = stage.keep(&who, &body)?;
        let read = stage.ask(&who, "GET", &format!("/v1/memories/{id}"), None)?.success()?;
        ensure!(
            read.pointer("/items/0/metadata/tag") == Some(&json!(text)),
            "`{text}` came back differently"
        );
        for key in ["tag", text] {
            let body = json!({"question": word, "metadata": {key: text}});
            let found = stage.ask(&who, "POST", "/v1/recall", Some(&body))?.success()?;
            let hits = found.pointer("/hits").and_then(Value::as_array).map_or(0, Vec::len);
            ensure!(hits == 1, "the filter `{key}` = `{text}` found {hits}");
        }
        stage.ask(&who, "DELETE", &format!("/v1/memories/{id}"), None)?.success()?;
        ensure!(stage.found(&who, &word)?.is_empty(), "`{text}` is found after its withdrawal");
        n += 1;
    }
    let long = "ä".repeat(250);
    let who = stage.player(0);
    let id =
        stage.keep(&who, &json!({"kind": "user_fact", "text": "long tag", "metadata": {"tag": long}}))?;
    let read = stage.ask(&who, "GET", &format!("/v1/memories/{id}"), None)?.success()?;
    ensure!(read.pointer("/items/0/metadata/tag") == Some(&json!(long)), "500 bytes came back differently");
    pass(format!("{n} strange names written, read, filtered and withdrawn; 500 bytes come back"))
}

/// German and Turkish, in other cases than they were written in, beside English.
pub(super) fn n1(stage: &mut Stage<'_>) -> Result {
    let who = stage.player(0);
    let cases = [
        ("The invoice goes to the branch in Bristol", "invoice BRISTOL"),
        ("Die Rechnung geht an die Straße in Köln", "rechnung STRASSE KÖLN"),
        ("Die Prüfung übernimmt Frau Öztürk", "PRÜFUNG öztürk"),
        ("Teslimat İstanbul deposuna yapılır", "istanbul teslimat"),
        ("Müşteri çay içmeyi seviyor", "MÜŞTERİ çay"),
        ("Größere Bestellungen prüft die Einkäuferin", "grössere bestellung einkäuferin"),
    ];
    for (text, _) in cases {
        stage.remember(&who, text)?;
    }
    for (text, question) in cases {
        let found = stage.recall(&who, question)?;
        ensure!(found.first().is_some_and(|first| first == text), "`{question}` finds {:?}", found.first());
    }
    pass(format!("{} of {} found first, texts come back as they were written", cases.len(), cases.len()))
}

/// Many items, listed by pages of two sizes.
pub(super) fn x1(stage: &mut Stage<'_>) -> Result {
    const BATCHES: usize = 4;
    let who = stage.player(0);
    let word = stage.word();
    for batch in 0..BATCHES {
        let items: Vec<Value> =
            (0..500).map(|n| json!({"kind": "user_fact", "text": format!("{word} {batch} {n}")})).collect();
        stage.ask(&who, "POST", "/v1/memories/batch", Some(&json!({"memories": items})))?.success()?;
    }
    let all = stage.list(&who)?;
    let distinct: BTreeSet<&String> = all.iter().filter(|text| text.starts_with(&word)).collect();
    ensure!(distinct.len() == BATCHES * 500, "{} of {} are listed", distinct.len(), BATCHES * 500);
    ensure!(
        all.len() == distinct.len() + stage.a.shared.len() || all.len() > distinct.len(),
        "something is missing"
    );
    pass(format!(
        "{} items listed once each; the document has no export of a person's data yet",
        distinct.len()
    ))
}
