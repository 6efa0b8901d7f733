//! The maker of scopes is not public.

use std::collections::BTreeSet;

use merkwelt_authz::Scope;
use merkwelt_domain::TenantId;

fn make(tenant: TenantId) -> Scope {
    Scope::new(tenant, None, BTreeSet::new(), true)
}

fn main() {
    let _ = make;
}
