//! The model file, format "E5S1": a header, the tables of the tokenizer, a directory, the tensors.
//!
//! Nothing in the file is believed: every count, size, offset and number is checked against the length
//! of the file and the shape of the model before it is used. All numbers are little endian.

use std::collections::BTreeMap;

use super::Error;
use super::source::Source;

/// Weights per block of the 4-bit format: a 16-bit float scale, then 32 nibbles.
pub(super) const BLOCK: usize = 32;
/// Bytes per block.
pub(super) const BLOCK_BYTES: usize = 18;

/// The sizes of the encoder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// Width of a token vector; a multiple of 32.
    pub(super) hidden: usize,
    /// Number of layers.
    pub(super) layers: usize,
    /// Attention heads; each is a multiple of 16 wide.
    pub(super) heads: usize,
    /// Width between the two halves of a feed-forward step; a multiple of 32.
    pub(super) inner: usize,
    /// Rows of the table of word vectors.
    pub(super) vocabulary: usize,
    /// Rows of the table of positions, the token limit.
    pub(super) positions: usize,
    /// Rows of the table of segment types.
    pub(super) types: usize,
    /// Added to a variance before the root is taken.
    pub(super) epsilon: f32,
}

/// Tokens with a function instead of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Specials {
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) pad: u32,
    pub(super) unknown: u32,
}

/// The vocabulary of the tokenizer as stored.
#[derive(Debug)]
pub(super) struct Pieces {
    /// All pieces one after the other.
    pub(super) text: String,
    /// Piece `i` is `text[offsets[i]..offsets[i + 1]]`; checked to be in order and on characters.
    pub(super) offsets: Vec<u32>,
    /// Logarithm of the probability of each piece.
    pub(super) scores: Vec<f32>,
}

/// How a tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    F32,
    Q4,
}

#[derive(Debug, Clone, Copy)]
struct Tensor {
    kind: Kind,
    /// Number of weights.
    len: usize,
    /// Position of the first byte; the whole tensor lies inside the file.
    offset: u64,
}

/// A checked file: tables in memory, tensors read when asked for.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) shape: Shape,
    pub(super) specials: Specials,
    pub(super) pieces: Pieces,
    /// Character to replacement, per code point.
    pub(super) normaliser: BTreeMap<char, Box<str>>,
    tensors: BTreeMap<String, Tensor>,
    source: Source,
}

const fn malformed(what: &'static str) -> Error {
    Error::Malformed(what)
}

impl Image {
    /// Reads and checks everything but the tensors' content.
    pub(super) fn read(source: Source) -> Result<Self, Error> {
        let mut cursor = Cursor { source: &source, at: 0 };
        if cursor.array::<4>()? != *b"E5S1" || cursor.u32()? != 1 {
            return Err(malformed("it does not begin with E5S1, version 1"));
        }
        let shape = read_shape(&mut cursor)?;
        let (specials, pieces) = read_pieces(&mut cursor, shape.vocabulary)?;
        let normaliser = read_normaliser(&mut cursor)?;
        let tensors = read_directory(&mut cursor)?;
        Ok(Self { shape, specials, pieces, normaliser, tensors, source })
    }

    /// The tensor called `name`, which must hold exactly `len` plain floats, all finite.
    pub(super) fn floats(&self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        let tensor = self.tensor(name, Kind::F32, len)?;
        let bytes = self.source.read(tensor.offset, len * 4)?;
        let floats: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        if !floats.iter().all(|x| x.is_finite()) {
            return Err(malformed("a weight is not a finite number"));
        }
        Ok(floats)
    }

    /// The packed tensor called `name`, which must hold exactly `len` 4-bit weights: its blocks.
    pub(super) fn blocks(&self, name: &str, len: usize) -> Result<Vec<u8>, Error> {
        let tensor = self.tensor(name, Kind::Q4, len)?;
        self.source.read(tensor.offset, len / BLOCK * BLOCK_BYTES)
    }

    /// Gives the file away together with the position of the packed tensor called `name`, for a tensor
    /// that is better left in the file.
    pub(super) fn into_table(self, name: &str, len: usize) -> Result<(Source, u64), Error> {
        let tensor = self.tensor(name, Kind::Q4, len)?;
        Ok((self.source, tensor.offset))
    }

    fn tensor(&self, name: &str, kind: Kind, len: usize) -> Result<Tensor, Error> {
        let tensor = self.tensors.get(name).ok_or(malformed("a tensor is missing"))?;
        if tensor.kind != kind || tensor.len != len {
            return Err(malformed("a tensor has another shape than the header says"));
        }
        Ok(*tensor)
    }
}

/// Reads on from a position; never beyond the end, never more memory than the file has bytes.
struct Cursor<'a> {
    source: &'a Source,
    at: u64,
}

impl Cursor<'_> {
    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let bytes = self.source.read(self.at, len)?;
        self.at += len as u64;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.bytes(N)?.try_into().map_err(|_| malformed("it ends early"))
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    fn f32(&mut self) -> Result<f32, Error> {
        self.array().map(f32::from_le_bytes)
    }

    /// A count between `least` and `most`; `what` is the complaint.
    fn count(&mut self, least: usize, most: usize, what: &'static str) -> Result<usize, Error> {
        let count = usize::try_from(self.u32()?).map_err(|_| malformed(what))?;
        if (least..=most).contains(&count) { Ok(count) } else { Err(malformed(what)) }
    }
}

