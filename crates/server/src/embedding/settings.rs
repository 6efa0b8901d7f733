//! The `[embedding]` part of the configuration: which engine, where it is, and what its model is like. Nothing
//! of a model is guessed: what is not said is taken from a descriptor that the operator names, or is an error.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use merkwelt_inference::Descriptor;
use merkwelt_inference::descriptor::{Fields, Pooling};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::transport::Way;

/// What stands in the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawEmbedding {
    engine: Option<String>,
    url: Option<String>,
    model: Option<String>,
    descriptor: Option<String>,
    revision: Option<String>,
    dimension: Option<usize>,
    max_tokens: Option<usize>,
    pooling: Option<String>,
    query_prefix: Option<String>,
    passage_prefix: Option<String>,
    cosine_floor: Option<f32>,
    cosine_span: Option<f32>,
    send_dimension: Option<bool>,
    api_key_file: Option<PathBuf>,
    api_key_env: Option<String>,
    ca_file: Option<PathBuf>,
    batch: Option<usize>,
    concurrency: Option<usize>,
    timeout_seconds: Option<u64>,
    question_seconds: Option<u64>,
}

/// What an engine speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `/v1/embeddings` of OpenAI, llama.cpp, vLLM and many more.
    OpenAi,
    /// `/api/embed` of Ollama.
    Ollama,
    /// `/embed` of Text Embeddings Inference.
    Tei,
}

/// Which engine the operator wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// The built-in one, as soon as its model file is there.
    Native,
    /// None: searches rank by words.
    None,
    /// A server.
    Remote(Box<Settings>),
}

/// Where the key of a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// In a file.
    File(PathBuf),
    /// In a variable of the environment.
    Variable(String),
}

/// A server and its model, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What it speaks.
    pub protocol: Protocol,
    /// The address that is called.
    pub endpoint: String,
    /// What it is called with as the model.
    pub model: String,
    /// What the model is like.
    pub descriptor: Descriptor,
    /// Whether the dimension is asked for; servers refuse it for models that have one only.
    pub send_dimension: bool,
    /// Where the key is, if it needs one.
    pub key: Option<KeyPlace>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Texts in one call.
    pub batch: usize,
    /// Calls at once.
    pub concurrency: usize,
    /// How long a call with texts to keep may take.
    pub timeout: Duration,
    /// How long a question may wait for its vector.
    pub question_timeout: Duration,
}

/// What is known of a family of models, named by the operator.
struct Known {
    name: &'static str,
    dimension: usize,
    max_tokens: usize,
    pooling: Pooling,
    prefixes: (&'static str, &'static str),
    /// Floor and span.
    cosine: (f32, f32),
}

const E5: (&str, &str) = ("query: ", "passage: ");
/// Measured for the small model; the others of the family are trained at the same temperature.
const E5_COSINE: (f32, f32) = (0.70, 0.25);

const KNOWN: [Known; 4] = [
    known("multilingual-e5-small", 384, 512, Pooling::Mean, E5, E5_COSINE),
    known("multilingual-e5-base", 768, 512, Pooling::Mean, E5, E5_COSINE),
    known("multilingual-e5-large", 1024, 512, Pooling::Mean, E5, E5_COSINE),
    // Floor and span are not measured here (docs/decisions/0016).
    known("bge-m3", 1024, 8192, Pooling::Cls, ("", ""), (0.40, 0.40)),
];

const fn known(
    name: &'static str,
    dimension: usize,
    max_tokens: usize,
    pooling: Pooling,
    prefixes: (&'static str, &'static str),
    cosine: (f32, f32),
) -> Known {
    Known { name, dimension, max_tokens, pooling, prefixes, cosine }
}

