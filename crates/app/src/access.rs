//! One way in: authorise, and record a denial before answering it (L-28).

use merkwelt_authz::{Action, Authorized, DenyReason, GrantError, Refusal, Request, authorize};

use crate::App;
use crate::error::{Attempt, Error};

impl App {
    /// A capability for `A`, or [`Error::Denied`]. A denial is durable in the
    /// ledger before the caller hears of it.
    pub(crate) async fn allow<'r, A: Action>(
        &self,
        request: &'r Request,
    ) -> Result<Authorized<'r, A>, Attempt> {
        match authorize::<A>(&*self.backend, request).await {
            Ok(authorized) => Ok(authorized),
            // This depends on the request alone, so saying it tells nobody anything; it is the likeliest first
            // mistake of a new caller.
            Err(Refusal::Denied(denied)) if denied.reason() == DenyReason::NoSubject => {
                Err(Error::invalid("Merkwelt-Subject", "this request is about a person: name one").into())
            }
            Err(Refusal::Denied(denied)) => {
                self.backend.record_denial(&denied, self.env.now()).await?;
                Err(Error::Denied.into())
            }
            Err(Refusal::Unavailable(GrantError::Unavailable)) => Err(Error::Unavailable.into()),
            Err(Refusal::Unavailable(GrantError::Damaged)) => Err(Error::Damaged.into()),
            Err(Refusal::Unavailable(GrantError::Full)) => Err(Error::Full.into()),
        }
    }
}
