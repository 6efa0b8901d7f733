//! A scope is resolved, never written down.

use std::collections::BTreeSet;

use merkwelt_authz::Scope;
use merkwelt_domain::TenantId;

fn forge(tenant: TenantId) -> Scope {
    Scope { tenant, subject: None, groups: BTreeSet::new(), shared_writes: true }
}

fn main() {
    let _ = forge;
}
