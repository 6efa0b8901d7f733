//! A request cannot name a tenant or a group.

use merkwelt_authz::{Caller, Request};
use merkwelt_domain::{GroupId, Purpose, TenantId};

fn ask(caller: Caller, tenant: TenantId, groups: Vec<GroupId>) -> Request {
    Request::new(caller, None, Purpose::default(), tenant, groups)
}

fn main() {
    let _ = ask;
}
