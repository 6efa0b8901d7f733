//! A capability cannot be kept in a job that outlives the request.

use std::any::Any;

use merkwelt_authz::{GrantSource, Request, action, authorize};

struct Job {
    _carries: Box<dyn Any>,
}

async fn enqueue(source: &dyn GrantSource, request: &Request) -> Option<Job> {
    let auth = authorize::<action::Recall>(source, request).await.ok()?;
    Some(Job { _carries: Box::new(auth) })
}

fn main() {
    let _ = enqueue;
}
