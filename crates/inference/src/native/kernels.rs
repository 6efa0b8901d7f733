//! The arithmetic of the encoder in portable form, and the choice of a faster form at run time.
//!
//! Every form gives the same bits: integer sums are exact, float sums have one fixed order in sixteen
//! lanes, and products and sums are never fused. So a text has the same vector on every machine.

use super::simd;

/// Lanes of every float sum; rows of weights per group.
pub(super) const LANES: usize = 16;
/// Weights of one row that one step of an integer sum takes.
pub(super) const STEP: usize = 4;
/// Bytes of one step of one group: `STEP` weights of each of `LANES` rows.
pub(super) const STEP_BYTES: usize = LANES * STEP;

/// A matrix of 8-bit weights with a scale per row, its bias, and the order the kernels read it in.
#[derive(Debug)]
pub(super) struct Linear {
    /// Number of inputs, a multiple of 32.
    pub(super) inputs: usize,
    /// Groups of sixteen rows; within a group, steps; within a step, four weights of each row.
    pub(super) packed: Vec<i8>,
    /// Value of one unit of a row's weights.
    pub(super) scale: Vec<f32>,
    /// Sum of each row's weights: takes back the offset of the inputs.
    pub(super) sums: Vec<i32>,
    /// Added to each output.
    pub(super) bias: Vec<f32>,
}

impl Linear {
    /// Number of outputs, a multiple of 32.
    pub(super) fn outputs(&self) -> usize {
        self.bias.len()
    }
}

/// Token vectors as bytes: `byte - 128` units of the token's scale.
#[derive(Debug, Default)]
pub(super) struct Quantised {
    /// All tokens, one after the other.
    pub(super) bytes: Vec<u8>,
    /// Value of one unit of each token.
    pub(super) scale: Vec<f32>,
}

/// Queries, keys and values of one text and where its result goes.
#[derive(Debug)]
pub(super) struct Attention<'a> {
    /// For each token: all queries, all keys, all values, `3 * width` floats.
    pub(super) qkv: &'a [f32],
    /// Width of a token vector.
    pub(super) width: usize,
    /// Width of one head, a multiple of 16.
    pub(super) head: usize,
    /// Memory for the work on one head.
    pub(super) room: &'a mut AttentionRoom,
    /// For each token: the result, `width` floats.
    pub(super) out: &'a mut [f32],
}

/// Queries that are worked on together.
const QUERIES: usize = 4;

/// One head of one text, turned so that sixteen lanes lie side by side.
#[derive(Debug, Default)]
pub(super) struct AttentionRoom {
    /// For each sixteen tokens, for each component of the head: that component of the sixteen keys.
    keys: Vec<[f32; LANES]>,
    /// For each sixteen components, for each token: those components of its value.
    values: Vec<[f32; LANES]>,
    /// For each component: that of the queries.
    queries: Vec<[f32; QUERIES]>,
    /// For each sixteen tokens, for each query: the weights of the tokens.
    weights: Vec<[[f32; LANES]; QUERIES]>,
}

/// What a layer norm needs beside the vectors.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) epsilon: f32,
}

/// One form of all kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernels {
    /// Name for reports.
    pub(super) name: &'static str,
    /// `out[t] = bias + scale * input[t] * weights` for every token `t`.
    pub(super) linear: fn(&Linear, &Quantised, &mut [f32]),
    /// Rounds every token vector of the given width to bytes.
    pub(super) quantise: fn(&[f32], usize, &mut Quantised),
    /// Softmax attention of every head.
    pub(super) attention: fn(&mut Attention<'_>),
    /// Gaussian error linear unit, in place.
    pub(super) gelu: fn(&mut [f32]),
    /// Layer norm of `x + y` for every token, in place of `x`.
    pub(super) add_norm: fn(&mut [f32], &[f32], &Norm),
}

/// The portable form.
pub(super) const PORTABLE: Kernels =
    Kernels { name: "portable", linear: linear_portable, quantise, attention, gelu, add_norm };

impl Kernels {
    /// The fastest form this processor has.
    pub(super) fn detect() -> Self {
        simd::available().first().copied().unwrap_or(PORTABLE)
    }
}

