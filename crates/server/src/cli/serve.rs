//! `merkwelt serve`: run the service until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::Out;
use super::init::print_founded;
use crate::config::{Config, Places};
use crate::http::{Face, Limits, router};
use crate::wiring;

/// Arguments of `merkwelt serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    places: Places,
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
    let store = if wiring::exists(&config) {
        wiring::open(&config, &env)?
    } else {
        let (store, founded) = wiring::found(&config, &env)?;
        print_founded(&config, &founded, out)?;
        store
    };
    let app = Arc::new(wiring::app(&config, store, Arc::clone(&env))?);
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
