//! Starts the real binary in a directory of its own, for tests that look at it from outside.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use merkwelt_server::cli::Client;

/// A running service and the keys that its first start printed.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) keys: Keys,
    child: Child,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub(crate) admin: String,
    pub(crate) tenant: String,
    pub(crate) app: String,
}

pub(crate) fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_merkwelt"))
}

/// Runs a command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    binary().args(arguments).env_remove("MERKWELT_KEY").output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Running {
    /// Starts `merkwelt serve` over `data` on a free port, without a model whatever the machine has.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, &["--no-model".as_ref()])
    }

    /// The same with other arguments.
    pub(crate) fn start_with(data: &Path, arguments: &[&OsStr]) -> Self {
        let mut child = binary()
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut keys = Keys::default();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = lines.next().expect("the service stopped before it listened").unwrap();
            let word = |n: usize| line.split_whitespace().nth(n).unwrap_or_default().to_owned();
            match line.trim() {
                l if l.starts_with("admin key") => keys.admin = word(2),
                l if l.starts_with("tenant key") => keys.tenant = word(2),
                l if l.starts_with("app key") => keys.app = word(2),
                l if l.starts_with("merkwelt listens on") => {
                    let url = word(3);
                    // The pipe is read to its end, so that the service can always write.
                    let _drain = std::thread::Builder::new().spawn(move || lines.for_each(drop)).unwrap();
                    return Self { url, keys, child };
                }
                _ => {}
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn client(&self, key: &str) -> Client {
        Client::new(&self.url, key)
    }

    /// The application acting for a person.
    pub(crate) fn person(&self, name: &str) -> Client {
        self.client(&self.keys.app).acting_for(name)
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Keys {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.keys.clone()
    }

    /// Asks the service to stop, as an operator does.
    pub(crate) fn stop(mut self) -> Keys {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success(), "the service did not stop cleanly");
        self.keys.clone()
    }

    pub(crate) fn with_keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
