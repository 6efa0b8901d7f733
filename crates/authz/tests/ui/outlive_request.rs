//! A capability ends with its request.

use merkwelt_authz::{Authorized, GrantSource, Request, action, authorize};

async fn mint(source: &dyn GrantSource, request: Request) -> Option<Authorized<'static, action::Recall>> {
    authorize::<action::Recall>(source, &request).await.ok()
}

fn main() {
    let _ = mint;
}
