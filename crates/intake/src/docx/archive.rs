//! The archive a Word document is (APPNOTE.TXT 6.3). It is read as strictly as a document needs: what only an
//! attacker or a broken program writes is refused before anything is unpacked.

use std::collections::BTreeMap;

use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};

use crate::limits::Meter;
use crate::refusal::Refusal;

/// Length of the end record without its comment.
const END_LEN: usize = 22;
/// Length of a directory entry without its names.
const ENTRY_LEN: usize = 46;
/// Length of the header before a file's data without its names.
const LOCAL_LEN: usize = 30;
/// Parts up to this size may be packed as tightly as they like.
const RATIO_FREE: usize = 1 << 20;

/// Where a part lies.
#[derive(Debug, Clone, Copy)]
struct Entry {
    method: usize,
    packed_len: usize,
    len: usize,
    offset: usize,
}

/// An archive whose directory was found sound.
#[derive(Debug)]
pub(super) struct Archive<'b> {
    bytes: &'b [u8],
    entries: BTreeMap<String, Entry>,
}

impl<'b> Archive<'b> {
    pub(super) fn open(bytes: &'b [u8], meter: &mut Meter<'_>) -> Result<Self, Refusal> {
        let mut rest = directory(bytes)?;
        let mut entries = BTreeMap::new();
        while rest.starts_with(b"PK\x01\x02") {
            meter.entry()?;
            let lens = [u16_at(rest, 28)?, u16_at(rest, 30)?, u16_at(rest, 32)?];
            if u16_at(rest, 8)? & 1 != 0 {
                return Err(Refusal::Encrypted);
            }
            let entry = Entry {
                method: u16_at(rest, 10)?,
                packed_len: u32_at(rest, 20)?,
                len: u32_at(rest, 24)?,
                offset: u32_at(rest, 42)?,
            };
            let name = rest.get(ENTRY_LEN..ENTRY_LEN + lens[0]).ok_or(CUT)?;
            let name = part_name(name)?;
            if entry.len > RATIO_FREE && entry.len / entry.packed_len.max(1) > meter.limits().ratio_max {
                return Err(Refusal::Bomb);
            }
            meter.expands(entry.len)?;
            if entries.insert(name, entry).is_some() {
                return Err(Refusal::Broken("its archive holds two parts of one name"));
            }
            rest = rest.get(ENTRY_LEN + lens.iter().sum::<usize>()..).ok_or(CUT)?;
        }
        apart(&entries)?;
        Ok(Self { bytes, entries })
    }

    pub(super) fn holds(&self, name: &str) -> bool {
        self.entries.contains_key(&name.to_ascii_lowercase())
    }

    /// The text of a part, if there is one of that name.
    pub(super) fn part(&self, name: &str, meter: &mut Meter<'_>) -> Result<Option<String>, Refusal> {
        let Some(entry) = self.entries.get(&name.to_ascii_lowercase()) else {
            return Ok(None);
        };
        let local = self.bytes.get(entry.offset..).ok_or(CUT)?;
        if !local.starts_with(b"PK\x03\x04") {
            return Err(CUT);
        }
        if u16_at(local, 6)? & 1 != 0 {
            return Err(Refusal::Encrypted);
        }
        let from = LOCAL_LEN + u16_at(local, 26)? + u16_at(local, 28)?;
        let packed = local.get(from..from + entry.packed_len).ok_or(CUT)?;
        meter.steps(entry.len)?;
        let unpacked = match entry.method {
            0 => packed.to_vec(),
            8 => decompress_to_vec_with_limit(packed, entry.len).map_err(|error| {
                // More output: it unpacks to more than its directory says.
                let is_bomb = error.status == TINFLStatus::HasMoreOutput;
                if is_bomb {
                    Refusal::Bomb
                } else {
                    Refusal::Broken("a part of its archive cannot be unpacked")
                }
            })?,
            _ => return Err(Refusal::Broken("a part of its archive is packed in an unknown way")),
        };
        if unpacked.len() != entry.len {
            return Err(CUT);
        }
        crate::encoding::decode(&unpacked).map(Some)
    }
}

const CUT: Refusal = Refusal::Broken("its archive is incomplete");

fn directory(bytes: &[u8]) -> Result<&[u8], Refusal> {
    // The end record is last, followed only by a comment of at most 65,535 bytes.
    let tail_from = bytes.len().saturating_sub(END_LEN + usize::from(u16::MAX));
    let tail = bytes.get(tail_from..).unwrap_or_default();
    let end = tail.windows(END_LEN).rev().find(|end| end.starts_with(b"PK\x05\x06")).ok_or(CUT)?;
    let (len, offset) = (u32_at(end, 12)?, u32_at(end, 16)?);
    let to = offset.checked_add(len).ok_or(CUT)?;
    bytes.get(offset..to).ok_or(CUT)
}

/// Part names are compared without case (ECMA-376, part 2). A name that leads out of the archive has no honest
/// purpose.
fn part_name(name: &[u8]) -> Result<String, Refusal> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let leads_out = name.starts_with('/') || name.split('/').any(|step| step == "..");
    if name.is_empty() || leads_out || name.contains(['\\', ':', '\0']) {
        return Err(Refusal::Broken("its archive holds a name that leads outside"));
    }
    Ok(name)
}

/// Parts that share bytes make a bomb out of a small file.
fn apart(entries: &BTreeMap<String, Entry>) -> Result<(), Refusal> {
    let mut places: Vec<_> =
        entries.values().map(|entry| (entry.offset, entry.offset.saturating_add(entry.packed_len))).collect();
    places.sort_unstable();
    let mut end = 0;
    for (from, to) in places {
        if from < end {
            return Err(Refusal::Bomb);
        }
        end = to;
    }
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> Result<usize, Refusal> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
    found.map(|bytes| usize::from(u16::from_le_bytes(*bytes))).ok_or(CUT)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<usize, Refusal> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let value = found.map(|bytes| u32::from_le_bytes(*bytes)).ok_or(CUT)?;
    // All ones: the value stands in a ZIP64 record, which a document below 4 GiB does not need.
    usize::try_from(value).ok().filter(|_| value != u32::MAX).ok_or(CUT)
}
