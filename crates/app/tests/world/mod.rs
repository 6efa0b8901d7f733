//! A world for tests of the use cases: the reference backend, a clock that stands where it is put, two
//! tenants with two people each, and short words for what callers do.

#![expect(dead_code, reason = "each test file uses its part of the world")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use merkwelt_app::OpenRequest;
use merkwelt_app::{
    App, ContextRequest, EmbeddingModel, RecallRequest, Released, RunContext, Settings, StatementRequest,
    TurnRequest,
};
use merkwelt_authz::{ApiKey, Credential, Request, Role};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::budget::TokenBudget;
use merkwelt_domain::conversation::{Retention, Speaker};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::memory::{Expiry, Kind, Particulars, Pointer};
use merkwelt_domain::routing::StateChoice;
use merkwelt_domain::{Content, ConversationId, Env, MemoryId, Purpose, TenantId, Timestamp};
use merkwelt_store::change::{NewOwner, Outcome, Receipt};
use merkwelt_store::query::{KindSet, TopK, Turns};
use merkwelt_store::reference::Reference;
use merkwelt_store::{Backend, Founding, NewKey, Tenant};
use serde_json::Value;

/// 2026-03-02T08:00:00Z.
pub(crate) const START: i64 = 1_772_438_400_000;
pub(crate) const DAY: i64 = 86_400_000;

/// Runs a future of the use cases. The reference backend never waits, so one poll is enough.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the reference backend waited"),
    }
}

pub(crate) struct World {
    pub(crate) app: App,
    pub(crate) env: Arc<FixedEnv>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) keys: Vec<(Role, ApiKey)>,
    pub(crate) instance_admin: ApiKey,
}

