//! Who asks, for whom, and what for, from the headers. There is exactly one way to present a key, and no
//! header names a tenant or a group. Identity headers that come twice are refused, because two
//! readers could understand them differently.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use merkwelt_app::RunContext;
use merkwelt_authz::{ApiKey, Request};
use merkwelt_domain::ids::Error::Wildcard;
use merkwelt_domain::{Purpose, SubjectRef};
use merkwelt_ledger::token::{Token, Trace};

use super::Face;
use super::observe::Trail;
use super::problem::{Code, FieldError, Problem};
use super::shares::Share;

/// The subject a request is for, percent-encoded UTF-8.
pub(super) const SUBJECT: HeaderName = HeaderName::from_static("merkwelt-subject");
/// Why data are processed in this request.
pub(super) const PURPOSE: HeaderName = HeaderName::from_static("merkwelt-purpose");
/// The caller's own run.
pub(super) const RUN: HeaderName = HeaderName::from_static("merkwelt-run");
/// The call inside the run.
pub(super) const CALL: HeaderName = HeaderName::from_static("merkwelt-call");
/// An API key, instead of `Authorization`.
pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// One authenticated request. It is the proof that a valid key was presented; what it may do is decided
/// by the use case.
#[derive(Debug)]
pub(super) struct Asker {
    /// Caller, subject and purpose.
    pub(super) request: Request,
    /// The caller's own run, for the evidence.
    pub(super) run: RunContext,
    /// What this request takes of its key's and its tenant's share; it ends with the request.
    _share: Arc<Share>,
}

impl FromRequestParts<Face> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, Problem> {
        let key = presented(&parts.headers)?;
        let caller = face.app.authenticate(&key).await.map_err(|_| Problem::of(Code::UNAUTHENTICATED))?;
        if let Some(trail) = parts.extensions.get::<Trail>() {
            trail.set_caller(&caller);
        }
        let share = face.shares.take(&caller, face.limits)?;
        parts.extensions.insert(Arc::clone(&share));
        let headers = &parts.headers;
        let subject = match single(headers, &SUBJECT)? {
            Some(value) => Some(subject(value)?),
            None => None,
        };
        let purpose = parsed::<Purpose>(headers, &PURPOSE)?.unwrap_or_default();
        let run = RunContext {
            run: parsed::<Token>(headers, &RUN)?,
            call: parsed::<Token>(headers, &CALL)?,
            trace: trace(headers),
        };
        Ok(Self { request: Request::new(caller, subject, purpose), run, _share: share })
    }
}

fn presented(headers: &HeaderMap) -> Result<ApiKey, Problem> {
    let authorization = single(headers, &header::AUTHORIZATION)?;
    let text = match (authorization, single(headers, &API_KEY)?) {
        (Some(_), Some(_)) => {
            return Err(FieldError::new("X-API-Key", "present one key in one header only").into());
        }
        (Some(value), None) => value.to_str().ok().and_then(credentials),
        (None, Some(value)) => value.to_str().ok(),
        (None, None) => None,
    };
    text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| Problem::of(Code::UNAUTHENTICATED))
}

fn credentials(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    ["bearer", "token"].contains(&scheme.to_ascii_lowercase().as_str()).then_some(key)
}

fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(FieldError::new(shown(name), "is given more than once").into()),
        (found, None) => Ok(found),
    }
}

fn parsed<T>(headers: &HeaderMap, name: &HeaderName) -> Result<Option<T>, Problem>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let Some(value) = single(headers, name)? else { return Ok(None) };
    let text = value.to_str().map_err(|_| FieldError::new(shown(name), "must be visible ASCII"))?;
    Ok(Some(text.parse().map_err(|reason| FieldError::new(shown(name), reason))?))
}

fn subject(value: &HeaderValue) -> Result<SubjectRef, Problem> {
    let refused = |reason: &dyn std::fmt::Display| Problem::from(FieldError::new(shown(&SUBJECT), reason));
    let text = String::from_utf8(percent_decoded(value.as_bytes()))
        .map_err(|_| refused(&"must be percent-encoded UTF-8"))?;
    text.parse::<SubjectRef>()
        .map_err(|reason| if matches!(reason, Wildcard(_)) { refused(&WILDCARD) } else { refused(&reason) })
}

const WILDCARD: &str = "must not contain `*` or `%`, written as they are or as %2A and %25: it names one person. Other bytes than visible ASCII are written as %xx";

/// Decodes `%xx`. What is no such escape stays and is then refused as a wildcard.
fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match rest {
            [b'%', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok());
                out.push(digit(high).unwrap_or(0) * 16 + digit(low).unwrap_or(0));
                rest = after;
            }
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
            [] => return out,
        }
    }
}

/// The caller's trace and span; a malformed header is as good as none (L-31).
fn trace(headers: &HeaderMap) -> Option<Trace> {
    Trace::from_traceparent(single(headers, &TRACEPARENT).ok()??.to_str().ok()?)
}

/// The header as the documentation writes it.
fn shown(name: &HeaderName) -> &'static str {
    const SHOWN: [&str; 6] = [
        "Merkwelt-Subject",
        "Merkwelt-Purpose",
        "Merkwelt-Run",
        "Merkwelt-Call",
        "X-API-Key",
        "Authorization",
    ];
    SHOWN.into_iter().find(|shown| shown.eq_ignore_ascii_case(name.as_str())).unwrap_or("header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(value: &str) -> Option<Trace> {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, value.parse().unwrap());
        trace(&headers)
    }

    #[test]
    fn l_31_a_malformed_traceparent_is_ignored() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(traced(good).is_some());
        assert!(traced(&format!("01{}-more", &good[2..])).is_some());
        for bad in [
            "",
            "00",
            &format!("{good}-more"),
            &good.to_uppercase(),
            &good.replace("00-", "ff-"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            &good.replace("-01", "-0A"),
        ] {
            assert_eq!(traced(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_subject_is_percent_encoded_utf_8() {
        let read = |text: &str| subject(&HeaderValue::from_bytes(text.as_bytes()).unwrap());
        assert_eq!(read("M%C3%BCller").unwrap().expose(), "Müller");
        assert_eq!(read("Müller").unwrap().expose(), "Müller");
        for bad in ["", "%2A", "*", "a%", "%zz", "%FF", "%0A"] {
            assert_eq!(read(bad).unwrap_err().code(), Code::INVALID, "{bad}");
        }
    }

    #[test]
    fn a_key_comes_in_exactly_one_way() {
        let key = format!("mk_{}_{}", "a".repeat(26), "a".repeat(52));
        let with = |pairs: &[(HeaderName, String)]| {
            let mut headers = HeaderMap::new();
            pairs.iter().for_each(|(name, value)| {
                headers.append(name, value.parse().unwrap());
            });
            presented(&headers).map_err(|problem| problem.code())
        };
        assert!(with(&[(header::AUTHORIZATION, format!("Bearer {key}"))]).is_ok());
        assert!(with(&[(header::AUTHORIZATION, format!("Token {key}"))]).is_ok());
        assert!(with(&[(API_KEY, key.clone())]).is_ok());
        assert_eq!(with(&[]), Err(Code::UNAUTHENTICATED));
        assert_eq!(with(&[(header::AUTHORIZATION, format!("Basic {key}"))]), Err(Code::UNAUTHENTICATED));
        assert_eq!(with(&[(API_KEY, key.clone()), (API_KEY, key.clone())]), Err(Code::INVALID));
        let both = [(API_KEY, key.clone()), (header::AUTHORIZATION, format!("Bearer {key}"))];
        assert_eq!(with(&both), Err(Code::INVALID));
    }
}
