//! An id is parsed, not written down.

use merkwelt_domain::TenantId;

fn main() {
    let _ = TenantId("ten_aaaaaaaaaaaaaaaaaaaaaaaaaa".to_owned());
}
