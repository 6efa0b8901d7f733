//! `merkwelt doctor`: look at a data directory and say what to do. It changes nothing but what opening
//! changes.

use std::sync::Arc;

use anyhow::bail;
use merkwelt_app::embedding::model_id;
use merkwelt_domain::Env;
use merkwelt_store_sqlite::{OpenError, Sqlite};

use self::rights::Looked;
use super::Out;
use crate::config::{Config, ModelPlaces, Places};
use crate::connector;
use crate::embedding::{Engines, Unfit};
use crate::reranking;
use crate::wiring;

mod rights;

/// Arguments of `merkwelt doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    model: ModelPlaces,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let config = Config::load(&args.places, None)?;
    out.line("ok    configuration is readable")?;
    if !wiring::exists(&config)? {
        bail!(
            "there is no data in {}; start with `merkwelt serve` or `merkwelt init`",
            config.data_dir.display()
        );
    }
    let rights = rights::look(&config, out)?;
    let mut findings = rights.findings;
    if rights.key_is_bad {
        out.line("note  the data were not opened: the instance key comes first")?;
    } else {
        check_data(args, &config, rights, out, &mut findings)?;
    }
    if findings == 0 {
        return out.line("everything is in order");
    }
    bail!("{findings} finding(s): do what stands beside them, then check again")
}

fn check_data(
    args: &Args,
    config: &Config,
    rights: Looked,
    out: &mut Out,
    findings: &mut u32,
) -> anyhow::Result<()> {
    let env = wiring::system_env();
    let store = match wiring::open(config, &env, None) {
        Ok(store) => store,
        Err(error) if is_named(rights, error.downcast_ref()) => {
            return out.line("note  the data were not opened: the files named above come first");
        }
        Err(error) => {
            *findings += 1;
            return out.line(format_args!("BAD   {error:#}"));
        }
    };
    out.line("ok    the instance key opens the data, and no other process holds it")?;
    check_disk(&store, out, findings)?;
    let engines = Engines::of(config, &args.model, &env)?.for_data(store.model()?.as_ref());
    check_engines(&engines, &store, out, findings)?;
    check_reranker(config, &env, out, findings)?;
    check_tenants(&store, rights, out, findings)?;
    check_vectors(&store, &engines, out)?;
    check_connectors(config, &store, &*env, out, findings)
}

/// Whether a reason is a missing right, and the look at the rights named the file or its folder.
fn is_named(rights: Looked, reason: Option<&OpenError>) -> bool {
    rights.findings > 0 && matches!(reason, Some(OpenError::NoRight(_) | OpenError::ReadOnly))
}

fn check_disk(store: &Sqlite, out: &mut Out, findings: &mut u32) -> anyhow::Result<()> {
    match store.try_out() {
        Ok(()) => out.line("ok    the data directory can be written and read"),
        Err(reason) => {
            *findings += 1;
            out.line(format_args!("BAD   {reason}"))
        }
    }
}

fn check_tenants(store: &Sqlite, rights: Looked, out: &mut Out, findings: &mut u32) -> anyhow::Result<()> {
    let examined = store.examine()?;
    let ailing = store.ailing();
    for examined in examined {
        let known = ailing.iter().find(|ailing| ailing.tenant == examined.tenant);
        if is_named(rights, known.map(|ailing| &ailing.reason)) {
            out.line(format_args!(
                "note  tenant {} was not looked into: its files named above come first",
                examined.tenant
            ))?;
            continue;
        }
        match examined.problem {
            None => out.line(format_args!(
                "ok    tenant {}: {} entries, database and ledger are whole",
                examined.tenant, examined.entries
            ))?,
            Some(problem) => {
                *findings += 1;
                out.line(format_args!("BAD   tenant {}: {problem}", examined.tenant))?;
            }
        }
    }
    for stray in store.strays() {
        out.line(format_args!(
            "note  tenants/{stray} belongs to no tenant: its creation was interrupted; it can be removed"
        ))?;
    }
    Ok(())
}