fn linear_portable(linear: &Linear, input: &Quantised, out: &mut [f32]) {
    let rows = linear.outputs();
    let tokens = input.bytes.chunks_exact(linear.inputs).zip(&input.scale).zip(out.chunks_exact_mut(rows));
    for ((bytes, &scale), out) in tokens {
        let steps = bytes.as_chunks::<STEP>().0;
        let groups = linear.packed.chunks_exact(linear.inputs * LANES);
        for ((group, finish), out) in groups.zip(finishes(linear)).zip(out.as_chunks_mut::<LANES>().0) {
            // Four sums per row, added up at the end: a form that compilers turn into vectors.
            let mut sums = [[0_i32; STEP]; LANES];
            for (weights, step) in group.as_chunks::<STEP_BYTES>().0.iter().zip(steps) {
                let step = step.map(|byte| i32::from(byte) - 128);
                for (sums, weights) in sums.iter_mut().zip(weights.as_chunks::<STEP>().0) {
                    for ((sum, &weight), x) in sums.iter_mut().zip(weights).zip(step) {
                        *sum = sum.wrapping_add(i32::from(weight).wrapping_mul(x));
                    }
                }
            }
            let dots = sums.map(|sums| sums.iter().fold(0_i32, |all, sum| all.wrapping_add(*sum)));
            *out = finish.apply(dots, scale);
        }
    }
}

/// Scale, sums and bias of the rows of one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish<'a> {
    scale: &'a [f32; LANES],
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for unsigned inputs only"))]
    sums: &'a [i32; LANES],
    bias: &'a [f32; LANES],
}

impl Finish<'_> {
    /// Exact sums of products out of those with inputs that are 128 too high each.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn without_offset(self, mut dots: [i32; LANES]) -> [i32; LANES] {
        for (dot, sum) in dots.iter_mut().zip(self.sums) {
            *dot = dot.wrapping_sub(sum.wrapping_mul(128));
        }
        dots
    }

    /// Outputs from exact sums of products.
    #[inline(always)]
    pub(super) fn apply(self, dots: [i32; LANES], input_scale: f32) -> [f32; LANES] {
        let mut out = *self.bias;
        for ((out, dot), scale) in out.iter_mut().zip(dots).zip(self.scale) {
            *out += to_f32(dot) * (scale * input_scale);
        }
        out
    }
}

/// One [`Finish`] per group.
#[inline(always)]
pub(super) fn finishes(linear: &Linear) -> impl Iterator<Item = Finish<'_>> {
    let scales = linear.scale.as_chunks::<LANES>().0;
    let sums = linear.sums.as_chunks::<LANES>().0;
    let biases = linear.bias.as_chunks::<LANES>().0;
    let zipped = scales.iter().zip(sums).zip(biases);
    zipped.map(|((scale, sums), bias)| Finish { scale, sums, bias })
}

#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "the last bits of a sum of products do not matter")]
fn to_f32(x: i32) -> f32 {
    x as f32
}

/// Adding this to a float of small magnitude rounds it to a whole number, kept in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// The nearest whole number to a float between -127 and 127, in two's complement.
#[inline(always)]
pub(super) fn round(x: f32) -> u8 {
    let [low, ..] = (x + ROUNDER).to_bits().to_le_bytes();
    low
}

/// Rounds token vectors of `width` to bytes.
#[inline(always)]
pub(super) fn quantise(x: &[f32], width: usize, into: &mut Quantised) {
    into.bytes.resize(x.len(), 0);
    into.scale.clear();
    for (x, bytes) in x.chunks_exact(width).zip(into.bytes.chunks_exact_mut(width)) {
        let mut highest = [0.0_f32; LANES];
        for lanes in x.as_chunks::<LANES>().0 {
            for (highest, x) in highest.iter_mut().zip(lanes) {
                let size = x.abs();
                *highest = if size > *highest { size } else { *highest };
            }
        }
        let highest = highest.iter().copied().fold(0.0, f32::max);
        let inverse = if highest > 1e-30 { 127.0 / highest } else { 0.0 };
        into.scale.push(highest / 127.0);
        for (byte, x) in bytes.iter_mut().zip(x) {
            *byte = round(x * inverse) ^ 0x80;
        }
    }
}

