//! The one writer of a cell, with group commit: whatever is queued when it starts runs in one transaction,
//! each batch in a savepoint of its own, so that a refused batch spoils no other. Callers get their answers
//! after the durable commit and not before (I-11).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};

use merkwelt_domain::FaultPoint;
use merkwelt_ledger::log::Head;
use merkwelt_store::Error;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::cell::Cell;
use crate::error::Sql as _;
use crate::log;
use crate::pool::lock;
use crate::schema;
use crate::shard::Touch;
use crate::snapshot::State;

/// Batches in one transaction.
const GROUP_MAX: usize = 256;

/// What a batch sees while it runs: the open transaction and what is written back once per transaction.
pub(crate) struct Work<'w> {
    pub(crate) cell: &'w Cell,
    pub(crate) db: &'w Connection,
    pub(crate) state: State,
    pub(crate) head: Head,
    pub(crate) touched: Vec<Touch>,
}

trait Job: Send {
    fn run(&mut self, work: &mut Work<'_>) -> Result<(), Error>;
    fn finish(self: Box<Self>, end: Result<(), Error>);
}

struct Batch<T, F> {
    work: Option<F>,
    result: Result<T, Error>,
    answer: Answer<T>,
}

/// Where an answer goes: to a future, or to a thread that may block.
enum Answer<T> {
    Future(oneshot::Sender<Result<T, Error>>),
    Thread(mpsc::SyncSender<Result<T, Error>>),
}

impl<T: Send, F: FnOnce(&mut Work<'_>) -> Result<T, Error> + Send> Job for Batch<T, F> {
    fn run(&mut self, work: &mut Work<'_>) -> Result<(), Error> {
        let Some(run) = self.work.take() else { return Err(Error::Unavailable) };
        self.result = run(work);
        self.result.as_ref().map(|_| ()).map_err(|error| *error)
    }

    fn finish(self: Box<Self>, end: Result<(), Error>) {
        // A refused batch keeps its own reason; an accepted one is only true after the commit, and one that
        // never ran shares the reason of the group.
        let result =
            if self.result.is_ok() || self.work.is_some() { end.and(self.result) } else { self.result };
        // Nobody waits any more if the caller gave up; the batch is durable all the same.
        match self.answer {
            Answer::Future(answer) => drop(answer.send(result)),
            Answer::Thread(answer) => drop(answer.send(result)),
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Box<dyn Job>>,
    draining: bool,
}

/// The queue and the connection that writes.
pub(crate) struct Writer {
    queue: Mutex<Queue>,
    connection: Mutex<Connection>,
    commits: AtomicU64,
}

impl Writer {
    pub(crate) fn over(connection: Connection) -> Self {
        Self {
            queue: Mutex::new(Queue::default()),
            connection: Mutex::new(connection),
            commits: AtomicU64::new(0),
        }
    }

    /// Uses the connection outside of any transaction.
    pub(crate) fn alone<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        work(&lock(&self.connection))
    }

    /// Gives back the pages of the connection, if nobody is writing.
    pub(crate) fn rest(&self) {
        if let Ok(connection) = self.connection.try_lock() {
            schema::give_back(&connection);
        }
    }

    /// How many transactions were committed since the cell was opened.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Cell {
    /// Queues a batch. If the returned flag is set, the caller must see to it that [`Cell::drain`] runs.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> (oneshot::Receiver<Result<T, Error>>, bool) {
        let (answer, answered) = oneshot::channel();
        (answered, self.push(work, Answer::Future(answer)))
    }

    fn push<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
        answer: Answer<T>,
    ) -> bool {
        let job = Box::new(Batch { work: Some(work), result: Err(Error::Unavailable), answer });
        let mut queue = lock(&self.writer.queue);
        queue.jobs.push_back(job);
        !std::mem::replace(&mut queue.draining, true)
    }

