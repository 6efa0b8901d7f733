//! The scene of the demo: a real instance in a temporary directory, served on a free port of this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use merkwelt_domain::{KeyId, Timestamp};
use merkwelt_ledger::{Failure, Report, verify_export};
use serde_json::{Value, json};

use crate::cli::Client;
use crate::config::{Config, Places};
use crate::http::{self, Face, router};
use crate::wiring;

/// A running instance. Dropping it stops the service and removes the directory.
pub(super) struct Stage {
    pub(super) url: String,
    admin: Client,
    dir: PathBuf,
    keep: bool,
    runtime: Option<tokio::runtime::Runtime>,
}

/// A client company: its admin's and its application's view.
pub(super) struct Company {
    pub(super) name: &'static str,
    pub(super) admin: Client,
    pub(super) app: Client,
}

impl Stage {
    pub(super) fn set(keep: bool) -> anyhow::Result<Self> {
        let env = wiring::system_env();
        // A random name, so that two demos do not meet.
        let dir = std::env::temp_dir().join(format!("merkwelt-demo-{}", KeyId::random(&*env)));
        std::fs::create_dir(&dir)?;
        let places = Places { data_dir: dir.join("data"), instance_key: None, config: None };
        let config = Config::load(&places, Some("127.0.0.1:0"))?;
        let (store, founded) = wiring::found(&config, &env, None)?;
        // Without a model, so that the demo shows the same on every machine.
        let app = Arc::new(wiring::app(&config, store, Arc::clone(&env), None)?);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(config.listen))?;
        let url = format!("http://{}", listener.local_addr()?);
        let limits = config.limits;
        let router = router(Face::new(app, env, limits));
        runtime.spawn(http::serve(listener, router, limits, std::future::pending()));
        if !keep {
            let dir = dir.clone();
            runtime.spawn(async move {
                // Whoever stops the demo leaves nothing behind either.
                if tokio::signal::ctrl_c().await.is_ok() {
                    let _ = std::fs::remove_dir_all(&dir);
                    std::process::exit(130);
                }
            });
        }
        let admin = Client::new(&url, &founded.admin.reveal());
        Ok(Self { url, admin, dir, keep, runtime: Some(runtime) })
    }

    /// Creates a tenant with an admin key and an application key.
    pub(super) fn company(&self, name: &'static str) -> anyhow::Result<Company> {
        let made = self.admin.post("/v1/tenants", &json!({"name": name}), None)?.success()?;
        let admin = Client::new(&self.url, key_of(&made)?);
        let wanted = json!({"label": "backend", "role": "app", "act_for": true});
        let made = admin.post("/v1/keys", &wanted, None)?.success()?;
        let app = Client::new(&self.url, key_of(&made)?);
        Ok(Company { name, admin, app })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The export with one byte of one entry changed.
    pub(super) fn tamper(&self, export: &str) -> anyhow::Result<Vec<u8>> {
        let mut bytes = export.as_bytes().to_vec();
        let place = export.find("\"leaf\":\"").context("the export holds no entry")? + 40;
        let byte = bytes.get_mut(place).context("the export is too short")?;
        *byte = if *byte == b'A' { b'B' } else { b'A' };
        Ok(bytes)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        }
        if !self.keep {
            // The directory is in the system's temporary place; what cannot be removed is removed there.
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn key_of(made: &Value) -> anyhow::Result<&str> {
    made.get("key").and_then(Value::as_str).context("the service sent no key")
}

/// Server time plus some milliseconds, as the API writes it.
pub(super) fn in_millis(millis: i64) -> String {
    Timestamp::from_millis(wiring::system_env().now().millis() + millis).to_string()
}

/// One of many similar states.
pub(super) fn order(number: u32) -> Value {
    let place = ["Rostock", "Kiel", "Lübeck", "Hamburg", "Bremen"]
        .get(number as usize % 5)
        .copied()
        .unwrap_or("Kiel");
    json!({
        "kind": "project_state",
        "text": format!("Order {number} is in the depot in {place}, pallet {}, cooled to five degrees", number * 7),
        "slot": format!("place:order-{number}"),
        "expires_at": in_millis(86_400_000),
    })
}

/// Verifies an export as `merkwelt verify` does.
pub(super) fn verify(export: &[u8]) -> Result<Report, Failure> {
    verify_export(export, None, None)
}
