//! An authenticated caller is not yet authorised.

use merkwelt_authz::{Caller, Pass, class};

fn fetch(_pass: &Pass<'_, class::Read>) {}

fn misuse(caller: &Caller) {
    fetch(caller);
}

fn main() {
    let _ = misuse;
}
