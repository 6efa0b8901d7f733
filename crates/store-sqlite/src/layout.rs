//! The data directory: `control.db`, `tenants/<id>/cell.db`, `tenants/<id>/keys.db`, a lock file, and a mark
//! that stands until the first start is over. Folders are 0700 and files 0600; one process at a time may
//! have it open.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use merkwelt_domain::TenantId;

use crate::error::OpenError;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

const CONTROL: &str = "control.db";
const TENANTS: &str = "tenants";
const LOCK: &str = "lock";
/// While it stands, nobody has been shown a key and nothing was acknowledged.
const FOUNDING: &str = "founding";

/// Whether a finished data directory is there, whole or damaged: tenants without the file that lists them are one
/// too.
///
/// # Errors
/// [`OpenError::Closed`] and [`OpenError::NotAFolder`]: what is there cannot be told.
pub fn exists(root: &Path) -> Result<bool, OpenError> {
    let names = match fs::read_dir(root) {
        Err(error) => return nothing_or(&error),
        Ok(names) => names.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?,
    };
    let holds = |name: &str| names.iter().any(|held| held == name);
    if holds(FOUNDING) {
        return Ok(false);
    }
    if holds(CONTROL) {
        return Ok(true);
    }
    match fs::read_dir(root.join(TENANTS)) {
        Err(error) => nothing_or(&error),
        Ok(mut tenants) => Ok(tenants.next().is_some()),
    }
}

/// Nothing is there, or it cannot be told.
fn nothing_or(error: &io::Error) -> Result<bool, OpenError> {
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound {
        Ok(false)
    } else if kind == io::ErrorKind::PermissionDenied {
        Err(OpenError::Closed)
    } else if kind == io::ErrorKind::NotADirectory {
        Err(OpenError::NotAFolder)
    } else {
        Err(OpenError::Io(kind))
    }
}

/// Whether a first start was interrupted here before anything counted. The next one begins anew.
#[must_use]
pub fn is_half_made(root: &Path) -> bool {
    root.join(FOUNDING).exists()
}

/// Paths below one data directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the folders of a new data directory and takes its lock. The path may exist as an empty folder,
    /// or hold what an interrupted first start left; that is removed.
    pub(crate) fn create(root: &Path) -> Result<(Self, File), OpenError> {
        match make_folder(root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !is_half_made(root) && fs::read_dir(root)?.next().is_some() {
                    return Err(OpenError::Exists);
                }
                fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(FOLDER_MODE))?;
            }
            made => made?,
        }
        let layout = Self { root: root.to_owned() };
        let lock = layout.lock()?;
        // INVARIANT: the mark is durable before anything else is there, and gone for good before anything is
        // acknowledged; so what lies beside it counts for nothing.
        layout.mark()?;
        layout.clear()?;
        make_folder(&layout.root.join(TENANTS))?;
        Ok((layout, lock))
    }

    /// An existing data directory.
    pub(crate) fn open(root: &Path) -> Result<Self, OpenError> {
        if exists(root)? { Ok(Self { root: root.to_owned() }) } else { Err(OpenError::Missing) }
    }

    /// Keeps other processes out for as long as the file is open.
    pub(crate) fn lock(&self) -> Result<File, OpenError> {
        let path = self.root.join(LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn mark(&self) -> Result<(), OpenError> {
        let path = self.root.join(FOUNDING);
        OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?.sync_all()?;
        Ok(sync_folder(&self.root)?)
    }

    /// Removes what an interrupted first start made, and only that.
    fn clear(&self) -> Result<(), OpenError> {
        for name in [CONTROL, "control.db-wal", "control.db-shm"] {
            ignore_missing(fs::remove_file(self.root.join(name)))?;
        }
        Ok(ignore_missing(fs::remove_dir_all(self.root.join(TENANTS)))?)
    }

    /// Ends the first start: from now on the directory counts.
    pub(crate) fn settle(&self) -> Result<(), OpenError> {
        ignore_missing(fs::remove_file(self.root.join(FOUNDING)))?;
        Ok(sync_folder(&self.root)?)
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.root.join(CONTROL)
    }

    /// Makes the folder of a tenant.
    pub(crate) fn make_tenant(&self, tenant: &TenantId) -> Result<(), OpenError> {
        Ok(make_folder(&self.tenant(tenant))?)
    }

    /// Removes the folder of a tenant that did not come to be.
    pub(crate) fn remove_tenant(&self, tenant: &TenantId) -> Result<(), OpenError> {
        Ok(ignore_missing(fs::remove_dir_all(self.tenant(tenant)))?)
    }

    /// The folders of tenants.
    pub(crate) fn tenants(&self) -> Result<Vec<String>, OpenError> {
        let names = fs::read_dir(self.root.join(TENANTS))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<_>>()?;
        Ok(names)
    }

    pub(crate) fn cell(&self, tenant: &TenantId) -> PathBuf {
        self.tenant(tenant).join("cell.db")
    }

    pub(crate) fn keys(&self, tenant: &TenantId) -> PathBuf {
        self.tenant(tenant).join("keys.db")
    }

    fn tenant(&self, tenant: &TenantId) -> PathBuf {
        // An id is a prefix and base32, so it cannot leave the folder.
        self.root.join(TENANTS).join(tenant.as_str())
    }

    /// Makes new folder entries durable.
    pub(crate) fn sync(&self, tenant: &TenantId) -> Result<(), OpenError> {
        for folder in [self.tenant(tenant), self.root.join(TENANTS), self.root.clone()] {
            sync_folder(&folder)?;
        }
        Ok(())
    }

    /// Writes, makes durable and reads a little, to see that the disk does all three.
    pub(crate) fn try_out(&self) -> Result<(), OpenError> {
        try_out(&self.root, &[0x5A; 4096])
    }

    /// The same in the folder of a tenant, with as much as the opening of its databases may need.
    pub(crate) fn try_folder(&self, tenant: &TenantId) -> Result<(), OpenError> {
        try_out(&self.tenant(tenant), &[0x5A; OPENING_BYTES])
    }
}

/// The indexes of two write-ahead logs, and something in the logs.
const OPENING_BYTES: usize = 128 * 1024;

fn try_out(folder: &Path, bytes: &[u8]) -> Result<(), OpenError> {
    let path = folder.join("trial");
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&path);
    let tried = options.and_then(|mut file| {
        io::Write::write_all(&mut file, bytes)?;
        file.sync_data()
    });
    let read = tried.and_then(|()| fs::read(&path));
    let _ = fs::remove_file(&path);
    if read? == bytes { Ok(()) } else { Err(OpenError::Io(io::ErrorKind::InvalidData)) }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
