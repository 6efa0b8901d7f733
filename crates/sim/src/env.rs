//! The virtual world: a clock that is put, random bytes from the seed, and faults at the named points. Random
//! bytes come from a stream of their own for each task, so that what one caller draws does not shift another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use merkwelt_domain::Timestamp;
use merkwelt_domain::env::{Env, FaultPoint, Injected};

use crate::draws::Draws;

/// Who is running: zero is the simulation itself, which meets no faults.
pub(crate) type TaskId = u64;

/// A fault that waits for its point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Armed {
    /// Where.
    pub(crate) point: FaultPoint,
    /// How often the point is passed before.
    pub(crate) skip: u32,
    /// Whether the process dies there, and not only the step.
    pub(crate) dies: bool,
}

#[derive(Default)]
struct State {
    now: i64,
    seed: u64,
    task: TaskId,
    streams: BTreeMap<TaskId, Draws>,
    armed: Option<Armed>,
    reached: Vec<FaultPoint>,
    fired: u64,
    dead: bool,
    folders: Option<(PathBuf, PathBuf)>,
}

/// The environment of a simulated instance.
pub(crate) struct SimEnv(Mutex<State>);

impl SimEnv {
    pub(crate) fn new(seed: u64, now: i64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { now, seed, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clock(&self) -> i64 {
        self.state().now
    }

    pub(crate) fn put_clock(&self, now: i64) {
        self.state().now = now;
    }

    /// Says who runs from now on; random bytes and faults are theirs.
    pub(crate) fn enter(&self, task: TaskId) {
        self.state().task = task;
    }

    pub(crate) fn task(&self) -> TaskId {
        self.state().task
    }

    pub(crate) fn arm(&self, armed: Option<Armed>) {
        self.state().armed = armed;
    }

    /// How many faults fired.
    pub(crate) fn fired(&self) -> u64 {
        self.state().fired
    }

    /// A step begins: the points it passes are counted anew.
    pub(crate) fn begin_step(&self) {
        self.state().reached.clear();
    }

    /// How often the present step passed a point.
    pub(crate) fn passed(&self, point: FaultPoint) -> usize {
        self.state().reached.iter().filter(|reached| **reached == point).count()
    }

    /// Whether the process died at a fault point.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// A new process begins.
    pub(crate) fn revive(&self) {
        let mut state = self.state();
        state.dead = false;
        state.armed = None;
    }

    /// The data directory, and where its state is copied to if the process dies at a point.
    pub(crate) fn watch(&self, folders: Option<(PathBuf, PathBuf)>) {
        self.state().folders = folders;
    }
}

impl Env for SimEnv {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.state().now)
    }

    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.state();
        let (seed, task) = (state.seed, state.task);
        let stream = state.streams.entry(task).or_insert_with(|| Draws::apart(seed, task));
        for chunk in bytes.chunks_mut(8) {
            for (to, from) in chunk.iter_mut().zip(stream.next().to_le_bytes()) {
                *to = from;
            }
        }
    }

    fn reach(&self, point: FaultPoint) -> Result<(), Injected> {
        let mut state = self.state();
        if state.task == 0 {
            return Ok(());
        }
        if state.dead {
            return Err(Injected);
        }
        state.reached.push(point);
        let Some(armed) = state.armed.filter(|armed| armed.point == point) else { return Ok(()) };
        if armed.skip > 0 {
            state.armed = Some(Armed { skip: armed.skip - 1, ..armed });
            return Ok(());
        }
        state.armed = None;
        state.fired += 1;
        if armed.dies {
            state.dead = true;
            if let Some((from, to)) = &state.folders {
                // What a killed process leaves behind: the files as they are at this moment. A copy that fails
                // is noticed when it is opened.
                let _ = copy(from, to);
            }
        }
        Err(Injected)
    }
}

/// Copies a data directory as it lies on disk. The shared memory of a log is none of it.
pub(crate) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else if path.extension().is_none_or(|end| end != "db-shm") {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// The environment as a defective part sees it: its clock is behind.
pub(crate) struct Behind {
    pub(crate) env: Arc<SimEnv>,
    pub(crate) millis: i64,
}

impl Env for Behind {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.env.clock().saturating_sub(self.millis))
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.env.fill(bytes);
    }
}
