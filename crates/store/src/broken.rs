//! A backend with a broken engine, for the test of the conformance suite itself: its index proposes
//! everything of everybody and looks at no filter. Records still dispose (I-3), so nothing leaks; but places
//! in the answer are lost to rows that are then dropped, and the suite has to notice.

use std::sync::Arc;

use merkwelt_domain::Env;

use crate::error::Error;
use crate::ports::Founding;
use crate::reference::{Engine, Reference};

/// The reference backend with an engine that ignores every filter. For tests only.
///
/// # Errors
/// As [`Reference::found`].
pub fn unfiltered(founding: Founding, env: Arc<dyn Env>) -> Result<Reference, Error> {
    Reference::with_engine(founding, env, Engine::Unfiltered)
}
