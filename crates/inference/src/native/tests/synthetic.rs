//! A complete model file of a few kilobytes with arbitrary weights.

use super::super::kernels::Kernels;
use super::super::source::Source;
use super::super::{E5, Error};

pub(super) const HIDDEN: usize = 32;
pub(super) const INNER: usize = 64;
pub(super) const LAYERS: usize = 2;
pub(super) const HEADS: usize = 2;
pub(super) const POSITIONS: usize = 16;

/// Text and score of every piece; the place is the id.
pub(super) const PIECES: [(&str, f32); 24] = [
    ("<s>", 0.0),
    ("<pad>", 0.0),
    ("</s>", 0.0),
    ("<unk>", 0.0),
    ("▁", -2.0),
    ("a", -4.0),
    ("b", -4.5),
    ("ab", -5.0),
    ("▁ab", -6.0),
    ("abc", -12.0),
    ("c", -4.0),
    ("ü", -5.0),
    ("▁query", -3.0),
    ("▁passage", -3.0),
    (":", -3.0),
    ("f", -5.0),
    ("i", -5.0),
    ("fi", -6.0),
    ("▁a", -4.2),
    ("ba", -7.0),
    ("x", -6.0),
    ("日", -6.0),
    ("日本", -7.0),
    ("<mask>", 0.0),
];

/// Replacements of the normaliser.
const REPLACED: [(char, &str); 4] = [('\t', " "), ('ﬁ', "fi"), ('\u{200b}', ""), ('\u{1f}', "")];

/// Arbitrary numbers, the same every time (xorshift).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end
    }

    /// A float between -1 and 1.
    pub(super) fn float(&mut self) -> f32 {
        f32::from(u16::try_from(self.next() >> 48).unwrap()) / 32_768.0 - 1.0
    }
}

/// The bytes of the model file.
pub(super) fn file() -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut head = b"E5S1".to_vec();
    let put = |head: &mut Vec<u8>, n: usize| head.extend(u32::try_from(n).unwrap().to_le_bytes());
    for n in [1, HIDDEN, LAYERS, HEADS, INNER, PIECES.len(), POSITIONS, 2] {
        put(&mut head, n);
    }
    head.extend(1e-12_f32.to_le_bytes());
    for n in [32, PIECES.len(), 0, 2, 1, 3] {
        put(&mut head, n);
    }
    let text: String = PIECES.iter().map(|(piece, _)| *piece).collect();
    head.extend((text.len() as u64).to_le_bytes());
    let mut end = 0;
    put(&mut head, end);
    for (piece, _) in PIECES {
        end += piece.len();
        put(&mut head, end);
    }
    head.extend(PIECES.iter().flat_map(|(_, score)| score.to_le_bytes()));
    head.extend(text.as_bytes());
    let mut table = Vec::new();
    for (from, to) in REPLACED {
        table.extend(u32::from(from).to_le_bytes());
        table.push(u8::try_from(to.chars().count()).unwrap());
        table.extend(to.chars().flat_map(|c| u32::from(c).to_le_bytes()));
    }
    put(&mut head, REPLACED.len());
    put(&mut head, table.len());
    head.extend(table);
    let tensors = tensors(&mut random);
    put(&mut head, tensors.len());
    let directory_len: usize = tensors.iter().map(|(name, ..)| name.len() + 23).sum();
    let mut offset = (head.len() + directory_len).next_multiple_of(64);
    let mut content = Vec::new();
    for (name, kind, len, bytes) in tensors {
        head.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        head.extend(name.as_bytes());
        head.push(kind);
        put(&mut head, len);
        head.extend((offset as u64).to_le_bytes());
        head.extend((bytes.len() as u64).to_le_bytes());
        offset += bytes.len();
        content.extend(bytes);
    }
    head.resize(head.len().next_multiple_of(64), 0);
    head.extend(content);
    head
}

type Tensor = (String, u8, usize, Vec<u8>);

fn tensors(random: &mut Random) -> Vec<Tensor> {
    let mut all = vec![
        packed("emb.word", PIECES.len() * HIDDEN, random),
        plain("emb.pos", POSITIONS * HIDDEN, 0.0, random),
        plain("emb.type", 2 * HIDDEN, 0.0, random),
        plain("emb.ln.w", HIDDEN, 1.0, random),
        plain("emb.ln.b", HIDDEN, 0.0, random),
    ];
    for layer in 0..LAYERS {
        for (part, outputs, inputs) in [
            ("q", HIDDEN, HIDDEN),
            ("k", HIDDEN, HIDDEN),
            ("v", HIDDEN, HIDDEN),
            ("ao", HIDDEN, HIDDEN),
            ("fi", INNER, HIDDEN),
            ("fo", HIDDEN, INNER),
        ] {
            all.push(packed(&format!("l{layer}.{part}.w"), outputs * inputs, random));
            all.push(plain(&format!("l{layer}.{part}.b"), outputs, 0.0, random));
        }
        for norm in ["aln", "oln"] {
            all.push(plain(&format!("l{layer}.{norm}.w"), HIDDEN, 1.0, random));
            all.push(plain(&format!("l{layer}.{norm}.b"), HIDDEN, 0.0, random));
        }
    }
    all
}

fn plain(name: &str, len: usize, around: f32, random: &mut Random) -> Tensor {
    let bytes = (0..len).flat_map(|_| (around + random.float() / 4.0).to_le_bytes()).collect();
    (name.to_owned(), 0, len, bytes)
}

fn packed(name: &str, len: usize, random: &mut Random) -> Tensor {
    let mut bytes = Vec::new();
    for _ in 0..len / 32 {
        // Scales between 1/64 and 1/16.
        let scale = 0x2400 + u16::try_from(random.below(0x0800)).unwrap();
        bytes.extend(scale.to_le_bytes());
        bytes.extend(random.next().to_le_bytes());
        bytes.extend(random.next().to_le_bytes());
    }
    (name.to_owned(), 1, len, bytes)
}

/// Opens `bytes` as a model.
pub(super) fn open(bytes: Vec<u8>, kernels: Kernels) -> Result<E5, Error> {
    E5::from_source(Source::Memory(bytes), "00".repeat(32), kernels)
}
