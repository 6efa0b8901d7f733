//! A capability cannot be written into a job row.

use merkwelt_authz::{Authorized, action};

fn row(auth: &Authorized<'_, action::Recall>) -> String {
    serde_json::to_string(auth).unwrap()
}

fn main() {
    let _ = row;
}
