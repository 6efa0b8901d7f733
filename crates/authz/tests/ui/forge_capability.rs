//! A pass of the right class is no capability: only `authorize` makes one.

use merkwelt_authz::{Authorized, Pass, action, class};

fn forge<'r>(pass: Pass<'r, class::Read>) -> Authorized<'r, action::Recall> {
    Authorized { pass }
}

fn main() {
    let _ = forge;
}
