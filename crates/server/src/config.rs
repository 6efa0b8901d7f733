//! Configuration in two steps: [`RawConfig`] is what stands in the file, [`Config`] is what was checked and
//! completed from the command line. Nothing else reads files or the environment for settings.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use merkwelt_app::{AnswerLimits, Boundary, DocumentMemory, SessionLimits, Settings};
use merkwelt_domain::memory::Lifetimes;
use merkwelt_inference::models::search_path;
use serde::Deserialize;

use crate::connector::{RawConnector, Setting};
use crate::embedding::{RawEmbedding, Wanted};
use crate::http::Limits;
use crate::logs::LogPlace;
use crate::reranking::{self, RawReranker};

/// The configuration file. Every key has a default; an unknown key is an error.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    server: RawServer,
    storage: RawStorage,
    context: RawContext,
    lifetimes: RawLifetimes,
    boundary: RawBoundary,
    session: RawSession,
    conversations: RawConversations,
    answers: RawAnswers,
    documents: RawDocuments,
    evidence: RawEvidence,
    logs: RawLogs,
    embedding: RawEmbedding,
    next_embedding: Option<RawEmbedding>,
    reranker: RawReranker,
    connector: Vec<RawConnector>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawServer {
    listen: String,
    concurrent_requests: usize,
    key_requests: usize,
    tenant_requests: usize,
    body_megabytes: u64,
    connections: usize,
    header_seconds: u64,
    body_seconds: u64,
    request_seconds: u64,
    document_seconds: u64,
}

