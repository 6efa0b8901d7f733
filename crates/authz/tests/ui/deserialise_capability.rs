//! A capability cannot be read from a text.

use merkwelt_authz::{Authorized, action};

fn read(row: &'static str) -> Authorized<'static, action::Recall> {
    serde_json::from_str(row).unwrap()
}

fn main() {
    let _ = read;
}
