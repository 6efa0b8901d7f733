//! The pass stays inside its capability.

use merkwelt_authz::{Authorized, Pass, action, class};

fn take<'r>(auth: Authorized<'r, action::Recall>) -> Pass<'r, class::Read> {
    *auth
}

fn main() {
    let _ = take;
}