/// One that is only away is no finding: results then keep the order of the search.
fn check_reranker(
    config: &Config,
    env: &Arc<dyn Env>,
    out: &mut Out,
    findings: &mut u32,
) -> anyhow::Result<()> {
    let Some(settings) = &config.reranker else { return Ok(()) };
    let tried = reranking::Remote::to(settings.clone(), Arc::clone(env))?.try_out();
    match tried {
        Ok(()) => out.line("ok    the reranker works"),
        Err(Unfit::Away(why)) => out.line(format_args!("note  results are not reranked: {why}")),
        Err(Unfit::Wrong(why)) => {
            *findings += 1;
            out.line(format_args!("BAD   {why}"))
        }
    }
}

fn check_connectors(
    config: &Config,
    store: &Sqlite,
    env: &dyn Env,
    out: &mut Out,
    findings: &mut u32,
) -> anyhow::Result<()> {
    for setting in &config.connectors {
        let name = setting.label.as_str();
        let (bad, notes) = connector::examine(setting, &config.data_dir, store, env);
        if bad.is_empty() {
            out.line(format_args!(
                "ok    connector {name}: its folder can be read, and its key may manage sources"
            ))?;
        }
        for problem in bad {
            *findings += 1;
            out.line(format_args!("BAD   connector {name}: {problem}"))?;
        }
        for note in notes {
            out.line(format_args!("note  connector {name}: {note}"))?;
        }
    }
    Ok(())
}

/// No model is no finding: the service then ranks by words. Another one than that of the data is.
fn check_engines(engines: &Engines, store: &Sqlite, out: &mut Out, findings: &mut u32) -> anyhow::Result<()> {
    if let Some(next) = &engines.next {
        match next.try_out() {
            Ok(()) => {
                out.line(format_args!(
                    "ok    the engine of the coming model works: {}",
                    next.descriptor().id()
                ))?;
            }
            Err(why) => out.line(format_args!("note  the coming model waits for its engine: {why}"))?,
        }
    }
    let Some(engine) = &engines.present else {
        return out.line("note  retrieval is lexical: no embedding engine is wanted");
    };
    let is_there = match engine.try_out() {
        Ok(()) => {
            out.line(format_args!("ok    the embedding engine works: {}", engine.descriptor().id()))?;
            true
        }
        Err(why) => {
            out.line(format_args!("note  retrieval is lexical: {why}"))?;
            false
        }
    };
    if (is_there || engine.is_described())
        && let Err(reason) = store.adopt_model(&model_id(&**engine))
    {
        *findings += 1;
        out.line(format_args!("BAD   {reason}"))?;
    }
    Ok(())
}

/// How far a change of the model is, what is gathered for nothing, and which tenants were left behind.
fn check_vectors(store: &Sqlite, engines: &Engines, out: &mut Out) -> anyhow::Result<()> {
    let recorded = store.model()?;
    let next = engines.next.as_ref().map(|next| model_id(&**next));
    if engines.changed {
        out.line(
            "note  the change of the embedding model is complete: make [next_embedding] the new [embedding] of the \
             configuration",
        )?;
    }
    let (mut made, mut left, mut of) = (0, 0, None);
    for tenant in store.tenant_ids() {
        // What is wrong with a tenant was told before.
        let Ok(model) = store.model_of(&tenant) else { continue };
        if model.is_some() && model != recorded && model != next {
            out.line(format_args!(
                "note  tenant {tenant}: its vectors are of another model, so it is searched by words: run \
                 `merkwelt reembed`"
            ))?;
        }
        if let Ok(Some(gathered)) = store.gathered(&tenant) {
            (made, left) = (made + gathered.made, left + gathered.missing);
            of = Some(gathered.model);
        }
    }
    match of {
        Some(model) if Some(&model) == next.as_ref() => out.line(format_args!(
            "note  the coming model has vectors of {made} texts, {left} are without; the service goes on with it"
        )),
        Some(model) => out.line(format_args!(
            "note  {made} vectors of model {} were gathered and are not in use: configure it in [next_embedding] or \
             run `merkwelt reembed` with it to go on; `merkwelt reembed` with the present model drops them",
            model.as_str()
        )),
        None => Ok(()),
    }
}
