//! Why a data directory cannot be opened, and how failures of SQLite become the store's errors.

use merkwelt_store::Error;

/// Why a data directory could not be created or opened. Texts say what to do and name no content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there.
    #[error("no data directory at this path; create one first")]
    Missing,
    /// Something is there already.
    #[error("the path already holds a data directory")]
    Exists,
    /// Another process has it open.
    #[error("the data directory is in use by another process")]
    Locked,
    /// The instance key is not the one it was created with.
    #[error("the instance key does not belong to this data directory")]
    WrongKey,
    /// A file is no file of this service.
    #[error("{0} is not a file of this service")]
    Foreign(&'static str),
    /// A file was written by a newer version.
    #[error("{0} was written by a newer version of this service; update it first")]
    Newer(&'static str),
    /// A file is missing, cut off or damaged.
    #[error("{0} is damaged or incomplete; restore it from a backup")]
    Damaged(&'static str),
    /// The vectors come from another embedding model (I-14).
    #[error(
        "vectors are of model {recorded}, the installed model is {configured}; install the former, or start without a model"
    )]
    OtherModel {
        /// The model of the stored vectors.
        recorded: String,
        /// The model the instance is configured with.
        configured: String,
    },
    /// The operating system refused.
    #[error("the data directory cannot be used: {0}")]
    Io(std::io::ErrorKind),
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.kind())
    }
}

/// Turns failures of SQLite into the store's errors.
pub(crate) trait Sql<T> {
    /// What a caller of the store may know of the failure.
    fn sql(self) -> Result<T, Error>;
    /// What a caller who opens `file` may know of it.
    fn opening(self, file: &'static str) -> Result<T, OpenError>;
}

impl<T> Sql<T> for rusqlite::Result<T> {
    fn sql(self) -> Result<T, Error> {
        self.map_err(|error| if is_damage(&error) { Error::Damaged } else { Error::Unavailable })
    }

    fn opening(self, file: &'static str) -> Result<T, OpenError> {
        self.map_err(|error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign(file),
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
                OpenError::Locked
            }
            Some(rusqlite::ErrorCode::CannotOpen) => OpenError::Missing,
            _ => OpenError::Damaged(file),
        })
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as Code;
    if let rusqlite::Error::SqliteFailure(failure, _) = error {
        return matches!(
            failure.code,
            Code::DatabaseCorrupt | Code::NotADatabase | Code::ConstraintViolation
        );
    }
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::QueryReturnedNoRows
    )
}

/// The store's errors where a data directory is opened.
pub(crate) fn on_open(error: Error, file: &'static str) -> OpenError {
    if error == Error::Unavailable {
        OpenError::Io(std::io::ErrorKind::Other)
    } else {
        OpenError::Damaged(file)
    }
}