impl Default for RawServer {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            listen: "127.0.0.1:7777".to_owned(),
            concurrent_requests: limits.concurrent_requests,
            key_requests: limits.key_requests,
            tenant_requests: limits.tenant_requests,
            body_megabytes: (limits.bodies_bytes_max >> 20) as u64,
            connections: limits.connections,
            header_seconds: limits.header_timeout.as_secs(),
            body_seconds: limits.body_timeout.as_secs(),
            request_seconds: limits.request_timeout.as_secs(),
            document_seconds: limits.document_timeout.as_secs(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawStorage {
    index_megabytes: u64,
    open_tenants: usize,
    idle_seconds: u32,
    threads: usize,
}

impl Default for RawStorage {
    fn default() -> Self {
        Self { index_megabytes: 768, open_tenants: 256, idle_seconds: 600, threads: 4 }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawContext {
    tokenizer: String,
}

impl Default for RawContext {
    fn default() -> Self {
        Self { tokenizer: "o200k_base".to_owned() }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawLifetimes {
    user_fact_days: Option<u32>,
    feedback_days: Option<u32>,
    reference_days: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawBoundary {
    name: Option<String>,
    version: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawSession {
    idle_minutes: Option<u32>,
    turns: Option<usize>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawConversations {
    after_removal: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawAnswers {
    keep_minutes: Option<u32>,
    per_scope: Option<usize>,
    total: Option<usize>,
    cosine_min: Option<f32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDocuments {
    memory_purpose: Option<String>,
    memory_days: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawEvidence {
    keep_days: Option<u32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawLogs {
    directory: Option<PathBuf>,
    keep_days: Option<u32>,
}

/// Days for which logs are kept if nothing else is said.
const LOG_DAYS: u32 = 30;

/// The checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the data are.
    pub data_dir: PathBuf,
    /// The file with the instance key.
    pub instance_key: PathBuf,
    /// Where the service listens.
    pub listen: std::net::SocketAddr,
    /// Limits of the HTTP face.
    pub limits: Limits,
    /// Bytes of search indexes held in memory.
    pub index_bytes: usize,
    /// Tenants held open.
    pub open_tenants: usize,
    /// Milliseconds after which an unused tenant is closed.
    pub idle_ms_max: i64,
    /// Threads of the storage pool.
    pub threads: NonZeroUsize,
    /// The tokeniser that counts.
    pub tokenizer: String,
    /// Where logs are kept; standard error if nowhere.
    pub logs: Option<LogPlace>,
    /// Which embedding engine is wanted.
    pub embedding: Wanted,
    /// Which engine is to take its place while the service serves.
    pub next_embedding: Option<Wanted>,
    /// The reranker, if one is configured.
    pub reranker: Option<reranking::Settings>,
    /// Settings of the use cases.
    pub settings: Settings,
    /// Folders that are kept in step with the register of sources.
    pub connectors: Vec<Setting>,
}

/// What the command line says about where things are.
#[derive(Debug, Clone, clap::Args)]
pub struct Places {
    /// Directory of the data; created at the first start
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub data_dir: PathBuf,
    /// File with the instance key; created at the first start. Keep it apart from backups of the data
    /// [default: DIR.key]
    #[arg(long, value_name = "FILE")]
    pub instance_key: Option<PathBuf>,
    /// Configuration file [default: DIR.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What the command line says about the embedding model.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ModelPlaces {
    /// Directory to look for the embedding model in first [then: merkwelt/models in the data directory of the
    /// user, share/merkwelt/models beside the program]
    #[arg(long, value_name = "DIR")]
    pub model_dir: Option<PathBuf>,
    /// Rank by words only, even if a model is installed
    #[arg(long, conflicts_with = "model_dir")]
    pub no_model: bool,
}

impl ModelPlaces {
    /// The directories to look in, in this order.
    #[must_use]
    pub fn dirs(&self) -> Vec<PathBuf> {
        let path = |name| variable(name).map(PathBuf::from);
        let exe = std::env::current_exe().ok();
        let (data_home, home) = (path("XDG_DATA_HOME"), path("HOME"));
        search_path(self.model_dir.as_deref(), data_home.as_deref(), home.as_deref(), exe.as_deref())
    }
}

/// A variable of the environment, if it is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "places and keys may be said by the environment")]
    let value = std::env::var(name);
    value.ok().filter(|value| !value.is_empty())
}

impl Config {
    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or a value is out of range; the text says which and what to do.
    pub fn load(places: &Places, listen: Option<&str>) -> anyhow::Result<Self> {
        Self::checked(&read_raw(places)?, places, listen)
    }

    /// Checks the text of a configuration file as [`Config::load`] does.
    ///
    /// # Errors
    /// It cannot be parsed, or a value is out of range.
    pub fn parse(text: &str, places: &Places, listen: Option<&str>) -> anyhow::Result<Self> {
        Self::checked(&toml::from_str(text)?, places, listen)
    }

    fn checked(raw: &RawConfig, places: &Places, listen: Option<&str>) -> anyhow::Result<Self> {
        let listen = listen.unwrap_or(&raw.server.listen);
        let listen = listen
            .parse()
            .with_context(|| format!("`{listen}` is not an address to listen on, such as 127.0.0.1:7777"))?;
        in_range("storage.index_megabytes", raw.storage.index_megabytes, 16, 1 << 20)?;
        in_range("storage.open_tenants", raw.storage.open_tenants as u64, 1, 100_000)?;
        in_range("storage.idle_seconds", u64::from(raw.storage.idle_seconds), 1, 86_400)?;
        in_range("storage.threads", raw.storage.threads as u64, 1, 256)?;
        let index_bytes = usize::try_from(raw.storage.index_megabytes << 20).unwrap_or(usize::MAX);
        Ok(Self {
            data_dir: places.data_dir.clone(),
            instance_key: places.instance_key.clone().unwrap_or_else(|| beside(&places.data_dir, "key")),
            listen,
            limits: limits(&raw.server)?,
            index_bytes,
            open_tenants: raw.storage.open_tenants,
            idle_ms_max: i64::from(raw.storage.idle_seconds) * 1_000,
            threads: NonZeroUsize::new(raw.storage.threads).unwrap_or(NonZeroUsize::MIN),
            tokenizer: tokenizer(&raw.context.tokenizer)?,
            logs: logs(&raw.logs)?,
            embedding: raw.embedding.check("embedding")?,
            next_embedding: next_embedding(raw)?,
            reranker: raw.reranker.check()?,
            settings: settings(raw)?,
            connectors: Setting::all(&raw.connector, &places.data_dir)?,
        })
    }
}

fn read_raw(places: &Places) -> anyhow::Result<RawConfig> {
    let default = beside(&places.data_dir, "toml");
    let path: &Path = match &places.config {
        Some(path) => path,
        None if default.exists() => &default,
        None => return Ok(RawConfig::default()),
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is not a valid configuration", path.display()))
}

/// A file beside the data directory, so that a copy of the directory holds neither key nor configuration.
fn beside(data_dir: &Path, extension: &str) -> PathBuf {
    let mut name = data_dir.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(extension);
    data_dir.with_file_name(name)
}

/// Its name is looked up and no table is unpacked: that takes long, and only what counts needs it.
fn tokenizer(name: &str) -> anyhow::Result<String> {
    let known = merkwelt_inference::tokens::is_known(name);
    known.map(|()| name.to_owned()).with_context(|| format!("context.tokenizer `{name}` is not usable"))
}

fn limits(raw: &RawServer) -> anyhow::Result<Limits> {
    for (name, value) in [
        ("server.concurrent_requests", raw.concurrent_requests),
        ("server.key_requests", raw.key_requests),
        ("server.tenant_requests", raw.tenant_requests),
        ("server.connections", raw.connections),
    ] {
        in_range(name, value as u64, 1, 100_000)?;
    }
    // A tenant has half of it, and the largest document must fit.
    in_range("server.body_megabytes", raw.body_megabytes, 64, 1 << 20)?;
    for (name, seconds) in [
        ("server.header_seconds", raw.header_seconds),
        ("server.body_seconds", raw.body_seconds),
        ("server.request_seconds", raw.request_seconds),
    ] {
        in_range(name, seconds, 1, 3600)?;
    }
    in_range("server.document_seconds", raw.document_seconds, 1, 86_400)?;
    Ok(Limits {
        concurrent_requests: raw.concurrent_requests,
        key_requests: raw.key_requests,
        tenant_requests: raw.tenant_requests,
        bodies_bytes_max: usize::try_from(raw.body_megabytes << 20).unwrap_or(usize::MAX),
        connections: raw.connections,
        header_timeout: Duration::from_secs(raw.header_seconds),
        body_timeout: Duration::from_secs(raw.body_seconds),
        request_timeout: Duration::from_secs(raw.request_seconds),
        document_timeout: Duration::from_secs(raw.document_seconds),
        ..Limits::default()
    })
}

fn logs(raw: &RawLogs) -> anyhow::Result<Option<LogPlace>> {
    let keep_days = raw.keep_days.unwrap_or(LOG_DAYS);
    in_range("logs.keep_days", u64::from(keep_days), 1, 3_650)?;
    match &raw.directory {
        Some(directory) if directory.as_os_str().is_empty() => bail!("logs.directory is empty; name one"),
        Some(directory) => Ok(Some(LogPlace { directory: directory.clone(), keep_days })),
        // Standard error belongs to whoever started the service; its retention cannot be promised here.
        None if raw.keep_days.is_some() => bail!("logs.keep_days needs logs.directory"),
        None => Ok(None),
    }
}

fn settings(raw: &RawConfig) -> anyhow::Result<Settings> {
    let standard = Settings::default();
    let days = |name, value: Option<u32>, default| match value {
        Some(days) => in_range(name, u64::from(days), 1, 36_500).map(|()| days),
        None => Ok(default),
    };
    let lifetimes = Lifetimes {
        user_fact_days: days(
            "lifetimes.user_fact_days",
            raw.lifetimes.user_fact_days,
            standard.lifetimes.user_fact_days,
        )?,
        feedback_days: days(
            "lifetimes.feedback_days",
            raw.lifetimes.feedback_days,
            standard.lifetimes.feedback_days,
        )?,
        reference_days: days(
            "lifetimes.reference_days",
            raw.lifetimes.reference_days,
            standard.lifetimes.reference_days,
        )?,
    };
    let boundary = Boundary {
        name: token("boundary.name", raw.boundary.name.as_ref(), standard.boundary.name)?,
        version: token("boundary.version", raw.boundary.version.as_ref(), standard.boundary.version)?,
    };
    in_range("session.idle_minutes", u64::from(raw.session.idle_minutes.unwrap_or(120)), 1, 10_080)?;
    in_range("session.turns", raw.session.turns.unwrap_or(200) as u64, 1, 10_000)?;
    let idle = raw.session.idle_minutes.map(|minutes| i64::from(minutes) * 60_000);
    let session = SessionLimits {
        idle_ms_max: idle.unwrap_or(standard.session.idle_ms_max),
        n_turns_max: raw.session.turns.unwrap_or(standard.session.n_turns_max),
        n_sessions_max: standard.session.n_sessions_max,
    };
    let evidence_days = days("evidence.keep_days", raw.evidence.keep_days, standard.evidence_days)?;
    let after_removal = raw.conversations.after_removal.as_deref().map(str::parse).transpose();
    let after_removal = after_removal
        .map_err(|reason: &str| anyhow::anyhow!("conversations.after_removal {reason}"))?
        .unwrap_or(standard.after_removal);
    let answers = answers(&raw.answers, standard.answers)?;
    let document_memory = document_memory(&raw.documents)?;
    Ok(Settings {
        lifetimes,
        boundary,
        session,
        evidence_days,
        after_removal,
        answers,
        document_memory,
        ..standard
    })
}

fn next_embedding(raw: &RawConfig) -> anyhow::Result<Option<Wanted>> {
    let Some(next) = &raw.next_embedding else { return Ok(None) };
    match next.check("next_embedding")? {
        Wanted::None => bail!("next_embedding.engine is `none`, but a model must come next; leave it out"),
        wanted @ (Wanted::Native | Wanted::Remote(_)) => Ok(Some(wanted)),
    }
}

/// A purpose without a time, or a time without a purpose, is no policy.
fn document_memory(raw: &RawDocuments) -> anyhow::Result<Option<DocumentMemory>> {
    match (&raw.memory_purpose, raw.memory_days) {
        (None, None) => Ok(None),
        (Some(purpose), Some(keep_days)) => {
            in_range("documents.memory_days", u64::from(keep_days), 1, 3_650)?;
            let purpose = purpose.parse().context("documents.memory_purpose is not a purpose")?;
            Ok(Some(DocumentMemory { purpose, keep_days }))
        }
        _ => bail!("documents.memory_purpose and documents.memory_days belong together; name both or none"),
    }
}

/// `keep_minutes = 0` switches the answer cache off.
fn answers(raw: &RawAnswers, standard: AnswerLimits) -> anyhow::Result<AnswerLimits> {
    in_range("answers.keep_minutes", u64::from(raw.keep_minutes.unwrap_or(0)), 0, 525_600)?;
    in_range("answers.per_scope", raw.per_scope.unwrap_or(1) as u64, 1, 100_000)?;
    in_range("answers.total", raw.total.unwrap_or(1) as u64, 1, 10_000_000)?;
    if let Some(least) = raw.cosine_min.filter(|least| !(0.5..=1.0).contains(least)) {
        bail!(
            "answers.cosine_min is {least}, but must be between 0.5 and 1; leave it out for equal words only"
        )
    }
    Ok(AnswerLimits {
        age_ms_max: raw.keep_minutes.map_or(standard.age_ms_max, |minutes| i64::from(minutes) * 60_000),
        n_per_scope_max: raw.per_scope.unwrap_or(standard.n_per_scope_max),
        n_answers_max: raw.total.unwrap_or(standard.n_answers_max),
        cosine_min: raw.cosine_min.or(standard.cosine_min),
    })
}

fn in_range(name: &str, value: u64, min: u64, max: u64) -> anyhow::Result<()> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        bail!("{name} is {value}, but must be between {min} and {max}")
    }
}

fn token(name: &str, value: Option<&String>, default: String) -> anyhow::Result<String> {
    let Some(value) = value else { return Ok(default) };
    match merkwelt_ledger::token::Token::parse(value) {
        Ok(_) => Ok(value.clone()),
        Err(_) => bail!("{name} must be 1 to 128 letters, digits, `_`, `:`, `.` or `-`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Settings> {
        settings(&toml::from_str::<RawConfig>(text)?)
    }

    #[test]
    fn an_empty_file_is_the_default_and_an_unknown_key_is_an_error() {
        assert_eq!(parse("").unwrap(), Settings::default());
        assert!(parse("[server]\nlisten_on = 'x'").is_err());
        assert!(parse("[lifetimes]\nuser_fact_days = 0").is_err());
        assert!(parse("[boundary]\nname = 'two words'").is_err());
        let whole = |text: &str| {
            let places = Places { data_dir: "data".into(), instance_key: None, config: None };
            Config::parse(text, &places, None)
        };
        let (short, long) = ("[server]\nkey_requests = 0", "[server]\nheader_seconds = 3601");
        assert!(whole(short).is_err() && whole(long).is_err());
        assert_eq!(whole("[server]\nconnections = 7").unwrap().limits.connections, 7);
        assert!(whole("[logs]\nkeep_days = 7").is_err(), "standard error has no retention");
        let kept = whole("[logs]\ndirectory = 'logs'\nkeep_days = 7").unwrap().logs.unwrap();
        assert_eq!((kept.directory.to_str(), kept.keep_days), (Some("logs"), 7));
        let set = parse("[lifetimes]\nfeedback_days = 90\n[boundary]\nname = 'eu'\nversion = '3'").unwrap();
        assert_eq!((set.lifetimes.feedback_days, set.boundary.name.as_str()), (90, "eu"));
    }

    #[test]
    fn the_coming_model_is_described_like_the_present_one_and_as_strictly() {
        let whole = |text: &str| {
            let places = Places { data_dir: "data".into(), instance_key: None, config: None };
            Config::parse(text, &places, None)
        };
        assert_eq!(whole("").unwrap().next_embedding, None);
        let next = "[next_embedding]\nengine = 'tei'\nurl = 'http://h'\nmodel = 'm'\ndescriptor = 'bge-m3'\n";
        let config = whole(next).unwrap();
        assert!(matches!(config.next_embedding, Some(Wanted::Remote(_))));
        assert_eq!(config.embedding, Wanted::Native);
        assert_eq!(whole("[next_embedding]").unwrap().next_embedding, Some(Wanted::Native));
        for bad in ["[next_embedding]\nengine = 'none'", "[next_embedding]\ndimensions = 3"] {
            assert!(whole(bad).is_err(), "{bad}");
        }
        let said = format!("{:#}", whole(&next.replace("http://h", "h")).unwrap_err());
        assert!(said.starts_with("next_embedding.url `h`"), "{said}");
    }

    #[test]
    fn r_044_how_long_answers_are_kept_and_how_near_a_question_must_be_is_configured() {
        let set = parse("[answers]\nkeep_minutes = 0\nper_scope = 3\ntotal = 9\ncosine_min = 0.98").unwrap();
        let wanted =
            AnswerLimits { age_ms_max: 0, n_per_scope_max: 3, n_answers_max: 9, cosine_min: Some(0.98) };
        assert_eq!(set.answers, wanted);
        for bad in
            ["keep_minutes = 525601", "per_scope = 0", "total = 0", "cosine_min = 0.2", "cosine_min = nan"]
        {
            assert!(parse(&format!("[answers]\n{bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn r_021_a_policy_for_what_documents_say_names_purpose_and_time() {
        let set = parse("[documents]\nmemory_purpose = 'onboarding'\nmemory_days = 30").unwrap();
        let policy = set.document_memory.unwrap();
        assert_eq!((policy.purpose.as_str(), policy.keep_days), ("onboarding", 30));
        for half in
            ["memory_purpose = 'onboarding'", "memory_days = 30", "memory_purpose = 'x'\nmemory_days = 0"]
        {
            assert!(parse(&format!("[documents]\n{half}")).is_err(), "{half}");
        }
    }

    #[test]
    fn r_074_what_becomes_of_turns_of_removed_sources_is_configured() {
        let set = parse("[conversations]\nafter_removal = 'withhold'").unwrap();
        assert_eq!(set.after_removal, merkwelt_domain::basis::AfterRemoval::Withhold);
        let refused = parse("[conversations]\nafter_removal = 'forget'").unwrap_err().to_string();
        assert_eq!(refused, "conversations.after_removal must be mark or withhold");
    }
}
