//! The service under measurement: this very program as a child process with a directory of its own, or one
//! that runs already. What the child writes to its outputs is handed to whoever wants to look at it.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use merkwelt_domain::KeyId;

use crate::wiring;

/// What looks at every byte of the outputs.
pub(super) type Watch = std::sync::Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Nobody looks.
pub(super) fn unwatched() -> Watch {
    std::sync::Arc::new(|_| ())
}

/// A service to be measured.
pub(super) struct Service {
    pub(super) address: SocketAddr,
    /// The instance admin's key.
    pub(super) admin: String,
    /// The data directory, if it is a child of ours.
    pub(super) data: Option<PathBuf>,
    running: Option<Running>,
}

struct Running {
    child: std::process::Child,
    dir: PathBuf,
    readers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({})", self.address)
    }
}

impl Service {
    /// A service that runs already.
    pub(super) fn at(url: &str, admin: &str) -> anyhow::Result<Self> {
        let place = url.trim_start_matches("http://").trim_end_matches('/');
        let address = place.to_socket_addrs().with_context(|| format!("`{url}` is no address"))?.next();
        let address = address.with_context(|| format!("`{url}` has no address"))?;
        Ok(Self { address, admin: admin.to_owned(), data: None, running: None })
    }

    /// Starts this program with `serve` over a new directory, on a free port.
    pub(super) fn start(arguments: &[String], config: &str, watch: &Watch) -> anyhow::Result<Self> {
        let dir =
            std::env::temp_dir().join(format!("merkwelt-bench-{}", KeyId::random(&*wiring::system_env())));
        std::fs::create_dir(&dir)?;
        std::fs::write(dir.join("data.toml"), config)?;
        Self::over(dir, arguments, watch)
    }

    /// Starts it over a directory that holds `data` and what is beside it.
    pub(super) fn over(dir: PathBuf, arguments: &[String], watch: &Watch) -> anyhow::Result<Self> {
        let data = dir.join("data");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let errors = child.stderr.take().context("the child has no standard error")?;
        let output = child.stdout.take().context("the child has no standard output")?;
        let mut readers = vec![watched(errors, watch)?];
        let mut running = Running { child, dir, readers: Vec::new() };
        let mut lines = BufReader::new(output);
        let mut admin = String::new();
        let address = loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                let _ = running.child.kill();
                bail!("the service stopped before it listened");
            }
            let word = |n: usize| line.split_whitespace().nth(n).unwrap_or_default().to_owned();
            if line.trim().starts_with("admin key") {
                admin = word(2);
            } else if line.trim().starts_with("merkwelt listens on") {
                break word(3);
            }
        };
        readers.push(watched(lines, watch)?);
        running.readers = readers;
        let address = address.trim_start_matches("http://").parse()?;
        Ok(Self { address, admin, data: Some(data), running: Some(running) })
    }

    /// The child's process id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Asks the child to stop, as an operator does, and waits for its last byte.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let pid = running.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        let status = running.child.wait()?;
        for reader in running.readers.drain(..) {
            let _ = reader.join();
        }
        if status.success() { Ok(()) } else { bail!("the service did not stop cleanly: {status}") }
    }

    /// Takes the directory away.
    pub(super) fn remove(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
            // It is in the system's temporary place; what cannot be removed is removed there.
            let _ = std::fs::remove_dir_all(&running.dir);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.remove();
    }
}

fn watched(mut from: impl Read + Send + 'static, watch: &Watch) -> anyhow::Result<JoinHandle<()>> {
    let watch = std::sync::Arc::clone(watch);
    Ok(std::thread::Builder::new().name("output".to_owned()).spawn(move || {
        let mut buffer = vec![0u8; 64 * 1024];
        let mut carried = Vec::new();
        while let Ok(n) = from.read(&mut buffer) {
            if n == 0 {
                break;
            }
            carried.extend_from_slice(buffer.get(..n).unwrap_or_default());
            // Whole lines only, so that nothing is cut in two.
            if let Some(end) = carried.iter().rposition(|byte| *byte == b'\n') {
                let lines: Vec<u8> = carried.drain(..=end).collect();
                watch(&lines);
            }
        }
        watch(&carried);
    })?)
}

/// All files below a directory.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
