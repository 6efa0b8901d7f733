//! What goes over the wire: requests and answers of the three protocols. An answer is hostile until its count,
//! its order and every number of it were checked.

use merkwelt_inference::embed::{Embedding, Error};
use serde::Deserialize;
use serde_json::{Value, json};

use super::settings::{Protocol, Settings};

/// The body of a call.
pub(super) fn request(settings: &Settings, texts: &[String]) -> Vec<u8> {
    let mut body = match settings.protocol {
        // The official client asks for base64 by default; numbers are asked for by name.
        Protocol::OpenAi => json!({ "model": settings.model, "input": texts, "encoding_format": "float" }),
        Protocol::Ollama => json!({ "model": settings.model, "input": texts, "truncate": true }),
        Protocol::Tei => json!({ "inputs": texts, "truncate": true, "normalize": true }),
    };
    if settings.send_dimension
        && settings.protocol != Protocol::Tei
        && let Value::Object(fields) = &mut body
    {
        fields.insert("dimensions".to_owned(), settings.descriptor.dimension().into());
    }
    body.to_string().into_bytes()
}

/// The most bytes an honest answer to so many texts can have.
pub(super) fn answer_bytes_max(settings: &Settings, n_texts: usize) -> u64 {
    // A number takes up to 25 characters with its comma, more where it is indented.
    let numbers = n_texts.saturating_mul(settings.descriptor.dimension()).saturating_mul(48);
    (64 * 1024_u64).saturating_add(numbers as u64)
}

/// A number that is not finite comes as `null` from some servers.
type Numbers = Vec<Option<f32>>;

#[derive(Deserialize)]
struct OpenAi {
    data: Vec<OpenAiItem>,
}

#[derive(Deserialize)]
struct OpenAiItem {
    index: Option<usize>,
    embedding: Numbers,
}

#[derive(Deserialize)]
struct Ollama {
    embeddings: Vec<Numbers>,
}

/// An answer that is not what the protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The vectors of an answer in the order of the texts. `truncated` says of each text whether its end was cut
/// off before it was sent.
pub(super) fn vectors(
    settings: &Settings,
    body: &[u8],
    truncated: &[bool],
) -> Result<Vec<Result<Embedding, Error>>, Unreadable> {
    let all = match settings.protocol {
        Protocol::OpenAi => in_order(serde_json::from_slice::<OpenAi>(body).map_err(|_| Unreadable)?.data)?,
        Protocol::Ollama => serde_json::from_slice::<Ollama>(body).map_err(|_| Unreadable)?.embeddings,
        Protocol::Tei => serde_json::from_slice(body).map_err(|_| Unreadable)?,
    };
    if all.len() != truncated.len() {
        return Err(Unreadable);
    }
    let one = |(numbers, truncated): (Numbers, &bool)| {
        let numbers: Option<Vec<f32>> = numbers.into_iter().collect();
        // Scaled to length one here, whatever the server says it did.
        Embedding::new(settings.descriptor.dimension(), numbers.ok_or(Error::NotFinite)?, *truncated)
    };
    Ok(all.into_iter().zip(truncated).map(one).collect())
}

/// By `index`, each of which must be there once. A server that numbers nothing answers in order.
fn in_order(items: Vec<OpenAiItem>) -> Result<Vec<Numbers>, Unreadable> {
    if items.iter().all(|item| item.index.is_none()) {
        return Ok(items.into_iter().map(|item| item.embedding).collect());
    }
    let mut places: Vec<Option<Numbers>> = items.iter().map(|_| None).collect();
    for item in items {
        let place = item.index.and_then(|index| places.get_mut(index)).ok_or(Unreadable)?;
        if place.replace(item.embedding).is_some() {
            return Err(Unreadable);
        }
    }
    places.into_iter().collect::<Option<_>>().ok_or(Unreadable)
}
