//! A small client of the service's own HTTP face, for the commands that talk to a running service. It
//! connects to the named address only and knows no proxy.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// Longer than a service takes for a document, unless it was told to take longer.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(1_000);

/// Talks to one service with one key.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    base: String,
    key: String,
    subject: Option<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

/// An answer: status, body, and the headers that carry evidence.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body as text.
    pub body: String,
    /// The read event, if the answer carried content.
    pub read_id: Option<String>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.body).context("the service answered with something that is not JSON")
    }

    /// The body as JSON if the status says success; null for an answer without a body.
    ///
    /// # Errors
    /// The problem that the service reported.
    pub fn success(&self) -> anyhow::Result<Value> {
        if (200..300).contains(&self.status) {
            return if self.body.is_empty() { Ok(Value::Null) } else { self.json() };
        }
        let problem = self.json().unwrap_or_default();
        let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("no detail");
        bail!("the service answered {}: {detail}", self.status)
    }
}

impl Client {
    /// A client of the service at `base`, such as `http://127.0.0.1:7777`.
    #[must_use]
    pub fn new(base: &str, key: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_global(Some(Duration::from_secs(60)))
            .build();
        Self {
            agent: config.into(),
            base: base.trim_end_matches('/').to_owned(),
            key: key.to_owned(),
            subject: None,
        }
    }

    /// The same service and key, acting for `subject`.
    #[must_use]
    pub fn acting_for(&self, subject: &str) -> Self {
        Self {
            agent: self.agent.clone(),
            base: self.base.clone(),
            key: self.key.clone(),
            subject: Some(percent_encoded(subject)),
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// The service cannot be reached.
    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let request = self.agent.get(format!("{}{path}", self.base));
        self.finish(self.with_headers(request).call())
    }

    /// Deletes.
    ///
    /// # Errors
    /// The service cannot be reached.
    pub fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        let request = self.agent.delete(format!("{}{path}", self.base));
        self.finish(self.with_headers(request).call())
    }

    /// Posts JSON, under an idempotency key if one is given.
    ///
    /// # Errors
    /// The service cannot be reached.
    pub fn post(&self, path: &str, body: &Value, idempotency: Option<&str>) -> anyhow::Result<Answer> {
        let request = self.with_headers(self.agent.post(format!("{}{path}", self.base)));
        let request = match idempotency {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        self.finish(request.header("Content-Type", "application/json").send(body.to_string()))
    }

    /// Posts without a body.
    ///
    /// # Errors
    /// The service cannot be reached.
    pub fn post_nothing(&self, path: &str) -> anyhow::Result<Answer> {
        let request = self.with_headers(self.agent.post(format!("{}{path}", self.base)));
        self.finish(request.send_empty())
    }

    /// Puts a document. It is waited for as long as the service may take to read and embed it.
    ///
    /// # Errors
    /// The service cannot be reached.
    pub fn put(&self, path: &str, media: &str, bytes: &[u8]) -> anyhow::Result<Answer> {
        let request = self.agent.put(format!("{}{path}", self.base));
        let request = request.config().timeout_global(Some(DOCUMENT_TIMEOUT)).build();
        let request = self.with_headers(request);
        self.finish(request.header("Content-Type", media).send(bytes))
    }

    fn with_headers<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let request = request.header("Authorization", format!("Bearer {}", self.key));
        match &self.subject {
            Some(subject) => request.header("Merkwelt-Subject", subject),
            None => request,
        }
    }

    fn finish(
        &self,
        result: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<Answer> {
        let mut response =
            result.with_context(|| format!("cannot reach {}; is `merkwelt serve` running?", self.base))?;
        let read_id =
            response.headers().get("merkwelt-read-id").and_then(|v| v.to_str().ok()).map(Into::into);
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(256 << 20).read_to_string()?;
        Ok(Answer { status, body, read_id })
    }
}

/// Header values are ASCII: other characters are percent-encoded, as the service documents.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let one = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}
