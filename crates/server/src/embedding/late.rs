//! The built-in engine whose model file may come later: until then searches rank by words, and when it appears
//! nothing has to be started anew.

use std::sync::{Mutex, PoisonError, RwLock};

use merkwelt_inference::embed::Error;
use merkwelt_inference::{Descriptor, Embedder, Embedding, Role};

use super::probe::Unfit;
use super::tend::Engine;
use crate::config::ModelPlaces;
use crate::model::{self, Loaded, Without};

/// The built-in engine, there or not yet.
#[derive(Debug)]
pub struct Late {
    descriptor: Descriptor,
    places: ModelPlaces,
    /// With whether it is in use.
    found: RwLock<Option<(Loaded, bool)>>,
    /// The refused file as it was and why, so that it is not read again and again.
    refused: Mutex<Option<(Stamp, String)>>,
}

/// Length and time of a file.
type Stamp = (u64, std::time::SystemTime);

const AWAY: &str = "the model file is not there";

impl Late {
    /// An engine without its file.
    #[must_use]
    pub fn new(descriptor: Descriptor, places: ModelPlaces) -> Self {
        Self { descriptor, places, found: RwLock::new(None), refused: Mutex::new(None) }
    }

    fn found(&self) -> Option<(Loaded, bool)> {
        self.found.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Length and time of the file that would be loaded.
    fn stamp(&self) -> Option<Stamp> {
        let path = merkwelt_inference::models::find(&self.places.dirs())?;
        let found = std::fs::metadata(path).ok()?;
        Some((found.len(), found.modified().ok()?))
    }
}

impl Embedder for Late {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn embed(&self, role: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
        let (loaded, _) = self.found().filter(|(_, admitted)| *admitted).ok_or(Error::Away(AWAY))?;
        loaded.engine.embed(role, texts)
    }

    fn is_available(&self) -> bool {
        self.found().is_some_and(|(loaded, admitted)| admitted && loaded.engine.is_available())
    }
}

impl Engine for Late {
    fn is_due(&self) -> bool {
        true
    }

    fn try_out(&self) -> Result<(), Unfit> {
        if self.found().is_some_and(|(loaded, _)| loaded.engine.is_available()) {
            return Ok(());
        }
        let stamp = self.stamp();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, why)) = refused.as_ref().filter(|(known, _)| stamp == Some(*known)) {
            return Err(Unfit::Away(why.clone()));
        }
        match model::load(&self.places) {
            Ok(loaded) => {
                *self.found.write().unwrap_or_else(PoisonError::into_inner) = Some((loaded, false));
                Ok(())
            }
            Err(why @ (Without::Unwanted | Without::Missing { .. })) => Err(Unfit::Away(why.to_string())),
            Err(why @ Without::Refused { .. }) => {
                let why = why.to_string();
                *refused = stamp.map(|stamp| (stamp, why.clone()));
                Err(Unfit::Wrong(why))
            }
        }
    }

    fn admit(&self) {
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, admitted)) = found.as_mut() {
            *admitted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_file_is_named_with_its_reason_every_time_and_read_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(merkwelt_inference::models::FILE_NAME), b"another").unwrap();
        let places = ModelPlaces { model_dir: Some(dir.path().to_path_buf()), no_model: false };
        let late = Late::new(merkwelt_inference::native::pinned().unwrap(), places);
        let first = late.try_out().unwrap_err();
        assert!(
            matches!(&first, Unfit::Wrong(why) if why.contains("7 bytes instead of 71622400")),
            "{first}"
        );
        assert_eq!(late.try_out(), Err(Unfit::Away(first.to_string())));
    }
}
