//! `merkwelt bench`: measurements that everybody can repeat. A broken promise makes the command fail.

use std::path::PathBuf;

use anyhow::bail;
use clap::Subcommand;

use super::Out;
use super::key::read_key;
use crate::bench::{isolation, load, quality};
use crate::config::ModelPlaces;
use crate::model;

/// Arguments of `merkwelt bench`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Attack a service over HTTP and search every byte that comes out for what belongs to others
    Isolation(Isolation),
    /// Measure how well questions find their evidence, on sets that lie outside of the project
    Quality(Quality),
    /// Measure speed and memory, beside yardsticks in the same run
    Load(Load),
}

/// Arguments of `merkwelt bench isolation`.
#[derive(Debug, clap::Args)]
struct Isolation {
    /// How many attempts
    #[arg(long, default_value_t = 1_000_000)]
    attempts: u64,
    /// How many clients at once
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Where chance begins; the same seed makes the same attempts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A running service [default: this program is started over a temporary directory]
    #[arg(long)]
    url: Option<String>,
    /// A file that holds the admin key of the running service
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Directory with an embedding model for the started service; without it it ranks by words
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,
    /// How often each kind of refusal is timed, for the comparison of unknown and foreign ids; 0 leaves it out
    #[arg(long, default_value_t = 2_000)]
    timing_samples: usize,
    /// Directory with the published cases; without it they are skipped
    #[arg(long, value_name = "DIR")]
    shared: Option<PathBuf>,
    /// Write JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Arguments of `merkwelt bench quality`.
#[derive(Debug, clap::Args)]
struct Quality {
    /// Directory with the sets
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// Which set; may be given several times [default: all]
    #[arg(long, value_enum)]
    set: Vec<quality::Set>,
    /// At most this many questions per set
    #[arg(long)]
    limit: Option<usize>,
    /// File that keeps vectors from one run to the next [default: in the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    #[command(flatten)]
    model: ModelPlaces,
    /// Write JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Arguments of `merkwelt bench load`.
#[derive(Debug, clap::Args)]
struct Load {
    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Small sizes, in about a minute
    #[arg(long)]
    quick: bool,
    /// Parts to measure: search, cost, ledger, served, tenants [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How many rows to search in [default: 1000 to 200000]
    #[arg(long, value_delimiter = ',')]
    rows: Vec<usize>,
    /// How many tenants with how many rows each [default: 500x200,500x2000,800x200]
    #[arg(long, value_delimiter = ',', value_name = "TENANTSxROWS")]
    world: Vec<load::World>,
    /// Directory with the embedding model, for the context pack
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,
    /// Write JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    match &args.what {
        What::Isolation(args) => probe(args, out),
        What::Quality(args) => measure(args, out),
        What::Load(args) => time(args, out),
    }
}

fn probe(args: &Isolation, out: &mut Out) -> anyhow::Result<()> {
    let running = match &args.url {
        Some(url) => Some((url.clone(), read_key(args.key_file.as_deref())?)),
        None => None,
    };
    let arguments = match &args.model_dir {
        Some(dir) => vec!["--model-dir".to_owned(), dir.display().to_string()],
        None => vec!["--no-model".to_owned()],
    };
    let options = isolation::Options {
        attempts: args.attempts,
        clients: args.clients,
        seed: args.seed,
        running,
        arguments,
        shared: args.shared.clone(),
        timing_samples: args.timing_samples,
    };
    let report = isolation::run(&options, &mut |line| {
        if !args.json {
            // A closed output stops the report at its end, at a line that matters.
            let _ = out.line(line);
        }
    })?;
    if args.json {
        out.line(serde_json::to_string_pretty(&report)?)?;
    } else {
        for line in report.lines() {
            out.line(line)?;
        }
    }
    if report.passed() { Ok(()) } else { bail!("the promise of isolation does not hold; see the report") }
}

fn measure(args: &Quality, out: &mut Out) -> anyhow::Result<()> {
    let model = match model::load(&args.model) {
        Ok(model) => Some(model),
        Err(without) => {
            if !args.json {
                out.line(format_args!("only ranking by words is measured: {without}"))?;
            }
            None
        }
    };
    let sets = if args.set.is_empty() {
        vec![quality::Set::Xquad, quality::Set::Policy, quality::Set::Beam, quality::Set::Locomo]
    } else {
        args.set.clone()
    };
    let cache = args.cache.clone().unwrap_or_else(|| std::env::temp_dir().join("merkwelt-quality.vectors"));
    let options = quality::Options { data: args.data.clone(), sets, limit: args.limit, cache, model };
    let report = quality::run(&options, &mut |line| {
        if !args.json {
            // A closed output stops the report at its end, at a line that matters.
            let _ = out.line(line);
        }
    })?;
    if args.json {
        return out.line(serde_json::to_string_pretty(&report)?);
    }
    report.lines().into_iter().try_for_each(|line| out.line(line))
}

fn time(args: &Load, out: &mut Out) -> anyhow::Result<()> {
    let options = load::Options {
        seed: args.seed,
        quick: args.quick,
        only: args.only.clone(),
        rows: args.rows.clone(),
        worlds: args.world.clone(),
        model_dir: args.model_dir.clone(),
    };
    let report = load::run(&options, &mut |line| {
        if !args.json {
            // A closed output stops the report at its end, at a line that matters.
            let _ = out.line(line);
        }
    })?;
    if args.json {
        return out.line(serde_json::to_string_pretty(&report)?);
    }
    report.lines().into_iter().try_for_each(|line| out.line(line))
}
