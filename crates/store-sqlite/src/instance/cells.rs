//! Which cells are open: opened when they are needed, closed when there are too many or nobody used them for a
//! while, and their search shards given up when all together take too much memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use merkwelt_domain::TenantId;
use merkwelt_store::Error;

use crate::cell::Cell;
use crate::error::OpenError;
use crate::instance::Inner;
use crate::pool::lock;

/// How often idle cells are looked for, in milliseconds, and how many are closed then: whoever wants to open
/// a cell waits for no more than these.
const REST_MS_MIN: i64 = 1_000;
const CLOSED_MAX: usize = 16;

/// After how long without a request a cell gives back the pages of its connections, in milliseconds.
const RESTS_AFTER_MS: i64 = 1_000;

impl Inner {
    /// A cell that is open already; does not block on files.
    pub(crate) fn open_cell(&self, tenant: &TenantId) -> Option<Arc<Cell>> {
        let cell = lock(&self.cells).get(tenant).cloned()?;
        cell.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        cell.used_at.store(self.env.now().millis(), Ordering::Relaxed);
        Some(cell)
    }

    /// A cell, opened if need be; [`Error::NotFound`] for an unknown tenant.
    pub(crate) fn cell(&self, tenant: &TenantId) -> Result<Arc<Cell>, Error> {
        if let Some(cell) = self.open_cell(tenant) {
            return Ok(cell);
        }
        let _opening = lock(&self.opening);
        if let Some(cell) = self.open_cell(tenant) {
            return Ok(cell);
        }
        let secrets = lock(&self.control).secrets(tenant)?.ok_or(Error::NotFound)?;
        let opened = Cell::open(&self.layout, tenant, &secrets, &self.env, self.vectors());
        let cell = opened.map_err(|reason| {
            let reason = self.what_hinders(tenant, reason);
            let error = reason.to_store();
            self.note_ailing(tenant, reason);
            error
        })?;
        let mut ailing = lock(&self.ailing);
        if ailing.get(tenant).is_some_and(|reason| reason.may_pass() && *reason != OpenError::Unfinished) {
            ailing.remove(tenant);
        }
        drop(ailing);
        Ok(self.keep(cell))
    }

    /// SQLite tells of many hindrances only that it could not open a file. Whether the folder can be written says
    /// more.
    fn what_hinders(&self, tenant: &TenantId, reason: OpenError) -> OpenError {
        let is_vague = matches!(reason, OpenError::Io(_));
        is_vague.then(|| self.layout.try_folder(tenant).err()).flatten().unwrap_or(reason)
    }

    /// Opens what could not be opened before, as far as nobody needs to touch files of it.
    pub(super) fn look_again(&self) {
        let waiting = |(tenant, reason): (&TenantId, &OpenError)| {
            // An unfinished erasure is resumed by a start, and files in want are let go by others first.
            let may = reason.may_pass() && !matches!(reason, OpenError::Unfinished | OpenError::TooFewFiles);
            may.then(|| tenant.clone())
        };
        let waiting: Vec<TenantId> = lock(&self.ailing).iter().filter_map(waiting).collect();
        for tenant in waiting {
            if self.cell(&tenant).err() == Some(Error::Full) {
                return;
            }
        }
    }

    pub(super) fn keep(&self, cell: Cell) -> Arc<Cell> {
        let cell = Arc::new(cell);
        cell.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut gone = Vec::new();
        let mut cells = lock(&self.cells);
        cells.insert(cell.tenant.clone(), Arc::clone(&cell));
        while cells.len() > self.options.cells_max.max(1) {
            // INVARIANT: only a cell nobody holds is closed, so no file has two writers.
            let idle = cells
                .iter()
                .filter(|(_, cell)| Arc::strong_count(cell) == 1)
                .min_by_key(|(_, cell)| cell.used.load(Ordering::Relaxed))
                .map(|(tenant, _)| tenant.clone());
            let Some(idle) = idle else { break };
            gone.extend(cells.remove(&idle));
        }
        drop(cells);
        // Closing writes the log back into the file; nobody needs to wait for the list meanwhile.
        drop(gone);
        cell
    }

    /// Closes the cells that nobody used for a while, and lets those rest that nobody uses now, so that a quiet instance takes little memory.
    pub(super) fn rest(&self) {
        let now = self.env.now().millis();
        let rested_at = self.rested_at.load(Ordering::Relaxed);
        let is_time = now - rested_at >= REST_MS_MIN;
        if !is_time
            || self.rested_at.compare_exchange(rested_at, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        // INVARIANT: nothing is opened meanwhile, and only a cell nobody holds is closed, so no file has two
        // writers.
        let opening = lock(&self.opening);
        let (mut gone, mut quiet) = (Vec::new(), Vec::new());
        lock(&self.cells).retain(|_, cell| {
            let unused_ms = now - cell.used_at.load(Ordering::Relaxed);
            let stays = gone.len() >= CLOSED_MAX
                || unused_ms < self.options.idle_ms_max
                || Arc::strong_count(cell) > 1;
            if !stays {
                gone.push(Arc::clone(cell));
            } else if unused_ms >= RESTS_AFTER_MS {
                quiet.push(Arc::clone(cell));
            }
            stays
        });
        // Closing writes the log back into the file; the list is free meanwhile.
        drop(gone);
        drop(opening);
        quiet.iter().for_each(|cell| cell.rest());
    }

    /// Evicts the longest unused shards until the rest fits the budget. `busy` stays.
    pub(crate) fn fit_shards(&self, busy: &TenantId) {
        let cells = lock(&self.cells);
        let mut held: usize = cells.values().map(|cell| cell.shard.bytes()).sum();
        if held <= self.options.shard_bytes_max {
            return;
        }
        let mut open: Vec<Arc<Cell>> = cells.values().cloned().collect();
        drop(cells);
        open.sort_by_key(|cell| cell.used.load(Ordering::Relaxed));
        for cell in open.iter().filter(|cell| cell.tenant != *busy) {
            if held <= self.options.shard_bytes_max {
                return;
            }
            held = held.saturating_sub(cell.shard.bytes());
            cell.shard.evict();
        }
    }
}
