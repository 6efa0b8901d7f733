//! A group cannot be added to a scope.

use merkwelt_authz::{Authorized, action};
use merkwelt_domain::GroupId;

fn widen(auth: &mut Authorized<'_, action::Recall>, group: GroupId) {
    auth.scope().groups().insert(group);
}

fn main() {
    let _ = widen;
}
