//! `merkwelt-sim`: runs seeds of the simulation, replays one, and compares twin worlds.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use merkwelt_sim::{BackendKind, Failure, Mutant, Options, replay, shelf, twins};

const USAGE: &str = "\
merkwelt-sim --seed N [--trace]        run one seed; --trace tells every step
merkwelt-sim --seeds FROM..TO          run these seeds
merkwelt-sim --fresh N                 run N random seeds
merkwelt-sim twins --worlds N          compare N pairs of worlds
merkwelt-sim twins --seed N            compare the pair of one seed
merkwelt-sim shelf --fresh N           the runs of sources; the same options
merkwelt-sim mutants                   name the deliberate defects
options: --backend reference|sqlite, --steps N, --mutant NAME
";

/// What to run.
struct Wanted {
    twins: bool,
    shelf: bool,
    mutants: bool,
    seeds: Vec<u64>,
    backend: BackendKind,
    steps: Option<u64>,
    mutant: Option<Mutant>,
    trace: bool,
}

fn main() -> ExitCode {
    let Some(wanted) = parse(std::env::args().skip(1).collect()) else {
        say(USAGE);
        return ExitCode::from(2);
    };
    if wanted.mutants {
        Mutant::ALL.iter().for_each(|mutant| say(&format!("{}\n", mutant.name())));
        return ExitCode::SUCCESS;
    }
    let mut failures = 0_usize;
    for seed in &wanted.seeds {
        match one(*seed, &wanted) {
            Ok(line) if wanted.seeds.len() == 1 => say(&line),
            Ok(_) => {}
            Err(failure) => {
                failures += 1;
                say(&format!("{failure}\n  again: {}\n", again(&failure, &wanted)));
            }
        }
    }
    say(&format!("{} runs on {}, {failures} failed\n", wanted.seeds.len(), wanted.backend.name()));
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, wanted: &Wanted) -> Result<String, Failure> {
    if wanted.twins {
        return twins(seed, wanted.backend, wanted.mutant).map(|lines| format!("{lines} equal lines\n"));
    }
    let options = Options { mutant: wanted.mutant, ..Options::new(wanted.backend) };
    let options = Options { steps: wanted.steps.unwrap_or(options.steps), ..options };
    if wanted.shelf {
        return shelf(seed, options).map(|report| format!("{report:?}\n"));
    }
    let tell: fn(&str) = |line| say(&format!("{line}\n"));
    replay(seed, options, wanted.trace.then_some(tell)).map(|report| format!("{report:?}\n"))
}

/// The command that shows a failure again.
fn again(failure: &Failure, wanted: &Wanted) -> String {
    let kind = if wanted.twins {
        "twins "
    } else if wanted.shelf {
        "shelf "
    } else {
        ""
    };
    let steps = wanted.steps.map_or(String::new(), |steps| format!(" --steps {steps}"));
    format!("merkwelt-sim {kind}--seed {} --backend {}{steps}", failure.seed, wanted.backend.name())
}

fn parse(args: Vec<String>) -> Option<Wanted> {
    let mut wanted = Wanted {
        twins: false,
        shelf: false,
        mutants: false,
        seeds: Vec::new(),
        backend: BackendKind::Reference,
        steps: None,
        mutant: None,
        trace: false,
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "twins" => wanted.twins = true,
            "shelf" => wanted.shelf = true,
            "mutants" => wanted.mutants = true,
            "--trace" => wanted.trace = true,
            "--seed" => wanted.seeds.push(args.next()?.parse().ok()?),
            "--seeds" => {
                let range = args.next()?;
                let (from, to) = range.split_once("..")?;
                wanted.seeds.extend(from.parse::<u64>().ok()?..to.parse().ok()?);
            }
            "--worlds" => wanted.seeds.extend(1..=args.next()?.parse::<u64>().ok()?),
            "--fresh" => wanted.seeds.extend(fresh(args.next()?.parse().ok()?)?),
            "--backend" => wanted.backend = backend(&args.next()?)?,
            "--steps" => wanted.steps = Some(args.next()?.parse().ok()?),
            "--mutant" => {
                let name = args.next()?;
                wanted.mutant = Some(*Mutant::ALL.iter().find(|mutant| mutant.name() == name)?);
            }
            _ => return None,
        }
    }
    (wanted.mutants || !wanted.seeds.is_empty()).then_some(wanted)
}

fn backend(name: &str) -> Option<BackendKind> {
    [BackendKind::Reference, BackendKind::Sqlite].into_iter().find(|kind| kind.name() == name)
}

/// Seeds from the system's randomness; the only thing here that is not a function of the arguments.
fn fresh(count: usize) -> Option<Vec<u64>> {
    let mut source = std::fs::File::open("/dev/urandom").ok()?;
    (0..count)
        .map(|_| {
            let mut bytes = [0; 8];
            source.read_exact(&mut bytes).ok()?;
            // Short enough to type.
            Some(u64::from_le_bytes(bytes) >> 24)
        })
        .collect()
}

fn say(text: &str) {
    // Nobody listens any more: there is nothing better to do about it.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
