//! The embedding model of this process: found, verified, loaded, or the reason why there is none. A missing or
//! wrong file never stops the service; it then ranks by words and says so.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use merkwelt_app::Offload;
use merkwelt_app::embedding::model_id;
use merkwelt_authz::Fut;
use merkwelt_inference::models::{self, Error};
use merkwelt_inference::native::E5;
use merkwelt_store::query::ModelId;
use tokio::sync::Semaphore;

use crate::config::ModelPlaces;

/// A model that is ready, with the name under which its vectors are kept.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The engine.
    pub engine: Arc<E5>,
    /// The space of its vectors.
    pub id: ModelId,
    /// The file it came from.
    pub path: PathBuf,
}

/// Why retrieval is lexical.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Without {
    /// The operator asked for it.
    #[error("--no-model was given")]
    Unwanted,
    /// No directory has the file.
    #[error("there is no {file} in {dirs}", file = models::FILE_NAME)]
    Missing {
        /// The directories that were looked in.
        dirs: String,
    },
    /// A file of that name is not the pinned one, or cannot be read.
    #[error("{path} is not used: {reason}")]
    Refused {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Finds, verifies and loads the model. Reads one file of 71 MB.
///
/// # Errors
/// Why there is none; the service goes on without.
pub fn load(places: &ModelPlaces) -> Result<Loaded, Without> {
    if places.no_model {
        return Err(Without::Unwanted);
    }
    let dirs = places.dirs();
    let Some(path) = models::find(&dirs) else {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        return Err(Without::Missing { dirs: dirs.join(", ") });
    };
    let refused = |reason: String| Without::Refused { path: path.display().to_string(), reason };
    let verified = models::verify_file(&path).map_err(|error: Error| refused(error.to_string()))?;
    let engine = E5::open(verified).map_err(|error| refused(error.to_string()))?;
    let id = model_id(&engine);
    Ok(Loaded { engine: Arc::new(engine), id, path })
}

/// Runs the engine on threads that may block, no more at once than the machine has processors, so that many
/// requests queue here instead of slowing each other down.
#[derive(Debug)]
pub struct BlockingThreads {
    places: Arc<Semaphore>,
    /// How long one waits for a place; for ever if nothing is said.
    wait: Option<Duration>,
}

impl BlockingThreads {
    /// As many places as processors.
    #[must_use]
    pub fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { places: Arc::new(Semaphore::new(processors)), wait: None }
    }

    /// So many places; whoever waits longer for one goes without, because a question does not wait for others'
    /// texts on their way to a server.
    #[must_use]
    pub fn waiting(places: usize, wait: Duration) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), wait: Some(wait) }
    }
}

impl Default for BlockingThreads {
    fn default() -> Self {
        Self::new()
    }
}

impl Offload for BlockingThreads {
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> Fut<'_, ()> {
        let places = Arc::clone(&self.places);
        Box::pin(async move {
            let waiting = places.acquire_owned();
            let place = match self.wait {
                Some(wait) => tokio::time::timeout(wait, waiting).await.ok().and_then(Result::ok),
                None => waiting.await.ok(),
            };
            let Some(place) = place else { return };
            let held = move || {
                work();
                // Held to the end of the work, also when the request that asked is gone.
                drop(place);
            };
            // Work that dies leaves its texts without vectors; they are found by words.
            let _ = tokio::task::spawn_blocking(held).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dir: &std::path::Path) -> ModelPlaces {
        ModelPlaces { model_dir: Some(dir.to_path_buf()), no_model: false }
    }

    #[test]
    fn a_file_with_another_content_or_length_is_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(models::FILE_NAME);
        std::fs::write(&path, b"no model").unwrap();
        let said = load(&at(dir.path())).unwrap_err().to_string();
        assert!(said.contains("8 bytes instead of 71622400"), "{said}");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(models::FILE_BYTES).unwrap();
        let said = load(&at(dir.path())).unwrap_err().to_string();
        assert!(said.contains("digest") && said.contains(models::FILE_SHA256), "{said}");
    }

    #[test]
    fn who_asks_for_no_model_gets_none() {
        let places = ModelPlaces { model_dir: None, no_model: true };
        assert_eq!(load(&places).unwrap_err(), Without::Unwanted);
    }

    #[test]
    fn work_runs_on_another_thread_and_is_done_when_the_future_is() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (said, heard) = std::sync::mpsc::channel();
        let work = move || said.send(std::thread::current().id()).unwrap();
        runtime.block_on(BlockingThreads::new().run(Box::new(work)));
        assert_ne!(heard.try_recv().unwrap(), std::thread::current().id());
    }

    #[test]
    fn who_waits_too_long_for_a_place_goes_without() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let threads = BlockingThreads::waiting(1, Duration::from_millis(20));
        let (said, heard) = std::sync::mpsc::channel();
        runtime.block_on(async {
            let taken = Arc::clone(&threads.places).acquire_owned().await.unwrap();
            let late = said.clone();
            threads.run(Box::new(move || late.send("late").unwrap())).await;
            drop(taken);
            threads.run(Box::new(move || said.send("in time").unwrap())).await;
        });
        assert_eq!(heard.iter().collect::<Vec<_>>(), ["in time"]);
    }

    #[test]
    fn work_that_dies_gives_its_place_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let threads = BlockingThreads { places: Arc::new(Semaphore::new(1)), wait: None };
        let (said, heard) = std::sync::mpsc::channel();
        runtime.block_on(async {
            threads.run(Box::new(|| panic!("the engine died"))).await;
            threads.run(Box::new(move || said.send(()).unwrap())).await;
        });
        assert_eq!(heard.try_recv(), Ok(()));
    }
}
