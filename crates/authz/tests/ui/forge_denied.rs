//! A denial is evidence, so nobody but `authorize` can write one.

use merkwelt_authz::{ActionName, Denied, DenyReason};
use merkwelt_domain::{KeyId, TenantId};

fn forge(tenant: TenantId, key: KeyId) -> Denied {
    Denied { tenant, key, action: ActionName::Recall, reason: DenyReason::Role }
}

fn main() {
    let _ = forge;
}
