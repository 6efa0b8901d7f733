//! A whole instance in memory behind the router: two tenants, one key for every role, and a client that
//! speaks HTTP to it without a socket.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use merkwelt_app::{App, Settings};
use merkwelt_authz::{ApiKey, Credential, Role};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::{Env, TenantId, TenantName, Timestamp};
use merkwelt_server::http::{Face, Limits, Ready, router};
use merkwelt_store::reference::Reference;
use merkwelt_store::{Founding, NewKey, Tenant};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// 2026-06-01T00:00:00Z.
pub(crate) const NOW_MILLIS: i64 = 1_780_272_000_000;

/// The instance.
pub(crate) struct Stage {
    pub(crate) router: Router,
    pub(crate) env: Arc<FixedEnv>,
    keys: Vec<(Role, String)>,
}

/// An answer, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A request under construction.
pub(crate) struct Call<'a> {
    stage: &'a Stage,
    method: Method,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Stage {
    /// An instance with the tenant `acme` and a key for every role.
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    /// The same with other limits.
    pub(crate) fn with(limits: Limits) -> Self {
        Self::with_ready(limits, Arc::new(|| Ok(Vec::new())))
    }

    /// The same with another answer to the question whether it can work.
    pub(crate) fn with_ready(limits: Limits, ready: Ready) -> Self {
        Self::build(limits, ready, Settings::default())
    }

    /// The same with other settings of the use cases.
    pub(crate) fn with_settings(settings: Settings) -> Self {
        Self::build(Limits::default(), Arc::new(|| Ok(Vec::new())), settings)
    }

    fn build(limits: Limits, ready: Ready, settings: Settings) -> Self {
        let env = Arc::new(FixedEnv::at(NOW_MILLIS));
        let at = env.now();
        let (system, acme) = (TenantId::random(&*env), TenantId::random(&*env));
        let mut keys = Vec::new();
        let mut new_key = |role: Role, tenant: &TenantId| {
            let key = ApiKey::random(&*env);
            keys.push((role, key.reveal()));
            let label = role.name().parse::<TenantName>().unwrap();
            let act_for = matches!(role, Role::App | Role::Agent | Role::PrivacyOfficer);
            NewKey { credential: credential(&key, tenant, role, act_for), subject: None, label }
        };
        let admin = new_key(Role::InstanceAdmin, &system);
        let of_tenant = Role::ALL.into_iter().filter(|role| *role != Role::InstanceAdmin);
        let founding = Founding {
            admin,
            keys: of_tenant.map(|role| new_key(role, &acme)).collect(),
            tenant: Tenant { id: acme.clone(), name: "acme".parse().unwrap(), created_at: at },
            system,
            at,
        };
        let env: Arc<FixedEnv> = env;
        let backend = Reference::found(founding, Arc::clone(&env) as Arc<dyn Env>).unwrap();
        let counter = merkwelt_inference::tokens::counter(merkwelt_inference::tokens::DEFAULT).unwrap();
        let shared: Arc<dyn Env> = Arc::clone(&env) as Arc<dyn Env>;
        let app = App::new(Arc::new(backend), Arc::clone(&shared), None, counter, settings);
        let router = router(Face::new(Arc::new(app), shared, limits).with_ready(ready));
        Self { router, env, keys }
    }

    /// The key of a role.
    pub(crate) fn key(&self, role: Role) -> &str {
        &self.keys.iter().find(|(of, _)| *of == role).unwrap().1
    }

    /// A request without a key.
    pub(crate) fn call(&self, method: &str, path: &str) -> Call<'_> {
        Call {
            stage: self,
            method: method.parse().unwrap(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A request of the application of `acme` for `subject`.
    pub(crate) fn app(&self, method: &str, path: &str, subject: &str) -> Call<'_> {
        self.call(method, path).key(self.key(Role::App)).subject(subject)
    }

    /// Creates a tenant and an application key of it.
    pub(crate) async fn second_tenant(&self, name: &str) -> (String, String) {
        let made = self
            .call("POST", "/v1/tenants")
            .key(self.key(Role::InstanceAdmin))
            .json(&json!({ "name": name }))
            .send()
            .await;
        let admin = made.expect(201)["key"].as_str().unwrap().to_owned();
        let wanted = json!({ "label": "backend", "role": "app", "act_for": true });
        let made = self.call("POST", "/v1/keys").key(&admin).json(&wanted).send().await;
        let app = made.expect(201)["key"].as_str().unwrap().to_owned();
        (admin, app)
    }

    /// Keeps a fact of `subject` and gives its id.
    pub(crate) async fn remember(&self, subject: &str, text: &str) -> String {
        let body = json!({ "kind": "user_fact", "text": text });
        let made = self.app("POST", "/v1/memories", subject).json(&body).send().await;
        made.expect(201)["id"].as_str().unwrap().to_owned()
    }

    /// How many entries the ledger of `acme` has.
    pub(crate) async fn n_entries(&self) -> u64 {
        let head = self.call("GET", "/v1/ledger/checkpoint").key(self.key(Role::Auditor)).send().await;
        let note = String::from_utf8(head.body).unwrap();
        note.lines().nth(1).unwrap().parse().unwrap()
    }
}

fn credential(key: &ApiKey, tenant: &TenantId, role: Role, act_for: bool) -> Credential {
    Credential {
        key: key.id().clone(),
        digest: key.digest(),
        tenant: tenant.clone(),
        role,
        subject: None,
        act_for,
        expires_at: None,
        revoked_at: None,
    }
}

/// A time some days after now, as requests write it.
pub(crate) fn in_days(days: u32) -> String {
    Timestamp::from_millis(NOW_MILLIS).plus_days(days).to_string()
}

impl Call<'_> {
    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    pub(crate) fn subject(self, subject: &str) -> Self {
        self.header("merkwelt-subject", subject)
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.raw("application/json", body.to_string())
    }

    pub(crate) fn raw(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body(body).header("content-type", content_type)
    }

    /// A body and no word about what it is.
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) async fn send(mut self) -> Answer {
        let body = std::mem::take(&mut self.body);
        self.send_with(Body::from(body)).await
    }

    /// With a body that comes in its own time.
    pub(crate) async fn send_with(self, body: Body) -> Answer {
        let mut request = Request::builder().method(self.method).uri(self.path);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request.body(body).unwrap();
        let response = self.stage.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        answer.check();
        answer
    }
}