pub(crate) fn key(env: &FixedEnv, tenant: &TenantId, role: Role, label: &str) -> (NewKey, ApiKey) {
    let key = ApiKey::random(env);
    let credential = Credential {
        key: key.id().clone(),
        digest: key.digest(),
        tenant: tenant.clone(),
        role,
        subject: None,
        act_for: true,
        expires_at: None,
        revoked_at: None,
    };
    (NewKey { credential, subject: None, label: label.parse().unwrap() }, key)
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), |backend| backend)
    }

    /// A world whose backend is wrapped.
    pub(crate) fn with(settings: Settings, wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>) -> Self {
        Self::made(settings, wrap, None)
    }

    /// A world with an embedding model.
    pub(crate) fn with_model(model: EmbeddingModel) -> Self {
        Self::made(Settings::default(), |backend| backend, Some(model))
    }

    fn made(
        settings: Settings,
        wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
        model: Option<EmbeddingModel>,
    ) -> Self {
        let env = Arc::new(FixedEnv::at(START));
        let (system, tenant) = (TenantId::random(&*env), TenantId::random(&*env));
        let (admin, instance_admin) = key(&env, &system, Role::InstanceAdmin, "admin");
        let roles = [Role::TenantAdmin, Role::App, Role::Agent, Role::PrivacyOfficer, Role::Auditor];
        let made: Vec<_> = roles.iter().map(|role| (*role, key(&env, &tenant, *role, "first"))).collect();
        let founding = Founding {
            system,
            admin,
            tenant: Tenant { id: tenant, name: "first".parse().unwrap(), created_at: env.now() },
            keys: made.iter().map(|(_, (new, _))| new.clone()).collect(),
            at: env.now(),
        };
        let as_env: Arc<dyn Env> = env.clone();
        let reference: Arc<dyn Backend> = Arc::new(Reference::found(founding, Arc::clone(&as_env)).unwrap());
        let backend = wrap(reference);
        let counter = merkwelt_inference::tokens::counter("o200k_base").unwrap();
        let app = App::new(Arc::clone(&backend), as_env, model, counter, settings);
        let keys = made.into_iter().map(|(role, (_, key))| (role, key)).collect();
        Self { app, env, backend, keys, instance_admin }
    }

    pub(crate) fn advance(&self, millis: i64) {
        self.env.advance(millis);
    }

    pub(crate) fn request(&self, role: Role, subject: Option<&str>) -> Request {
        let key = self.keys.iter().find(|(r, _)| *r == role).map(|(_, key)| key.clone()).unwrap();
        self.request_of(&key, subject)
    }

    pub(crate) fn request_of(&self, key: &ApiKey, subject: Option<&str>) -> Request {
        let caller = now(self.app.authenticate(key)).unwrap();
        Request::new(caller, subject.map(|s| s.parse().unwrap()), Purpose::default())
    }

    /// The application acting for a person.
    pub(crate) fn person(&self, name: &str) -> Request {
        self.request(Role::App, Some(name))
    }

    /// Another tenant's application key.
    pub(crate) fn other_tenant(&self, name: &str) -> ApiKey {
        let admin = self.request_of(&self.instance_admin, None);
        let wanted = merkwelt_app::TenantRequest { name: name.parse().unwrap() };
        let (_, admin_key) = now(self.app.create_tenant(&admin, &wanted)).unwrap();
        let wanted = merkwelt_app::KeyRequest {
            label: "app".parse().unwrap(),
            role: Role::App,
            subject: None,
            act_for: true,
            expires_at: None,
        };
        now(self.app.create_key(&self.request_of(&admin_key, None), &wanted)).unwrap().1
    }

    pub(crate) fn remember(&self, request: &Request, statement: StatementRequest) -> Receipt {
        now(self.app.remember(request, &[statement], None)).unwrap()
    }

    pub(crate) fn recall(&self, request: &Request, question: &str) -> Value {
        json(&now(self.app.recall(request, &search(question))).unwrap())
    }

    pub(crate) fn context(&self, request: &Request, wanted: &ContextRequest) -> Value {
        json(&now(self.app.context(request, wanted)).unwrap())
    }

    pub(crate) fn open(&self, request: &Request, retention: Retention) -> ConversationId {
        match now(self.app.open_conversation(request, &OpenRequest { retention, carried_over: None }, None))
            .unwrap()
            .outcomes
            .first()
        {
            Some(Outcome::Opened { id }) => id.clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn say(
        &self,
        request: &Request,
        conversation: &ConversationId,
        speaker: Speaker,
        text: &str,
    ) -> u32 {
        let turn = TurnRequest {
            conversation: conversation.clone(),
            speaker,
            text: content(text),
            rests_on: RestsOn::default(),
            pack: None,
        };
        now(self.app.append_turn(request, &turn, None)).unwrap().number
    }

    /// All ledger entries of the first tenant as JSON.
    pub(crate) fn ledger(&self) -> Vec<Value> {
        let auditor = self.request(Role::Auditor, None);
        let entries = now(self.app.ledger_entries(&auditor, 0, 100_000)).unwrap();
        entries.iter().map(|bytes| serde_json::from_slice(bytes).unwrap()).collect()
    }

    pub(crate) fn entries_of(&self, kind: &str) -> Vec<Value> {
        self.ledger().into_iter().filter(|entry| entry["type"] == kind).collect()
    }
}

pub(crate) fn content(text: &str) -> Content {
    Content::to_keep(text, 100_000).unwrap()
}

pub(crate) fn statement(kind: Kind, text: &str) -> StatementRequest {
    let mut parts = Particulars::default();
    if kind == Kind::Reference {
        parts.pointer = Some(Pointer::new("crm://order/17", "tool:crm.get_order").unwrap());
    }
    if kind == Kind::ProjectState {
        parts.expiry = Some(Expiry::At(Timestamp::from_millis(START + 30 * DAY)));
    }
    StatementRequest {
        owner: NewOwner::Subject,
        kind,
        text: content(text),
        author: None,
        parts,
        conversation: None,
    }
}

pub(crate) fn slotted(kind: Kind, slot: &str, text: &str) -> StatementRequest {
    let mut made = statement(kind, text);
    made.parts.slot = Some(slot.parse().unwrap());
    made
}

pub(crate) fn search(question: &str) -> RecallRequest {
    RecallRequest {
        question: content(question),
        k: TopK::default(),
        kinds: KindSet::all(),
        turns: Turns::None,
        documents: true,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        run: RunContext::default(),
    }
}

pub(crate) fn turn_of(question: &str, budget: u32) -> ContextRequest {
    ContextRequest {
        question: content(question),
        conversation: None,
        budget: TokenBudget::new(budget).unwrap(),
        n_turns_max: 6,
        state: StateChoice::Auto,
        interval: None,
        run: RunContext::default(),
    }
}

pub(crate) fn json(released: &Released) -> Value {
    serde_json::from_slice(released.body()).unwrap()
}

pub(crate) fn texts(found: &Value) -> Vec<String> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn id_of(receipt: &Receipt) -> MemoryId {
    match receipt.outcomes.first() {
        Some(Outcome::Created { id, .. } | Outcome::Superseded { id, .. } | Outcome::Merged { id, .. }) => {
            id.clone()
        }
        other => panic!("{other:?}"),
    }
}

/// All text that a pack delivers.
pub(crate) fn delivered(pack: &Value) -> String {
    let part = |pointer| pack.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{}{}{}", part("/system/rules"), part("/system/facts"), part("/turn"))
}
