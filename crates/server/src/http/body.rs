//! Bodies, query parameters and ids of addresses, as extractors. A body is read within a size and a time,
//! parsed strictly, and digested together with what makes it the same request, for idempotency.

use std::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use futures_util::{FutureExt as _, StreamExt as _};
use merkwelt_app::IdempotentRequest;
use ring::digest::{Context, SHA256};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::caller::SUBJECT;
use super::problem::{Code, FieldError, Problem};
use super::shares::{Share, Work};
use super::{Face, strict};

/// Makes a repeated write harmless.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A JSON body, and its idempotency key if it has one.
#[derive(Debug)]
pub(super) struct Json<T> {
    /// The body.
    pub(super) value: T,
    /// The key with the digest of the request.
    pub(super) idempotent: Option<IdempotentRequest>,
}

impl<T: DeserializeOwned> FromRequest<Face> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, face: &Face) -> Result<Self, Problem> {
        read_json(request, face, face.limits.body_bytes_max).await
    }
}

/// A JSON body of the size of a batch.
#[derive(Debug)]
pub(super) struct BatchJson<T>(pub(super) Json<T>);

impl<T: DeserializeOwned> FromRequest<Face> for BatchJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, face: &Face) -> Result<Self, Problem> {
        read_json(request, face, face.limits.batch_bytes_max).await.map(Self)
    }
}

/// A document as it was sent, with the media type it was declared to have.
pub(super) struct DocumentBody {
    /// Its bytes.
    pub(super) bytes: Vec<u8>,
    /// The declared media type, without parameters.
    pub(super) media: String,
}

impl FromRequest<Face> for DocumentBody {
    type Rejection = Problem;

    async fn from_request(request: Request, face: &Face) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        not_repeatable(idempotent(&parts, &[])?.as_ref())?;
        let declared = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = declared.and_then(|value| value.split(';').next()).map(|text| text.trim().to_owned());
        let media = media.ok_or_else(|| Problem::of(Code::UNSUPPORTED_MEDIA_TYPE))?;
        let bytes = collected(body, &parts, face, face.limits.document_bytes_max).await?;
        Ok(Self { bytes: bytes.into(), media })
    }
}

/// A write without a body.
#[derive(Debug)]
pub(super) struct NoBody {
    /// The key with the digest of the request.
    pub(super) idempotent: Option<IdempotentRequest>,
}

impl FromRequest<Face> for NoBody {
    type Rejection = Problem;

    async fn from_request(request: Request, face: &Face) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        refuse_query(&parts)?;
        if !collected(body, &parts, face, face.limits.body_bytes_max).await?.is_empty() {
            return Err(FieldError::new("body", "must be empty").into());
        }
        Ok(Self { idempotent: idempotent(&parts, &[])? })
    }
}

async fn read_json<T: DeserializeOwned>(
    request: Request,
    face: &Face,
    bytes_max: usize,
) -> Result<Json<T>, Problem> {
    let (parts, body) = request.into_parts();
    refuse_query(&parts)?;
    if !is_json(&parts.headers) {
        return Err(Problem::of(Code::UNSUPPORTED_MEDIA_TYPE));
    }
    let bytes = collected(body, &parts, face, bytes_max).await?;
    Ok(Json { value: strict::parse(&bytes)?, idempotent: idempotent(&parts, &bytes)? })
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The whole body. While it is on its way the request has no place at work, so slow bodies of some do not stop
/// the requests of others.
async fn collected(body: Body, parts: &Parts, face: &Face, bytes_max: usize) -> Result<Bytes, Problem> {
    let announced =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| usize::try_from(length).map_or(true, |n| n > bytes_max)) {
        return Err(Problem::of(Code::BODY_TOO_LARGE));
    }
    let mut whole = pin!(within(body, bytes_max, parts.extensions.get::<Arc<Share>>()));
    // Most bodies come in one piece with the head.
    if let Some(there) = whole.as_mut().now_or_never() {
        return there;
    }
    let work = parts.extensions.get::<Work>();
    if let Some(work) = work {
        work.pause();
    }
    let arrived = tokio::time::timeout(face.limits.body_timeout, whole).await;
    let bytes = arrived.unwrap_or_else(|_| Err(Problem::of(Code::SLOW_BODY)))?;
    work.map_or(Ok(()), Work::resume)?;
    Ok(bytes)
}

