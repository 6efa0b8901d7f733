//! Refusals on the wire: RFC 9457 problems with stable codes, from one table. A problem is carried as a
//! response extension and written by the outermost layer, which knows the request id; so there is one
//! place that writes refusals, and it has no access to anything the caller sent (R-110, I-12).

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use merkwelt_app::{Conflict, Error};
use serde::Serialize;
use utoipa::ToSchema;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What a problem's `type` starts with.
pub const TYPE_PREFIX: &str = "urn:merkwelt:problem:";

/// A stable code, with everything that depends on the code alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The code on the wire.
    pub name: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// A short title.
    pub title: &'static str,
    /// When it is answered, and what to do.
    pub meaning: &'static str,
}

macro_rules! codes {
    ($($name:ident = $code:literal, $status:literal, $title:literal, $meaning:literal;)*) => {
        impl Code {
            $(
                #[doc = $meaning]
                pub const $name: Self =
                    Self { name: $code, status: $status, title: $title, meaning: $meaning };
            )*

            /// All codes there are. The document of the API lists them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

codes! {
    UNAUTHENTICATED = "unauthenticated", 401, "No valid key",
        "No key was presented, or it is unknown, wrong, expired or revoked. Send `Authorization: Bearer mk_…`.";
    NOT_FOUND = "not_found", 404, "Not found",
        "Unknown, of somebody else, or not allowed; the answer does not say which. Addresses are in /openapi.json.";
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "Method not allowed",
        "The address exists, but not with this method; see the Allow header.";
    INVALID = "invalid", 400, "Invalid request",
        "A field, header or query parameter is not acceptable; field names it and detail says why.";
    MALFORMED_JSON = "malformed_json", 400, "Malformed JSON",
        "The body is not JSON in UTF-8, or an object in it names a key twice.";
    TOO_DEEP = "too_deep", 400, "JSON too deep", "The body nests deeper than 32 levels.";
    BODY_TOO_LARGE = "body_too_large", 413, "Body too large",
        "The body is larger than 1 MiB, or 8 MiB for a batch, or 32 MiB for a document.";
    HEADERS_TOO_LARGE = "headers_too_large", 431, "Headers too large",
        "The headers and the address together are larger than 16 KiB.";
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type", 415, "Unsupported media type",
        "The body is not sent as application/json. Send `Content-Type: application/json`.";
    SLOW_BODY = "slow_body", 408, "Body too slow", "The body did not arrive in time.";
    TOO_MANY_REQUESTS = "too_many_requests", 429, "Too many requests",
        "This key, or its tenant, has as many requests under way as it may. Try again after Retry-After seconds.";
    CONFLICT_REVISION = "conflict_revision", 409, "Another revision is current",
        "The memory was changed since the revision that expected_revision names. Read it and try again.";
    REVISION_NOT_APPROVED = "revision_not_approved", 409, "The revision is a draft",
        "It was never published, so it cannot be restored. Publish it: POST /v1/sources/{id}/publish.";
    REVISION_APPROVED = "revision_approved", 409, "The revision was published before",
        "It cannot be published a second time nor thrown away, because evidence may name it. To show it again: POST /v1/sources/{id}/restore. To take it back: POST /v1/sources/{id}/withdraw.";
    REVISION_OUTDATED = "revision_outdated", 409, "A newer revision is current",
        "The draft is older than the current revision. Send its document again and publish that revision.";
    LAST_ADMIN_KEY = "last_admin_key", 409, "The last administrator's key",
        "Without this key nobody could make keys here any more. Create another of the same role first, bound to no subject and without an earlier end: POST /v1/keys.";
    CONFLICT_EXISTS = "conflict_exists", 409, "Exists already", "A thing of that name exists.";
    SWITCH_REFUSED = "switch_refused", 409, "Nothing goes along",
        "The rule of this tenant for a change of the organisation is start_new. GET /v1/organisation-switch shows it.";
    SOURCE_CHANGED = "source_changed", 409, "A source changed",
        "Turns that the summary stands for rest on revisions that are not current. Read the conversation again, and name what was marked as historical in known_historical.";
    NO_APPROVED_SUMMARY = "no_approved_summary", 409, "No approved summary",
        "The rule of this tenant allows an approved summary only, and there is none that still holds.";
    IDEMPOTENCY_CONFLICT = "idempotency_conflict", 422, "Idempotency key was used differently",
        "The same Idempotency-Key came earlier with another request. Use a new key for a new request.";
    BUDGET_TOO_SMALL = "budget_too_small", 422, "Budget too small",
        "The rules in scope need more tokens than the budget; needed_tokens says how many. Rules are never dropped.";
    CONTENT_NOT_RETAINED = "content_not_retained", 410, "Content is no longer kept",
        "It was delivered or published once, but part of its content is no longer kept. Ask for a new context, or register the source anew (POST /v1/sources) and send its document.";
    BUSY = "busy", 503, "Busy", "The state changed repeatedly during the request. Try again after Retry-After seconds.";
    UNAVAILABLE = "unavailable", 503, "Unavailable",
        "Storage cannot work now. Nothing was served and nothing was half written.";
    STORAGE_FULL = "storage_full", 507, "No room to write",
        "The disk is full or a quota is reached. Nothing was written, and nothing is served whose evidence cannot be written. It works again as soon as there is room.";
    STORAGE_DAMAGED = "storage_damaged", 503, "Stored data cannot be read",
        "The stored data of this tenant are damaged or incomplete. Nothing was served. The operator of the service finds the cause with `merkwelt doctor`.";
    OVERLOADED = "overloaded", 503, "Overloaded",
        "Too many requests are at work. Try again after Retry-After seconds.";
    INTERNAL = "internal", 500, "Internal error",
        "A defect of the service. Nothing of it is told here; the log has it under the request id.";
    TIMEOUT = "timeout", 503, "Timeout",
        "The request took too long. A write may have happened: repeat it with the same Idempotency-Key.";
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// The field by its path in the body, the query parameter or the header, such as `memories[17].kind`.
    #[schema(example = "memories[17].kind")]
    pub field: String,
    /// Why it is not acceptable. It never repeats what was sent.
    #[schema(example = "kind must be one of user_fact, feedback, project_state, reference")]
    pub detail: String,
}

impl FieldError {
    /// `field` is one of our own names; `reason` is worded by this program.
    #[must_use]
    pub fn new(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self { field: field.into(), detail: reason.to_string() }
    }

    /// The same error; at `place` if it names no field.
    #[must_use]
    pub fn or_at(self, place: &str) -> Self {
        if self.field.is_empty() { Self { field: place.to_owned(), ..self } } else { self }
    }

    /// The same error seen from one level further out.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        let dot = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("{outer}{dot}{}", self.field);
        self
    }
}

/// A refusal before it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: Option<String>,
    errors: Vec<FieldError>,
    needed_tokens: Option<u32>,
    /// Told apart in signals only; the bytes are those of [`Problem::not_found`].
    denied: bool,
}

/// Seconds after which a repetition makes sense.
const RETRY_AFTER_SECONDS: u64 = 1;

impl Problem {
    /// A refusal that needs no more words than its code has.
    #[must_use]
    pub fn of(code: Code) -> Self {
        Self { code, detail: None, errors: Vec::new(), needed_tokens: None, denied: false }
    }

    /// A refusal with a detail in words of this program.
    #[must_use]
    pub fn detailed(code: Code, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::of(code) }
    }

    /// The one answer for what is unknown, foreign or denied.
    #[must_use]
    pub fn not_found() -> Self {
        Self::of(Code::NOT_FOUND)
    }

    /// Fields that are not acceptable; at least one.
    #[must_use]
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        Self { errors, ..Self::of(Code::INVALID) }
    }

    /// Whether the directory or the role denied it, for signals.
    pub(super) fn is_denial(&self) -> bool {
        self.denied
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The response as it goes out.
    #[must_use]
    pub fn write(&self, request_id: &str) -> Response {
        let first = self.errors.first();
        let detail = self.detail.clone().or_else(|| first.map(|error| error.detail.clone()));
        let body = ProblemView {
            r#type: format!("{TYPE_PREFIX}{}", self.code.name),
            title: self.code.title.to_owned(),
            status: self.code.status,
            detail: detail.unwrap_or_else(|| self.code.meaning.to_owned()),
            code: self.code.name.to_owned(),
            request_id: request_id.to_owned(),
            field: first.map(|error| error.field.clone()),
            errors: if self.errors.len() > 1 { self.errors.clone() } else { Vec::new() },
            needed_tokens: self.needed_tokens,
        };
        let mut response = (self.status(), Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some((name, value)) = self.extra_header() {
            headers.insert(name, value);
        }
        response
    }

    fn extra_header(&self) -> Option<(HeaderName, HeaderValue)> {
        match self.code {
            Code::UNAUTHENTICATED => {
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"merkwelt\"")))
            }
            Code::BUSY | Code::OVERLOADED | Code::TIMEOUT | Code::TOO_MANY_REQUESTS => {
                Some((header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS)))
            }
            _ => None,
        }
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::invalid(vec![error])
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            // A subject that is being erased is answered like one that does not exist (I-9).
            Error::NotFound | Error::Erasing => Self::not_found(),
            Error::KeyEnded => Self::of(Code::UNAUTHENTICATED),
            Error::Denied => Self { denied: true, ..Self::not_found() },
            Error::Invalid { field, reason } => FieldError::new(field, reason).into(),
            Error::Conflict(Conflict::Revision) => Self::of(Code::CONFLICT_REVISION),
            Error::Conflict(Conflict::NotApproved) => Self::of(Code::REVISION_NOT_APPROVED),
            Error::Conflict(Conflict::Approved) => Self::of(Code::REVISION_APPROVED),
            Error::Conflict(Conflict::Outdated) => Self::of(Code::REVISION_OUTDATED),
            Error::Conflict(Conflict::LastAdmin) => Self::of(Code::LAST_ADMIN_KEY),
            Error::Conflict(Conflict::Exists) => Self::of(Code::CONFLICT_EXISTS),
            Error::Conflict(Conflict::Switch) => Self::of(Code::SWITCH_REFUSED),
            Error::Conflict(Conflict::SourceChanged) => Self::of(Code::SOURCE_CHANGED),
            Error::Conflict(Conflict::NoSummary) => Self::of(Code::NO_APPROVED_SUMMARY),
            Error::Conflict(Conflict::Idempotency) => Self::of(Code::IDEMPOTENCY_CONFLICT),
            Error::BudgetTooSmall { needed } => {
                Self { needed_tokens: Some(needed), ..Self::of(Code::BUDGET_TOO_SMALL) }
            }
            Error::NotRetained => Self::of(Code::CONTENT_NOT_RETAINED),
            Error::Busy => Self::of(Code::BUSY),
            Error::Damaged => Self::of(Code::STORAGE_DAMAGED),
            Error::Full => Self::of(Code::STORAGE_FULL),
            Error::Unavailable => Self::of(Code::UNAVAILABLE),
        }
    }
}

impl IntoResponse for Problem {
    /// Only the status and the problem itself as an extension; the outermost layer writes the body.
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A refusal (RFC 9457). No field of it repeats anything that was sent.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemView {
    /// `urn:merkwelt:problem:` and the code.
    #[schema(example = "urn:merkwelt:problem:invalid")]
    pub r#type: String,
    /// The same for every problem of this code.
    #[schema(example = "Invalid request")]
    pub title: String,
    /// The HTTP status.
    #[schema(example = 400)]
    pub status: u16,
    /// What happened and what to do.
    #[schema(example = "kind must be one of user_fact, feedback, project_state, reference")]
    pub detail: String,
    /// The stable code; see the table in the description of this document.
    #[schema(example = "invalid")]
    pub code: String,
    /// The id of this request, also in the header `X-Request-Id`.
    #[schema(example = "req_abcdefghijklmnopqrstuvwxya")]
    pub request_id: String,
    /// The first field that is not acceptable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "kind")]
    pub field: Option<String>,
    /// All fields that are not acceptable, if there is more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldError>,
    /// Tokens the rules need; only for `budget_too_small`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_tokens: Option<u32>,
}