/// `e^x` for `x` up to zero, relative error below 2e-7; what is below -87 counts as -87.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDER;
    let whole = shifted - ROUNDER;
    // ln 2 in two parts, so that the difference is exact to the last bit.
    let rest = (x - whole * 0.693_359_4) + whole * 2.121_944_4e-4;
    let mut series = 1.987_569_2e-4_f32;
    for term in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        series = series * rest + term;
    }
    let series = series * rest * rest + rest + 1.0;
    // The low bits of `shifted` hold the exponent.
    let power = shifted.to_bits().wrapping_add(127).wrapping_shl(23);
    series * f32::from_bits(power)
}

/// Gaussian error linear unit; the error function after Abramowitz and Stegun 7.1.26, error below 2e-7.
#[inline(always)]
pub(super) fn gelu(values: &mut [f32]) {
    for x in values {
        let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / (1.0 + 0.327_591_1 * z);
        let mut series = 1.061_405_4_f32;
        for term in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
            series = series * t + term;
        }
        let erf = 1.0 - series * t * exp(-(z * z));
        *x = 0.5 * *x * (1.0 + erf.copysign(*x));
    }
}

/// Sum of the lanes in one fixed order.
#[inline(always)]
fn total(lanes: [f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = lanes;
    let left = ((a + i) + (b + j)) + ((c + k) + (d + l));
    let right = ((e + m) + (f + n)) + ((g + o) + (h + p));
    left + right
}

/// Layer norm of `x + y` for tokens as wide as the weights.
#[inline(always)]
pub(super) fn add_norm(x: &mut [f32], y: &[f32], norm: &Norm) {
    let width = norm.weight.len();
    let count: f32 = norm.weight.iter().map(|_| 1.0).sum();
    for (x, y) in x.chunks_exact_mut(width).zip(y.chunks_exact(width)) {
        let mut sums = [0.0; LANES];
        for (x, y) in x.as_chunks_mut::<LANES>().0.iter_mut().zip(y.as_chunks::<LANES>().0) {
            for ((x, y), sum) in x.iter_mut().zip(y).zip(&mut sums) {
                *x += y;
                *sum += *x;
            }
        }
        let mean = total(sums) / count;
        let mut squares = [0.0; LANES];
        for x in x.as_chunks::<LANES>().0 {
            for (x, square) in x.iter().zip(&mut squares) {
                *square += (x - mean) * (x - mean);
            }
        }
        let inverse = 1.0 / (total(squares) / count + norm.epsilon).sqrt();
        for ((x, weight), bias) in x.iter_mut().zip(&norm.weight).zip(&norm.bias) {
            *x = (*x - mean) * inverse * weight + bias;
        }
    }
}

/// Softmax attention, head by head, over the tokens of one text.
#[inline(always)]
pub(super) fn attention(a: &mut Attention<'_>) {
    let n_tokens = a.qkv.len() / (3 * a.width);
    let room = &mut *a.room;
    room.weights.resize(n_tokens.div_ceil(LANES), [[0.0; LANES]; QUERIES]);
    let scale = 1.0 / (0..a.head).map(|_| 1.0_f32).sum::<f32>().sqrt();
    for at in (0..a.width).step_by(a.head) {
        turn(a.qkv, a.width, at, a.head, room);
        let groups = a.qkv.chunks(QUERIES * 3 * a.width).zip(a.out.chunks_mut(QUERIES * a.width));
        for (tokens, out) in groups {
            for (n, token) in tokens.chunks_exact(3 * a.width).enumerate() {
                for (places, x) in room.queries.iter_mut().zip(token.iter().skip(at)) {
                    if let Some(place) = places.get_mut(n) {
                        *place = *x;
                    }
                }
            }
            for (keys, weights) in room.keys.chunks_exact(a.head).zip(&mut room.weights) {
                *weights = score(&room.queries, keys);
            }
            let shares = softmax(&mut room.weights, n_tokens, scale);
            for (block, values) in room.values.chunks_exact(n_tokens).enumerate() {
                let mixed = mix(&room.weights, values, shares);
                for (out, mixed) in out.chunks_exact_mut(a.width).zip(mixed) {
                    for (place, x) in out.iter_mut().skip(at + block * LANES).zip(mixed) {
                        *place = x;
                    }
                }
            }
        }
    }
}

/// Lays keys and values of the head that begins at component `at` side by side. Places behind the last
/// token keep what they had: finite numbers that [`softmax`] gives no weight.
#[inline(always)]
fn turn(qkv: &[f32], width: usize, at: usize, head: usize, room: &mut AttentionRoom) {
    let n_tokens = qkv.len() / (3 * width);
    room.queries.resize(head, [0.0; QUERIES]);
    room.keys.resize(n_tokens.div_ceil(LANES) * head, [0.0; LANES]);
    room.values.resize(head / LANES * n_tokens, [0.0; LANES]);
    for (t, token) in qkv.chunks_exact(3 * width).enumerate() {
        let keys = room.keys.iter_mut().skip(t / LANES * head);
        for (places, x) in keys.zip(token.iter().skip(width + at).take(head)) {
            if let Some(place) = places.get_mut(t % LANES) {
                *place = *x;
            }
        }
        let value = token.get(2 * width + at..).unwrap_or_default();
        let values = room.values.iter_mut().skip(t).step_by(n_tokens);
        for (place, x) in values.zip(value.as_chunks::<LANES>().0) {
            *place = *x;
        }
    }
}

/// Adds `factor * x` to `sums`.
#[inline(always)]
fn add_scaled(sums: &mut [f32; LANES], factor: f32, x: &[f32; LANES]) {
    for (sum, x) in sums.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

/// Products of the queries with sixteen keys. Four named sums stay in registers, an array would not.
#[inline(always)]
fn score(queries: &[[f32; QUERIES]], keys: &[[f32; LANES]]) -> [[f32; LANES]; QUERIES] {
    let [mut a, mut b, mut c, mut d] = [[0.0; LANES]; QUERIES];
    for ([qa, qb, qc, qd], key) in queries.iter().zip(keys) {
        add_scaled(&mut a, *qa, key);
        add_scaled(&mut b, *qb, key);
        add_scaled(&mut c, *qc, key);
        add_scaled(&mut d, *qd, key);
    }
    [a, b, c, d]
}

/// Turns scores into weights, not yet divided by their sum; returns one over the sums. Places from
/// `n_tokens` on belong to no token and get weight zero.
#[inline(always)]
fn softmax(scores: &mut [[[f32; LANES]; QUERIES]], n_tokens: usize, scale: f32) -> [f32; QUERIES] {
    fill_padding(scores, n_tokens, f32::NEG_INFINITY);
    let mut highest = [[f32::NEG_INFINITY; LANES]; QUERIES];
    for block in scores.iter() {
        for (highest, lanes) in highest.iter_mut().zip(block) {
            for (highest, x) in highest.iter_mut().zip(lanes) {
                *highest = if *x > *highest { *x } else { *highest };
            }
        }
    }
    let highest = highest.map(|lanes| lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let mut sums = [[0.0; LANES]; QUERIES];
    for block in scores.iter_mut() {
        for ((lanes, sums), highest) in block.iter_mut().zip(&mut sums).zip(highest) {
            for (x, sum) in lanes.iter_mut().zip(sums) {
                *x = exp((*x - highest) * scale);
                *sum += *x;
            }
        }
    }
    fill_padding(scores, n_tokens, 0.0);
    sums.map(|lanes| 1.0 / total(lanes))
}

#[inline(always)]
fn fill_padding(scores: &mut [[[f32; LANES]; QUERIES]], n_tokens: usize, with: f32) {
    let n_padding = scores.len() * LANES - n_tokens;
    for lanes in scores.iter_mut().next_back().into_iter().flatten() {
        lanes.iter_mut().rev().take(n_padding).for_each(|x| *x = with);
    }
}

/// Weighted sums of sixteen components of the values, one for each query, times its share.
#[inline(always)]
fn mix(
    weights: &[[[f32; LANES]; QUERIES]],
    values: &[[f32; LANES]],
    shares: [f32; QUERIES],
) -> [[f32; LANES]; QUERIES] {
    let [mut a, mut b, mut c, mut d] = [[0.0; LANES]; QUERIES];
    for ([wa, wb, wc, wd], values) in weights.iter().zip(values.chunks(LANES)) {
        for ((((wa, wb), wc), wd), value) in wa.iter().zip(wb).zip(wc).zip(wd).zip(values) {
            add_scaled(&mut a, *wa, value);
            add_scaled(&mut b, *wb, value);
            add_scaled(&mut c, *wc, value);
            add_scaled(&mut d, *wd, value);
        }
    }
    let mut sums = [a, b, c, d];
    for (sums, share) in sums.iter_mut().zip(shares) {
        sums.iter_mut().for_each(|sum| *sum *= share);
    }
    sums
}
