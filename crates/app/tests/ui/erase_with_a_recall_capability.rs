//! A capability to search does not erase.
use merkwelt_authz::{Authorized, action};
use merkwelt_domain::Timestamp;
use merkwelt_store::Store;

fn misuse(store: &dyn Store, allowed: &Authorized<'_, action::Recall>) {
    let _ = store.erase(allowed, Timestamp::EPOCH);
}

fn main() {}