impl Answer {
    /// What holds for every answer.
    fn check(&self) {
        let id = self.header("x-request-id");
        assert!(id.starts_with("req_") && id.len() == 30, "{id}");
        assert_eq!(self.header("cache-control"), "no-store");
        if self.status.is_client_error() || self.status.is_server_error() {
            assert_eq!(self.header("content-type"), "application/problem+json");
            let problem = self.value();
            assert_eq!(problem["status"], self.status.as_u16());
            assert_eq!(problem["request_id"], id);
            assert_eq!(
                problem["type"],
                format!("urn:merkwelt:problem:{}", problem["code"].as_str().unwrap())
            );
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body of an answer with this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        self.value()
    }

    /// The field of a problem with this code.
    #[track_caller]
    pub(crate) fn problem(&self, code: &str) -> String {
        let problem = self.value();
        assert_eq!(problem["code"], code, "{problem}");
        problem["field"].as_str().unwrap_or_default().to_owned()
    }

    /// Everything but the id of the request and the date.
    pub(crate) fn without_request_id(&self) -> (u16, Vec<(String, Vec<u8>)>, String) {
        let id = self.header("x-request-id").to_owned();
        let headers =
            self.headers.iter().filter(|(name, _)| *name != "x-request-id" && *name != header::DATE);
        let headers = headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        (self.status.as_u16(), headers, String::from_utf8_lossy(&self.body).replace(&id, ""))
    }
}
