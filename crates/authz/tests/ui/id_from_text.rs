//! A text does not turn into an id without a chance to fail.

use merkwelt_domain::TenantId;

fn tenant(text: &str) -> TenantId {
    text.into()
}

fn main() {
    let _ = tenant;
}
