//! The prober of isolation: a world of look-alike tenants is planted over HTTP, every operation of the served
//! document is attacked by many clients at once, and every byte that comes out is searched for what belongs to
//! somebody else, while owners go on finding what is theirs. Same seed, same attempts.

mod aim;
mod attack;
mod catalogue;
mod fixtures;
mod judge;
mod marks;
mod report;
mod run;
mod scenarios;
mod timing;
mod world;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};

use super::child::{Service, Watch};
use judge::Wrong;
use marks::Marks;
pub use report::Report;
pub(super) use report::{at, count, number};
use world::{Size, World};

/// How to probe.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many attempts.
    pub attempts: u64,
    /// How many clients at once.
    pub clients: usize,
    /// Where chance begins.
    pub seed: u64,
    /// A running service and its admin key; the own program is started if absent.
    pub running: Option<(String, String)>,
    /// What the started service is told beside its place.
    pub arguments: Vec<String>,
    /// How often each kind of refusal is timed; 0 leaves it out.
    pub timing_samples: usize,
    /// Where the cases of others are, if they are at hand.
    pub shared: Option<PathBuf>,
}

/// What watches the outputs of the service while it is under attack.
type Spilled = Arc<Mutex<Vec<String>>>;

/// Probes.
///
/// # Errors
/// The service cannot be started or reached. What was found wrong is in the report.
pub fn run(options: &Options, say: &mut dyn FnMut(String)) -> anyhow::Result<Report> {
    let marks = Arc::new(Marks::new(options.seed));
    let spilled = Spilled::default();
    let (mut service, n_bytes) = start(options, &marks, &spilled)?;
    let size = size(options);
    say(format!("planting {} tenants with {} people each", size.tenants + size.hostile, size.subjects));
    let world = World::plant(service.address, &service.admin, size, options.seed, Arc::clone(&marks))?;
    let started = super::clock::now();
    let (mut tally, operations) = run::attack(options, &world, say)?;
    let seconds = super::clock::millis_since(started) / 1e3;
    say(format!("{} attempts in {seconds:.0} s; looking at what is left", tally.attempts));
    let mut outcomes = scenarios::play(&world, &operations, options.seed, &mut tally);
    let shared = options.shared.as_deref();
    outcomes.extend(fixtures::play(service.address, &service.admin, shared, options.seed));
    if options.timing_samples > 0 {
        say("measuring the time of refusals".to_owned());
        let timings = timing::measure(&world, options.timing_samples, options.seed)?;
        outcomes.extend(timings.iter().map(timing::Timing::outcome));
    }
    let checks = run::afterwards(&world, &mut tally)?;
    let mut report = Report::new(options, seconds, &operations, checks);
    report.outcomes = outcomes;
    service.stop()?;
    for line in spilled.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        tally.blame(Wrong::Spill, "log", "the service", line);
    }
    if let Some(data) = &service.data {
        report.file_bytes = run::files(data, &marks, &mut tally);
    }
    report.log_bytes = n_bytes.load(std::sync::atomic::Ordering::Relaxed);
    report.take(tally);
    service.remove();
    Ok(report)
}

fn size(options: &Options) -> Size {
    if options.attempts < 20_000 {
        Size { tenants: 2, hostile: 1, subjects: 4, items: 5 }
    } else {
        Size { tenants: 4, hostile: 2, subjects: 6, items: 12 }
    }
}

type Counted = Arc<std::sync::atomic::AtomicU64>;

fn start(options: &Options, marks: &Arc<Marks>, spilled: &Spilled) -> anyhow::Result<(Service, Counted)> {
    let n_bytes = Counted::default();
    if let Some((url, key)) = &options.running {
        return Ok((Service::at(url, key)?, n_bytes));
    }
    let (marks, spilled, counted) = (Arc::clone(marks), Arc::clone(spilled), Arc::clone(&n_bytes));
    let watch: Watch = Arc::new(move |bytes| {
        counted.fetch_add(bytes.len() as u64, std::sync::atomic::Ordering::Relaxed);
        let found = marks.any_text(bytes);
        if !found.is_empty() {
            spilled.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        }
    });
    let service = Service::start(&options.arguments, "", &watch).context("the service under attack")?;
    ensure!(!service.admin.is_empty(), "the service printed no admin key");
    Ok((service, n_bytes))
}