    /// Queues a batch and waits on this thread, which must be one that may block.
    pub(crate) fn write_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Work<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.push(work, Answer::Thread(answer));
        // INVARIANT: who blocks a thread of the pool never waits for another task of the pool. A drain that is
        // only scheduled might never get a thread while all of them wait here; two drains take turns at the
        // connection.
        self.drain();
        answered.recv().unwrap_or(Err(Error::Unavailable))
    }

    /// Writes until the queue is empty, then brings the shard up to date, if content changed.
    pub(crate) fn drain(&self) {
        let mut guard = Draining { cell: self, armed: true };
        let mut moved = false;
        loop {
            let connection = lock(&self.writer.connection);
            let mut group: Vec<Box<dyn Job>> = {
                let mut queue = lock(&self.writer.queue);
                let length = queue.jobs.len().min(GROUP_MAX);
                if length == 0 {
                    queue.draining = false;
                    break;
                }
                queue.jobs.drain(..length).collect()
            };
            let end = self.commit_group(&connection, &mut group);
            drop(connection);
            moved |= end.unwrap_or(true);
            for job in group {
                job.finish(end.map(|_| ()));
            }
        }
        guard.armed = false;
        // Acknowledged already: whatever goes wrong from here on costs the next reader time, nothing else.
        if self.env.reach(FaultPoint::BeforeShard).is_ok() && moved {
            self.catch_up();
        }
        // After the shard, for which a reader took up pages again.
        self.readers.committed();
    }

    /// Runs a group in one transaction; tells whether content changed.
    fn commit_group(&self, connection: &Connection, group: &mut [Box<dyn Job>]) -> Result<bool, Error> {
        schema::run(connection, "BEGIN IMMEDIATE").sql()?;
        let ran = self.run_group(connection, group).and_then(|ran| {
            self.env.reach(FaultPoint::BeforeCommit).map_err(|_| Error::Unavailable)?;
            Ok(ran)
        });
        let Ran { before, after, touched } = match ran {
            Ok(ran) => ran,
            Err(error) => {
                let _ = connection.execute_batch("ROLLBACK");
                return Err(error);
            }
        };
        // Before the commit, so that no reader can see the new epoch without finding what changed.
        let epochs = (before.epochs.content.number(), after.epochs.content.number());
        self.shard.announce(epochs.0, epochs.1, touched);
        if before.epochs.grants != after.epochs.grants {
            self.present.leave();
        }
        if let Err(error) = schema::run(connection, "COMMIT").sql() {
            self.shard.withdraw(epochs.1);
            let _ = connection.execute_batch("ROLLBACK");
            return Err(error);
        }
        self.writer.commits.fetch_add(1, Ordering::Relaxed);
        self.present.settle(after.epochs.grants);
        if before.model != after.model {
            self.note_model(after.model);
        }
        // Only now, so that whoever takes the tenant up finds the rows.
        if self.lacking.swap(false, Ordering::Relaxed) {
            lock(&self.unfilled).insert(self.tenant.clone());
        }
        self.env.reach(FaultPoint::AfterCommit).map_err(|_| Error::Unavailable)?;
        Ok(epochs.0 != epochs.1)
    }

    fn run_group(&self, connection: &Connection, group: &mut [Box<dyn Job>]) -> Result<Ran, Error> {
        let state = State::read(connection)?;
        let head = log::read_head(connection)?;
        let before = (state.clone(), head.size());
        let mut work = Work { cell: self, db: connection, state, head, touched: Vec::new() };
        for job in group {
            run_job(&mut work, job.as_mut())?;
        }
        if work.head.size() != before.1 {
            log::write_head(connection, &work.head)?;
        }
        if work.state != before.0 {
            work.state.write(connection)?;
        }
        Ok(Ran { before: before.0, after: work.state, touched: work.touched })
    }
}

/// What a group did that is not committed yet.
struct Ran {
    before: State,
    after: State,
    touched: Vec<Touch>,
}

/// Runs one batch in its savepoint. An error means that the whole transaction is lost.
fn run_job(work: &mut Work<'_>, job: &mut dyn Job) -> Result<(), Error> {
    let kept = (work.state.clone(), work.head.clone(), work.touched.len());
    schema::run(work.db, "SAVEPOINT batch").sql()?;
    match job.run(work) {
        Ok(()) => return schema::run(work.db, "RELEASE batch").sql(),
        // There may be no transaction left to go back in; nobody of the group has room either.
        Err(Error::Full) => return Err(Error::Full),
        Err(_) => {}
    }
    // INVARIANT: all or nothing (I-11); what is held outside of SQLite goes back too.
    work.db.execute_batch("ROLLBACK TO batch; RELEASE batch").sql()?;
    (work.state, work.head) = (kept.0, kept.1);
    work.touched.truncate(kept.2);
    Ok(())
}

/// Lets the next submitter start a drain if this one dies.
struct Draining<'c> {
    cell: &'c Cell,
    armed: bool,
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let mut queue = lock(&self.cell.writer.queue);
        queue.draining = false;
        // Their senders go with them, so the callers learn that nothing was written.
        queue.jobs.clear();
    }
}
