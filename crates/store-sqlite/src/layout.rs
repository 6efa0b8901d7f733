//! The data directory: `control.db`, `tenants/<id>/cell.db`, `tenants/<id>/keys.db` and a lock file.
//! Folders are 0700 and files 0600; one process at a time may have it open.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use merkwelt_domain::TenantId;

use crate::error::OpenError;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Paths below one data directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the folders of a new data directory. The path may exist as an empty folder.
    pub(crate) fn create(root: &Path) -> Result<Self, OpenError> {
        match make_folder(root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_dir(root)?.next().is_some() {
                    return Err(OpenError::Exists);
                }
                fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(FOLDER_MODE))?;
            }
            made => made?,
        }
        let layout = Self { root: root.to_owned() };
        make_folder(&layout.root.join("tenants"))?;
        Ok(layout)
    }

    /// An existing data directory.
    pub(crate) fn open(root: &Path) -> Result<Self, OpenError> {
        let layout = Self { root: root.to_owned() };
        if layout.control().exists() { Ok(layout) } else { Err(OpenError::Missing) }
    }

    /// Keeps other processes out for as long as the file is open.
    pub(crate) fn lock(&self) -> Result<File, OpenError> {
        let path = self.root.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.root.join("control.db")
    }

    /// Makes the folder of a tenant.
    pub(crate) fn make_tenant(&self, tenant: &TenantId) -> Result<(), OpenError> {
        Ok(make_folder(&self.tenant(tenant))?)
    }

    pub(crate) fn cell(&self, tenant: &TenantId) -> PathBuf {
        self.tenant(tenant).join("cell.db")
    }

    pub(crate) fn keys(&self, tenant: &TenantId) -> PathBuf {
        self.tenant(tenant).join("keys.db")
    }

    fn tenant(&self, tenant: &TenantId) -> PathBuf {
        // An id is a prefix and base32, so it cannot leave the folder.
        self.root.join("tenants").join(tenant.as_str())
    }

    /// Makes new folder entries durable.
    pub(crate) fn sync(&self, tenant: &TenantId) -> Result<(), OpenError> {
        for folder in [self.tenant(tenant), self.root.join("tenants"), self.root.clone()] {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}
