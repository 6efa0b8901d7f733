//! A generation of content says nothing about permissions.

use merkwelt_domain::{ContentEpoch, GrantEpoch};

fn is_current(granted: GrantEpoch, written: ContentEpoch) -> bool {
    granted == written
}

fn main() {
    let _ = is_current;
}
