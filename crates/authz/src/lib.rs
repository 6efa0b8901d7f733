//! The trusted core: who asks, for whom, what for, until when. [`authenticate`] turns a presented key into
//! a [`Caller`], [`authorize`] turns a [`Request`] of that caller into an [`Authorized`] capability, and
//! there is no other way to either (I-1). What the types prove and what they do not is written in
//! SECURITY.md; in short: a capability says who, where and what for, and the store still re-reads
//! membership and compares the grant epoch when it uses it (I-2).

mod authorized;
mod caller;
mod decide;
mod grants;
mod role;
mod scope;

pub use authorized::{Action, Authorized, Class, Denied, Pass, Refusal, Request, action, authorize, class};
pub use caller::{
    ApiKey, Caller, Credential, CredentialSource, KeyError, SecretDigest, Unauthenticated, authenticate,
};
pub use decide::{ActionName, Decision, DenyReason, Principal, decide};
pub use grants::{GrantError, GrantSource, Grants};
pub use role::Role;
pub use scope::Scope;

/// A boxed future, as every port of the workspace returns one: ports are `dyn` at crate borders.
pub type Fut<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
