//! Where blocking work runs: on a few threads of its own, or, for simulation, at once on the caller's
//! thread. There is no thread per tenant.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use merkwelt_store::Error;
use tokio::sync::oneshot;

/// On how many threads the store works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// On the caller's own: every future blocks. For simulation.
    Inline,
    /// On this many.
    Pool(NonZeroUsize),
}

/// Locks, also after another thread panicked: what the lock guards here is never left half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Task = Box<dyn FnOnce() + Send>;

/// What the threads do between tasks, at least this often. It must be cheap when there is nothing to do.
pub(crate) type Rest = Box<dyn Fn() + Send + Sync>;

const REST_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    closing: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    rest: Rest,
}

/// The threads. Dropping it finishes what is queued and waits.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new(threads: Threads, rest: Rest) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new(), rest });
        let count = match threads {
            Threads::Inline => 0,
            Threads::Pool(count) => count.get(),
        };
        let threads = (0..count).map(|_| start(Arc::clone(&shared))).collect();
        Self { shared, threads }
    }

    /// Runs `task` some time, or at once where there are no threads.
    pub(crate) fn spawn(&self, task: impl FnOnce() + Send + 'static) {
        if self.threads.is_empty() {
            task();
            return;
        }
        lock(&self.shared.queue).tasks.push_back(Box::new(task));
        self.shared.wake.notify_one();
    }

    /// Runs `work` and waits for its answer without blocking the caller's thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.spawn(move || {
            let _ = answer.send(work());
        });
        answered.await.unwrap_or(Err(Error::Unavailable))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the store's pool, the one place that starts threads")]
fn start(shared: Arc<Shared>) -> JoinHandle<()> {
    thread::spawn(move || work(&shared))
}

fn work(shared: &Shared) {
    loop {
        let mut queue = lock(&shared.queue);
        let task = loop {
            if let Some(task) = queue.tasks.pop_front() {
                break Some(task);
            }
            if queue.closing {
                return;
            }
            let woken = shared.wake.wait_timeout(queue, REST_EVERY);
            let (held, waited) = woken.unwrap_or_else(PoisonError::into_inner);
            queue = held;
            if waited.timed_out() {
                break None;
            }
        };
        drop(queue);
        // A task that panics loses its answer, not its thread.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(task) = task {
                task();
            }
            (shared.rest)();
        }));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).closing = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
