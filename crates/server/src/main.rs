//! The binary `merkwelt`: parse the command line, run one command, print what went wrong.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use merkwelt_server::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error is no reason to fail differently.
            let _ = writeln!(std::io::stderr(), "merkwelt: {error:#}");
            ExitCode::FAILURE
        }
    }
}
