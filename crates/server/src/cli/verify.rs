//! `merkwelt verify`: check an exported ledger without the server and its database.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use merkwelt_ledger::{Reason, SignedCheckpoint, VerifierKey, verify_export};

use super::{Misused, Out};

/// Arguments of `merkwelt verify`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The exported ledger, from `GET /v1/ledger/export`
    file: PathBuf,
    /// The verifier key you trust, as text; without it the key in the file is used, which shows that the
    /// file is whole but not who wrote it
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// An older checkpoint you kept; the log must continue it
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let Given { file, key, previous } = Given::from(args).map_err(Misused)?;
    match verify_export(BufReader::new(file), key.as_ref(), previous.as_ref()) {
        Ok(report) if args.json => out.line(String::from_utf8_lossy(&report.to_value().to_canonical())),
        Ok(report) => out.line(report.to_string().trim_end()),
        // The medium failed, or it is a folder: nothing was said about the log.
        Err(failure) if failure.reason == Reason::Unreadable => {
            Err(Misused(anyhow!("cannot read {}: {failure}", args.file.display())).into())
        }
        Err(failure) => bail!("NOT VERIFIED: {failure}"),
    }
}

/// What the command line names, read. Whatever is wrong here is no verdict on a log.
struct Given {
    file: File,
    key: Option<VerifierKey>,
    previous: Option<SignedCheckpoint>,
}

impl Given {
    fn from(args: &Args) -> anyhow::Result<Self> {
        let file = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
        let key = args.key.as_deref().map(VerifierKey::parse).transpose();
        let key = key.context("--key is no verifier key")?;
        let previous = args.previous.as_deref().map(read_checkpoint).transpose()?;
        Ok(Self { file, key, previous })
    }
}

fn read_checkpoint(path: &std::path::Path) -> anyhow::Result<SignedCheckpoint> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the checkpoint {}", path.display()))?;
    SignedCheckpoint::parse(&text).with_context(|| format!("{} is not a checkpoint", path.display()))
}