impl RawEmbedding {
    /// Checks it. Reads neither files nor the environment. `part` of the configuration is named in errors.
    ///
    /// # Errors
    /// What is missing, out of range or does not go together, with what to do.
    pub fn check(&self, part: &str) -> anyhow::Result<Wanted> {
        let engine = self.engine.as_deref().unwrap_or("native");
        let protocol = match engine {
            "native" | "none" => {
                if self.url.is_some() || self.model.is_some() {
                    bail!(
                        "{part}.url and {part}.model need {part}.engine = \"openai\", \"ollama\" or \"tei\""
                    );
                }
                return Ok(if engine == "none" { Wanted::None } else { Wanted::Native });
            }
            "openai" => Protocol::OpenAi,
            "ollama" => Protocol::Ollama,
            "tei" => Protocol::Tei,
            other => bail!("{part}.engine is `{other}`, but must be native, openai, ollama, tei or none"),
        };
        let at = |name: &str| format!("{part}.{name}");
        let url = needed(&at("url"), self.url.as_deref())?;
        let model = needed(&at("model"), self.model.as_deref())?;
        Ok(Wanted::Remote(Box::new(Settings {
            protocol,
            endpoint: endpoint(part, protocol, url)?,
            model: model.to_owned(),
            descriptor: self.descriptor(part, model)?,
            send_dimension: self.send_dimension.unwrap_or(false),
            key: self.key(part)?,
            ca_file: self.ca_file.clone(),
            batch: in_range(&at("batch"), self.batch, 32, 1..=256)?,
            concurrency: in_range(&at("concurrency"), self.concurrency, 4, 1..=64)?,
            timeout: seconds(&at("timeout_seconds"), self.timeout_seconds, 10)?,
            question_timeout: seconds(&at("question_seconds"), self.question_seconds, 2)?,
        })))
    }

    fn descriptor(&self, part: &str, model: &str) -> anyhow::Result<Descriptor> {
        let known = match &self.descriptor {
            None => None,
            Some(name) => Some(KNOWN.iter().find(|known| known.name == name).with_context(|| {
                let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
                format!("{part}.descriptor `{name}` is not known; there are {}", names.join(", "))
            })?),
        };
        let missing = |key: &str| {
            format!(
                "{part}.{key} is missing: nothing of a model is guessed; say it, or name {part}.descriptor"
            )
        };
        let pooling = match self.pooling.as_deref() {
            Some("mean") => Some(Pooling::Mean),
            Some("cls") => Some(Pooling::Cls),
            Some(other) => bail!("{part}.pooling is `{other}`, but must be mean or cls"),
            None => known.map(|known| known.pooling),
        };
        let prefix = |said: &Option<String>, known: Option<&str>| {
            said.clone().or_else(|| known.map(str::to_owned)).unwrap_or_default()
        };
        let dimension = self.dimension.or_else(|| known.map(|known| known.dimension));
        let max_tokens = self.max_tokens.or_else(|| known.map(|known| known.max_tokens));
        let floor = self.cosine_floor.or_else(|| known.map(|known| known.cosine.0));
        let span = self.cosine_span.or_else(|| known.map(|known| known.cosine.1));
        let fields = Fields {
            id: model.to_owned(),
            revision: revision(self.revision.as_deref().unwrap_or_default()),
            dimension: dimension.with_context(|| missing("dimension"))?,
            max_tokens: max_tokens.with_context(|| missing("max_tokens"))?,
            pooling: pooling.with_context(|| missing("pooling"))?,
            normalize: false,
            query_prefix: prefix(&self.query_prefix, known.map(|known| known.prefixes.0)),
            passage_prefix: prefix(&self.passage_prefix, known.map(|known| known.prefixes.1)),
            cosine_floor: floor.with_context(|| missing("cosine_floor"))?,
            cosine_span: span.with_context(|| missing("cosine_span"))?,
            normaliser_version: 1,
        };
        Descriptor::new(fields).with_context(|| format!("the model of [{part}] cannot be"))
    }

    fn key(&self, part: &str) -> anyhow::Result<Option<KeyPlace>> {
        match (&self.api_key_file, &self.api_key_env) {
            (Some(_), Some(_)) => bail!("give {part}.api_key_file or {part}.api_key_env, not both"),
            (Some(file), None) => Ok(Some(KeyPlace::File(file.clone()))),
            (None, Some(name)) => Ok(Some(KeyPlace::Variable(name.clone()))),
            (None, None) => Ok(None),
        }
    }
}

