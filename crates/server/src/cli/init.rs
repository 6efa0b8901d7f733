//! `merkwelt init`: create the data, print the keys once.

use std::sync::Arc;

use super::Out;
use crate::config::{Config, Places};
use crate::wiring::{self, Founded};

/// Arguments of `merkwelt init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    places: Places,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let config = Config::load(&args.places, None)?;
    let env = wiring::system_env();
    wiring::found_showing(&config, &Arc::clone(&env), None, |founded| print_founded(&config, &founded, out))
        .map(drop)
}

/// Tells what a first start created. This is the only time the keys are shown.
pub(super) fn print_founded(config: &Config, founded: &Founded, out: &mut Out) -> anyhow::Result<()> {
    out.must_show(format_args!("Created {} with the tenant `default`.", config.data_dir.display()))?;
    out.must_show("")?;
    out.must_show("These keys are shown once and stored nowhere. Keep them now:")?;
    out.must_show(format_args!("  admin key   {}   runs the instance", founded.admin.reveal()))?;
    out.must_show(format_args!(
        "  tenant key  {}   runs the tenant `default`",
        founded.tenant_admin.reveal()
    ))?;
    out.must_show(format_args!("  app key     {}   for your application", founded.app.reveal()))?;
    out.must_show("")?;
    out.must_show(format_args!("The instance key is {}.", config.instance_key.display()))?;
    out.must_show("Without it the data cannot be read. Keep a copy away from the backups of the data.")
}
