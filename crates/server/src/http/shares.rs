//! What one key and one tenant may have at work at once, so that one of them cannot take the places of all; and
//! the place at work itself, which a request gives back while its body is still on the way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use merkwelt_authz::Caller;
use merkwelt_domain::{KeyId, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Code, Problem};

/// Whose requests are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Key(KeyId),
    Tenant(TenantId),
}

/// Requests at work by key and by tenant. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares(Arc<Mutex<BTreeMap<Holder, usize>>>);

impl Shares {
    /// A share for one more request of this caller.
    ///
    /// # Errors
    /// Problem `too_many_requests`.
    pub(super) fn take(&self, caller: &Caller, per_key: usize, per_tenant: usize) -> Result<Share, Problem> {
        let holders = [Holder::Key(caller.key().clone()), Holder::Tenant(caller.tenant().clone())];
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = holders.iter().map(|holder| counts.get(holder).copied().unwrap_or(0));
        if taken.zip([per_key, per_tenant]).any(|(taken, most)| taken >= most) {
            return Err(Problem::of(Code::TOO_MANY_REQUESTS));
        }
        for holder in &holders {
            *counts.entry(holder.clone()).or_default() += 1;
        }
        drop(counts);
        Ok(Share { shares: self.clone(), holders })
    }
}

/// One request's share. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    holders: [Holder; 2],
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.0.lock().unwrap_or_else(PoisonError::into_inner);
        for holder in &self.holders {
            let left = counts.get(holder).map_or(0, |taken| taken.saturating_sub(1));
            // Only holders at work are remembered, so the map cannot grow with the number of keys.
            match left {
                0 => counts.remove(holder),
                left => counts.insert(holder.clone(), left),
            };
        }
    }
}

/// A request's place among those at work. Clones are the same place.
#[derive(Debug, Clone)]
pub(super) struct Work {
    all: Arc<Semaphore>,
    mine: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Work {
    /// A place, if there is one.
    ///
    /// # Errors
    /// Problem `overloaded`.
    pub(super) fn begin(all: &Arc<Semaphore>) -> Result<Self, Problem> {
        let work = Self { all: Arc::clone(all), mine: Arc::default() };
        work.resume().map(|()| work)
    }

    fn set(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.mine.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Gives the place to others while there is nothing to do but wait.
    pub(super) fn pause(&self) {
        self.set(None);
    }

    /// Takes a place again.
    ///
    /// # Errors
    /// Problem `overloaded`.
    pub(super) fn resume(&self) -> Result<(), Problem> {
        let permit = Arc::clone(&self.all).try_acquire_owned();
        self.set(Some(permit.map_err(|_| Problem::of(Code::OVERLOADED))?));
        Ok(())
    }
}
