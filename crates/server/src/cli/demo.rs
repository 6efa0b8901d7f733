//! `merkwelt demo`: the promises, shown in under a minute with the real service and the real store, in a
//! directory of its own that is removed at the end. `stage` sets the scene, this file tells the story.

mod stage;

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{Client, Out};
use stage::{Company, Stage};

/// Arguments of `merkwelt demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Keep the directory and print where it is
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let stage = Stage::set(args.keep)?;
    out.line(format_args!(
        "A fresh merkwelt runs at {} with its data in a temporary directory.\n",
        stage.url
    ))?;
    let nordwind = stage.company("nordwind")?;
    let suedhafen = stage.company("suedhafen")?;
    apart(&nordwind, &suedhafen, out)?;
    denied(&nordwind, &suedhafen, out)?;
    groups(&nordwind, out)?;
    current(&nordwind, out)?;
    lean(&nordwind, out)?;
    proven(&stage, &suedhafen, &nordwind, out)?;
    if args.keep {
        out.line(format_args!("\nThe data stay in {}.", stage.dir().display()))?;
    }
    out.line("\nThat was the demo. Start your own with `merkwelt serve`.")
}

fn apart(nordwind: &Company, suedhafen: &Company, out: &mut Out) -> anyhow::Result<()> {
    out.line("1. Two client companies with similar texts, the same question")?;
    for (company, carrier, day) in
        [(nordwind, "Baltic Freight", "Tuesday"), (suedhafen, "Alpen Cargo", "Friday")]
    {
        let anna = company.app.acting_for("anna");
        remember(
            &anna,
            json!({"kind": "user_fact", "text": format!("Anna ships cooled medicine with {carrier}")}),
        )?;
        remember(&anna, json!({"kind": "user_fact", "text": format!("Anna's pickup day is {day}")}))?;
    }
    for company in [nordwind, suedhafen] {
        let anna = company.app.acting_for("anna");
        let found = recall(&anna, "Who ships the medicine, and on which day?")?;
        out.line(format_args!("   {:<9} -> {}", company.name, texts(&found).join(" | ")))?;
        let other = if company.name == "nordwind" { "Alpen" } else { "Baltic" };
        ensure!(!texts(&found).iter().any(|text| text.contains(other)), "a foreign text was shown");
    }
    Ok(())
}

fn denied(nordwind: &Company, suedhafen: &Company, out: &mut Out) -> anyhow::Result<()> {
    out.line("\n2. A look across is answered like a look at nothing")?;
    let anna = nordwind.app.acting_for("anna");
    let list = anna.get("/v1/memories")?.success()?;
    let id = list.pointer("/items/0/id").and_then(Value::as_str).context("no memory listed")?;
    let foreign = suedhafen.app.acting_for("anna").get(&format!("/v1/memories/{id}"))?;
    let unknown = suedhafen.app.acting_for("anna").get("/v1/memories/mem_aaaaaaaaaaaaaaaaaaaaaaaaaa")?;
    out.line(format_args!(
        "   suedhafen asks for nordwind's memory -> {} {}",
        foreign.status,
        code(&foreign.json()?)
    ))?;
    out.line(format_args!(
        "   suedhafen asks for an unknown one    -> {} {}",
        unknown.status,
        code(&unknown.json()?)
    ))?;
    ensure!(
        foreign.status == 404 && without_id(&foreign.json()?) == without_id(&unknown.json()?),
        "they differ"
    );
    let denied =
        suedhafen.admin.acting_for("anna").post("/v1/recall", &json!({"question": "medicine?"}), None)?;
    out.line(format_args!(
        "   suedhafen's admin key may not search    -> {} {}",
        denied.status,
        code(&denied.json()?)
    ))?;
    ensure!(denied.status == 404, "the denial is not told apart");
    Ok(())
}

fn groups(company: &Company, out: &mut Out) -> anyhow::Result<()> {
    out.line("\n3. A change of groups takes effect on the next request")?;
    company.admin.post("/v1/groups", &json!({"name": "dispatch"}), None)?.success()?;
    let members = |body| company.admin.post("/v1/groups/dispatch/members", &body, None);
    members(json!({"add": ["ben"]}))?.success()?;
    let shared = json!({"kind": "user_fact", "text": "The gate code of hall 3 is 4711", "owner": {"group": "dispatch"}});
    company.app.post("/v1/memories", &shared, None)?.success()?;
    let ben = company.app.acting_for("ben");
    let question = "What is the gate code of hall 3?";
    out.line(format_args!("   ben, in the group  -> {}", shown(&recall(&ben, question)?)))?;
    members(json!({"remove": ["ben"]}))?.success()?;
    let after = recall(&ben, question)?;
    out.line(format_args!("   ben, taken out     -> {}", shown(&after)))?;
    ensure!(texts(&after).is_empty(), "the withdrawn right still worked");
    Ok(())
}

