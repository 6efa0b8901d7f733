//! Which keys of a tenant may end: pure, and shared by all backends, so that no tenant and no instance is left
//! without anybody who can make keys for it.

use merkwelt_authz::{Credential, Role};
use merkwelt_domain::Timestamp;

use crate::error::Error;

/// Whether `ended` may be revoked at `at`, when `keys` are the keys of its tenant, itself among them or not.
///
/// A key that makes keys may end if another one of the same role stays that works for at least as long. One
/// that is bound to a subject does not count, because it ends with the subject.
///
/// # Errors
/// [`Error::LastAdmin`].
pub fn may_end<'k>(
    ended: &Credential,
    keys: impl IntoIterator<Item = &'k Credential>,
    at: Timestamp,
) -> Result<(), Error> {
    let makes_keys = matches!(ended.role, Role::TenantAdmin | Role::InstanceAdmin);
    let works = |key: &Credential| key.revoked_at.is_none() && key.expires_at.is_none_or(|end| end > at);
    if !makes_keys || !works(ended) {
        return Ok(());
    }
    let as_long = |key: &Credential| match (key.expires_at, ended.expires_at) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(other), Some(own)) => other >= own,
    };
    // INVARIANT: what is refused here is the only way in which the last of them could end early: the first key of
    // a tenant has no end.
    let stays = |key: &&Credential| {
        key.key != ended.key && key.role == ended.role && key.subject.is_none() && works(key) && as_long(key)
    };
    match keys.into_iter().find(stays) {
        Some(_) => Ok(()),
        None => Err(Error::LastAdmin),
    }
}
