//! `merkwelt verify`: check an exported ledger without the server and its database.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, bail};
use merkwelt_ledger::{SignedCheckpoint, VerifierKey, verify_export};

use super::Out;

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
    let file = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let key = args.key.as_deref().map(VerifierKey::parse).transpose().context("--key is no verifier key")?;
    let previous = args.previous.as_deref().map(read_checkpoint).transpose()?;
    match verify_export(BufReader::new(file), key.as_ref(), previous.as_ref()) {
        Ok(report) if args.json => out.line(String::from_utf8_lossy(&report.to_value().to_canonical())),
        Ok(report) => out.line(report.to_string().trim_end()),
        Err(failure) => bail!("NOT VERIFIED: {failure}"),
    }
}

fn read_checkpoint(path: &std::path::Path) -> anyhow::Result<SignedCheckpoint> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the checkpoint {}", path.display()))?;
    SignedCheckpoint::parse(&text).with_context(|| format!("{} is not a checkpoint", path.display()))
}