fn current(company: &Company, out: &mut Out) -> anyhow::Result<()> {
    out.line("\n4. Only what holds now is served")?;
    let carla = company.app.acting_for("carla");
    let state = |text: &str, slot: &str, millis| json!({"kind": "project_state", "text": text, "slot": slot, "expires_at": stage::in_millis(millis)});
    remember(&carla, state("Order 17 arrives on Monday", "eta:order-17", 86_400_000))?;
    remember(&carla, state("Order 17 arrives on Thursday", "eta:order-17", 86_400_000))?;
    remember(&carla, state("Ramp 2 is blocked", "ramp:2", 1_500))?;
    out.line(format_args!(
        "   Monday was replaced by Thursday -> {}",
        shown(&recall(&carla, "When does order 17 arrive?")?)
    ))?;
    std::thread::sleep(Duration::from_millis(1_600));
    let after = recall(&carla, "Is ramp 2 blocked?")?;
    out.line(format_args!("   a state that ended 0.1 s ago    -> {}", shown(&after)))?;
    ensure!(
        !texts(&after).iter().any(|text| text.contains("blocked") || text.contains("Monday")),
        "stale text served"
    );
    Ok(())
}

fn lean(company: &Company, out: &mut Out) -> anyhow::Result<()> {
    out.line("\n5. One call per turn gives the context within a budget")?;
    let dora = company.app.acting_for("dora");
    remember(
        &dora,
        json!({"kind": "feedback", "text": "Answer in two sentences and name the order number"}),
    )?;
    remember(&dora, json!({"kind": "user_fact", "text": "Dora prefers deliveries before 9 in the morning"}))?;
    let orders: Vec<Value> = (100..160).map(stage::order).collect();
    dora.post("/v1/memories/batch", &json!({"memories": orders}), None)?.success()?;
    let pack = dora
        .post("/v1/context", &json!({"question": "Where is order 137 now?", "budget": 400}), None)?
        .success()?;
    for part in ["/system/rules", "/system/facts", "/turn"] {
        let text = pack.pointer(part).and_then(Value::as_str).unwrap_or_default();
        for line in text.lines().filter(|line| line.starts_with("- ") || line.starts_with("##")).take(6) {
            out.line(format_args!("   | {line}"))?;
        }
    }
    let tokens =
        |name: &str| pack.pointer(&format!("/tokens/{name}")).and_then(Value::as_u64).unwrap_or_default();
    out.line(format_args!(
        "   {} tokens instead of {} for everything she has: {} % saved ({})",
        tokens("total"),
        tokens("flat"),
        tokens("saved_percent"),
        pack.get("retrieval").and_then(Value::as_str).unwrap_or_default(),
    ))?;
    ensure!(tokens("total") <= 400, "the budget was exceeded");
    Ok(())
}

fn proven(stage: &Stage, first: &Company, second: &Company, out: &mut Out) -> anyhow::Result<()> {
    out.line("\n6. Every read and every denial is in a ledger that anybody can verify offline")?;
    let mut last = String::new();
    for company in [first, second] {
        let export = company.admin.get("/v1/ledger/export")?;
        ensure!(export.status == 200, "the export failed");
        let report = stage::verify(export.body.as_bytes()).context("the ledger does not verify")?;
        let count = |name: &str| report.by_type.get(name).copied().unwrap_or_default();
        out.line(format_args!(
            "   {:<9}: {} entries verify: {} reads, {} writes, {} denials",
            company.name,
            report.size,
            count("read"),
            count("memory_written") + count("memory_corrected"),
            count("authz_denied"),
        ))?;
        last = export.body;
    }
    let tampered = stage.tamper(&last)?;
    match stage::verify(&tampered) {
        Ok(_) => anyhow::bail!("a changed byte was not noticed"),
        Err(failure) => out.line(format_args!("   one byte changed -> refused: {failure}")),
    }
}

fn remember(client: &Client, body: Value) -> anyhow::Result<Value> {
    client.post("/v1/memories", &body, None)?.success()
}

fn recall(client: &Client, question: &str) -> anyhow::Result<Value> {
    client.post("/v1/recall", &json!({"question": question, "k": 2}), None)?.success()
}

fn texts(found: &Value) -> Vec<String> {
    let hits = found.get("hits").and_then(Value::as_array);
    hits.into_iter().flatten().filter_map(|hit| hit.get("text")?.as_str().map(ToOwned::to_owned)).collect()
}

fn shown(found: &Value) -> String {
    let texts = texts(found);
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(" | ") }
}

fn code(problem: &Value) -> String {
    problem.get("code").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn without_id(problem: &Value) -> Value {
    let mut problem = problem.clone();
    if let Some(map) = problem.as_object_mut() {
        map.remove("request_id");
    }
    problem
}
