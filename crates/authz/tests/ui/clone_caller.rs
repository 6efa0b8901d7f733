//! An identity is proven for one request; it is not kept for the next.

use merkwelt_authz::Caller;

fn keep(caller: Caller) -> (Caller, Caller) {
    (caller.clone(), caller)
}

fn main() {
    let _ = keep;
}
