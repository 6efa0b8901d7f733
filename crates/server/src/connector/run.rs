//! All connectors of a service: each looks at its folder, rests, and looks again until the service stops. The
//! folder is looked at anew instead of waiting for events of the system, because these are lost and do not come
//! from other machines (docs/decisions/0015).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use merkwelt_app::App;
use merkwelt_authz::Request;
use merkwelt_domain::{Env, Purpose};
use merkwelt_store_sqlite::Sqlite;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::app_shelf::AppShelf;
use super::examine::{check_caller, read_key};
use super::report::{CURRENT, Journal, REFUSED};
use super::setting::Setting;
use super::signals::{Signal, Signals};
use super::watcher::{Look, Watcher};

/// How many times longer it rests than it looked, so that a large folder does not keep a processor busy.
const REST: i64 = 20;
/// The longest rest for that reason, in milliseconds.
const REST_MS_MAX: i64 = 60_000;
/// The shortest rest after a look that failed.
const FAILED_MS: i64 = 15_000;

/// What connectors work with.
#[derive(Clone)]
struct World {
    app: Arc<App>,
    store: Arc<Sqlite>,
    env: Arc<dyn Env>,
    signals: Signals,
}

/// All connectors of a service.
pub(crate) struct Connectors {
    world: World,
    at_work: Vec<(Watcher, Arc<Journal>)>,
}

impl Connectors {
    /// Prepares them.
    ///
    /// # Errors
    /// The report of one is damaged.
    pub(crate) fn new(
        settings: &[Setting],
        data_dir: &std::path::Path,
        app: Arc<App>,
        store: Arc<Sqlite>,
        env: Arc<dyn Env>,
    ) -> anyhow::Result<Self> {
        let signals = Signals::default();
        let mut at_work = Vec::new();
        for setting in settings {
            let name = setting.label.as_str();
            signals.set(name, Signal::default());
            at_work.push((Watcher::new(setting.clone()), Arc::new(Journal::open(data_dir, name)?)));
        }
        Ok(Self { world: World { app, store, env, signals }, at_work })
    }

    /// What they say of themselves.
    pub(crate) fn signals(&self) -> Signals {
        self.world.signals.clone()
    }

    /// Works until it is told to stop.
    pub(crate) async fn run(self, stopping: watch::Receiver<bool>) {
        let Self { world, at_work } = self;
        let one = |(watcher, journal)| keep(world.clone(), watcher, journal, stopping.clone());
        join_all(at_work.into_iter().map(one)).await;
    }
}

async fn keep(
    world: World,
    mut watcher: Watcher,
    journal: Arc<Journal>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let (world, journal, stop) = (world.clone(), Arc::clone(&journal), stopping.clone());
        let look = tokio::task::spawn_blocking(move || {
            let rest = look(&world, &mut watcher, &journal, &|| *stop.borrow());
            (watcher, rest)
        });
        let Ok((back, rest)) = look.await else {
            tracing::error!("a connector failed by a defect and is at rest until the next start");
            return;
        };
        watcher = back;
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(rest) => {}
        }
    }
}

/// One look, and how long to rest after it.
fn look(world: &World, watcher: &mut Watcher, journal: &Journal, stopped: &dyn Fn() -> bool) -> Duration {
    let setting = watcher.setting.clone();
    let shelf = || {
        let runtime = Handle::current();
        let key = read_key(&setting)?;
        let caller = runtime.block_on(world.app.authenticate(&key));
        let caller = check_caller(&setting, &world.store, caller)?;
        let request = Request::new(caller, None, Purpose::default());
        Ok(AppShelf { app: &world.app, request, runtime, journal })
    };
    let looked = watcher.look(journal, &*world.env, shelf, stopped);
    let ended = world.env.now();
    let name = setting.label.as_str();
    let (works, seen) = match looked {
        Ok(seen) => (true, seen),
        Err(error) => {
            let why = format!("{error:#}");
            if journal.looked(&why, None, false, ended) {
                tracing::warn!(connector = name, "the connector cannot work: {why}");
            }
            (false, Look { n_waiting: 0, looked_ms: 0 })
        }
    };
    if let Err(error) = journal.save(ended.millis()) {
        tracing::warn!(connector = name, "cannot write the report of the connector: {error}");
    }
    let mut files = journal.read(|report| {
        let counts = report.counts();
        [CURRENT, REFUSED].map(|state| (state, counts.get(state).copied().unwrap_or_default()))
    });
    files.sort_unstable();
    let mut files: std::collections::BTreeMap<_, _> = files.into_iter().collect();
    files.insert("waiting", seen.n_waiting);
    world.signals.set(name, Signal { works, files, looked_at: ended.millis() / 1000 });
    let least = if works { setting.poll_ms } else { setting.poll_ms.max(FAILED_MS) };
    let rest = least.max(seen.looked_ms.max(0).saturating_mul(REST).min(REST_MS_MAX));
    Duration::from_millis(u64::try_from(rest).unwrap_or_default())
}
