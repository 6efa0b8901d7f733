//! A capability cannot be moved into a task that outlives the request.

use merkwelt_authz::{GrantSource, Request, action, authorize};

async fn detach(source: &dyn GrantSource, request: &Request) {
    if let Ok(auth) = authorize::<action::Recall>(source, request).await {
        std::thread::spawn(move || drop(auth));
    }
}

fn main() {
    let _ = detach;
}
