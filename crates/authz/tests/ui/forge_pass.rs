//! A read capability cannot be copied, field by field, into a pass to erase.

use std::marker::PhantomData;

use merkwelt_authz::{ActionName, Authorized, Pass, Request, action, class};

fn forge<'r>(request: &'r Request, auth: &Authorized<'r, action::Recall>) -> Pass<'r, class::Erase> {
    Pass {
        request,
        scope: auth.scope().clone(),
        epoch: auth.epoch(),
        action: ActionName::Erase,
        class: PhantomData,
    }
}

fn main() {
    let _ = forge;
}
