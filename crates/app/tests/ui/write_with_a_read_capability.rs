//! A capability to read makes no batch of writes.
use merkwelt_authz::{Authorized, action};
use merkwelt_domain::Timestamp;
use merkwelt_store::change::Batch;

fn misuse(allowed: &Authorized<'_, action::Recall>) {
    let _ = Batch::writes(allowed, Vec::new(), None, Timestamp::EPOCH);
}

fn main() {}
