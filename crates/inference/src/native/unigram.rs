//! The tokenizer: normalise, cut into words, find the most probable pieces of each word (Viterbi).
//!
//! A text is first brought into form NFC, because the table of the model file replaces single
//! characters and would take a decomposed "ü" for two. Pieces never span words, so each word is solved
//! alone and reading stops at the token limit: the cost is bounded whatever the length of the text.

use std::collections::BTreeMap;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;

use super::Error;
use super::image::{Pieces, Specials};

/// Stands for the space before a word.
const WORD_START: char = '\u{2581}';
/// Longest stretch without a space that is solved in one go, in bytes: more than twice what 512 of the
/// longest pieces of the vocabulary (48 bytes) can cover, so a cut here never shows.
const STRETCH_BYTES: usize = 64 * 1024;
/// Longest piece accepted, in bytes.
const PIECE_BYTES: usize = 256;

/// Token ids of a text, special tokens included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    /// The end of the text did not fit the limit.
    pub(super) truncated: bool,
}

/// A vocabulary in order of its bytes, so that a prefix is a range.
#[derive(Debug)]
pub(super) struct Unigram {
    text: Vec<u8>,
    pieces: Vec<Piece>,
    /// Pieces by first byte; 256 ranges.
    first: Vec<Range<usize>>,
    normaliser: BTreeMap<char, Box<str>>,
    specials: Specials,
    unknown_score: f32,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    start: u32,
    len: u16,
    id: u32,
    score: f32,
}

/// The best way to reach a position in a word.
#[derive(Debug, Clone, Copy)]
struct Step {
    score: f32,
    id: u32,
    from: usize,
}

impl Unigram {
    /// Sorts the vocabulary. Pieces with score zero are control tokens: no text ever becomes one.
    pub(super) fn new(
        stored: &Pieces,
        normaliser: BTreeMap<char, Box<str>>,
        specials: Specials,
    ) -> Result<Self, Error> {
        let lowest = stored.scores.iter().copied().fold(0.0, f32::min);
        let mut order = Vec::with_capacity(stored.scores.len());
        let spans = stored.offsets.iter().zip(stored.offsets.iter().skip(1));
        for ((id, (&start, &end)), &score) in (0_u32..).zip(spans).zip(&stored.scores) {
            let text = stored.text.get(start as usize..end as usize).unwrap_or_default().as_bytes();
            let control = [specials.begin, specials.end, specials.pad, specials.unknown].contains(&id);
            if control || score == 0.0 || text.is_empty() {
                continue;
            }
            if text.len() > PIECE_BYTES {
                return Err(Error::Malformed("a piece is too long"));
            }
            order.push((sort_key(text), text, id, score));
        }
        // The key settles almost every comparison without touching the text.
        order.sort_unstable_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
        if order.windows(2).any(|pair| matches!(pair, [a, b] if a.1 == b.1)) {
            return Err(Error::Malformed("two pieces have one text"));
        }
        let mut text = Vec::with_capacity(stored.text.len());
        let mut pieces = Vec::with_capacity(order.len());
        for (_, bytes, id, score) in order {
            // Both fit: the text was shorter than 4 GiB in the file, a piece has at most 256 bytes.
            let start = u32::try_from(text.len()).unwrap_or(u32::MAX);
            let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            text.extend_from_slice(bytes);
            pieces.push(Piece { start, len, id, score });
        }
        let mut unigram = Self {
            text,
            pieces,
            first: Vec::new(),
            normaliser,
            specials,
            // As in training: ten below the least probable piece.
            unknown_score: lowest - 10.0,
        };
        unigram.first = (0..=255).map(|byte| unigram.narrow(0..unigram.pieces.len(), 0, byte)).collect();
        Ok(unigram)
    }

