//! What can be seen of a request from outside: one event in the log, numbers in the metrics, an id in the
//! answer. Both hold the address as a template, pseudonymous ids, the decision, numbers and a
//! code, and nothing of what was sent or delivered (R-110, I-12).

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use merkwelt_authz::Caller;
use merkwelt_domain::ids::base32;
use merkwelt_domain::{Env, KeyId, TenantId};

use super::problem::{Code, Problem};
use super::unread::Unread;
use super::{Face, metrics};

/// The id of a request, made here and echoed in every answer. What a caller sends under this name is
/// ignored.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where an address that does not exist is counted.
const UNMATCHED: &str = "unmatched";

/// Who asked, as soon as it is known.
#[derive(Debug, Clone)]
struct Who {
    key: KeyId,
    tenant: TenantId,
}

/// Carries the caller from the extractor to the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Trail(Arc<Mutex<Option<Who>>>);

impl Trail {
    /// Remembers the caller.
    pub(super) fn set_caller(&self, caller: &Caller) {
        let who = Who { key: caller.key().clone(), tenant: caller.tenant().clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(who);
    }

    fn caller(&self) -> Option<Who> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Numbers of a delivered answer, as a response extension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// How many items were delivered.
    pub(super) items: Option<usize>,
    /// `lexical` or `hybrid`, for searches.
    pub(super) retrieval: Option<&'static str>,
}

/// The decision about a request, for signals. All denials with their reasons are in the ledger (L-28).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Allowed,
    Denied,
    NotFound,
    Unauthenticated,
    /// No key is needed, or the request was refused before a key was looked at.
    Undecided,
}

impl Decision {
    fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NotFound => "not_found",
            Self::Unauthenticated => "unauthenticated",
            Self::Undecided => "none",
        }
    }
}

fn decision(who: Option<&Who>, problem: Option<&Problem>) -> Decision {
    match (who, problem.map(Problem::code)) {
        (_, Some(Code::UNAUTHENTICATED)) => Decision::Unauthenticated,
        (None, _) => Decision::Undecided,
        (Some(_), _) if problem.is_some_and(Problem::is_denial) => Decision::Denied,
        (Some(_), Some(Code::NOT_FOUND)) => Decision::NotFound,
        (Some(_), _) => Decision::Allowed,
    }
}

/// The outermost layer: gives the request its id, writes problems, counts and logs.
pub(super) async fn observe(State(face): State<Face>, request: Request, next: Next) -> Response {
    // Only measured, never decided upon: the clock of decisions is `Env`.
    let started = tokio::time::Instant::now();
    let request_id = request_id(&*face.env);
    let (mut request, unread) = Unread::watch(request);
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let trail = Trail::default();
    request.extensions_mut().insert(trail.clone());
    let in_flight = face.metrics.enter();
    // A defect of one request ends this request and no other; what it says goes to no caller.
    let ran = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = ran.unwrap_or_else(|_| Problem::of(Code::INTERNAL).into_response());
    drop(in_flight);
    let problem = response.extensions_mut().remove::<Problem>();
    if let Some(problem) = &problem {
        response = written(problem, response, &request_id);
    }
    finish(&mut response, &request_id);
    unread.close(&mut response);
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    let who = trail.caller();
    let code = problem.as_ref().map(Problem::code);
    let seen = response.extensions().get::<Seen>().copied().unwrap_or_default();
    let line = Line {
        request_id: &request_id,
        route,
        method: known(&method),
        status: response.status().as_u16(),
        seconds: started.elapsed().as_secs_f64(),
        decision: decision(who.as_ref(), problem.as_ref()),
        code,
        seen,
    };
    line.count(&face.metrics);
    line.log(who.as_ref());
    response
}

/// The problem in place of the bare response, which may have an `Allow` header.
fn written(problem: &Problem, bare: Response, request_id: &str) -> Response {
    let allow = bare.headers().get(header::ALLOW).cloned();
    let mut response = problem.write(request_id);
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

fn request_id(env: &dyn Env) -> String {
    let mut bytes = [0; 16];
    env.fill(&mut bytes);
    format!("req_{}", base32(&bytes))
}

fn finish(response: &mut Response, request_id: &str) {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// The method from a closed list, so that labels stay bounded.
fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
    KNOWN.into_iter().find(|name| *name == method.as_str()).unwrap_or("OTHER")
}

/// Everything that is told about one request.
struct Line<'a> {
    request_id: &'a str,
    route: &'a str,
    method: &'static str,
    status: u16,
    seconds: f64,
    decision: Decision,
    code: Option<Code>,
    seen: Seen,
}

impl Line<'_> {
    fn count(&self, metrics: &metrics::Registry) {
        metrics.request(self.method, self.route, self.status, self.seconds);
        if let Some(code) = self.code {
            metrics.problem(code.name);
        }
        match self.decision {
            Decision::Denied => metrics.denied(),
            Decision::NotFound => metrics.not_found(),
            Decision::Unauthenticated => metrics.unauthenticated(),
            Decision::Allowed | Decision::Undecided => {}
        }
        if let Some(mode) = self.seen.retrieval {
            metrics.retrieval(mode, self.seen.items == Some(0));
        }
    }

    fn log(&self, who: Option<&Who>) {
        tracing::info!(
            target: "merkwelt::http",
            request_id = self.request_id,
            method = self.method,
            route = self.route,
            status = self.status,
            duration_ms = (self.seconds * 1e6).round() / 1e3,
            key = who.map(|who| who.key.as_str()),
            tenant = who.map(|who| who.tenant.as_str()),
            decision = self.decision.name(),
            items = self.seen.items,
            retrieval = self.seen.retrieval,
            code = self.code.map_or("ok", |code| code.name),
            "request"
        );
    }
}