/// The bytes of a body, each counted before it is kept.
async fn within(body: Body, bytes_max: usize, share: Option<&Arc<Share>>) -> Result<Bytes, Problem> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Problem::detailed(Code::MALFORMED_JSON, "the body is incomplete"))?;
        if bytes.len() + chunk.len() > bytes_max {
            return Err(Problem::of(Code::BODY_TOO_LARGE));
        }
        share.map_or(Ok(()), |share| share.hold(chunk.len()))?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

/// Writes have no query parameters, so any is a mistake of the caller (I-15).
fn refuse_query(parts: &Parts) -> Result<(), Problem> {
    match parts.uri.query() {
        None | Some("") => Ok(()),
        Some(_) => Err(FieldError::new("query", "this request has no query parameters").into()),
    }
}

fn idempotent(parts: &Parts, body: &[u8]) -> Result<Option<IdempotentRequest>, Problem> {
    const SHOWN: &str = "Idempotency-Key";
    let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(FieldError::new(SHOWN, "is given more than once").into());
    }
    let text = value.to_str().unwrap_or_default();
    let key = text.parse().map_err(|reason| FieldError::new(SHOWN, reason))?;
    let subject = parts.headers.get(SUBJECT).map_or(&[][..], |value| value.as_bytes());
    let digest = digest(&[parts.method.as_str().as_bytes(), parts.uri.path().as_bytes(), subject, body]);
    Ok(Some(IdempotentRequest { key, digest }))
}

/// SHA-256 over the parts, each with its length, so that no two requests share a spelling.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    out
}

const NOT_REPEATABLE: &str =
    "the answer to this request is not kept, so it cannot be given again; leave the header out";

/// Refuses an idempotency key where the answer could not be given again.
///
/// # Errors
/// Problem `invalid`.
pub(super) fn not_repeatable(idempotent: Option<&IdempotentRequest>) -> Result<(), Problem> {
    match idempotent {
        None => Ok(()),
        Some(_) => Err(FieldError::new("Idempotency-Key", NOT_REPEATABLE).into()),
    }
}

/// Query parameters: none twice, none unknown.
#[derive(Debug)]
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Face> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Face) -> Result<Self, Problem> {
        let refused = |reason: &str| Problem::from(FieldError::new("query", reason));
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| refused("is not a list of parameters"))?;
        let mut map = Map::new();
        for (name, value) in pairs.0 {
            if map.insert(name, Value::String(value)).is_some() {
                return Err(refused("a parameter is given more than once"));
            }
        }
        strict::read(Value::Object(map)).map(Self).map_err(|error| error.or_at("query").into())
    }
}

/// The variable part of an address. What is no id of the wanted type is answered like an unknown one.
#[derive(Debug)]
pub(super) struct Id<T>(pub(super) T);

impl<T: std::str::FromStr> FromRequestParts<Face> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, face).await;
        let params = params.map_err(|_| Problem::not_found())?;
        let text = params.iter().next().map(|(_, value)| value);
        text.and_then(|text| text.parse().ok()).map(Self).ok_or_else(Problem::not_found)
    }
}

/// The two variable parts of an address. What is no id of the wanted type is answered like an unknown one.
#[derive(Debug)]
pub(super) struct Pair<A, B>(pub(super) A, pub(super) B);

impl<A: std::str::FromStr, B: std::str::FromStr> FromRequestParts<Face> for Pair<A, B> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, face).await;
        let params = params.map_err(|_| Problem::not_found())?;
        let mut texts = params.iter().map(|(_, value)| value);
        let first = texts.next().and_then(|text| text.parse().ok());
        let second = texts.next().and_then(|text| text.parse().ok());
        first.zip(second).map(|(a, b)| Self(a, b)).ok_or_else(Problem::not_found)
    }
}
