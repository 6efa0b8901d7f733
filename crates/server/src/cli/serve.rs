//! `merkwelt serve`: run the service until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::Out;
use super::init::print_founded;
use crate::config::{Config, ModelPlaces, Places};
use crate::http::{Face, Limits, router};
use crate::model::{self, Loaded, Without};
use crate::wiring;

/// Arguments of `merkwelt serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    model: ModelPlaces,
    /// Address and port to listen on [default: 127.0.0.1:7777]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Write logs as JSON
    #[arg(long)]
    json_logs: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    start_logs(args.json_logs);
    let config = Config::load(&args.places, args.listen.as_deref())?;
    let env = wiring::system_env();
    let model = model(&args.model);
    let id = model.as_ref().map(|model| &model.id);
    let store = if wiring::exists(&config) {
        wiring::open(&config, &env, id)?
    } else {
        let (store, founded) = wiring::found(&config, &env, id)?;
        print_founded(&config, &founded, out)?;
        store
    };
    if let Some(model) = &model {
        model.fill(&store, &*env, &mut |line| out.line(line))?;
    }
    let app = Arc::new(wiring::app(&config, store, Arc::clone(&env), model.as_ref())?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}; is another process using it?", config.listen))?;
        let address = listener.local_addr()?;
        out.line(format_args!("merkwelt listens on http://{address} (retrieval: {})", app.retrieval()))?;
        let face = Face::new(app, env, limits(&config));
        axum::serve(listener, router(face)).with_graceful_shutdown(stopped()).await?;
        Ok::<_, anyhow::Error>(())
    })?;
    runtime.shutdown_timeout(Duration::from_secs(10));
    out.line("merkwelt stopped; everything acknowledged is on disk")
}

/// The model, or a line in the log that says why there is none.
fn model(places: &ModelPlaces) -> Option<Loaded> {
    match model::load(places) {
        Ok(model) => {
            let (path, instructions) = (model.path.display(), model.engine.instructions());
            tracing::info!(%path, instructions, "embedding model loaded: retrieval is hybrid");
            Some(model)
        }
        Err(why @ (Without::Unwanted | Without::Missing { .. })) => {
            tracing::info!("retrieval is lexical: {why}");
            None
        }
        Err(why @ Without::Refused { .. }) => {
            tracing::warn!("retrieval is lexical: {why}");
            None
        }
    }
}

pub(super) fn limits(config: &Config) -> Limits {
    Limits {
        concurrent_requests: config.concurrent_requests,
        request_timeout: Duration::from_secs(config.request_seconds),
        ..Limits::default()
    }
}

fn start_logs(json: bool) {
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO);
    // A second subscriber in one process, as in tests, is no reason to stop.
    let _ = if json { builder.json().try_init() } else { builder.try_init() };
}

/// Resolves when the process is asked to stop. Requests under way are finished first.
async fn stopped() {
    let interrupt = tokio::signal::ctrl_c();
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! { _ = interrupt => {}, _ = terminate.recv() => {} }
        }
        Err(_) => {
            let _ = interrupt.await;
        }
    }
}
