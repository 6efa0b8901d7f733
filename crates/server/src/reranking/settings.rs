//! The `[reranker]` part of the configuration: which protocol, where, how many texts, how long.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::embedding::{KeyPlace, Way, base_address};

/// What stands in the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawReranker {
    engine: Option<String>,
    url: Option<String>,
    model: Option<String>,
    texts: Option<u64>,
    max_tokens: Option<u64>,
    timeout_milliseconds: Option<u64>,
    concurrency: Option<u64>,
    api_key_file: Option<PathBuf>,
    api_key_env: Option<String>,
    ca_file: Option<PathBuf>,
}

/// What a reranker speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `/rerank` of Text Embeddings Inference.
    Tei,
    /// `/v1/rerank` of Jina, llama.cpp, vLLM and others.
    Jina,
}

/// A reranker, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What it speaks.
    pub protocol: Protocol,
    /// What it is called with as the model; Text Embeddings Inference has only one.
    pub model: String,
    /// The first so many results are looked at.
    pub texts: usize,
    /// Tokens it reads of a text.
    pub max_tokens: usize,
    /// How long a call may take; the order stays as it was if that is too short.
    pub timeout: Duration,
    /// Calls at once.
    pub concurrency: usize,
    /// The way to it.
    pub way: Way,
}

impl RawReranker {
    /// Checks it; none if nothing is configured. Reads neither files nor the environment.
    ///
    /// # Errors
    /// What is missing, out of range or does not go together, with what to do.
    pub fn check(&self) -> anyhow::Result<Option<Settings>> {
        let protocol = match self.engine.as_deref() {
            None if self.url.is_none() && self.model.is_none() => return Ok(None),
            None => bail!("reranker.engine is missing; it is tei, jina or none"),
            Some("none") => return Ok(None),
            Some("tei") => Protocol::Tei,
            Some("jina") => Protocol::Jina,
            Some(other) => bail!("reranker.engine is `{other}`, but must be tei, jina or none"),
        };
        let url = self.url.as_deref().context("reranker.url is missing")?;
        let (base, bare) = base_address("reranker", url)?;
        let endpoint = match protocol {
            Protocol::Jina if bare => format!("{base}/v1/rerank"),
            Protocol::Tei | Protocol::Jina => format!("{base}/rerank"),
        };
        let model = self.model.clone().unwrap_or_default();
        if protocol == Protocol::Jina && model.trim().is_empty() {
            bail!("reranker.model is missing");
        }
        let key = match (&self.api_key_file, &self.api_key_env) {
            (Some(_), Some(_)) => bail!("give reranker.api_key_file or reranker.api_key_env, not both"),
            (Some(file), None) => Some(KeyPlace::File(file.clone())),
            (None, name) => name.clone().map(KeyPlace::Variable),
        };
        let timeout = number("timeout_milliseconds", self.timeout_milliseconds, 1_000, 20..=30_000)?;
        let timeout = Duration::from_millis(timeout as u64);
        let concurrency = number("concurrency", self.concurrency, 4, 1..=64)?;
        let way = Way {
            part: "reranker",
            endpoint,
            key,
            ca_file: self.ca_file.clone(),
            connections: concurrency,
            connect_timeout: timeout,
        };
        Ok(Some(Settings {
            protocol,
            model,
            texts: number("texts", self.texts, 30, 2..=100)?,
            max_tokens: number("max_tokens", self.max_tokens, 512, 32..=32_768)?,
            timeout,
            concurrency,
            way,
        }))
    }
}

fn number(
    name: &str,
    value: Option<u64>,
    default: usize,
    range: std::ops::RangeInclusive<usize>,
) -> anyhow::Result<usize> {
    let value = value.map_or(default, |value| usize::try_from(value).unwrap_or(usize::MAX));
    if range.contains(&value) {
        return Ok(value);
    }
    bail!("reranker.{name} is {value}, but must be between {} and {}", range.start(), range.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Option<Settings>> {
        toml::from_str::<RawReranker>(text)?.check()
    }

    #[test]
    fn it_is_off_by_default() {
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("engine = 'none'").unwrap(), None);
    }

    #[test]
    fn the_address_of_calls_follows_the_protocol() {
        let at = |engine: &str, url: &str| {
            let text = format!("engine = '{engine}'\nurl = '{url}'\nmodel = 'm'");
            parse(&text).unwrap().unwrap().way.endpoint
        };
        assert_eq!(at("tei", "http://h:1/"), "http://h:1/rerank");
        assert_eq!(at("jina", "http://h:1"), "http://h:1/v1/rerank");
        assert_eq!(at("jina", "https://h/api/v2/"), "https://h/api/v2/rerank");
    }

    #[test]
    fn what_does_not_go_together_is_an_error_with_its_name() {
        let said = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(said("url = 'http://x'").contains("reranker.engine is missing"));
        assert!(said("engine = 'magic'").contains("tei, jina or none"));
        assert!(said("engine = 'tei'").contains("reranker.url is missing"));
        assert!(said("engine = 'tei'\nurl = 'ftp://h'").contains("reranker.url"));
        assert!(said("engine = 'jina'\nurl = 'http://h'").contains("reranker.model is missing"));
        assert!(said("engine = 'tei'\nurl = 'http://h'\ntexts = 1").contains("reranker.texts is 1"));
        assert!(
            said("engine = 'tei'\nurl = 'http://h'\ntimeout_milliseconds = 1").contains("between 20 and")
        );
        assert!(
            said("engine = 'tei'\nurl = 'http://h'\napi_key_file = 'k'\napi_key_env = 'K'")
                .contains("not both")
        );
        assert!(said("top = 3").contains("unknown field"));
    }
}
