//! What a backend brings to the suite, and the instance that it is founded with.

use std::sync::Arc;

use merkwelt_authz::{ApiKey, Credential, Role};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::{TenantId, TenantName, Timestamp};

use crate::ports::{Backend, Founding, NewKey, Tenant};
use crate::query::ModelId;

/// The time at which the suite's instance is founded: 2026-03-02T08:00:00Z, a Monday.
pub const START: i64 = 1_772_438_400_000;

/// A fresh backend under test. Each check gets its own.
pub trait Subject: Sync {
    /// The backend, founded with [`founding`].
    fn backend(&self) -> &dyn Backend;

    /// The environment that the backend was given too.
    fn env(&self) -> &FixedEnv;

    /// The present time of the environment.
    fn env_now(&self) -> Timestamp {
        merkwelt_domain::Env::now(self.env())
    }

    /// The keys of the founding.
    fn keys(&self) -> &Keys;

    /// The embedding model the backend was set up for, with vectors of three dimensions.
    fn model(&self) -> ModelId {
        ModelId::new("conformance", "1", 3)
    }
}

/// The keys of the suite's first tenant, and of the instance.
#[derive(Debug)]
pub struct Keys {
    /// Of the instance.
    pub admin: ApiKey,
    /// Runs the tenant.
    pub tenant_admin: ApiKey,
    /// The customer's backend; acts for subjects it names.
    pub app: ApiKey,
    /// An agent; acts for subjects it names.
    pub agent: ApiKey,
    /// Erases.
    pub officer: ApiKey,
    /// Reads evidence.
    pub auditor: ApiKey,
}

/// A backend with its environment and keys.
#[derive(Debug)]
pub struct Instance<B> {
    backend: B,
    env: Arc<FixedEnv>,
    keys: Keys,
}

impl<B: Backend> Instance<B> {
    /// A backend that was founded with what [`founding`] returned.
    pub fn new(backend: B, env: Arc<FixedEnv>, keys: Keys) -> Self {
        Self { backend, env, keys }
    }
}

impl<B: Backend> Subject for Instance<B> {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn env(&self) -> &FixedEnv {
        &self.env
    }

    fn keys(&self) -> &Keys {
        &self.keys
    }
}

/// The founding of an instance for the suite: the instance's own tenant, one tenant, and a key per role.
#[must_use]
pub fn founding(env: &FixedEnv) -> (Founding, Keys) {
    let key = || ApiKey::random(env);
    let keys =
        Keys { admin: key(), tenant_admin: key(), app: key(), agent: key(), officer: key(), auditor: key() };
    let (system, tenant) = (TenantId::random(env), TenantId::random(env));
    let new = |key: &ApiKey, tenant: &TenantId, role| new_key(key, tenant, role);
    let founding = Founding {
        admin: new(&keys.admin, &system, Role::InstanceAdmin),
        keys: vec![
            new(&keys.tenant_admin, &tenant, Role::TenantAdmin),
            new(&keys.app, &tenant, Role::App),
            new(&keys.agent, &tenant, Role::Agent),
            new(&keys.officer, &tenant, Role::PrivacyOfficer),
            new(&keys.auditor, &tenant, Role::Auditor),
        ],
        system,
        tenant: Tenant { id: tenant, name: name("first"), created_at: Timestamp::from_millis(START) },
        at: Timestamp::from_millis(START),
    };
    (founding, keys)
}

/// A key of a role; roles that act for subjects may name them.
pub(super) fn new_key(key: &ApiKey, tenant: &TenantId, role: Role) -> NewKey {
    let credential = Credential {
        key: key.id().clone(),
        digest: key.digest(),
        tenant: tenant.clone(),
        role,
        subject: None,
        act_for: matches!(role, Role::App | Role::Agent | Role::PrivacyOfficer),
        expires_at: None,
        revoked_at: None,
    };
    NewKey { credential, subject: None, label: name(role.name().replace('_', "-").as_str()) }
}

#[expect(clippy::expect_used, reason = "the names are literals of this file and of the roles")]
fn name(text: &str) -> TenantName {
    text.parse().expect("a literal name")
}
