//! A batch borrows its capability and cannot outlive the request.
use merkwelt_authz::{Authorized, action};
use merkwelt_domain::Timestamp;
use merkwelt_store::change::Batch;

fn later(allowed: &Authorized<'_, action::Remember>) {
    let batch = Batch::writes(allowed, Vec::new(), None, Timestamp::EPOCH);
    std::thread::spawn(move || drop(batch));
}

fn main() {}
