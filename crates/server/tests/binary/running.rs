//! Starts the real binary in a directory of its own, for tests that look at it from outside.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use merkwelt_server::cli::Client;
use serde_json::Value;

/// A running service and the keys that its first start printed.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) keys: Keys,
    child: Child,
    log: tempfile::NamedTempFile,
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

/// A number that a long run makes larger, `MERKWELT_<NAME>`.
pub(crate) fn size(name: &str, small: usize) -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "the nightly run chooses its sizes through the environment"
    )]
    let wanted = std::env::var(format!("MERKWELT_{name}")).ok();
    wanted.and_then(|wanted| wanted.parse().ok()).unwrap_or(small)
}

/// `serve` over `data` on a free port, without a model whatever the machine has.
pub(crate) fn serve(program: Command, data: &Path) -> Command {
    let mut command = program;
    command.args(["serve", "--no-model", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command
}

/// What `doctor` says, and whether it is content.
pub(crate) fn doctor(data: &Path) -> (bool, String) {
    let done = run(&["doctor", "--no-model", "--data-dir", data.to_str().unwrap()]);
    (done.status.success(), text(&done.stdout) + &text(&done.stderr))
}

/// The whole directory with what lies beside it, as it stands.
pub(crate) fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success(), "cp -a {} {}", from.display(), to.display());
}

/// The folder of a tenant.
pub(crate) fn folder(data: &Path, tenant: &str) -> PathBuf {
    data.join("tenants").join(tenant)
}

/// The texts of everything a person has.
pub(crate) fn texts(client: &Client) -> Vec<String> {
    let mut texts = Vec::new();
    let mut path = "/v1/memories?limit=500".to_owned();
    loop {
        let page = client.get(&path).unwrap().success().unwrap();
        let items = page["items"].as_array().unwrap();
        texts.extend(items.iter().map(|item| item["text"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/memories?limit=500&cursor={next}"),
            None => return texts,
        }
    }
}

impl Running {
    /// Starts `merkwelt serve` over `data` on a free port, without a model whatever the machine has.
    pub(crate) fn start(data: &Path) -> Self {
        Self::launch(serve(binary(), data)).unwrap_or_else(|said| panic!("the service stopped: {said}"))
    }

    /// The same with other arguments instead of `--no-model`.
    pub(crate) fn start_with(data: &Path, arguments: &[&OsStr]) -> Self {
        let mut command = binary();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data).args(arguments);
        Self::launch(command).unwrap_or_else(|said| panic!("the service stopped: {said}"))
    }

    /// Starts a command that serves; what it said if it stops before it listens.
    pub(crate) fn launch(mut command: Command) -> Result<Self, String> {
        let log = tempfile::NamedTempFile::new().unwrap();
        let stderr = std::fs::OpenOptions::new().append(true).open(log.path()).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut keys = Keys::default();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let Some(line) = lines.next() else {
                let status = child.wait().unwrap();
                return Err(format!("{status}: {}", read(&log)));
            };
            let line = line.unwrap();
            let word = |n: usize| line.split_whitespace().nth(n).unwrap_or_default().to_owned();
            match line.trim() {
                l if l.starts_with("admin key") => keys.admin = word(2),
                l if l.starts_with("tenant key") => keys.tenant = word(2),
                l if l.starts_with("app key") => keys.app = word(2),
                l if l.starts_with("merkwelt listens on") => {
                    let url = word(3);
                    // The pipe is read to its end, so that the service can always write.
                    let _drain = std::thread::Builder::new().spawn(move || lines.for_each(drop)).unwrap();
                    return Ok(Self { url, keys, child, log });
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

    /// What it wrote to its log.
    pub(crate) fn log(&self) -> String {
        read(&self.log)
    }

    /// Status and body of `/readyz`.
    pub(crate) fn ready(&self) -> (u16, Value) {
        let answer = self.client("").get("/readyz").unwrap();
        (answer.status, answer.json().unwrap())
    }

    /// The entries of the first tenant's ledger, one a line, verified by the binary's own command.
    pub(crate) fn verified_ledger(&self) -> String {
        let lines = self.verified_export();
        let leaves = lines.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let leaf = base64::engine::general_purpose::STANDARD.decode(line["leaf"].as_str()?).unwrap();
            Some(text(&leaf) + "\n")
        });
        leaves.collect()
    }

    /// The same as it was exported.
    pub(crate) fn verified_export(&self) -> String {
        let export = self.client(&self.keys.tenant).get("/v1/ledger/export").unwrap();
        assert_eq!(export.status, 200, "{}", export.body);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, export.body.as_bytes()).unwrap();
        let verified = run(&["verify", file.path().to_str().unwrap()]);
        assert!(verified.status.success(), "{}", text(&verified.stderr));
        export.body
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Keys {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.keys.clone()
    }

    /// Waits until it is dead.
    pub(crate) fn wait(mut self) -> (Keys, ExitStatus) {
        let status = self.child.wait().unwrap();
        (self.keys.clone(), status)
    }

    /// Asks the service to stop, as an operator does.
    pub(crate) fn stop(self) -> Keys {
        self.stop_in().0
    }

    /// The same, and how long it took.
    pub(crate) fn stop_in(self) -> (Keys, Duration) {
        #[expect(clippy::disallowed_methods, reason = "the test measures the end of another process")]
        let asked = Instant::now();
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let (keys, status) = self.wait();
        assert!(status.success(), "the service did not stop cleanly");
        (keys, asked.elapsed())
    }

    pub(crate) fn with_keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }
}

fn read(log: &tempfile::NamedTempFile) -> String {
    std::fs::read_to_string(log.path()).unwrap()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
