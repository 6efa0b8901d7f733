//! `merkwelt connector status`: what became of each file of the connectors, for whoever may read the data
//! directory.

use anyhow::{Context as _, bail};

use super::Out;
use crate::config::{Config, Places};
use crate::connector::{Report, WORKING};
use crate::folder::shown;

/// Arguments of `merkwelt connector`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the state of each connector, and its files that are not published with the reason
    Status {
        #[command(flatten)]
        places: Places,
        /// Only this connector
        name: Option<String>,
        /// Show files that are current too
        #[arg(long)]
        all: bool,
        /// Write the report as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let Command::Status { places, name, all, json } = &args.command;
    let config = Config::load(places, None)?;
    let names: Vec<&str> = config.connectors.iter().map(|setting| setting.label.as_str()).collect();
    if let Some(name) = name.as_deref().filter(|name| !names.contains(name)) {
        bail!("no connector is named `{name}` in the configuration");
    }
    if names.is_empty() {
        return out.line("no connector is configured");
    }
    let mut idle = Vec::new();
    for wanted in names.into_iter().filter(|wanted| name.as_deref().is_none_or(|name| name == *wanted)) {
        match Report::load(&Report::path(&config.data_dir, wanted))? {
            Some(report) => {
                if *json {
                    out.line(serde_json::to_string(&report).context("the report cannot be written")?)?;
                } else {
                    show(&report, *all, out)?;
                }
                if report.state != WORKING {
                    idle.push(wanted);
                }
            }
            None => out.line(format_args!("{wanted}: it has not looked at its folder yet"))?,
        }
    }
    if idle.is_empty() {
        return Ok(());
    }
    bail!("{} cannot work; the first line of each says why", idle.join(", "))
}

fn show(report: &Report, all: bool, out: &mut Out) -> anyhow::Result<()> {
    let counts = report.counts();
    let n = |state: &str| counts.get(state).copied().unwrap_or_default();
    out.line(format_args!(
        "{}: {}; {} files current, {} refused; looked at {}",
        report.connector,
        shown(&report.state),
        n("current"),
        n("refused"),
        report.looked_at
    ))?;
    for (path, line) in report.files.iter().filter(|(_, line)| all || line.state != "current") {
        let source = line.source.as_deref().unwrap_or("-");
        let code = line.code.as_deref().map(|code| format!("  {code}")).unwrap_or_default();
        let reason = line.reason.as_deref().map(|reason| format!(": {}", shown(reason))).unwrap_or_default();
        out.line(format_args!("  {}  {}  {source}{code}{reason}", line.state, shown(path)))?;
    }
    Ok(())
}
