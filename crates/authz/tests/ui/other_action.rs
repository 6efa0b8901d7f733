//! Being allowed to recall is not being allowed to erase.

use merkwelt_authz::{Authorized, action};

fn erase(_auth: &Authorized<'_, action::Erase>) {}

fn misuse(auth: &Authorized<'_, action::Recall>) {
    erase(auth);
}

fn main() {
    let _ = misuse;
}
