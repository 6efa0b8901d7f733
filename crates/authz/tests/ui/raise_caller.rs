//! A caller cannot give itself a higher role or bind itself to somebody else.

use merkwelt_authz::{Caller, Role};
use merkwelt_domain::SubjectId;

fn raise(caller: &mut Caller, other: SubjectId) {
    caller.role = Role::PrivacyOfficer;
    caller.subject = Some(other);
}

fn main() {
    let _ = raise;
}
