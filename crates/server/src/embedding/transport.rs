//! One call over HTTP to the configured address: no proxy, no redirect, a time limit, a limit on the answer.
//! What a server says in an error is never passed on, because it may repeat the text it was sent (I-12).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ureq::http::header::RETRY_AFTER;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use zeroize::Zeroizing;

use super::settings::KeyPlace;

/// Why a call gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server is away or has no time: later is better. With how long it asks to be left alone.
    Away(&'static str, Option<Duration>),
    /// It gave no answer to this call. It may be away, or somebody's text has this effect on it.
    Broke(&'static str),
    /// It refuses the key, or something in front of it refuses somebody's text.
    Denied(String),
    /// It took too long.
    Slow,
    /// The call itself is wrong, whatever the texts: the operator has to change something.
    Refused(String),
    /// It does not take these texts together, or one of them.
    Texts,
    /// It failed over these texts.
    Failed,
    /// It breaks over these texts, and takes others.
    Breaks,
    /// Its answer is not what the protocol says.
    Unreadable,
}

/// The longest wait that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How one server is reached, as it was configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The part of the configuration that says so; it stands in what operators are told.
    pub part: &'static str,
    /// The address that is called.
    pub endpoint: String,
    /// Where its key is, if it needs one.
    pub key: Option<KeyPlace>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Connections kept.
    pub connections: usize,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
}

/// The way to one server.
pub(crate) struct Transport {
    agent: ureq::Agent,
    part: &'static str,
    endpoint: String,
    authorization: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Fault {
    /// Whether texts may be to blame though it looks as if the server were.
    pub(crate) fn may_be_of_texts(&self) -> bool {
        matches!(self, Self::Broke(_) | Self::Denied(_) | Self::Refused(_))
    }
}

impl Transport {
    /// Reads the key; opens no connection.
    pub(crate) fn to(way: &Way) -> anyhow::Result<Self> {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections_per_host(way.connections)
            // Many servers close an idle connection after five seconds; a call must not meet that moment.
            .max_idle_age(Duration::from_secs(3))
            .timeout_connect(Some(way.connect_timeout))
            .user_agent(concat!("merkwelt/", env!("CARGO_PKG_VERSION")));
        let config = if way.endpoint.starts_with("https:") {
            let named = format!("{}.ca_file", way.part);
            config.https_only(true).tls_config(tls(way.ca_file.as_deref(), &named)?)
        } else {
            config
        };
        let key = way.key.as_ref().map(|key| key.read(way.part)).transpose()?;
        Ok(Self {
            agent: config.build().into(),
            part: way.part,
            endpoint: way.endpoint.clone(),
            authorization: key.map(|key| Zeroizing::new(format!("Bearer {}", *key))),
        })
    }

    /// The address that is called.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends `body` and reads an answer of at most `limit` bytes.
    pub(crate) fn call(&self, body: &[u8], timeout: Duration, limit: u64) -> Result<Vec<u8>, Fault> {
        let mut request = self.agent.post(&self.endpoint).header("Content-Type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization.as_str());
        }
        let request = request.config().timeout_global(Some(timeout)).build();
        let mut response = request.send(body).map_err(|error| fault(self.part, &error))?;
        let status = response.status().as_u16();
        if status != 200 {
            let wait =
                response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            return Err(of_status(self.part, status, wait.map(Duration::from_secs)));
        }
        response.body_mut().with_config().limit(limit).read_to_vec().map_err(|error| fault(self.part, &error))
    }
}

/// Where systems keep the certificates they trust.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// TLS with the certificates of a file, else with those of the system; `named` says where a file is named.
pub(crate) fn tls(file: Option<&Path>, named: &str) -> anyhow::Result<TlsConfig> {
    let known = || SYSTEM_CERTIFICATES.iter().map(Path::new).find(|path| path.is_file());
    let path = file
        .or_else(known)
        .with_context(|| format!("this system has no list of trusted certificates; name one with {named}"))?;
    let pem = std::fs::read(path)
        .with_context(|| format!("cannot read the trusted certificates in {}", path.display()))?;
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            Ok(_) | Err(_) => None,
        })
        .collect();
    if certificates.is_empty() {
        bail!("{} holds no certificate", path.display());
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

fn fault(part: &str, error: &ureq::Error) -> Fault {
    use std::io::ErrorKind;

    use ureq::{Error, Timeout};
    let kind = if let Error::Io(error) = error { Some(error.kind()) } else { None };
    // A handshake that fails is met by a read or a write.
    let wrapped = if let Error::Io(error) = error { error.get_ref() } else { None };
    let tls = wrapped.is_some_and(|error| error.is::<rustls::Error>())
        || matches!(error, Error::Rustls(_) | Error::Tls(_));
    if matches!(error, Error::Timeout(Timeout::Connect | Timeout::Resolve)) {
        Fault::Away("it cannot be reached", None)
    } else if matches!(error, Error::Timeout(_)) || kind == Some(ErrorKind::TimedOut) {
        Fault::Slow
    } else if matches!(error, Error::BodyExceedsLimit(_)) {
        Fault::Broke("its answer is larger than any honest one")
    } else if tls {
        Fault::Refused(format!("its certificate is not trusted, or it speaks no TLS; see {part}.ca_file"))
    } else if matches!(error, Error::HostNotFound) {
        Fault::Away("its name is unknown", None)
    } else if kind == Some(ErrorKind::ConnectionRefused) {
        Fault::Away("nobody listens at its address", None)
    } else {
        Fault::Broke("the connection broke or is not HTTP")
    }
}

const NOT_READY: &str = "it is not ready (HTTP 502 or 503)";

fn of_status(part: &str, status: u16, wait: Option<Duration>) -> Fault {
    let wait = wait.map(|wait| wait.min(RETRY_AFTER_MAX));
    match status {
        300..=399 => Fault::Refused(format!(
            "it redirects (HTTP {status}), and no redirect is followed; put the final address into {part}.url"
        )),
        401 | 403 => Fault::Denied(format!("it refuses the key (HTTP {status}); see {part}.api_key_file")),
        404 | 405 | 410 => Fault::Refused(format!(
            "it does not know the address or the model (HTTP {status}); see {part}.url and {part}.model"
        )),
        424 => Fault::Refused(format!("its model is not for this (HTTP 424); see {part}.model")),
        408 | 504 => Fault::Slow,
        429 => Fault::Away("it has too much to do (HTTP 429)", wait),
        502 | 503 if wait.is_none() => Fault::Broke(NOT_READY),
        502 | 503 => Fault::Away(NOT_READY, wait),
        400..=499 => Fault::Texts,
        500..=599 => Fault::Failed,
        _ => Fault::Broke("it answers with a status that means nothing here"),
    }
}
