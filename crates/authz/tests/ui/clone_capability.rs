//! There is one capability per decision.

use merkwelt_authz::{Authorized, action};

fn double<'r>(
    auth: Authorized<'r, action::Recall>,
) -> (Authorized<'r, action::Recall>, Authorized<'r, action::Recall>) {
    (auth.clone(), auth)
}

fn main() {
    let _ = double;
}
