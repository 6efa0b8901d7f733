//! What evidence and encryption add: a search with and without its recorded read, a write, and the sealing of
//! as many bytes as a search opens. Neither can be switched off, so they are measured beside each other.

use std::hint::black_box;

use anyhow::Context;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::engine::{Engine, cpu_millis, fact, question};
use super::{Figure, Options};
use crate::bench::clock;
use crate::bench::dice::Dice;
use crate::bench::isolation::{at, count};

/// Measures at 2,000 rows.
pub(super) fn measure(options: &Options, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let engine = Engine::new()?;
    let key = engine.key.clone();
    engine.fill(&key, "anna", 0, 2_000)?;
    let mut dice = Dice::seeded(options.seed, 0xC057);
    let n = if options.quick { 200 } else { 1_000 };
    reads(&engine, n / 4, &mut dice)?;
    let (cpu, times) = reads(&engine, n, &mut dice)?;
    let (alone, _) = super::search::searches(&engine, n, &mut dice)?;
    keep(Figure::new("cost", "processor time of a recall with its durable read event, 2000 rows", cpu, "ms"));
    keep(Figure::new("cost", "processor time of the same search alone", alone, "ms"));
    keep(
        Figure::new("cost", "what evidence adds to a recall", cpu - alone, "ms")
            .note("authorisation and rendering included"),
    );
    let note = "in the process, durable read event included, embedding excluded";
    keep(Figure::new("cost", "recall p50, 2000 rows", at(&times, 50), "ms").at_most(1.0).note(note));
    keep(Figure::new("cost", "recall p99, 2000 rows", at(&times, 99), "ms").at_most(5.0).note(note));
    writes(&engine, n, keep)?;
    sealing(n, keep)?;
    engine.remove();
    Ok(())
}

/// Recalls through the use case: everything but HTTP.
fn reads(engine: &Engine, n: usize, dice: &mut Dice) -> anyhow::Result<(f64, Vec<f64>)> {
    let asked = (0..n).map(|_| question(dice)).collect::<anyhow::Result<Vec<_>>>()?;
    let before = cpu_millis("self");
    let mut times = Vec::new();
    for search in &asked {
        let started = clock::now();
        let request = engine.request(&engine.key, Some("anna"))?;
        let _ = black_box(engine.runtime.block_on(engine.app.recall(&request, search))?);
        times.push(clock::millis_since(started));
    }
    let cpu = (cpu_millis("self") - before) / count(n.max(1));
    times.sort_by(f64::total_cmp);
    Ok((cpu, times))
}

fn writes(engine: &Engine, n: usize, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let request = engine.request(&engine.key, Some("anna"))?;
    let before = cpu_millis("self");
    let mut times = Vec::new();
    for row in 0..n {
        let started = clock::now();
        engine.runtime.block_on(engine.app.remember(&request, &[fact(1_000_000 + row)?], None))?;
        times.push(clock::millis_since(started));
    }
    let cpu = (cpu_millis("self") - before) / count(n);
    times.sort_by(f64::total_cmp);
    keep(Figure::new("cost", "processor time of a durable write, one client", cpu, "ms"));
    keep(Figure::new("cost", "durable write p50, one client", at(&times, 50), "ms"));
    keep(Figure::new("cost", "durable write p99, one client", at(&times, 99), "ms"));
    Ok(())
}

/// Opening what a search opens: ten texts and about 25 vectors to rank again.
fn sealing(n: usize, keep: &mut dyn FnMut(Figure)) -> anyhow::Result<()> {
    let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).ok().context("no cipher")?;
    let key = LessSafeKey::new(key);
    let seal = |bytes: usize| {
        let mut sealed = vec![1u8; bytes];
        let nonce = Nonce::assume_unique_for_key([3; 12]);
        key.seal_in_place_append_tag(nonce, Aad::from(b"place"), &mut sealed).map(|()| sealed)
    };
    let mut sealed = Vec::new();
    for bytes in std::iter::repeat_n(120, 10).chain(std::iter::repeat_n(1_536, 25)) {
        sealed.push(seal(bytes).ok().context("nothing was sealed")?);
    }
    let before = cpu_millis("self");
    for _ in 0..n {
        for bytes in &sealed {
            let mut copy = bytes.clone();
            let nonce = Nonce::assume_unique_for_key([3; 12]);
            let opened =
                key.open_in_place(nonce, Aad::from(b"place"), &mut copy).ok().context("not opened")?;
            black_box(opened.len());
        }
    }
    let cpu = (cpu_millis("self") - before) / count(n);
    keep(
        Figure::new("cost", "decryption of ten texts and 25 vectors", cpu, "ms")
            .note("what encryption adds to a recall"),
    );
    Ok(())
}
