//! `merkwelt key`: create, list and revoke keys of a running service.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Context;
use serde_json::{Value, json};

use super::{Client, Out};

/// Arguments of `merkwelt key`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address of the service
    #[arg(long, global = true, default_value = "http://127.0.0.1:7777")]
    url: String,
    /// A file that holds a key that may manage keys
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<std::path::PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a key and print it once
    Create {
        /// A label for people: lower-case letters, digits, `.`, `_`, `-`
        #[arg(long)]
        label: String,
        /// `tenant_admin`, `app`, `agent`, `privacy_officer` or `auditor`
        #[arg(long)]
        role: String,
        /// The only subject it may act for
        #[arg(long)]
        subject: Option<String>,
        /// It may act for subjects that it names
        #[arg(long)]
        act_for: bool,
    },
    /// List keys, without secrets
    List,
    /// Revoke a key from the next request on
    Revoke {
        /// The public part, such as `key_…`
        id: String,
    },
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let client = Client::new(&args.url, &read_key(args.key_file.as_deref())?);
    match &args.command {
        Command::Create { label, role, subject, act_for } => {
            let mut body = json!({"label": label, "role": role, "act_for": act_for});
            if let (Some(subject), Some(map)) = (subject, body.as_object_mut()) {
                map.insert("subject".to_owned(), json!(subject));
            }
            let made = client.post("/v1/keys", &body, None)?.success()?;
            out.line(made.get("key").and_then(Value::as_str).context("the service sent no key")?)
        }
        Command::List => {
            let found = client.get("/v1/keys")?.success()?;
            for key in found.get("keys").and_then(Value::as_array).into_iter().flatten() {
                out.line(key)?;
            }
            Ok(())
        }
        Command::Revoke { id } => {
            client.delete(&format!("/v1/keys/{id}"))?.success()?;
            out.line("revoked")
        }
    }
}

/// A key from a file, or from the environment variable `MERKWELT_KEY`; never from the command line, where
/// other users of the machine could read it.
pub(super) fn read_key(file: Option<&std::path::Path>) -> anyhow::Result<String> {
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the key file {}", path.display()))?;
        if std::fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            // The work is not the worse for it, so it goes on.
            let shown = path.display();
            let _ = writeln!(
                std::io::stderr(),
                "merkwelt: the key file {shown} can be read by others; run `chmod 600 {shown}`"
            );
        }
        return Ok(text.trim().to_owned());
    }
    #[expect(clippy::disallowed_methods, reason = "the documented way to hand a key to a command")]
    let key = std::env::var("MERKWELT_KEY");
    key.context("no key: name a file with --key-file or set MERKWELT_KEY")
}
