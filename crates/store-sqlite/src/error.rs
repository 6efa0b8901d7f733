//! Why a data directory or one tenant of it cannot be opened, and how failures of SQLite become the store's
//! errors.

use std::io;

use merkwelt_domain::TenantId;
use merkwelt_store::Error;

/// Why a data directory, or the files of one tenant, could not be created or opened. Texts say what to do
/// and name no content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there.
    #[error("no data directory at this path; create one first")]
    Missing,
    /// Something is there already.
    #[error("the path already holds a data directory")]
    Exists,
    /// Another process has it open.
    #[error("the data directory is in use by another process; stop that one first")]
    Locked,
    /// The instance key is not the one it was created with.
    #[error(
        "the instance key does not belong to this data directory; bring back the one it was created with"
    )]
    WrongKey,
    /// A file is no file of this service.
    #[error(
        "{0} is not a file of this service, or its head is damaged; put the right file back from a backup"
    )]
    Foreign(&'static str),
    /// A file of this service, but of another tenant or another instance.
    #[error("{0} belongs to another tenant or another instance; put this tenant's own file back")]
    Misplaced(&'static str),
    /// A file was written by a newer version.
    #[error("{0} was written by a newer version of this service; update it first")]
    Newer(&'static str),
    /// A file is missing, cut off or damaged.
    #[error("{0} is damaged or incomplete; restore it from a backup")]
    Damaged(&'static str),
    /// The write-ahead log was changed after it was written: what follows would be lost without a word.
    #[error(
        "{0}-wal is damaged: acknowledged writes are behind the damage; restore {0} and {0}-wal from a backup"
    )]
    DamagedLog(&'static str),
    /// The vectors come from another embedding model (I-14).
    #[error(
        "vectors are of model {recorded}, the configured model is {configured}; run `merkwelt reembed`, configure the former, or start without a model (--no-model)"
    )]
    OtherModel {
        /// The model of the stored vectors.
        recorded: String,
        /// The model the instance is configured with.
        configured: String,
    },
    /// No room on the disk, or a quota or size limit is reached.
    #[error("the disk is full, or a quota or size limit is reached; make room and try again")]
    Full,
    /// The directory cannot be written.
    #[error("the data directory cannot be written: it is read-only or belongs to another user")]
    ReadOnly,
    /// The process may not read and write a file that is there. Found for one tenant, it is no matter of the others.
    #[error(
        "the service may not read and write {0}; give it to the user of the service with mode 600 (`merkwelt doctor` names every such file)"
    )]
    NoRight(&'static str),
    /// The process may not look into the directory.
    #[error(
        "the data directory cannot be looked into: it, or a folder above it, belongs to another user; run this as the user of the service"
    )]
    Closed,
    /// A file stands where the directory should be.
    #[error("the path of the data is a file; name a directory")]
    NotAFolder,
    /// The process may not open more files.
    #[error("too few open files are allowed; raise the limit (`ulimit -n`, LimitNOFILE) and start again")]
    TooFewFiles,
    /// An erasure was accepted and could not be finished; nothing of its subject is served.
    #[error("an erasure is not finished; make sure that the disk has room and start again")]
    Unfinished,
    /// The operating system refused.
    #[error("the data directory cannot be used: {0}")]
    Io(io::ErrorKind),
}

/// A tenant that cannot be served, or not fully. The others are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tenant {tenant}: {reason}")]
pub struct Ailing {
    /// The tenant.
    pub tenant: TenantId,
    /// What is wrong and what to do.
    pub reason: OpenError,
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        const TOO_MANY_FILES: [i32; 2] = [23, 24];
        use io::ErrorKind as Kind;
        if error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) {
            return Self::TooFewFiles;
        }
        let kind = error.kind();
        if matches!(kind, Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge) {
            Self::Full
        } else if matches!(kind, Kind::ReadOnlyFilesystem | Kind::PermissionDenied) {
            Self::ReadOnly
        } else {
            Self::Io(kind)
        }
    }
}

impl OpenError {
    /// What a caller of the store may know of it.
    pub(crate) fn to_store(&self) -> Error {
        match self {
            Self::Full => Error::Full,
            Self::Io(_)
            | Self::Locked
            | Self::TooFewFiles
            | Self::ReadOnly
            | Self::NoRight(_)
            | Self::Closed
            | Self::NotAFolder
            | Self::Unfinished => Error::Unavailable,
            Self::Missing
            | Self::Exists
            | Self::WrongKey
            | Self::Foreign(_)
            | Self::Misplaced(_)
            | Self::Newer(_)
            | Self::Damaged(_)
            | Self::DamagedLog(_)
            | Self::OtherModel { .. } => Error::Damaged,
        }
    }

    /// Whether it may pass without anybody touching the files.
    pub(crate) fn may_pass(&self) -> bool {
        self.to_store() != Error::Damaged
    }

    /// Whether the machine lacks something for the moment. It is the same for every tenant and says nothing of
    /// the files of the one where it showed.
    #[must_use]
    pub fn is_of_machine(&self) -> bool {
        matches!(self, Self::Full | Self::TooFewFiles | Self::Locked)
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
        self.map_err(|error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Error::Full,
            _ if lacks_room(&error) => Error::Full,
            _ if is_damage(&error) => Error::Damaged,
            _ => Error::Unavailable,
        })
    }

    fn opening(self, file: &'static str) -> Result<T, OpenError> {
        use rusqlite::ErrorCode as Code;
        self.map_err(|error| match error.sqlite_error_code() {
            _ if lacks_room(&error) => OpenError::Full,
            Some(Code::NotADatabase) => OpenError::Foreign(file),
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => OpenError::Locked,
            // That the file is there was seen before: what is missing is a descriptor, or a right.
            Some(Code::CannotOpen | Code::SystemIoFailure) => OpenError::Io(io::ErrorKind::Other),
            Some(Code::ReadOnly | Code::PermissionDenied) => OpenError::ReadOnly,
            Some(Code::DiskFull) => OpenError::Full,
            _ => OpenError::Damaged(file),
        })
    }
}

/// The index of a write-ahead log could not grow. SQLite tells that as an error of the device.
fn lacks_room(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|failure| failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
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
        OpenError::Io(io::ErrorKind::Other)
    } else if error == Error::Full {
        OpenError::Full
    } else {
        OpenError::Damaged(file)
    }
}
