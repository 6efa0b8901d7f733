//! The sets as they lie on disk: lines of JSON, plain or compressed with xz.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

/// Reads a file with one JSON value per line; fields that are not asked for are ignored.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let text = if path.extension().is_some_and(|end| end == "xz") {
        unpack(path)?
    } else {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    let parse = |(at, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), at + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

fn unpack(path: &Path) -> anyhow::Result<String> {
    let output = Command::new("xz")
        .arg("-dc")
        .arg(path)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run `xz`, which unpacks the set; install xz-utils")?;
    if !output.status.success() {
        bail!("{} cannot be unpacked", path.display());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} is not text", path.display()))
}
