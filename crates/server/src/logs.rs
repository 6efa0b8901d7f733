//! Logs in files of their own, for operators who want access and retention to be kept by the service: a
//! file for each day that only the service's user may read, in a directory that is refused if others may enter,
//! and nothing that is older than configured.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, bail};
use merkwelt_domain::{Env, Timestamp};
use tracing_subscriber::fmt::MakeWriter;

const PREFIX: &str = "merkwelt-";
const SUFFIX: &str = ".log";

/// Where logs are kept, and how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPlace {
    /// The directory; it belongs to the service alone.
    pub directory: PathBuf,
    /// Files of days further back are removed.
    pub keep_days: u32,
}

/// The file of the day. It changes with the day, and with each change what is too old goes.
pub struct Logs {
    place: LogPlace,
    env: Arc<dyn Env>,
    today: Mutex<Today>,
}

struct Today {
    day: String,
    file: File,
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logs").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Logs {
    /// Opens the file of today and removes what is too old.
    ///
    /// # Errors
    /// The directory can be entered by others, or cannot be made or written; the text says what to do.
    pub fn open(place: LogPlace, env: Arc<dyn Env>) -> anyhow::Result<Self> {
        make_private(&place.directory)?;
        let now = env.now();
        let file = open(&place.directory, &day(now))
            .with_context(|| format!("cannot write logs to {}", place.directory.display()))?;
        remove_old(&place, now)?;
        Ok(Self { place, env, today: Mutex::new(Today { day: day(now), file }) })
    }

    /// The file of today.
    fn today(&self) -> MutexGuard<'_, Today> {
        let mut today = self.today.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.env.now();
        let day = day(now);
        if today.day != day
            && let Ok(file) = open(&self.place.directory, &day)
        {
            *today = Today { day, file };
            // What cannot be removed today is tried again tomorrow and at the next start.
            let _ = remove_old(&self.place, now);
        }
        today
    }
}

/// One event on its way to the file.
pub struct Line<'a>(MutexGuard<'a, Today>);

impl std::fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line(..)")
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.file.flush()
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self.today())
    }
}

/// `2026-03-01`, in UTC.
fn day(time: Timestamp) -> String {
    time.to_string().chars().take(10).collect()
}

fn open(directory: &Path, day: &str) -> io::Result<File> {
    let path = directory.join(format!("{PREFIX}{day}{SUFFIX}"));
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    // A file that was there before may have been opened to others.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

fn make_private(directory: &Path) -> anyhow::Result<()> {
    if !directory.exists() {
        return DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot create {}", directory.display()));
    }
    let mode = std::fs::metadata(directory)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("logs in {} could be read by others; run `chmod 700 {0}` first", directory.display());
    }
    Ok(())
}

/// Removes the files of days before the retention. Only names that this service makes are touched.
fn remove_old(place: &LogPlace, now: Timestamp) -> anyhow::Result<()> {
    let kept_millis = i64::from(place.keep_days) * Timestamp::DAY_MILLIS;
    let oldest = day(Timestamp::from_millis(now.millis() - kept_millis));
    let entries = std::fs::read_dir(&place.directory)
        .with_context(|| format!("cannot list the logs in {}", place.directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        if of.is_some_and(|day| format!("{day}T00:00:00Z").parse::<Timestamp>().is_ok() && *day < *oldest) {
            std::fs::remove_file(entry.path())
                .with_context(|| format!("cannot remove the old log {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use merkwelt_domain::env::fixed::FixedEnv;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// 2026-06-01T00:00:00Z.
    const START: i64 = 1_780_272_000_000;

    #[test]
    fn r_112_logs_are_private_and_end_with_their_retention() {
        let root = tempfile::tempdir().unwrap();
        let place = LogPlace { directory: root.path().join("logs"), keep_days: 2 };
        let env = Arc::new(FixedEnv::at(START));
        let logs = Logs::open(place.clone(), env.clone()).unwrap();
        assert_eq!(mode(&place.directory), 0o700);
        for name in ["merkwelt-2026-05-29.log", "merkwelt-2026-05-30.log", "notes.log", "merkwelt-x.log"] {
            std::fs::write(place.directory.join(name), "old").unwrap();
        }
        logs.make_writer().write_all(b"one\n").unwrap();
        env.advance(Timestamp::DAY_MILLIS - 1);
        logs.make_writer().write_all(b"two\n").unwrap();
        let today = place.directory.join("merkwelt-2026-06-01.log");
        assert_eq!(std::fs::read_to_string(&today).unwrap(), "one\ntwo\n");
        assert_eq!(mode(&today), 0o600);
        env.advance(1);
        logs.make_writer().write_all(b"three\n").unwrap();
        let kept = ["merkwelt-2026-06-01.log", "merkwelt-2026-06-02.log", "merkwelt-x.log", "notes.log"];
        assert_eq!(names(&place.directory), kept);
        env.advance(3 * Timestamp::DAY_MILLIS);
        drop(Logs::open(place.clone(), env).unwrap());
        assert_eq!(names(&place.directory), ["merkwelt-2026-06-05.log", "merkwelt-x.log", "notes.log"]);
    }

    #[test]
    fn r_112_a_directory_that_others_may_enter_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("logs");
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o750)).unwrap();
        let place = LogPlace { directory: directory.clone(), keep_days: 2 };
        let refused = Logs::open(place.clone(), Arc::new(FixedEnv::at(START))).unwrap_err();
        assert!(refused.to_string().contains("chmod 700"), "{refused}");
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
        let open = directory.join("merkwelt-2026-06-01.log");
        std::fs::write(&open, "").unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
        drop(Logs::open(place, Arc::new(FixedEnv::at(START))).unwrap());
        assert_eq!(mode(&open), 0o600, "a file that was open to others is closed");
    }
}
