//! What the directory says about a principal right now. The one implementation per backend is listed in
//! the tidy test, because a lying source could name any group.

use std::collections::BTreeSet;

use merkwelt_domain::{GrantEpoch, GroupId, SubjectId, TenantId};

use crate::Fut;
use crate::decide::Principal;

/// Present memberships, and the generation in which they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// The generation.
    pub epoch: GrantEpoch,
    /// The subject's pseudonym; `None` for a request for nobody in particular.
    pub subject: Option<SubjectId>,
    /// The groups the subject is a member of now.
    pub groups: BTreeSet<GroupId>,
}

/// The directory could not be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Not now; a later attempt may pass.
    #[error("directory unavailable")]
    Unavailable,
    /// It cannot be read any more until somebody mends it.
    #[error("directory damaged")]
    Damaged,
    /// A new subject could not be registered, because there is no room.
    #[error("no room in the directory")]
    Full,
}

/// Reads present grants from the system of record.
pub trait GrantSource: Send + Sync {
    /// The grants of `principal` in `tenant` now, or `None` if the tenant or subject is unknown, suspended
    /// or being erased. A subject named for the first time is registered under a new pseudonym: the
    /// customer's own application vouches for it.
    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>>;
}
