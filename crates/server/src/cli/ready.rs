//! Whether the service can work: it writes and reads a trial file, at most once a second however often it is
//! asked, and names the tenants that cannot be served. Once a second it looks again at those whose reason may have
//! passed, and tells the log what is new.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use merkwelt_domain::{Env, TenantId};
use merkwelt_store_sqlite::{OpenError, Sqlite};

use crate::http::Ready;
use crate::http::problem::Code;

const TRIAL_MS: i64 = 1000;
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Last {
    tried_at: Option<i64>,
    outcome: Option<OpenError>,
    told: BTreeMap<TenantId, OpenError>,
}

/// What is known of the state of the store, and what the log was told of it.
pub(super) struct Readiness {
    store: Arc<Sqlite>,
    env: Arc<dyn Env>,
    last: Mutex<Last>,
}

impl Readiness {
    /// Tells the log at once which tenants cannot be served.
    pub(super) fn of(store: Arc<Sqlite>, env: Arc<dyn Env>) -> Arc<Self> {
        let readiness = Self { store, env, last: Mutex::default() };
        readiness.tell_new(&mut readiness.last.lock().unwrap_or_else(PoisonError::into_inner));
        Arc::new(readiness)
    }

    /// What the HTTP face asks.
    pub(super) fn asked(self: Arc<Self>) -> Ready {
        Arc::new(move || self.ask())
    }

    /// Looks again and again at what may have passed. Ends with the runtime.
    pub(super) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let readiness = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || {
                readiness.store.look_again();
                readiness.tell_new(&mut readiness.last.lock().unwrap_or_else(PoisonError::into_inner));
            });
            // A fault in one look is told by the hook of faults; the next look is another.
            let _ = looked.await;
        }
    }

    fn ask(&self) -> Result<Vec<TenantId>, Code> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.env.now().millis();
        // A clock that was put back makes a trial of its own.
        if last.tried_at.is_none_or(|at| !(0..TRIAL_MS).contains(&(now - at))) {
            let outcome = self.store.try_out().err();
            if last.outcome != outcome {
                tell(outcome.as_ref());
            }
            (last.tried_at, last.outcome) = (Some(now), outcome);
        }
        self.tell_new(&mut last);
        match &last.outcome {
            // What the machine lacks is no matter of a tenant's files.
            None => {
                let named = last.told.iter().filter(|(_, reason)| !reason.is_of_machine());
                Ok(named.map(|(tenant, _)| tenant.clone()).collect())
            }
            Some(OpenError::Full) => Err(Code::STORAGE_FULL),
            Some(_) => Err(Code::UNAVAILABLE),
        }
    }

    /// Each reason is told once for each tenant, and its end too.
    fn tell_new(&self, last: &mut Last) {
        let ailing: BTreeMap<_, _> =
            self.store.ailing().into_iter().map(|ailing| (ailing.tenant, ailing.reason)).collect();
        for (tenant, reason) in &ailing {
            if last.told.get(tenant) == Some(reason) {
                continue;
            }
            if reason.is_of_machine() {
                tracing::warn!(%tenant, "not served for now: {reason}");
            } else {
                tracing::error!(%tenant, "not served, the others are: {reason}");
            }
        }
        for tenant in last.told.keys().filter(|tenant| !ailing.contains_key(*tenant)) {
            tracing::info!(%tenant, "served again");
        }
        last.told = ailing;
    }
}

fn tell(outcome: Option<&OpenError>) {
    match outcome {
        Some(reason) => tracing::error!("not ready: {reason}"),
        None => tracing::info!("ready again"),
    }
}
