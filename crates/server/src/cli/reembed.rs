//! `merkwelt reembed`: make every vector anew with the model that is configured now. The service is stopped
//! meanwhile; if this is interrupted, the former model answers as before and the next call goes on.

use std::time::Duration;

use anyhow::{Context, bail};
use merkwelt_app::embedding::{embed_passages, model_id};
use merkwelt_store_sqlite::Reembedded;

use super::Out;
use crate::config::{Config, ModelPlaces, Places};
use crate::embedding::{self, Engine};
use crate::wiring;

/// Arguments of `merkwelt reembed`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    model: ModelPlaces,
}

/// How often an engine that went away is tried out again, and with which pause.
const TRIALS: (u32, Duration) = (15, Duration::from_secs(2));
const PROGRESS_MS: i64 = 2_000;

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let config = Config::load(&args.places, None)?;
    if !wiring::exists(&config)? {
        bail!("there is no data in {}; nothing is to be embedded", config.data_dir.display());
    }
    let env = wiring::system_env();
    let engine = embedding::engine(&config, &args.model, &env)?
        .context("no embedding engine is wanted; configure one in [embedding], or leave --no-model out")?;
    if let Err(why) = engine.try_out() {
        bail!("nothing was changed: {why}");
    }
    engine.admit();
    let store = wiring::open(&config, &env, None)?;
    let id = model_id(&*engine);
    if let Some(reference) = store.reference(&id)?
        && let Err(why) = engine.expect(reference)
    {
        bail!("nothing was changed: {why}");
    }
    let former = store.model()?;
    out.line(format_args!("from  {}", former.as_ref().map_or("no model", |model| model.as_str())))?;
    out.line(format_args!("to    {}", id.as_str()))?;
    let mut said_at = env.now().millis();
    let mut progress = |done: Reembedded| {
        let now = env.now().millis();
        if now - said_at >= PROGRESS_MS {
            said_at = now;
            // A closed output stops it later, at a line that matters.
            let _ = out.line(format_args!("{} of {} embedded", done.made, done.total));
        }
    };
    let mut embed = |texts: &[&str]| embed_or_stop(&*engine, texts);
    let done = store.reembed(&id, &mut embed, &mut progress).with_context(|| {
        let why = if engine.is_available() { "stopped" } else { "the embedding engine went away" };
        format!("{why}; the former model answers as before, and `merkwelt reembed` goes on where it was")
    })?;
    if let Some(reference) = engine.reference() {
        store.keep_reference(&id, &reference)?;
    }
    drop(store);
    tell(&done, out)
}

/// The vectors of texts, waiting a while for an engine that went away; `None` if it does not come back.
fn embed_or_stop(engine: &dyn Engine, texts: &[&str]) -> Option<Vec<Option<Vec<f32>>>> {
    let (trials, pause) = TRIALS;
    for _ in 0..trials {
        let made = embed_passages(engine, texts);
        if engine.is_available() {
            return Some(made);
        }
        std::thread::sleep(pause);
        if engine.try_out().is_ok() {
            engine.admit();
        }
    }
    None
}

fn tell(done: &Reembedded, out: &mut Out) -> anyhow::Result<()> {
    if done.damaged > 0 {
        out.line(format_args!(
            "note  {} tenant(s) with damaged data were passed by; bring their files back and run it again",
            done.damaged
        ))?;
    }
    if done.failed > 0 {
        out.line(format_args!(
            "note  {} text(s) could not be embedded; they are found by their words and tried again",
            done.failed
        ))?;
    }
    out.line(format_args!("embedded {} of {}; every vector is of the new model", done.made, done.total))
}
