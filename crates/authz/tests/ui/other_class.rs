//! A store method that erases takes no capability of another class.

use merkwelt_authz::{Authorized, Pass, action, class};

fn purge(_pass: &Pass<'_, class::Erase>) {}

fn misuse(auth: &Authorized<'_, action::Recall>) {
    purge(auth);
}

fn main() {
    let _ = misuse;
}