impl Settings {
    /// How its server is reached.
    #[must_use]
    pub fn way(&self) -> Way {
        Way {
            part: "embedding",
            endpoint: self.endpoint.clone(),
            key: self.key.clone(),
            ca_file: self.ca_file.clone(),
            connections: self.concurrency,
            connect_timeout: self.question_timeout,
        }
    }
}

impl KeyPlace {
    /// The key itself. `part` of the configuration names the place.
    ///
    /// # Errors
    /// It is not there, or cannot stand in a header.
    pub fn read(&self, part: &str) -> anyhow::Result<Zeroizing<String>> {
        let text = match self {
            Self::File(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {part}.api_key_file {}", path.display()))?,
            Self::Variable(name) => crate::config::variable(name)
                .with_context(|| format!("the variable {name} of {part}.api_key_env is not set"))?,
        };
        let text = Zeroizing::new(text);
        let key = text.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("the key of {part} must be one word of printable ASCII characters");
        }
        Ok(Zeroizing::new(key.to_owned()))
    }
}

/// A digest that names the weights as far as the operator says which they are.
fn revision(said: &str) -> String {
    let named = format!("weights as named by the operator\0{said}");
    digest(&SHA256, named.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn needed<'v>(name: &str, value: Option<&'v str>) -> anyhow::Result<&'v str> {
    value.filter(|value| !value.trim().is_empty()).with_context(|| format!("{name} is missing"))
}

/// The address of the calls from the address of the server.
fn endpoint(part: &str, protocol: Protocol, url: &str) -> anyhow::Result<String> {
    let (base, bare) = base_address(part, url)?;
    Ok(match protocol {
        // Clients of this protocol are given the address with its version.
        Protocol::OpenAi if bare => format!("{base}/v1/embeddings"),
        Protocol::OpenAi => format!("{base}/embeddings"),
        Protocol::Ollama => format!("{base}/api/embed"),
        Protocol::Tei => format!("{base}/embed"),
    })
}

/// The address of a server without its last slash, and whether it is without a path.
///
/// # Errors
/// It is no such address; `part` of the configuration is named.
pub(crate) fn base_address<'u>(part: &str, url: &'u str) -> anyhow::Result<(&'u str, bool)> {
    let wrong = || {
        format!(
            "{part}.url `{url}` is not an address such as http://127.0.0.1:8080, without user, query or fragment"
        )
    };
    let uri: ureq::http::Uri = url.parse().with_context(wrong)?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", ureq::http::uri::Authority::as_str);
    if !["http", "https"].contains(&scheme)
        || authority.is_empty()
        || authority.contains('@')
        || uri.query().is_some()
        || url.contains('#')
    {
        bail!("{}", wrong());
    }
    Ok((url.trim_end_matches('/'), uri.path().trim_matches('/').is_empty()))
}

fn in_range(
    name: &str,
    value: Option<usize>,
    default: usize,
    range: std::ops::RangeInclusive<usize>,
) -> anyhow::Result<usize> {
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    bail!("{name} is {value}, but must be between {} and {}", range.start(), range.end())
}

