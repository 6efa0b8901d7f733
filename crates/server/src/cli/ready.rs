//! Whether the service can work: it writes and reads a trial file, at most once a second however often it is
//! asked, and names the tenants whose data are damaged.

use std::sync::{Arc, Mutex, PoisonError};

use merkwelt_domain::{Env, TenantId};
use merkwelt_store_sqlite::{OpenError, Sqlite};

use crate::http::Ready;
use crate::http::problem::Code;

const TRIAL_MS: i64 = 1000;

#[derive(Debug, Default)]
struct Last {
    tried_at: Option<i64>,
    outcome: Option<OpenError>,
    told: Vec<TenantId>,
}

/// Asks the store.
pub(super) fn of(store: Arc<Sqlite>, env: Arc<dyn Env>) -> Ready {
    let told = store.ailing().into_iter().map(|ailing| ailing.tenant).collect();
    let last = Mutex::new(Last { told, ..Last::default() });
    Arc::new(move || {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = env.now().millis();
        // A clock that was put back makes a trial of its own.
        if last.tried_at.is_none_or(|at| !(0..TRIAL_MS).contains(&(now - at))) {
            let outcome = store.try_out().err();
            if last.outcome != outcome {
                tell(outcome.as_ref());
            }
            (last.tried_at, last.outcome) = (Some(now), outcome);
        }
        let ailing = store.ailing();
        for new in ailing.iter().filter(|ailing| !last.told.contains(&ailing.tenant)) {
            tracing::error!(tenant = %new.tenant, "data cannot be read: {}", new.reason);
        }
        last.told = ailing.into_iter().map(|ailing| ailing.tenant).collect();
        match &last.outcome {
            None => Ok(last.told.clone()),
            Some(OpenError::Full) => Err(Code::STORAGE_FULL),
            Some(_) => Err(Code::UNAVAILABLE),
        }
    })
}

fn tell(outcome: Option<&OpenError>) {
    match outcome {
        Some(reason) => tracing::error!("not ready: {reason}"),
        None => tracing::info!("ready again"),
    }
}
