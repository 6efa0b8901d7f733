//! Many tenants in one service: resident memory hot and idle, and all of them active. The data are planted in
//! this process, with vectors, and served by a child.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use super::engine::{Engine, cpu_millis, resident_mib, text};
use super::{Figure, Options, World};
use crate::bench::child::{Service, unwatched};
use crate::bench::clock;
use crate::bench::dice::Dice;
use crate::bench::isolation::{at, count};
use crate::bench::wire::{Ask, Wire};

/// After how long without a request a tenant counts as unused: long enough that all are open while they are
/// visited.
fn idle_seconds(tenants: usize) -> u64 {
    5 + u64::try_from(tenants / 4).unwrap_or(0)
}

/// How long the service is left alone before its memory counts as idle: until the last tenant counts as unused, a
/// second for every sixteen, in which they are closed, and what it takes until the memory is given back.
fn quiet_seconds(tenants: usize) -> u64 {
    idle_seconds(tenants) + u64::try_from(tenants / 16).unwrap_or(0) + 20
}

/// Measures three instances.
pub(super) fn measure(options: &Options, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let world = |tenants, rows| World { tenants, rows };
    let (quick, usual) = ([world(50, 200)], [world(500, 200), world(500, 2_000), world(800, 200)]);
    let worlds: &[World] = match options.worlds.as_slice() {
        [] if options.quick => &quick,
        [] => &usual,
        asked => asked,
    };
    worlds.iter().try_for_each(|world| one_world(world.tenants, world.rows, options, keep))
}

fn one_world(
    tenants: usize,
    rows: usize,
    options: &Options,
    keep: &mut dyn FnMut(Figure),
) -> anyhow::Result<()> {
    let engine = Engine::new()?;
    let mut keys = Vec::new();
    let started = clock::now();
    for tenant in 0..tenants {
        let key = engine.tenant(&format!("tenant-{tenant}"))?;
        engine.fill(&key, "anna", tenant * rows, rows)?;
        keys.push(key.reveal());
    }
    let seconds = clock::millis_since(started) / 1e3;
    let size = format!("{tenants} tenants × {rows}");
    keep(Figure::new(
        "tenants",
        format!("{size}: rows planted with vectors"),
        count(tenants * rows) / seconds,
        "rows/s",
    ));
    let (dir, admin) = engine.closed();
    let idle = idle_seconds(tenants);
    let config =
        format!("[storage]\nopen_tenants = {tenants}\nindex_megabytes = 1024\nidle_seconds = {idle}\n");
    std::fs::write(dir.join("data.toml"), config)?;
    let mut service = Service::over(dir, &["--no-model".to_owned()], &unwatched())?;
    service.admin = admin;
    let pid = service.pid().unwrap_or_default().to_string();
    keep(Figure::new("tenants", format!("{size}: resident after the start"), resident_mib(&pid), "MiB"));
    let before = cpu_millis(&pid);
    let times = visit(service.address, &keys, rows, options.seed)?;
    let cpu = (cpu_millis(&pid) - before) / count(keys.len());
    let note = format!("p99 {:.1} ms, {cpu:.1} ms of processor time each", at(&times, 99));
    keep(
        Figure::new("tenants", format!("{size}: first search of a tenant, p50"), at(&times, 50), "ms")
            .note(note),
    );
    let times = visit(service.address, &keys, rows, options.seed + 1)?;
    keep(
        Figure::new("tenants", format!("{size}: second search of a tenant, p50"), at(&times, 50), "ms")
            .note(format!("p99 {:.1} ms", at(&times, 99))),
    );
    let hot = Figure::new("tenants", format!("{size}: resident, all hot"), resident_mib(&pid), "MiB");
    keep(hot.at_most(1_024.0));
    let (rate, times) = active(service.address, &keys, rows, options)?;
    let note = format!("16 clients, p50 {:.2} ms, p99 {:.2} ms", at(&times, 50), at(&times, 99));
    keep(Figure::new("tenants", format!("{size}: all active"), rate, "searches/s").note(note));
    let after =
        Figure::new("tenants", format!("{size}: resident after many clients"), resident_mib(&pid), "MiB");
    keep(after.at_most(1_024.0));
    std::thread::sleep(Duration::from_secs(quiet_seconds(tenants)));
    let idle = Figure::new("tenants", format!("{size}: resident, idle"), resident_mib(&pid), "MiB");
    keep(idle.at_most(100.0));
    service.stop()
}

fn search(wire: &mut Wire, key: &str, question: &str) -> anyhow::Result<f64> {
    let ask = Ask::new("POST", "/v1/recall").key(key).subject("anna").json(&json!({ "question": question }));
    let started = clock::now();
    wire.send(&ask)?.success()?;
    Ok(clock::millis_since(started))
}

/// One search in every tenant, one after the other.
fn visit(address: SocketAddr, keys: &[String], rows: usize, seed: u64) -> anyhow::Result<Vec<f64>> {
    let (mut wire, mut dice) = (Wire::to(address), Dice::seeded(seed, 0x7E4));
    let mut times = Vec::new();
    for (tenant, key) in keys.iter().enumerate() {
        times.push(search(&mut wire, key, &text(tenant * rows + dice.below(rows)))?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Searches in tenants at random, by 16 clients.
fn active(
    address: SocketAddr,
    keys: &[String],
    rows: usize,
    options: &Options,
) -> anyhow::Result<(f64, Vec<f64>)> {
    let each = if options.quick { 50 } else { 500 };
    let started = clock::now();
    let client = |number: u64| -> anyhow::Result<Vec<f64>> {
        let (mut wire, mut dice) = (Wire::to(address), Dice::seeded(options.seed, 0xAC7 + number));
        let mut times = Vec::new();
        for _ in 0..each {
            let tenant = dice.below(keys.len());
            let Some(key) = keys.get(tenant) else { continue };
            times.push(search(&mut wire, key, &text(tenant * rows + dice.below(rows)))?);
        }
        Ok(times)
    };
    let mut all = std::thread::scope(|scope| {
        let start = |number| {
            let client = &client;
            scope.spawn(move || client(number))
        };
        let running: Vec<_> = (0..16).map(start).collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().map_err(|_| anyhow::anyhow!("a client died"))??);
        }
        anyhow::Ok(all)
    })?;
    let rate = count(all.len()) / (clock::millis_since(started) / 1e3);
    all.sort_by(f64::total_cmp);
    Ok((rate, all))
}
