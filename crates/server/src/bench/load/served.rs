//! The service as its clients see it: one, 16 and 64 of them, reading, writing and both, over kept-alive
//! connections; and the context pack with the real embedding model.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::engine::{cpu_millis, resident_mib, text};
use super::{Figure, Options};
use crate::bench::child::{Service, unwatched};
use crate::bench::clock;
use crate::bench::dice::Dice;
use crate::bench::isolation::{at, count};
use crate::bench::wire::{Ask, Wire};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mix {
    Reading,
    Writing,
    Both,
}

/// Measures a service of its own.
pub(super) fn measure(options: &Options, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    lexical(options, keep)?;
    match &options.model_dir {
        Some(dir) => packs(options, &dir.display().to_string(), keep),
        None => {
            keep(
                Figure::new("served", "context pack with local embedding", 0.0, "ms")
                    .note("skipped: name the model with --model-dir"),
            );
            Ok(())
        }
    }
}

fn lexical(options: &Options, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let mut service = Service::start(&["--no-model".to_owned()], "", &unwatched())?;
    let place = Place::new(&service, "load")?;
    place.fill("anna", 2_000)?;
    let pid = service.pid().unwrap_or_default().to_string();
    let seconds = if options.quick { 2.0 } else { 8.0 };
    for (mix, name) in [(Mix::Reading, "reading"), (Mix::Writing, "writing"), (Mix::Both, "both")] {
        for clients in [1usize, 16, 64] {
            let before = cpu_millis(&pid);
            let started = clock::now();
            let times = run(&place, mix, clients, seconds, options.seed)?;
            let took = clock::millis_since(started) / 1e3;
            let cpu = (cpu_millis(&pid) - before) / count(times.len().max(1));
            let rate = count(times.len()) / took;
            let note = format!(
                "p50 {:.2} ms, p99 {:.2} ms, {cpu:.2} ms of processor time each",
                at(&times, 50),
                at(&times, 99)
            );
            let figure =
                Figure::new("served", format!("{name}, {clients} clients"), rate, "requests/s").note(note);
            keep(if mix == Mix::Writing && clients == 16 { figure.at_least(1_000.0) } else { figure });
            if mix == Mix::Reading && clients == 1 {
                let what = |p: &str| format!("recall {p} over HTTP, 2000 items, read event durable");
                keep(Figure::new("served", what("p50"), at(&times, 50), "ms").at_most(1.0));
                keep(Figure::new("served", what("p99"), at(&times, 99), "ms").at_most(5.0));
            }
        }
    }
    keep(Figure::new("served", "resident memory after it", resident_mib(&pid), "MiB"));
    service.stop()
}

fn packs(options: &Options, dir: &str, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let arguments = ["--model-dir".to_owned(), dir.to_owned()];
    let mut service = Service::start(&arguments, "", &unwatched())?;
    let place = Place::new(&service, "packs")?;
    let rows = if options.quick { 200 } else { 2_000 };
    place.fill("anna", rows)?;
    let pid = service.pid().unwrap_or_default().to_string();
    let mut wire = Wire::to(place.address);
    let mut dice = Dice::seeded(options.seed, 0xBAC);
    let n = if options.quick { 40 } else { 200 };
    let mut times = Vec::new();
    let mut before = 0.0;
    for round in 0..n + 10 {
        if round == 10 {
            times.clear();
            before = cpu_millis(&pid);
        }
        let question = format!("When does the order {} of {} arrive?", dice.below(rows), dice.letters(6));
        let ask = Ask::new("POST", "/v1/context")
            .key(&place.app)
            .subject("anna")
            .json(&json!({"question": question}));
        let started = clock::now();
        wire.send(&ask)?.success()?;
        times.push(clock::millis_since(started));
    }
    let cpu = (cpu_millis(&pid) - before) / count(n);
    times.sort_by(f64::total_cmp);
    let note = format!("p99 {:.1} ms, {cpu:.1} ms of processor time each", at(&times, 99));
    keep(
        Figure::new(
            "served",
            format!("context pack p50 with local embedding, {rows} memories"),
            at(&times, 50),
            "ms",
        )
        .at_most(25.0)
        .note(note),
    );
    service.stop()
}

/// A tenant of the service.
struct Place {
    address: SocketAddr,
    app: String,
}

impl Place {
    fn new(service: &Service, name: &str) -> anyhow::Result<Self> {
        let mut wire = Wire::to(service.address);
        let made = wire
            .send(&Ask::new("POST", "/v1/tenants").key(&service.admin).json(&json!({"name": name})))?
            .success()?;
        let admin = made.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
        let wanted = json!({"label": "app", "role": "app", "act_for": true});
        let made = wire.send(&Ask::new("POST", "/v1/keys").key(&admin).json(&wanted))?.success()?;
        let app = made.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { address: service.address, app })
    }

    fn fill(&self, person: &str, rows: usize) -> anyhow::Result<()> {
        let mut wire = Wire::to(self.address);
        let all: Vec<Value> = (0..rows).map(|row| json!({"kind": "user_fact", "text": text(row)})).collect();
        for batch in all.chunks(100) {
            let ask = Ask::new("POST", "/v1/memories/batch").key(&self.app).subject(person);
            wire.send(&ask.json(&json!({ "memories": batch })))?.success()?;
        }
        Ok(())
    }
}

/// Sorted times of all requests that were answered within `seconds`.
fn run(place: &Place, mix: Mix, clients: usize, seconds: f64, seed: u64) -> anyhow::Result<Vec<f64>> {
    let client = |number: usize| -> anyhow::Result<Vec<f64>> {
        let mut wire = Wire::to(place.address);
        let mut dice = Dice::seeded(seed, 0x10AD + u64::try_from(number)?);
        let began = clock::now();
        let mut times = Vec::new();
        while clock::millis_since(began) < seconds * 1e3 {
            let write = mix == Mix::Writing || (mix == Mix::Both && dice.chance(50));
            let ask = if write {
                // Writers keep things for somebody else, so that readers search the same 2,000 all the time.
                let body = json!({"kind": "user_fact", "text": format!("{} {}", text(dice.below(1 << 30)), dice.letters(8))});
                Ask::new("POST", "/v1/memories")
                    .key(&place.app)
                    .subject(&format!("writer-{number}"))
                    .json(&body)
            } else {
                let body = json!({"question": text(dice.below(2_000))});
                Ask::new("POST", "/v1/recall").key(&place.app).subject("anna").json(&body)
            };
            let started = clock::now();
            wire.send(&ask)?.success()?;
            times.push(clock::millis_since(started));
        }
        Ok(times)
    };
    std::thread::scope(|scope| {
        let start = |number| {
            let client = &client;
            scope.spawn(move || client(number))
        };
        let running: Vec<_> = (0..clients).map(start).collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().map_err(|_| anyhow::anyhow!("a client died"))??);
        }
        all.sort_by(f64::total_cmp);
        Ok(all)
    })
}
