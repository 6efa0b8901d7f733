//! What a check says when it fails: what was expected and where.

use std::fmt;
use std::panic::Location;

use crate::error::Error;

/// Why a check failed.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    text: String,
    place: &'static Location<'static>,
    error: Option<Error>,
}

impl Failure {
    #[track_caller]
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: Location::caller(), error: None }
    }

    /// The store's own refusal, if that is what happened.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.place)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self { text: format!("the store refused: {error}"), place: Location::caller(), error: Some(error) }
    }
}

/// Fails unless `condition` holds.
#[track_caller]
pub(super) fn ensure(condition: bool, text: &str) -> Result<(), Failure> {
    if condition { Ok(()) } else { Err(Failure::new(text)) }
}

/// Fails unless both are equal.
#[track_caller]
pub(super) fn same<T: PartialEq + fmt::Debug>(found: T, expected: T, what: &str) -> Result<(), Failure> {
    if found == expected {
        Ok(())
    } else {
        Err(Failure::new(format!("{what}: expected {expected:?}, found {found:?}")))
    }
}

/// Fails unless the store refused with exactly this error.
#[track_caller]
pub(super) fn refused<T>(result: Result<T, Failure>, expected: Error) -> Result<(), Failure> {
    match result {
        Ok(_) => Err(Failure::new(format!("expected a refusal: {expected}"))),
        Err(failure) if failure.error() == Some(expected) => Ok(()),
        Err(failure) => Err(Failure::new(format!("expected a refusal: {expected}; but {failure}"))),
    }
}

/// The value, or a failure that says what is missing.
#[track_caller]
pub(super) fn there<T>(value: Option<T>, what: &str) -> Result<T, Failure> {
    match value {
        Some(value) => Ok(value),
        None => Err(Failure::new(format!("{what} is missing"))),
    }
}
