//! Where the bytes of a model come from: an open file, read at positions.
//!
//! The file is not mapped into memory: a mapping ends the process when somebody shortens the file, and
//! reading the few hundred bytes of a word vector costs less than a microsecond out of the page cache.

use std::fs::File;

use super::Error;

/// Bytes with a known length that can be read at any position by several threads.
#[derive(Debug)]
pub(super) enum Source {
    /// An open file and what it was when it was opened.
    #[cfg(unix)]
    File(File, Stamp),
    /// Everything in memory.
    #[cfg_attr(unix, cfg(any(test, fuzzing)))]
    Memory(Vec<u8>),
}

/// Length of a file and when its bytes changed last.
#[cfg(unix)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    len: u64,
    written_at: (i64, i64),
}

#[cfg(unix)]
impl Stamp {
    fn of(file: &File) -> Result<Self, Error> {
        use std::os::unix::fs::MetadataExt as _;
        let found = file.metadata().map_err(|error| Error::Read(error.kind()))?;
        Ok(Self { len: found.len(), written_at: (found.mtime(), found.mtime_nsec()) })
    }
}

impl Source {
    /// An open file. Where positions cannot be read without moving a shared cursor it is read whole.
    #[cfg(unix)]
    pub(super) fn file(file: File, len: u64) -> Result<Self, Error> {
        let mut stamp = Stamp::of(&file)?;
        stamp.len = len;
        Ok(Self::File(file, stamp))
    }

    /// Refuses a file that somebody wrote into after it was opened: its word vectors would be of another model.
    pub(super) fn unchanged(&self) -> Result<(), Error> {
        match self {
            #[cfg(unix)]
            Self::File(file, stamp) if Stamp::of(file)? != *stamp => Err(Error::Malformed("it was changed")),
            #[cfg(unix)]
            Self::File(..) => Ok(()),
            #[cfg_attr(unix, cfg(any(test, fuzzing)))]
            Self::Memory(_) => Ok(()),
        }
    }

    /// An open file. Where positions cannot be read without moving a shared cursor it is read whole.
    #[cfg(not(unix))]
    pub(super) fn file(mut file: File, len: u64) -> Result<Self, Error> {
        use std::io::{Read, Seek};
        let mut bytes = Vec::new();
        let read = file.rewind().and_then(|()| file.take(len).read_to_end(&mut bytes));
        read.map_err(|error| Error::Read(error.kind()))?;
        Ok(Self::Memory(bytes))
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            #[cfg(unix)]
            Self::File(_, stamp) => stamp.len,
            #[cfg_attr(unix, cfg(any(test, fuzzing)))]
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// `len` bytes from `offset`; refuses before allocating if they are not inside.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            return Err(Error::Malformed("it ends early"));
        }
        let mut bytes = vec![0; len];
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` from `offset`.
    pub(super) fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let read = match self {
            #[cfg(unix)]
            Self::File(file, _) => std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset),
            #[cfg_attr(unix, cfg(any(test, fuzzing)))]
            Self::Memory(all) => {
                let from = usize::try_from(offset).ok().and_then(|start| all.get(start..));
                match from.and_then(|rest| rest.get(..bytes.len())) {
                    Some(found) => {
                        bytes.copy_from_slice(found);
                        Ok(())
                    }
                    None => Err(std::io::ErrorKind::UnexpectedEof.into()),
                }
            }
        };
        read.map_err(|error| Error::Read(error.kind()))
    }
}
