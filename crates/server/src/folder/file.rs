//! Opening and reading one file of a folder. Every step of the path is opened without following links, what is
//! opened must be the very file that was seen, and it must not have changed while it was read.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use super::Refusal;
use super::walk::{Root, Stat};

/// Opens a folder inside another, never through a link.
pub(super) fn open_folder(inside: &OwnedFd, name: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(inside, name, flags, Mode::empty())
}

pub(super) fn unreadable(error: rustix::io::Errno) -> Refusal {
    let kind = std::io::Error::from(error).kind();
    // It was there when the folder was looked through.
    if kind == ErrorKind::NotFound { Refusal::Changing } else { Refusal::Unreadable(kind) }
}

impl Root {
    /// The bytes of a file, if it is still the one that was seen.
    pub(super) fn read(&self, path: &str, seen: &Stat, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
        let mut steps: Vec<&str> = path.split('/').collect();
        let name = steps.pop().unwrap_or_default();
        let mut folder = None;
        for step in steps {
            let step = std::ffi::CString::new(step).map_err(|_| Refusal::NameUnfit)?;
            folder = Some(open_folder(folder.as_ref().unwrap_or(&self.folder), &step).map_err(unreadable)?);
        }
        // A pipe that took the file's place would otherwise wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(folder.as_ref().unwrap_or(&self.folder), name, flags, Mode::empty());
        let file = file.map_err(unreadable)?;
        let same = |file: &OwnedFd| -> Result<(), Refusal> {
            let stat = fstat(file).map_err(unreadable)?;
            let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if regular && Stat::of(&stat) == *seen { Ok(()) } else { Err(Refusal::Changing) }
        };
        same(&file)?;
        let mut file = File::from(file);
        let mut bytes = Vec::new();
        let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
        let read = file.by_ref().take(limit).read_to_end(&mut bytes);
        read.map_err(|error| Refusal::Unreadable(error.kind()))?;
        if bytes.len() > bytes_max {
            return Err(Refusal::TooLarge(mebibytes(bytes_max)));
        }
        same(&OwnedFd::from(file))?;
        Ok(bytes)
    }
}

pub(super) fn mebibytes(bytes: usize) -> u64 {
    u64::try_from(bytes >> 20).unwrap_or(u64::MAX)
}
