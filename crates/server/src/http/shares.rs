//! What one key and one tenant may have at work at once, so that one of them cannot take the places of all; and
//! the place at work itself, which a request gives back while its body is still on the way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use merkwelt_authz::Caller;
use merkwelt_domain::{KeyId, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;
use super::problem::{Code, Problem};

/// Whose requests are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Key(KeyId),
    Tenant(TenantId),
}

#[derive(Debug, Default)]
struct Counts {
    /// Requests under way.
    requests: BTreeMap<Holder, usize>,
    /// Bytes of bodies in memory, and those of each tenant.
    bytes: usize,
    bytes_of: BTreeMap<TenantId, usize>,
}

/// What is under way by key and by tenant. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares(Arc<Mutex<Counts>>);

impl Shares {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share for one more request of this caller.
    ///
    /// # Errors
    /// Problem `too_many_requests`.
    pub(super) fn take(&self, caller: &Caller, limits: Limits) -> Result<Arc<Share>, Problem> {
        let holders = [Holder::Key(caller.key().clone()), Holder::Tenant(caller.tenant().clone())];
        let mut counts = self.counts();
        let taken = holders.iter().map(|holder| counts.requests.get(holder).copied().unwrap_or(0));
        if taken.zip([limits.key_requests, limits.tenant_requests]).any(|(taken, most)| taken >= most) {
            return Err(Problem::of(Code::TOO_MANY_REQUESTS));
        }
        for holder in &holders {
            *counts.requests.entry(holder.clone()).or_default() += 1;
        }
        drop(counts);
        let tenant = caller.tenant().clone();
        let bytes_max = limits.bodies_bytes_max;
        Ok(Arc::new(Share { shares: self.clone(), holders, tenant, bytes_max, bytes: Mutex::new(0) }))
    }
}

/// One request's share. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    holders: [Holder; 2],
    tenant: TenantId,
    bytes_max: usize,
    /// Bytes of this request's body in memory.
    bytes: Mutex<usize>,
}

impl Share {
    /// Counts more bytes of the body, which stay in memory until the request ends. One tenant has half of the
    /// room at most.
    ///
    /// # Errors
    /// Problem `too_many_requests` or `overloaded`.
    pub(super) fn hold(&self, more: usize) -> Result<(), Problem> {
        let mut counts = self.shares.counts();
        let of_tenant = counts.bytes_of.get(&self.tenant).copied().unwrap_or(0);
        if of_tenant.saturating_add(more) > self.bytes_max / 2 {
            return Err(Problem::of(Code::TOO_MANY_REQUESTS));
        }
        if counts.bytes.saturating_add(more) > self.bytes_max {
            return Err(Problem::of(Code::OVERLOADED));
        }
        counts.bytes += more;
        counts.bytes_of.insert(self.tenant.clone(), of_tenant + more);
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let held = *self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.shares.counts();
        counts.bytes = counts.bytes.saturating_sub(held);
        give_back(&mut counts.bytes_of, &self.tenant, held);
        for holder in &self.holders {
            give_back(&mut counts.requests, holder, 1);
        }
    }
}

/// Only holders of something are remembered, so a map cannot grow with the number of keys.
fn give_back<H: Ord + Clone>(counts: &mut BTreeMap<H, usize>, holder: &H, n: usize) {
    match counts.get(holder).map_or(0, |taken| taken.saturating_sub(n)) {
        0 => counts.remove(holder),
        left => counts.insert(holder.clone(), left),
    };
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
