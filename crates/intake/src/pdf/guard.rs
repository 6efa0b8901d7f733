//! Looks at every stream of a PDF before the library does, because the library unpacks object streams as soon as
//! it opens a file and knows no bound. What is found here is all it can find: an object begins with `obj`, a
//! dictionary follows, then the stream.
//!
//! Pictures are not needed. Packed ones are emptied in our copy, so that they cost nothing.

use hayro_syntax::Filter;
use hayro_syntax::object::dict::keys;
use hayro_syntax::object::{Array, Dict, FromBytes as _, MaybeRef, Name, Number, Object, Stream};
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};

use crate::limits::Meter;
use crate::refusal::Refusal;

/// No deflated byte becomes more than this.
const FLATE_RATIO: usize = 1032;
/// A picture without pixels: one last block of nothing.
const NOTHING: [u8; 5] = [1, 0, 0, 0xff, 0xff];
/// The widest row of a table of references; wider ones ask for memory that no file has.
const COLUMNS_MAX: i64 = 1 << 16;

/// A copy of the file that is safe to open.
pub(super) fn prepared(bytes: &[u8], meter: &mut Meter<'_>) -> Result<Vec<u8>, Refusal> {
    if is_encrypted(bytes) {
        return Err(Refusal::Encrypted);
    }
    let mut emptied = Vec::new();
    meter.steps(bytes.len().saturating_mul(3))?;
    let ends = all(bytes, b"endstream");
    let mut from = 0;
    while let Some(at) = find(bytes, b"obj", from) {
        from = at + 3;
        let rest = skip_space(bytes.get(from..).unwrap_or_default());
        if !rest.starts_with(b"<<") {
            continue;
        }
        meter.entry()?;
        let Some(dict) = Dict::from_bytes(rest) else {
            // Reading what has no end costs all of the rest; a few times are no harm.
            meter.steps(rest.len())?;
            continue;
        };
        meter.steps(dict.data().len())?;
        let after = skip_space(rest.get(dict.data().len()..).unwrap_or_default());
        if !after.starts_with(b"stream") {
            continue;
        }
        // Where a stream's length is wrong, the library looks for its end; a file of streams that have none would
        // make it look at everything again and again.
        let at = bytes.len() - after.len();
        let next = ends.get(ends.partition_point(|end| *end < at));
        let Some(end) = next else { continue };
        meter.steps(end - at)?;
        if let Some(stream) = Stream::from_bytes(rest) {
            let data = stream.raw_data();
            meter.steps(data.len())?;
            let start = data.as_ptr().addr().wrapping_sub(bytes.as_ptr().addr());
            // Without a length of its own the stream may be longer than it looks from here.
            let has_length = matches!(dict.get_raw::<Number>(keys::LENGTH), Some(MaybeRef::NotRef(_)));
            let all = if has_length { data.as_ref() } else { bytes.get(start..).unwrap_or_default() };
            if is_packed_picture(&stream) {
                emptied.push(start..start + data.len());
            } else {
                meter.expands(unpacked_len(&stream, all, meter)?)?;
            }
            // What stands inside a stream is looked at too: an offset may point there.
        }
    }
    let mut copy = bytes.to_vec();
    for range in emptied {
        if let Some(data) = copy.get_mut(range).and_then(|data| data.first_chunk_mut()) {
            *data = NOTHING;
        }
    }
    Ok(copy)
}

/// `/Encrypt` in a trailer. It may be any object, but its name stands in the open.
fn is_encrypted(bytes: &[u8]) -> bool {
    let mut from = 0;
    while let Some(at) = find(bytes, b"/Encrypt", from) {
        from = at + 8;
        let next = skip_space(bytes.get(from..).unwrap_or_default());
        if next.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'<') {
            return true;
        }
    }
    false
}

fn is_packed_picture(stream: &Stream<'_>) -> bool {
    let dict = stream.dict();
    let is_picture = dict.get::<Name<'_>>(keys::SUBTYPE).is_some_and(|kind| kind.as_ref() == b"Image");
    is_picture && stream.filters().as_slice() == [Filter::FlateDecode] && stream.raw_data().len() > 8
}

/// An upper bound for what a stream unpacks to.
fn unpacked_len(stream: &Stream<'_>, data: &[u8], meter: &Meter<'_>) -> Result<usize, Refusal> {
    if !parameters_are_sane(stream.dict()) {
        return Err(Refusal::Broken("a part of it is packed with impossible parameters"));
    }
    let is_plain = !stream.dict().contains_key(keys::FILTER) && !stream.dict().contains_key(keys::F);
    let filters = stream.filters();
    match filters.as_slice() {
        _ if is_plain => Ok(data.len()),
        // Pictures in formats of their own are never unpacked.
        [Filter::DctDecode | Filter::JpxDecode | Filter::Jbig2Decode | Filter::CcittFaxDecode, ..] => Ok(0),
        [Filter::FlateDecode] => inflated_len(data, meter),
        [Filter::AsciiHexDecode] => Ok(data.len()),
        [Filter::Ascii85Decode] => Ok(data.len().saturating_mul(4)),
        [Filter::Ascii85Decode, Filter::FlateDecode] => match ascii_85(data) {
            Some(inner) => inflated_len(&inner, meter),
            None => Ok(data.len().saturating_mul(4 * FLATE_RATIO)),
        },
        // Filters named elsewhere, or several of them: the worst that they can do.
        [] => Ok(data.len().saturating_mul(FLATE_RATIO)),
        filters => Ok(filters.iter().fold(data.len(), |len, filter| len.saturating_mul(worst(*filter)))),
    }
}

