//! The command line: a thin face like the others. Each command is a room of its own; texts for people go
//! through [`Out`], results of commands to standard output, everything else to standard error.

mod bench;
mod client;
mod connector;
mod demo;
mod doctor;
mod fetch;
pub mod import;
mod import_sources;
mod init;
mod key;
mod models;
mod ready;
mod reembed;
mod release_test;
mod remote_shelf;
mod serve;
mod verify;

use std::io::Write;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

pub use client::Client;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "merkwelt", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service; the first start creates the data and prints the keys once
    Serve(serve::Args),
    /// Create the data and print the keys once, without running the service
    Init(init::Args),
    /// Show what the service does, in under a minute, in a temporary directory
    Demo(demo::Args),
    /// Read memories from a JSONL file, or sources from a folder, into a running service
    Import(import::Args),
    /// Look at the folders that the service keeps in step with its register of sources
    Connector(connector::Args),
    /// Create, list and revoke API keys of a running service
    Key(key::Args),
    /// Look for, import or fetch the embedding model
    Models(models::Args),
    /// Make every vector anew with the configured embedding model, while the service is stopped
    Reembed(reembed::Args),
    /// Verify an exported ledger without a server
    Verify(verify::Args),
    /// Run the release drill against a running service: publish, replace, take a right away, delete, restore
    ReleaseTest(release_test::Args),
    /// Check the data directory and say what to do
    Doctor(doctor::Args),
    /// Measure whether the promises hold, how well questions are answered, and what it costs
    Bench(bench::Args),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// What went wrong, and what to do, as a text for people.
    pub fn run(self) -> anyhow::Result<()> {
        let mut out = Out::stdout();
        match self.command {
            Command::Serve(args) => serve::run(&args, &mut out),
            Command::Init(args) => init::run(&args, &mut out),
            Command::Demo(args) => demo::run(&args, &mut out),
            Command::Import(args) => import::run(&args, &mut out),
            Command::Connector(args) => connector::run(&args, &mut out),
            Command::Key(args) => key::run(&args, &mut out),
            Command::Models(args) => models::run(&args, &mut out),
            Command::Reembed(args) => reembed::run(&args, &mut out),
            Command::Verify(args) => verify::run(&args, &mut out),
            Command::ReleaseTest(args) => release_test::run(&args, &mut out),
            Command::Doctor(args) => doctor::run(&args, &mut out),
            Command::Bench(args) => bench::run(&args, &mut out),
        }
    }
}

/// A command was called with something it cannot use, so that nothing was found out: no verdict, unlike a finding.
/// It ends with 2, as a wrong option does.
#[derive(Debug)]
pub struct Misused(anyhow::Error);

impl std::fmt::Display for Misused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Misused {}

/// Where a command writes for people.
pub struct Out(Box<dyn Write + Send>);

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Out")
    }
}

impl Out {
    fn stdout() -> Self {
        Self(Box::new(std::io::stdout()))
    }

    /// Writes a line. Whoever closed the output, like `head`, does not want it; the work goes on to its end.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn line(&mut self, text: impl std::fmt::Display) -> anyhow::Result<()> {
        match self.write(text) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    /// Writes a line that somebody must see.
    ///
    /// # Errors
    /// The output is closed or cannot be written.
    pub fn must_show(&mut self, text: impl std::fmt::Display) -> anyhow::Result<()> {
        self.write(text).context("the keys could not be shown, so nothing was created; start again")
    }

    fn write(&mut self, text: impl std::fmt::Display) -> std::io::Result<()> {
        writeln!(self.0, "{text}")?;
        self.0.flush()
    }
}