fn seconds(name: &str, value: Option<u64>, default: u64) -> anyhow::Result<Duration> {
    let value = value.unwrap_or(default);
    if (1..=300).contains(&value) {
        return Ok(Duration::from_secs(value));
    }
    bail!("{name} is {value}, but must be between 1 and 300")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Wanted> {
        toml::from_str::<RawEmbedding>(text)?.check("embedding")
    }

    fn remote(text: &str) -> Settings {
        match parse(text).unwrap() {
            Wanted::Remote(settings) => *settings,
            other @ (Wanted::Native | Wanted::None) => panic!("{other:?}"),
        }
    }

    const BGE: &str =
        "engine = 'ollama'\nurl = 'http://127.0.0.1:11434'\nmodel = 'bge-m3'\ndescriptor = 'bge-m3'\n";

    #[test]
    fn a_named_descriptor_fills_in_what_is_not_said_and_what_is_said_wins() {
        let bge = remote(BGE);
        assert_eq!(bge.endpoint, "http://127.0.0.1:11434/api/embed");
        assert_eq!((bge.descriptor.dimension(), bge.descriptor.max_tokens()), (1024, 8192));
        assert_eq!((bge.descriptor.pooling(), bge.descriptor.query_prefix()), (Pooling::Cls, ""));
        let other = remote(&format!("{BGE}query_prefix = 'Frage: '\ncosine_floor = 0.5"));
        assert_eq!((other.descriptor.query_prefix(), other.descriptor.cosine_floor()), ("Frage: ", 0.5));
        assert_ne!(other.descriptor.space(), bge.descriptor.space(), "a prefix makes another space");
        let revised = remote(&format!("{BGE}revision = 'sha256:1234'"));
        assert_ne!(revised.descriptor.space(), bge.descriptor.space(), "other weights make another space");
    }

    #[test]
    fn nothing_of_a_model_is_guessed() {
        let bare = "engine = 'tei'\nurl = 'http://host'\nmodel = 'm'\n";
        for key in ["dimension", "max_tokens", "pooling", "cosine_floor", "cosine_span"] {
            let all = [
                ("dimension", "3"),
                ("max_tokens", "512"),
                ("pooling", "'mean'"),
                ("cosine_floor", "0.5"),
                ("cosine_span", "0.2"),
            ];
            let lines = all
                .iter()
                .filter(|(name, _)| *name != key)
                .map(|(name, value)| format!("{name} = {value}\n"));
            let said = parse(&(bare.to_owned() + &lines.collect::<String>())).unwrap_err().to_string();
            assert!(said.contains(&format!("embedding.{key} is missing")), "{said}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_an_error_with_its_name() {
        assert_eq!(parse("").unwrap(), Wanted::Native);
        assert_eq!(parse("engine = 'none'").unwrap(), Wanted::None);
        let said = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(said("url = 'http://x'").contains("need embedding.engine"));
        assert!(said("engine = 'magic'").contains("native, openai, ollama, tei or none"));
        assert!(said("engine = 'tei'\nmodel = 'm'").contains("embedding.url is missing"));
        assert!(said("dimensions = 3").contains("unknown field"));
        for url in [
            "127.0.0.1:80",
            "ftp://h",
            "http://u:p@h",
            "http://h/?q=1",
            "http://h/#f",
            "http://",
            "file:///x",
        ] {
            let text = BGE.replace("http://127.0.0.1:11434", url);
            assert!(said(&text).contains("embedding.url"), "{url}");
        }
        assert!(said(&format!("{BGE}batch = 0")).contains("embedding.batch"));
        assert!(said(&format!("{BGE}timeout_seconds = 301")).contains("embedding.timeout_seconds"));
        assert!(said(&format!("{BGE}api_key_file = 'k'\napi_key_env = 'K'")).contains("not both"));
        assert!(said(&format!("{BGE}cosine_span = 0.0")).contains("cosine"));
    }

    #[test]
    fn the_address_of_calls_follows_the_protocol() {
        let at = |protocol, url| endpoint("embedding", protocol, url).unwrap();
        assert_eq!(at(Protocol::OpenAi, "http://h:1"), "http://h:1/v1/embeddings");
        assert_eq!(at(Protocol::OpenAi, "https://h/v1/"), "https://h/v1/embeddings");
        assert_eq!(at(Protocol::OpenAi, "https://h/openai/v1"), "https://h/openai/v1/embeddings");
        assert_eq!(at(Protocol::Tei, "http://h/"), "http://h/embed");
    }

    #[test]
    fn a_key_is_read_from_its_file_and_never_shown() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"sk-secret\n").unwrap();
        let place = KeyPlace::File(file.path().to_path_buf());
        assert_eq!(place.read("embedding").unwrap().as_str(), "sk-secret");
        std::io::Write::write_all(&mut file, b"two\n").unwrap();
        let said = format!("{:#}", place.read("embedding").unwrap_err());
        assert!(said.contains("one word") && !said.contains("secret"), "{said}");
        assert!(KeyPlace::Variable("MERKWELT_NO_SUCH_KEY".into()).read("embedding").is_err());
    }
}
