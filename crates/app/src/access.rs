//! One way in: authorise, and record a denial before answering it (L-28).

use merkwelt_authz::{Action, Authorized, Credential, DenyReason, GrantError, Refusal, Request, authorize};

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
            Ok(authorized) => {
                self.still_live(request).await?;
                Ok(authorized)
            }
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

    /// Refuses a key that ended since its holder was proven: a request that is tried again, because grants moved
    /// when its key was revoked, must not mint a capability anew.
    async fn still_live(&self, request: &Request) -> Result<(), Attempt> {
        // INVARIANT: asked after the capability was minted. A revocation that comes later moves the grants, and
        // the store refuses the capability.
        let credential = self.backend.credential(request.caller().key()).await;
        let now = self.env.now();
        let live = |c: &Credential| c.revoked_at.is_none() && c.expires_at.is_none_or(|end| now < end);
        if credential.as_ref().is_some_and(live) { Ok(()) } else { Err(Error::KeyEnded.into()) }
    }
}
