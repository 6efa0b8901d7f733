//! Who may use which file: every folder and file of the data directory belongs to one user, who may read and write
//! it, and nobody else may. The instance key lies beside it. Nothing is opened here.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::cli::Out;
use crate::config::Config;

/// What the look brought.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looked {
    /// How many files and folders are named.
    pub(super) findings: u32,
    /// Whether the instance key is among them: then the data cannot be opened, and why is told.
    pub(super) key_is_bad: bool,
}

/// Looks at the modes and owners and names each file that is not in order once, with what to do.
pub(super) fn look(config: &Config, out: &mut Out) -> anyhow::Result<Looked> {
    let mut look = Look { data_dir: &config.data_dir, owner: None, seen: 0, findings: 0, out };
    look.walk(&config.data_dir)?;
    let (seen, in_data) = (look.seen, look.findings);
    if in_data == 0 {
        let data = config.data_dir.display();
        look.out.line(format_args!("ok    {data} and the {seen} files and folders in it are private"))?;
    }
    look.key(&config.instance_key)?;
    Ok(Looked { findings: look.findings, key_is_bad: look.findings > in_data })
}

struct Look<'o> {
    data_dir: &'o Path,
    /// Who owns the data directory.
    owner: Option<u32>,
    seen: u32,
    findings: u32,
    out: &'o mut Out,
}

impl Look<'_> {
    /// Links are not followed: what they name is not of the data directory.
    fn walk(&mut self, root: &Path) -> anyhow::Result<()> {
        let mut left = vec![root.to_owned()];
        while let Some(path) = left.pop() {
            let found = match std::fs::symlink_metadata(&path) {
                Ok(found) if found.is_symlink() => continue,
                Ok(found) => found,
                // A running service removes files too.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    self.bad(format_args!("cannot look at {}: {error}", path.display()))?;
                    continue;
                }
            };
            self.owner.get_or_insert(found.uid());
            if path != root {
                self.seen += 1;
            }
            if self.one(&path, &found)? && found.is_dir() {
                left.extend(self.below(&path)?);
            }
        }
        Ok(())
    }

    /// The paths in a folder, in the order in which they are taken from the end.
    fn below(&mut self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let names = std::fs::read_dir(folder)
            .and_then(|names| names.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>());
        match names {
            Ok(mut paths) => {
                paths.sort_by(|a, b| b.cmp(a));
                Ok(paths)
            }
            Err(error) => {
                self.bad(format_args!("cannot look into {}: {error}", folder.display()))?;
                Ok(Vec::new())
            }
        }
    }

    /// Whether its owner may use it. At most one line.
    fn one(&mut self, path: &Path, found: &Metadata) -> anyhow::Result<bool> {
        let (mode, wanted) = (found.permissions().mode(), if found.is_dir() { 0o700 } else { 0o600 });
        let may_use = mode & wanted == wanted;
        let shown = path.display();
        if self.owner != Some(found.uid()) {
            self.bad(format_args!(
                "{shown} belongs to another user than {0}: run `chown --reference={0} {shown}`",
                self.data_dir.display()
            ))?;
        } else if !may_use {
            self.bad(format_args!(
                "{shown} may not be read and written by its owner: run `chmod {wanted:o} {shown}`"
            ))?;
        } else if mode & 0o077 != 0 {
            self.bad(format_args!("{shown} can be read by others: run `chmod {wanted:o} {shown}`"))?;
        }
        Ok(may_use)
    }

    /// The key is only read, and may lie with another user who lets the service read it, on a mounted volume.
    fn key(&mut self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        match std::fs::metadata(path) {
            Err(error) => self.bad(format_args!("cannot read {shown}: {error}; bring it back")),
            Ok(found) if found.permissions().mode() & 0o077 != 0 => {
                self.bad(format_args!("{shown} can be read by others: run `chmod 600 {shown}`"))
            }
            Ok(_) => self.out.line(format_args!("ok    {shown} is private")),
        }
    }

    fn bad(&mut self, what: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
        self.findings += 1;
        self.out.line(format_args!("BAD   {what}"))
    }
}
