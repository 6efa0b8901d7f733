//! What a connector knows of its folder's files beside the register: what became of each and why, and which
//! sources it took back itself. It lies in the data directory, for the operator alone, because paths can name
//! persons. The register is the truth: without this file everything is found out again, except that nothing that
//! is withdrawn comes back by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use merkwelt_domain::Timestamp;
use serde::{Deserialize, Serialize};

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    /// Its source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// `current` or `refused`.
    pub(crate) state: String,
    /// The name of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// The reason in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Since when; RFC 3339.
    pub(crate) since: String,
}

/// All files of a connector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report {
    /// Its name.
    pub(crate) connector: String,
    /// `working`, or why it cannot work.
    pub(crate) state: String,
    /// When the folder was last looked through; RFC 3339.
    pub(crate) looked_at: String,
    /// When every file was last read; RFC 3339.
    pub(crate) read_at: String,
    /// Which folder it was: device and number.
    pub(crate) folder: Option<(u64, u64)>,
    /// Sources that this connector took back, and may show again.
    pub(crate) withdrawn: BTreeSet<String>,
    /// By path.
    pub(crate) files: BTreeMap<String, Line>,
}

impl Report {
    /// Where the report of a connector lies.
    pub(crate) fn path(data_dir: &Path, name: &str) -> PathBuf {
        data_dir.join("connectors").join(format!("{name}.json"))
    }

    /// Reads a report; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let read = serde_json::from_slice(&text);
        Ok(Some(read.with_context(|| format!("{} is damaged; remove it", path.display()))?))
    }

    /// Writes it whole or not at all, for the operator alone.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save(&self, path: &Path) -> std::io::Result<()> {
        let dir = path.parent().unwrap_or(path);
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let new = path.with_extension("json.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        File::open(dir)?.sync_all()
    }

    /// How many files are in each state.
    pub(crate) fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for line in self.files.values() {
            *counts.entry(line.state.as_str()).or_default() += 1;
        }
        counts
    }
}

/// The report of a running connector, changed by its looks and written when something changed.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    report: Report,
    is_dirty: bool,
    saved_at: i64,
}

/// Milliseconds after which the time of the last look is written although nothing changed.
const SAVE_MS: i64 = 60_000;

impl Journal {
    /// Goes on with the report that is there.
    ///
    /// # Errors
    /// It is damaged or cannot be read.
    pub(super) fn open(data_dir: &Path, name: &str) -> anyhow::Result<Self> {
        let path = Report::path(data_dir, name);
        let mut report = Report::load(&path)?.unwrap_or_default();
        name.clone_into(&mut report.connector);
        Ok(Self { path, inner: Mutex::new(Inner { report, ..Inner::default() }) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the report.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Report) -> T) -> T {
        self.with(|inner| look(&inner.report))
    }

    /// Notes durably that a source is about to be taken back by the folder, so that the folder may show it again.
    pub(super) fn note_withdrawal(&self, source: &str) -> std::io::Result<()> {
        self.with(|inner| {
            inner.report.withdrawn.insert(source.to_owned());
            inner.report.save(&self.path)
        })
    }

    /// Notes what became of a file; whether that is new.
    pub(super) fn set(&self, path: &str, line: Line) -> bool {
        self.with(|inner| {
            if line.state == CURRENT
                && let Some(source) = &line.source
            {
                inner.is_dirty |= inner.report.withdrawn.remove(source);
            }
            let same = |old: &Line| Line { since: line.since.clone(), ..old.clone() } == line;
            let new = !inner.report.files.get(path).is_some_and(same);
            if new {
                inner.report.files.insert(path.to_owned(), line);
                inner.is_dirty = true;
            }
            new
        })
    }

    /// Forgets a file; `gone` is its source, if that is deleted.
    pub(super) fn forget(&self, path: &str, gone: Option<&str>) {
        self.with(|inner| {
            inner.is_dirty |= inner.report.files.remove(path).is_some();
            if let Some(source) = gone {
                inner.is_dirty |= inner.report.withdrawn.remove(source);
            }
        });
    }

    /// Notes the end of a look; whether the state is another than before.
    pub(super) fn looked(&self, state: &str, folder: Option<(u64, u64)>, whole: bool, at: Timestamp) -> bool {
        self.with(|inner| {
            let report = &mut inner.report;
            let new = report.state != state;
            state.clone_into(&mut report.state);
            report.looked_at = at.to_string();
            if whole {
                report.read_at = at.to_string();
            }
            inner.is_dirty |= new || whole || (folder.is_some() && report.folder != folder);
            report.folder = folder.or(report.folder);
            new
        })
    }

    /// Writes the report if something changed, or if it is old.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn save(&self, now: i64) -> std::io::Result<()> {
        self.with(|inner| {
            if !inner.is_dirty && (0..SAVE_MS).contains(&(now - inner.saved_at)) {
                return Ok(());
            }
            inner.report.save(&self.path)?;
            (inner.is_dirty, inner.saved_at) = (false, now);
            Ok(())
        })
    }
}

/// The state of a connector that can do its work.
pub(crate) const WORKING: &str = "working";

/// The state of a file whose words are shown.
pub(super) const CURRENT: &str = "current";
/// The state of a file that is not taken in.
pub(super) const REFUSED: &str = "refused";
