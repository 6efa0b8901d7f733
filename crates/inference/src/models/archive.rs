//! Takes one file out of a zip archive (APPNOTE.TXT 6.3): enough for a Python wheel, no more.
//!
//! The archive is untrusted: sizes are checked before memory is taken, and what comes out is worth
//! nothing until its digest was compared.

use std::io::{Read, Seek, SeekFrom};

use miniz_oxide::inflate::decompress_to_vec_with_limit;

use super::{Error, read_error};

/// Longest central directory read, in bytes.
const DIRECTORY_MAX: u64 = 16 << 20;
/// Length of the end record without its comment.
const END_LEN: usize = 22;
/// Length of a directory entry without its names.
const ENTRY_LEN: usize = 46;
/// Length of the header before a file's data without its names.
const LOCAL_LEN: usize = 30;

/// Where a file lies in the archive.
#[derive(Debug, Clone, Copy)]
struct Entry {
    method: u16,
    packed_len: u64,
    len: u64,
    offset: u64,
}

/// The content of the only file in `archive` with the given name, in whatever folder; `len` bytes long.
pub(super) fn extract<R: Read + Seek>(archive: &mut R, name: &str, len: u64) -> Result<Vec<u8>, Error> {
    let size = archive.seek(SeekFrom::End(0)).map_err(|error| read_error(&error))?;
    let entry = find(&directory(archive, size)?, name)?;
    if entry.len != len {
        return Err(Error::Length { expected: len, actual: entry.len });
    }
    let local = read(archive, size, entry.offset, LOCAL_LEN as u64)?;
    if !local.starts_with(b"PK\x03\x04") {
        return Err(Error::Archive("a file header is damaged"));
    }
    let names = u64::from(u16_at(&local, 26)?) + u64::from(u16_at(&local, 28)?);
    let packed = read(archive, size, entry.offset + LOCAL_LEN as u64 + names, entry.packed_len)?;
    match entry.method {
        0 => Ok(packed),
        8 => {
            let limit = usize::try_from(len).map_err(|_| Error::Archive("the file is too large"))?;
            decompress_to_vec_with_limit(&packed, limit).map_err(|_| Error::Archive("its data are damaged"))
        }
        _ => Err(Error::Archive("it is packed in an unknown way")),
    }
}

/// The central directory.
fn directory<R: Read + Seek>(archive: &mut R, size: u64) -> Result<Vec<u8>, Error> {
    // The end record is last, followed only by a comment of at most 65,535 bytes.
    let tail_len = size.min(END_LEN as u64 + u64::from(u16::MAX));
    let tail = read(archive, size, size - tail_len, tail_len)?;
    let end = tail.windows(END_LEN).rev().find(|end| end.starts_with(b"PK\x05\x06"));
    let end = end.ok_or(Error::Archive("it has no directory"))?;
    let (len, offset) = (u64::from(u32_at(end, 12)?), u64::from(u32_at(end, 16)?));
    if len > DIRECTORY_MAX {
        return Err(Error::Archive("its directory is too large"));
    }
    read(archive, size, offset, len)
}

fn find(directory: &[u8], name: &str) -> Result<Entry, Error> {
    let mut rest = directory;
    let mut found = None;
    while rest.starts_with(b"PK\x01\x02") {
        let lens = [u16_at(rest, 28)?, u16_at(rest, 30)?, u16_at(rest, 32)?].map(usize::from);
        let own_name = rest.get(ENTRY_LEN..ENTRY_LEN + lens[0]);
        let own_name = own_name.ok_or(Error::Archive("its directory is cut off"))?;
        if own_name.rsplit(|byte| *byte == b'/').next() == Some(name.as_bytes()) {
            let entry = Entry {
                method: u16_at(rest, 10)?,
                packed_len: u64::from(u32_at(rest, 20)?),
                len: u64::from(u32_at(rest, 24)?),
                offset: u64::from(u32_at(rest, 42)?),
            };
            if found.replace(entry).is_some() {
                return Err(Error::Archive("it holds two files of that name"));
            }
        }
        let next = rest.get(ENTRY_LEN + lens.iter().sum::<usize>()..);
        rest = next.ok_or(Error::Archive("its directory is cut off"))?;
    }
    found.ok_or(Error::Archive("it holds no file of that name"))
}

/// `len` bytes from `offset`; refuses before allocating if they are not inside.
fn read<R: Read + Seek>(archive: &mut R, size: u64, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(Error::Archive("it is cut off"));
    }
    let len = usize::try_from(len).map_err(|_| Error::Archive("the file is too large"))?;
    let mut bytes = vec![0; len];
    let sought = archive.seek(SeekFrom::Start(offset));
    sought.and_then(|_| archive.read_exact(&mut bytes)).map_err(|error| read_error(&error))?;
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Error> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
    found.map(|bytes| u16::from_le_bytes(*bytes)).ok_or(Error::Archive("its directory is cut off"))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Error> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    found.map(|bytes| u32::from_le_bytes(*bytes)).ok_or(Error::Archive("its directory is cut off"))
}