fn read_shape(cursor: &mut Cursor<'_>) -> Result<Shape, Error> {
    let hidden = cursor.count(32, 4_096, "the width is out of range")?;
    let layers = cursor.count(1, 64, "the number of layers is out of range")?;
    let heads = cursor.count(1, 256, "the number of heads is out of range")?;
    let inner = cursor.count(32, 16_384, "the inner width is out of range")?;
    let vocabulary = cursor.count(1, 2_000_000, "the size of the vocabulary is out of range")?;
    let positions = cursor.count(8, 8_192, "the number of positions is out of range")?;
    let types = cursor.count(1, 16, "the number of types is out of range")?;
    let epsilon = cursor.f32()?;
    let block = cursor.count(0, usize::MAX, "the block size is out of range")?;
    if block != BLOCK || hidden % BLOCK != 0 || inner % BLOCK != 0 {
        return Err(malformed("a width is no multiple of the block size 32"));
    }
    if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(16) {
        return Err(malformed("a head is no multiple of 16 wide"));
    }
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(malformed("epsilon is out of range"));
    }
    Ok(Shape { hidden, layers, heads, inner, vocabulary, positions, types, epsilon })
}

fn read_pieces(cursor: &mut Cursor<'_>, vocabulary: usize) -> Result<(Specials, Pieces), Error> {
    let n_pieces = cursor.count(4, vocabulary, "the number of pieces is out of range")?;
    let mut special = || cursor.count(0, n_pieces - 1, "a special token is no piece");
    let [begin, end, pad, unknown] = [special()?, special()?, special()?, special()?];
    let text_len = usize::try_from(u64::from_le_bytes(cursor.array()?)).unwrap_or(usize::MAX);
    let offsets = cursor.bytes((n_pieces + 1) * 4)?;
    let offsets: Vec<u32> = offsets.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    let scores = cursor.bytes(n_pieces * 4)?;
    let scores: Vec<f32> = scores.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let text = cursor.bytes(text_len)?;
    let text = String::from_utf8(text).map_err(|_| malformed("a piece is no text"))?;
    let ends_fit = offsets.first() == Some(&0) && offsets.last().is_some_and(|&o| o as usize == text.len());
    if !ends_fit || !offsets.is_sorted() || !offsets.iter().all(|&o| text.is_char_boundary(o as usize)) {
        return Err(malformed("the pieces do not tile their text"));
    }
    if !scores.iter().all(|score| (-1e6..=0.0).contains(score)) {
        return Err(malformed("the score of a piece is out of range"));
    }
    let id = |index: usize| u32::try_from(index).map_err(|_| malformed("a special token is no piece"));
    let specials = Specials { begin: id(begin)?, end: id(end)?, pad: id(pad)?, unknown: id(unknown)? };
    Ok((specials, Pieces { text, offsets, scores }))
}

/// Entries are: code point, number of replacements (one byte), the replacements.
fn read_normaliser(cursor: &mut Cursor<'_>) -> Result<BTreeMap<char, Box<str>>, Error> {
    let n_entries = cursor.count(0, 1_114_112, "the number of replaced characters is out of range")?;
    let n_bytes = cursor.count(0, 64 << 20, "the table of replacements is out of range")?;
    let table = cursor.bytes(n_bytes)?;
    let mut rest = table.as_slice();
    let next_char = |rest: &mut &[u8]| -> Result<char, Error> {
        let (code, after) = rest.split_first_chunk::<4>().ok_or(malformed("a replacement is cut off"))?;
        *rest = after;
        char::from_u32(u32::from_le_bytes(*code)).ok_or(malformed("a replacement is no character"))
    };
    let mut map = BTreeMap::new();
    for _ in 0..n_entries {
        let from = next_char(&mut rest)?;
        let (n_to, after) = rest.split_first().ok_or(malformed("a replacement is cut off"))?;
        rest = after;
        let to = (0..*n_to).map(|_| next_char(&mut rest)).collect::<Result<String, Error>>()?;
        if map.insert(from, to.into_boxed_str()).is_some() {
            return Err(malformed("a character is replaced twice"));
        }
    }
    if rest.is_empty() { Ok(map) } else { Err(malformed("the table of replacements has a rest")) }
}

fn read_directory(cursor: &mut Cursor<'_>) -> Result<BTreeMap<String, Tensor>, Error> {
    let n_tensors = cursor.count(1, 4_096, "the number of tensors is out of range")?;
    let mut tensors = BTreeMap::new();
    for _ in 0..n_tensors {
        let name_len = usize::from(u16::from_le_bytes(cursor.array()?));
        let name = String::from_utf8(cursor.bytes(name_len)?);
        let name = name.map_err(|_| malformed("the name of a tensor is no text"))?;
        let [kind] = cursor.array::<1>()?;
        let len = cursor.count(1, 1 << 31, "the size of a tensor is out of range")?;
        let offset = u64::from_le_bytes(cursor.array()?);
        let n_bytes = u64::from_le_bytes(cursor.array()?);
        let (kind, expected) = match kind {
            0 => (Kind::F32, len as u64 * 4),
            1 if len.is_multiple_of(BLOCK) => (Kind::Q4, (len / BLOCK * BLOCK_BYTES) as u64),
            _ => return Err(malformed("a tensor is stored in an unknown way")),
        };
        let end = offset.checked_add(n_bytes);
        if n_bytes != expected || end.is_none_or(|end| end > cursor.source.len()) {
            return Err(malformed("a tensor does not lie inside the file"));
        }
        if tensors.insert(name, Tensor { kind, len, offset }).is_some() {
            return Err(malformed("two tensors have one name"));
        }
    }
    Ok(tensors)
}
