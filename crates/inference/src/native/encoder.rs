//! The encoder: twelve layers of attention and feed-forward over the tokens of some texts at once.
//!
//! Texts are put side by side so that each weight is fetched once for all of them; attention stays
//! inside a text, and rounding is per token, so a vector does not depend on its neighbours.

use super::Error;
use super::image::{BLOCK, BLOCK_BYTES, Image, Shape};
use super::kernels::{Attention, AttentionRoom, Kernels, Linear, Norm, Quantised};
use super::source::Source;
use super::weights::{stacked, unpack};

/// Weights in memory; word vectors stay in the file.
#[derive(Debug)]
pub(super) struct Encoder {
    shape: Shape,
    kernels: Kernels,
    source: Source,
    /// Position of the table of word vectors in the file.
    words_at: u64,
    /// A vector per position, the segment type added.
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    /// Queries, keys and values in one matrix.
    qkv: Linear,
    mixed: Linear,
    mixed_norm: Norm,
    wide: Linear,
    narrow: Linear,
    norm: Norm,
}

impl Encoder {
    /// Reads all weights but the word vectors.
    pub(super) fn new(image: Image, kernels: Kernels) -> Result<Self, Error> {
        let shape = image.shape;
        let hidden = shape.hidden;
        let mut positions = image.floats("emb.pos", shape.positions * hidden)?;
        // All text is of the first segment type.
        let types = image.floats("emb.type", shape.types * hidden)?;
        for position in positions.chunks_exact_mut(hidden) {
            for (x, first_type) in position.iter_mut().zip(&types) {
                *x += first_type;
            }
        }
        let norm = read_norm(&image, "emb.ln")?;
        let layers = (0..shape.layers).map(|n| read_layer(&image, n)).collect::<Result<_, _>>()?;
        let (source, words_at) = image.into_table("emb.word", shape.vocabulary * hidden)?;
        Ok(Self { shape, kernels, source, words_at, positions, norm, layers })
    }

    /// Whether the file is still the one that was opened.
    pub(super) fn file_is_whole(&self) -> bool {
        self.source.unchanged().is_ok()
    }

    /// The kernels in use.
    pub(super) fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// The mean token vector of each text, not yet of length one. Texts are token ids, none empty, none
    /// longer than the table of positions.
    pub(super) fn encode(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>, Error> {
        self.source.unchanged()?;
        let hidden = self.shape.hidden;
        let mut x = self.word_vectors(texts)?;
        // The first norm adds nothing to the word vectors.
        let nothing = vec![0.0; x.len()];
        (self.kernels.add_norm)(&mut x, &nothing, &self.norm);
        let mut room = Room { other: nothing, ..Room::default() };
        for layer in &self.layers {
            self.layer(layer, texts, &mut x, &mut room);
        }
        let mut rest = x.as_slice();
        let mut means = Vec::with_capacity(texts.len());
        for text in texts {
            let (own, others) = rest.split_at_checked(text.len() * hidden).unwrap_or((rest, &[]));
            rest = others;
            means.push(mean(own, hidden));
        }
        Ok(means)
    }

    fn word_vectors(&self, texts: &[&[u32]]) -> Result<Vec<f32>, Error> {
        let hidden = self.shape.hidden;
        let row_bytes = hidden / BLOCK * BLOCK_BYTES;
        let mut row = vec![0; row_bytes];
        let mut x = vec![0.0; texts.iter().map(|text| text.len()).sum::<usize>() * hidden];
        let positions = texts.iter().flat_map(|text| text.iter().zip(self.positions.chunks_exact(hidden)));
        for (x, (&id, position)) in x.chunks_exact_mut(hidden).zip(positions) {
            self.source.read_into(self.words_at + u64::from(id) * row_bytes as u64, &mut row)?;
            unpack(&row, x)?;
            for (x, position) in x.iter_mut().zip(position) {
                *x += position;
            }
        }
        Ok(x)
    }

    fn layer(&self, layer: &Layer, texts: &[&[u32]], x: &mut [f32], room: &mut Room) {
        let Shape { hidden, heads, .. } = self.shape;
        self.linear(&layer.qkv, x, &mut room.bytes, &mut room.wide);
        let (mut qkv, mut out) = (room.wide.as_slice(), room.other.as_mut_slice());
        for text in texts {
            let Some((own, qkv_rest)) = qkv.split_at_checked(text.len() * 3 * hidden) else { break };
            let Some((now, out_rest)) = out.split_at_mut_checked(text.len() * hidden) else { break };
            (qkv, out) = (qkv_rest, out_rest);
            (self.kernels.attention)(&mut Attention {
                qkv: own,
                width: hidden,
                head: hidden / heads,
                room: &mut room.attention,
                out: now,
            });
        }
        self.linear(&layer.mixed, &room.other, &mut room.bytes, &mut room.narrow);
        (self.kernels.add_norm)(x, &room.narrow, &layer.mixed_norm);
        self.linear(&layer.wide, x, &mut room.bytes, &mut room.wide);
        (self.kernels.gelu)(&mut room.wide);
        self.linear(&layer.narrow, &room.wide, &mut room.bytes, &mut room.narrow);
        (self.kernels.add_norm)(x, &room.narrow, &layer.norm);
    }

    fn linear(&self, linear: &Linear, x: &[f32], bytes: &mut Quantised, out: &mut Vec<f32>) {
        (self.kernels.quantise)(x, linear.inputs, bytes);
        out.resize(x.len() / linear.inputs * linear.outputs(), 0.0);
        (self.kernels.linear)(linear, bytes, out);
    }
}

/// Memory used again by every layer.
#[derive(Debug, Default)]
struct Room {
    bytes: Quantised,
    wide: Vec<f32>,
    narrow: Vec<f32>,
    other: Vec<f32>,
    attention: AttentionRoom,
}

fn mean(tokens: &[f32], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    let mut count = 0.0_f32;
    for token in tokens.chunks_exact(width) {
        count += 1.0;
        for (sum, x) in sum.iter_mut().zip(token) {
            *sum += x;
        }
    }
    sum.iter_mut().for_each(|x| *x /= count);
    sum
}

fn read_norm(image: &Image, name: &str) -> Result<Norm, Error> {
    Ok(Norm {
        weight: image.floats(&format!("{name}.w"), image.shape.hidden)?,
        bias: image.floats(&format!("{name}.b"), image.shape.hidden)?,
        epsilon: image.shape.epsilon,
    })
}

fn read_layer(image: &Image, n: usize) -> Result<Layer, Error> {
    let Shape { hidden, inner, .. } = image.shape;
    let name = |part: &str| format!("l{n}.{part}");
    Ok(Layer {
        qkv: stacked(image, &[name("q"), name("k"), name("v")], hidden, hidden)?,
        mixed: stacked(image, &[name("ao")], hidden, hidden)?,
        mixed_norm: read_norm(image, &name("aln"))?,
        wide: stacked(image, &[name("fi")], inner, hidden)?,
        narrow: stacked(image, &[name("fo")], hidden, inner)?,
        norm: read_norm(image, &name("oln"))?,
    })
}
