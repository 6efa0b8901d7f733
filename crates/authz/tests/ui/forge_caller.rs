//! Knowing a tenant and a key's id is no identity: only `authenticate` makes a caller.

use merkwelt_authz::{Caller, Role};
use merkwelt_domain::{KeyId, TenantId};

fn forge(key: KeyId, tenant: TenantId) -> Caller {
    Caller { key, tenant, role: Role::App, subject: None, act_for: true }
}

fn main() {
    let _ = forge;
}