    /// The tokens of `parts` read as one text, at most `limit` of them with the two special ones.
    pub(super) fn encode(&self, parts: [&str; 2], limit: usize) -> Tokens {
        let room = limit.saturating_sub(2);
        let mut found = Vec::new();
        let mut steps = Vec::new();
        let mut word = String::from(WORD_START);
        // Spaces at the beginning add nothing to the mark the first word has anyway.
        let mut after_space = true;
        for c in self.normalised(parts) {
            if c == ' ' {
                if !after_space {
                    self.solve(&word, &mut steps, &mut found);
                    word.clear();
                    word.push(WORD_START);
                }
                after_space = true;
            } else {
                if word.len() >= STRETCH_BYTES {
                    self.solve(&word, &mut steps, &mut found);
                    word.clear();
                }
                word.push(c);
                after_space = false;
            }
            if found.len() > room {
                word.clear();
                break;
            }
        }
        self.solve(&word, &mut steps, &mut found);
        let truncated = found.len() > room;
        found.truncate(room);
        let mut ids = Vec::with_capacity(found.len() + 2);
        ids.push(self.specials.begin);
        ids.append(&mut found);
        ids.push(self.specials.end);
        Tokens { ids, truncated }
    }

    fn normalised<'a>(&'a self, parts: [&'a str; 2]) -> impl Iterator<Item = char> + 'a {
        let composed = parts.into_iter().flat_map(str::chars).nfc();
        composed.flat_map(|c| {
            let replaced = self.normaliser.get(&c);
            let kept = replaced.is_none().then_some(c);
            replaced.map_or("", |text| text).chars().chain(kept)
        })
    }

    /// Appends the most probable pieces of `word`; a run of unknown characters is one unknown token.
    fn solve(&self, word: &str, steps: &mut Vec<Step>, found: &mut Vec<u32>) {
        let unreached = Step { score: f32::NEG_INFINITY, id: self.specials.unknown, from: 0 };
        steps.clear();
        steps.resize(word.len() + 1, unreached);
        if let Some(start) = steps.first_mut() {
            start.score = 0.0;
        }
        for (at, c) in word.char_indices() {
            let Some(here) = steps.get(at).map(|step| step.score) else { break };
            if here == f32::NEG_INFINITY {
                continue;
            }
            self.for_each_piece(word.as_bytes(), at, |end, piece| {
                improve(steps, end, Step { score: here + piece.score, id: piece.id, from: at });
            });
            let unknown = Step { score: here + self.unknown_score, id: self.specials.unknown, from: at };
            improve(steps, at + c.len_utf8(), unknown);
        }
        let first = found.len();
        let mut at = word.len();
        while at > 0 {
            let Some(step) = steps.get(at) else { break };
            let repeats_unknown = step.id == self.specials.unknown
                && found.len() > first
                && found.last() == Some(&self.specials.unknown);
            if !repeats_unknown {
                found.push(step.id);
            }
            at = step.from;
        }
        if let Some(new) = found.get_mut(first..) {
            new.reverse();
        }
    }

    /// Calls `visit` with the end and every piece that begins at `at`, shortest first.
    fn for_each_piece(&self, word: &[u8], at: usize, mut visit: impl FnMut(usize, Piece)) {
        let Some(rest) = word.get(at..) else { return };
        let Some(mut range) = rest.first().and_then(|byte| self.first.get(usize::from(*byte))).cloned()
        else {
            return;
        };
        for (depth, next) in (1_usize..).zip(rest.iter().skip(1).map(Some).chain([None])) {
            // The shortest piece of a range comes first; it ends here if it is as long as the prefix.
            let Some(piece) = self.pieces.get(range.start).filter(|_| !range.is_empty()) else { return };
            if usize::from(piece.len) == depth {
                visit(at + depth, *piece);
                range.start += 1;
            }
            let Some(&byte) = next else { return };
            range = self.narrow(range, depth, byte);
        }
    }

    /// The part of `range`, whose pieces agree in their first `depth` bytes, with `byte` as the next.
    fn narrow(&self, range: Range<usize>, depth: usize, byte: u8) -> Range<usize> {
        let Some(pieces) = self.pieces.get(range.clone()) else { return 0..0 };
        let next_byte = |piece: &Piece| {
            let inside = depth < usize::from(piece.len);
            if inside { self.text.get(piece.start as usize + depth).copied() } else { None }
        };
        let start = pieces.partition_point(|piece| next_byte(piece) < Some(byte));
        let rest = pieces.get(start..).unwrap_or_default();
        let len = rest.partition_point(|piece| next_byte(piece) <= Some(byte));
        range.start + start..range.start + start + len
    }
}

fn improve(steps: &mut [Step], at: usize, step: Step) {
    if let Some(best) = steps.get_mut(at)
        && step.score > best.score
    {
        *best = step;
    }
}

/// The first eight bytes as a number that sorts like them; shorter texts come first.
fn sort_key(text: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(text) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}