fn worst(filter: Filter) -> usize {
    match filter {
        Filter::FlateDecode => FLATE_RATIO,
        // A code of 12 bits stands for at most 4,096 bytes.
        Filter::LzwDecode => 2731,
        Filter::RunLengthDecode => 64,
        Filter::Ascii85Decode => 4,
        Filter::AsciiHexDecode
        | Filter::Crypt
        | Filter::CcittFaxDecode
        | Filter::Jbig2Decode
        | Filter::DctDecode
        | Filter::JpxDecode => 1,
    }
}

fn inflated_len(data: &[u8], meter: &Meter<'_>) -> Result<usize, Refusal> {
    let limit = meter.limits().expanded_bytes_max;
    let has_header = data.first_chunk::<2>().is_some_and(|head| {
        head[0] & 0x0f == 8 && u16::from_be_bytes(*head).is_multiple_of(31) && head[1] & 0x20 == 0
    });
    let deflated = if has_header { data.get(2..).unwrap_or_default() } else { data };
    match decompress_to_vec_with_limit(deflated, limit) {
        Ok(unpacked) => Ok(unpacked.len()),
        Err(error) if error.status == TINFLStatus::HasMoreOutput => Err(Refusal::Bomb),
        // The library reads on where this one stops, so nothing better than the worst is known.
        Err(_) => Ok(data.len().saturating_mul(FLATE_RATIO)),
    }
}

/// The numbers that say how wide a row is stand here and are small.
fn parameters_are_sane(dict: &Dict<'_>) -> bool {
    let sane = |dict: &Dict<'_>| {
        [keys::COLUMNS, keys::COLORS, keys::BITS_PER_COMPONENT].iter().all(|key| {
            match dict.get_raw::<Object<'_>>(*key) {
                Some(MaybeRef::Ref(_)) => false,
                Some(MaybeRef::NotRef(value)) => {
                    value.into_number().is_some_and(|value| (0..=COLUMNS_MAX).contains(&value.as_i64()))
                }
                None => true,
            }
        })
    };
    [keys::DECODE_PARMS, keys::DP].iter().all(|key| match dict.get_raw::<Object<'_>>(*key) {
        None => true,
        Some(MaybeRef::Ref(_)) => false,
        Some(MaybeRef::NotRef(Object::Array(array))) => all_sane(&array, sane),
        Some(MaybeRef::NotRef(value)) => value.into_dict().is_none_or(|dict| sane(&dict)),
    })
}

fn all_sane(array: &Array<'_>, sane: impl Fn(&Dict<'_>) -> bool) -> bool {
    array.raw_iter().all(|item| match item {
        MaybeRef::Ref(_) => false,
        MaybeRef::NotRef(value) => value.into_dict().is_none_or(|dict| sane(&dict)),
    })
}

/// Base 85 as PDF has it; `None` if anything is unusual.
fn ascii_85(data: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(data.len() / 5 * 4 + 4);
    let mut group = Vec::with_capacity(5);
    for byte in data.iter().filter(|byte| !is_space(**byte)) {
        match byte {
            b'~' => break,
            b'z' if group.is_empty() => decoded.extend([0; 4]),
            b'!'..=b'u' => group.push(u32::from(byte - b'!')),
            _ => return None,
        }
        if group.len() == 5 {
            let value =
                group.drain(..).try_fold(0u32, |sum, digit| sum.checked_mul(85)?.checked_add(digit))?;
            decoded.extend(value.to_be_bytes());
        }
    }
    if group.is_empty() {
        return Some(decoded);
    }
    let n_bytes = group.len().checked_sub(1).filter(|n| *n > 0)?;
    group.resize(5, 84);
    let value = group.iter().try_fold(0u32, |sum, digit| sum.checked_mul(85)?.checked_add(*digit))?;
    decoded.extend(value.to_be_bytes().get(..n_bytes)?);
    Some(decoded)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, 0 | b'\t' | b'\n' | 0x0c | b'\r' | b' ')
}

/// Skips white space and comments.
fn skip_space(mut bytes: &[u8]) -> &[u8] {
    loop {
        match bytes.first() {
            Some(b'%') => {
                let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(bytes.len());
                bytes = bytes.get(end..).unwrap_or_default();
            }
            Some(byte) if is_space(*byte) => bytes = bytes.get(1..).unwrap_or_default(),
            _ => return bytes,
        }
    }
}

fn all(bytes: &[u8], needle: &[u8]) -> Vec<usize> {
    let mut from = 0;
    let next = || {
        let at = find(bytes, needle, from)?;
        from = at + needle.len();
        Some(at)
    };
    std::iter::from_fn(next).collect()
}

fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let first = needle.first()?;
    let mut at = from;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| byte == first)?;
        if bytes.get(at..)?.starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
}
