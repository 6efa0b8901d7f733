//! The binary `merkwelt`: parse the command line, run one command, print what went wrong.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use merkwelt_server::cli::{Cli, Misused};

/// Gives the memory of closed tenants back to the system, SQLite's too (docs/decisions/0019).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // INVARIANT: I-12, a message of a fault may quote what was being read, so only its place is told.
    std::panic::set_hook(Box::new(|fault| {
        let place =
            fault.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
        let _ = writeln!(std::io::stderr(), "merkwelt: a fault inside the program{place}");
    }));
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error is no reason to fail differently.
            let _ = writeln!(std::io::stderr(), "merkwelt: {error:#}");
            if error.is::<Misused>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
