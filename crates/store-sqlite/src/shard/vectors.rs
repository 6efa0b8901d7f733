//! Packed vectors: eight bits per component in two planes of four, compared with a question of fourteen bits. The
//! upper plane says how near a row may be at most; only where that is near enough the lower one is read too. The
//! scan only proposes; the hits are ranked again by the exact vectors of the records. It is compiled for each kind
//! of vector instructions, and the best the processor has is taken; sums are of integers and equal.

use fearless_simd::prelude::*;
use fearless_simd::{Level, Simd, dispatch, f32x16, i16x32, i32x16, u16x32};

use crate::shard::index::make_room;

/// Words of a chunk. Each holds a component in each of its four nibbles.
const WORDS: usize = 32;
const NIBBLES: usize = 4;
const CHUNK: usize = WORDS * NIBBLES;
/// The largest component of a question.
const ASKED_LARGEST: f32 = 8_191.0;
/// Dimensions there may be: 16,384 · 15 · 8,191 stays below 2³¹.
const DIMENSIONS_MAX: usize = 16_384;
/// The largest component of eight bits, so that both of its halves fit four bits: 7 · 16 + 7.
const LARGEST: f32 = 119.0;

/// A part of a plane, in one line of the processor's cache. Nibble `n` of word `w` is the component `n · 32 + w`, so
/// that shifting all words brings neighbours out side by side. A nibble is eight more than what it stands for.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk([u16; WORDS]);

/// Four components of zero.
const ZERO: u16 = 0x8888;

impl Chunk {
    const ZERO: Self = Self([ZERO; WORDS]);
}

/// The part of a question that belongs to a chunk: what the first nibbles are multiplied with, the second, and so on.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Asked([[i16; WORDS]; NIBBLES]);

/// What a plane's sums of a row are multiplied with, and by how much the cosine may be off then.
#[derive(Clone, Copy, Default)]
struct Scales {
    /// Zero where the row has no vector.
    fine: f32,
    /// For the upper plane alone.
    coarse: f32,
    fine_off: Off,
    coarse_off: Off,
}

/// The upper half of the bits of a float that is not negative, rounded up.
#[derive(Clone, Copy, Default)]
struct Off(u16);

impl Off {
    fn of(value: f32) -> Self {
        Self(u16::try_from((value.to_bits() >> 16) + 1).unwrap_or(u16::MAX))
    }

    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Rows of equal dimension, one behind the other.
#[derive(Default, Clone)]
pub(crate) struct Vectors {
    dimension: usize,
    high: Vec<Chunk>,
    low: Vec<Chunk>,
    scales: Vec<Scales>,
}

/// A question's vector.
pub(crate) struct Probe {
    dimension: usize,
    components: Vec<Asked>,
    /// What the eight of all nibbles adds to a sum.
    zero: i32,
    scale: f32,
    /// By how much its rounding may change a cosine: by what it loses, and twice that for rows that lose much.
    off: f32,
    /// The vector instructions there are.
    level: Level,
}

impl Probe {
    /// `None` for a vector without direction.
    pub(crate) fn of(values: &[f32]) -> Option<Self> {
        let size = size(values)?;
        let factor = ASKED_LARGEST / size.largest;
        let mut components = vec![Asked([[0; WORDS]; NIBBLES]); values.len().div_ceil(CHUNK)];
        let places = components.iter_mut().flat_map(|asked| asked.0.as_flattened_mut());
        let (mut zero, mut lost) = (0_i32, 0.0);
        for (to, value) in places.zip(values) {
            *to = narrow_16(value * factor);
            lost += (value * factor - f32::from(*to)).powi(2);
            zero = zero.wrapping_add(8 * i32::from(*to));
        }
        let scale = size.share / ASKED_LARGEST;
        let off = 2.0 * lost.sqrt() * scale;
        Some(Self { dimension: values.len(), components, zero, scale, off, level: Level::new() })
    }
}

/// How large a vector is.
struct Size {
    largest: f32,
    /// The largest component of the vector of length one.
    share: f32,
}

/// `None` without a direction.
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn size(values: &[f32]) -> Option<Size> {
    // Sixteen side by side, which the compiler turns into vector instructions.
    let (mut squares, mut largest) = ([0.0_f32; 16], [0.0_f32; 16]);
    for chunk in values.chunks(16) {
        for ((square, largest), v) in squares.iter_mut().zip(&mut largest).zip(chunk) {
            *square += v * v;
            *largest = largest.max(v.abs());
        }
    }
    let norm = squares.iter().sum::<f32>().sqrt();
    let largest = largest.into_iter().fold(0.0_f32, f32::max);
    let share = if (1e-15..1e15).contains(&norm) { largest / norm } else { extreme_share(values, largest) };
    // A component that is no number makes the share none; one that is all too small cannot be
    // scaled up.
    let fits = values.len() <= DIMENSIONS_MAX && (ASKED_LARGEST / largest).is_finite();
    (share > 0.0 && share.is_finite() && fits).then_some(Size { largest, share })
}

/// Where squares do not fit 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "a share of one")]
#[cold]
fn extreme_share(values: &[f32], largest: f32) -> f32 {
    let norm = values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    (f64::from(largest) / norm) as f32
}

#[expect(clippy::cast_possible_truncation, reason = "the value was scaled into the range and rounded")]
fn narrow_16(value: f32) -> i16 {
    rounded(value).clamp(-ASKED_LARGEST, ASKED_LARGEST) as i16
}

/// What a plane loses of the scaled vector.
struct Lost {
    /// The product of what is lost with the vector.
    product: f32,
    /// The square of its length.
    square: f32,
    /// The components that lose something.
    components: f32,
}

/// Puts eight bits of each component into the planes. Back comes what is lost with the upper plane alone, and
/// what with both.
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn pack<S: Simd>(simd: S, values: &[f32], factor: f32, high: &mut [Chunk], low: &mut [Chunk]) -> [Lost; 2] {
    let mut lost = [Losses::none(simd), Losses::none(simd)];
    for ((values, high), low) in values.chunks(CHUNK).zip(high).zip(low) {
        let mut padded = [0.0; CHUNK];
        for (to, value) in padded.iter_mut().zip(values) {
            *to = *value;
        }
        let (halves, _) = padded.as_chunks::<{ WORDS / 2 }>();
        let (mut high_words, mut low_words) = (simd.splat_u16x32(ZERO), simd.splat_u16x32(ZERO));
        for (halves, shift) in halves.chunks(2).zip([0_u32, 4, 8, 12]) {
            let [first, second] = halves else { continue };
            // No closures: they would be functions of their own, without the vector instructions.
            let first = split(simd, first, factor, &mut lost);
            let second = split(simd, second, factor, &mut lost);
            high_words += (simd.narrow_i32x16(first.0, second.0) << shift).bitcast::<u16x32<S>>();
            low_words += (simd.narrow_i32x16(first.1, second.1) << shift).bitcast::<u16x32<S>>();
        }
        (high.0, low.0) = (high_words.into(), low_words.into());
    }
    let [coarse, fine] = lost;
    [coarse.sum(simd), fine.sum(simd)]
}

/// The upper and the lower half of components.
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn split<S: Simd>(
    simd: S,
    values: &[f32; 16],
    factor: f32,
    [coarse, fine]: &mut [Losses<S>; 2],
) -> (i32x16<S>, i32x16<S>) {
    let values: f32x16<S> = (*values).simd_into(simd);
    let scaled = values * factor;
    let rounded = scaled.round_ties_even();
    let whole: i32x16<S> = rounded.to_int();
    // To the nearest step, so that what is left lies evenly around zero.
    let upper = (whole + 8) >> 4;
    let lower = whole - (upper << 4);
    fine.add(simd, scaled, scaled - rounded);
    let kept: f32x16<S> = (upper << 4).to_float();
    coarse.add(simd, scaled, scaled - kept);
    (upper, lower)
}

/// Sums of [`Lost`], side by side.
struct Losses<S: Simd> {
    product: f32x16<S>,
    square: f32x16<S>,
    components: f32x16<S>,
}

impl<S: Simd> Losses<S> {
    #[expect(
        clippy::inline_always,
        reason = "it must become part of a function compiled for vector instructions"
    )]
    #[inline(always)]
    fn none(simd: S) -> Self {
        let zero = simd.splat_f32x16(0.0);
        Self { product: zero, square: zero, components: zero }
    }

    #[expect(
        clippy::inline_always,
        reason = "it must become part of a function compiled for vector instructions"
    )]
    #[inline(always)]
    fn add(&mut self, simd: S, scaled: f32x16<S>, lost: f32x16<S>) {
        self.product += lost * scaled;
        self.square += lost * lost;
        let (none, one) = (simd.splat_f32x16(0.0), simd.splat_f32x16(1.0));
        self.components += simd.select_f32x16(lost.simd_eq(none), none, one);
    }

    #[expect(
        clippy::inline_always,
        reason = "it must become part of a function compiled for vector instructions"
    )]
    #[inline(always)]
    fn sum(self, simd: S) -> Lost {
        Lost {
            product: simd.reduce_sum_f32x16(self.product),
            square: simd.reduce_sum_f32x16(self.square),
            components: simd.reduce_sum_f32x16(self.components),
        }
    }
}

/// To be cut off: `round` is a call of a function where the processor may be old.
fn rounded(value: f32) -> f32 {
    value + 0.5_f32.copysign(value)
}

/// What the upper plane says of a row.
#[derive(Clone, Copy)]
pub(crate) struct Coarse {
    sum: i32,
    /// What its cosine is at most; less than any for a row that has no vector or one of another dimension.
    pub(crate) at_most: f32,
}

impl Coarse {
    /// Of a row that has no vector.
    pub(crate) const NONE: Self = Self { sum: 0, at_most: f32::NEG_INFINITY };
}

impl Vectors {
    /// None yet, with room for so many rows as soon as their dimension is known.
    pub(crate) fn for_rows(rows: usize) -> Self {
        Self { scales: Vec::with_capacity(rows), ..Self::default() }
    }

    /// Chunks of a row.
    fn width(&self) -> usize {
        self.dimension.div_ceil(CHUNK)
    }

    /// Sets the vector of row `row`, or that it has none. Rows may be set in any order.
    pub(crate) fn set(&mut self, row: usize, values: Option<&[f32]>) {
        let level = Level::new();
        let sized = values.and_then(|values| Some((values, dispatch!(level, _simd => size(values))?)));
        if self.dimension == 0
            && let Some((values, _)) = sized
        {
            self.dimension = values.len();
            for plane in [&mut self.high, &mut self.low] {
                *plane = Vec::with_capacity(self.scales.capacity() * self.dimension.div_ceil(CHUNK));
            }
        }
        let width = self.width();
        if self.scales.len() <= row {
            let more = row + 1 - self.scales.len();
            make_room(&mut self.scales, more);
            self.scales.resize(row + 1, Scales::default());
        }
        for plane in [&mut self.high, &mut self.low] {
            let chunks = self.scales.len() * width;
            make_room(plane, chunks.saturating_sub(plane.len()));
            plane.resize(chunks, Chunk::ZERO);
        }
        let range = row * width..(row + 1) * width;
        let (Some(scale), Some(high), Some(low)) =
            (self.scales.get_mut(row), self.high.get_mut(range.clone()), self.low.get_mut(range))
        else {
            return;
        };
        match sized {
            // INVARIANT: I-14, rows of one shard have one dimension; the writer refuses other models.
            Some((values, size)) if values.len() == self.dimension => {
                let factor = LARGEST / size.largest;
                let lost = dispatch!(level, simd => pack(simd, values, factor, high, low));
                *scale = Scales::of(&size, lost);
            }
            _ => {
                *scale = Scales::default();
                high.fill(Chunk::ZERO);
                low.fill(Chunk::ZERO);
            }
        }
    }

    /// Keeps the rows that are told, in their order.
    pub(crate) fn retain(&mut self, keep: &[bool]) {
        let (mut kept, width) = (Self { dimension: self.dimension, ..Self::default() }, self.width());
        for (row, scale) in self.scales.iter().enumerate() {
            if keep.get(row).copied().unwrap_or(false) {
                kept.scales.push(*scale);
                let range = row * width..(row + 1) * width;
                kept.high.extend_from_slice(self.high.get(range.clone()).unwrap_or_default());
                kept.low.extend_from_slice(self.low.get(range).unwrap_or_default());
            }
        }
        *self = kept;
    }

    /// Whether a row has a vector to be compared with such a question.
    pub(crate) fn has(&self, row: usize, probe: &Probe) -> bool {
        probe.dimension == self.dimension && self.scales.get(row).is_some_and(|scale| scale.fine != 0.0)
    }

    /// What the upper plane says of rows, in their order.
    pub(crate) fn coarse(&self, rows: &[usize], probe: &Probe, to: &mut Vec<Coarse>) {
        to.clear();
        to.resize(rows.len(), Coarse::NONE);
        if probe.dimension == self.dimension {
            // Chosen once for all rows: a function compiled for other instructions is not merged with its caller.
            dispatch!(probe.level, simd => self.coarse_with(simd, rows, probe, to));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an approximation; the bound is wider than what is lost")]
    #[expect(
        clippy::inline_always,
        reason = "it must become part of a function compiled for vector instructions"
    )]
    #[inline(always)]
    fn coarse_with<S: Simd>(&self, simd: S, rows: &[usize], probe: &Probe, to: &mut [Coarse]) {
        let width = self.width();
        for (row, to) in rows.iter().zip(to) {
            let (Some(scales), Some(chunks)) =
                (self.scales.get(*row), self.high.get(row.wrapping_mul(width)..))
            else {
                continue;
            };
            if scales.fine != 0.0 {
                let sum = dot(simd, chunks, probe);
                let cosine = sum as f32 * scales.coarse * probe.scale;
                *to = Coarse { sum, at_most: cosine + scales.coarse_off.get() + probe.off };
            }
        }
    }

    /// About the cosines of rows of which the upper plane was read, in their order.
    pub(crate) fn fine(&self, rows: &[(usize, Coarse)], probe: &Probe, to: &mut Vec<f32>) {
        to.clear();
        to.resize(rows.len(), 0.0);
        dispatch!(probe.level, simd => self.fine_with(simd, rows, probe, to));
    }

    #[expect(clippy::cast_precision_loss, reason = "an approximation; the hits are ranked again exactly")]
    #[expect(
        clippy::inline_always,
        reason = "it must become part of a function compiled for vector instructions"
    )]
    #[inline(always)]
    fn fine_with<S: Simd>(&self, simd: S, rows: &[(usize, Coarse)], probe: &Probe, to: &mut [f32]) {
        let width = self.width();
        for ((row, coarse), to) in rows.iter().zip(to) {
            let (Some(scales), Some(chunks)) =
                (self.scales.get(*row), self.low.get(row.wrapping_mul(width)..))
            else {
                continue;
            };
            let sum = 16 * i64::from(coarse.sum) + i64::from(dot(simd, chunks, probe));
            *to = sum as f32 * scales.fine * probe.scale;
        }
    }

    /// About the cosine of one row.
    #[cfg(test)]
    pub(crate) fn cosine(&self, row: usize, probe: &Probe) -> Option<f32> {
        let (mut coarse, mut fine) = (Vec::new(), Vec::new());
        self.coarse(&[row], probe, &mut coarse);
        self.fine(&[(row, coarse[0])], probe, &mut fine);
        self.has(row, probe).then(|| fine[0])
    }

    /// By how much the cosine of a row may be off.
    pub(crate) fn slack(&self, row: usize, probe: &Probe) -> f32 {
        self.scales.get(row).map_or(0.0, |scales| scales.fine_off.get() + probe.off)
    }

    /// Gives back what was reserved for growth.
    pub(crate) fn shrink(&mut self) {
        self.high.shrink_to_fit();
        self.low.shrink_to_fit();
        self.scales.shrink_to_fit();
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.high.capacity() + self.low.capacity()) * size_of::<Chunk>()
            + self.scales.capacity() * size_of::<Scales>()
    }
}

/// Standard deviations by which a cosine may be off. Both planes are compared with what others reach for sure, so that
/// a loss takes two that are off; with the upper one alone a single one would be enough.
const FINE_DEVIATIONS: f32 = 4.0;
const COARSE_DEVIATIONS: f32 = 6.0;

impl Scales {
    fn of(size: &Size, [upper, both]: [Lost; 2]) -> Self {
        let (coarse, coarse_off) = upper.scale(size, COARSE_DEVIATIONS);
        let (fine, fine_off) = both.scale(size, FINE_DEVIATIONS);
        // The upper plane counts in steps of sixteen.
        Self { fine, coarse: coarse * 16.0, fine_off, coarse_off }
    }
}

impl Lost {
    /// What a product with a question is multiplied with, and by how much the cosine may be off then.
    ///
    /// Let `h` be what is kept, `x` the vector and `q` the question, both of length one. The part of `h` along `x` is
    /// `a = h·x`, so `h·q / a` is the cosine plus `r·p / a`, where `r` is what is left of `h` beside `x`, and `p` what
    /// is left of `q` beside `x`. A row that points as the question does is not off at all therefore, whatever its
    /// shape, and no row by more than `|r| / a`. The cosine of two directions that know nothing of each other has a
    /// standard deviation of `1 / √(dimensions - 1)`, where those count in which something is lost.
    fn scale(&self, size: &Size, deviations: f32) -> (f32, Off) {
        let length = LARGEST / size.share;
        let along = length - self.product / length;
        // What is lost has the same part beside `x` as what is kept. Sums are off in their last digits.
        let lost = self.product / length;
        let beside = (self.square - lost * lost).max(0.0) + self.square * 1e-6;
        let spread = (self.components - 1.0).max(1.0).sqrt();
        // INVARIANT: with few dimensions the bound holds for every pair, with more up to the deviations.
        (1.0 / along, Off::of(beside.sqrt() / along * (deviations / spread).min(1.0) + 1e-5))
    }
}

/// The product of a row of a plane, with which the chunks begin, and the question: nibble by nibble.
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn dot<S: Simd>(simd: S, chunks: &[Chunk], probe: &Probe) -> i32 {
    let mut sums = simd.splat_i32x16(0);
    for (asked, chunk) in probe.components.iter().zip(chunks) {
        let mut words: u16x32<S> = chunk.0.simd_into(simd);
        for components in &asked.0 {
            let nibbles = (words & 15).bitcast::<i16x32<S>>();
            sums += simd.pairwise_dot_product_i16x32(nibbles, (*components).simd_into(simd));
            words >>= 4;
        }
    }
    simd.reduce_sum_i32x16(sums).wrapping_sub(probe.zero)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cosines(vectors: &Vectors, rows: &[usize], probe: &Probe) -> Vec<Option<f32>> {
        rows.iter().map(|row| vectors.cosine(*row, probe)).collect()
    }

    proptest! {
        // `slack` is four standard deviations of the rounding: about one random pair in 16,000 lies outside. The
        // same 256 pairs are drawn each time, so that a red run means a change.
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_packed_cosine_is_close_to_the_exact_one(
            a in proptest::collection::vec(-1.0f32..1.0, 384),
            b in proptest::collection::vec(-1.0f32..1.0, 384),
        ) {
            let mut vectors = Vectors::default();
            vectors.set(0, Some(&a));
            let probe = Probe::of(&b).unwrap();
            let near = cosines(&vectors, &[0], &probe)[0].unwrap();
            let exact = merkwelt_store::ranking::cosine(&a, &b).unwrap();
            let slack = vectors.slack(0, &probe);
            prop_assert!((near - exact).abs() < slack, "{near} {exact}");
            prop_assert!(slack < 0.002, "{slack}");
        }
    }

    /// Numbers between -1 and 1.
    fn numbers(mut seed: u64, count: usize) -> Vec<f32> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f32::from(u16::try_from(seed >> 48).unwrap()) / 32_768.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// Vectors of shapes that roundings are not even for: few values, one component above all, hardly any component.
    fn shaped(shape: u8, values: &[f32]) -> Vec<f32> {
        let of = |(at, value): (usize, &f32)| match shape {
            0 => *value,
            1 => value.signum(),
            2 if at % 29 != 0 => 0.0,
            3 if at == 7 => 40.0,
            4 => value.signum() * if at % 2 == 0 { 1.0 } else { 0.06 },
            5 => value.abs(),
            6 => value * 1e30,
            7 => value * 1e-30,
            8 => value.powi(9),
            _ => *value,
        };
        values.iter().enumerate().map(of).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, rng_seed: proptest::test_runner::RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_cosine_is_higher_than_the_upper_plane_says(
            seeds in any::<[u64; 2]>(),
            shapes in (0..9_u8, 0..9_u8),
            dimension in prop_oneof![1..40_usize, Just(128), Just(384), Just(520)],
            alike in prop_oneof![Just(0.0_f32), Just(1.0), 0.0f32..1.0],
        ) {
            let [a, b] = seeds.map(|seed| numbers(seed, dimension));
            let a = shaped(shapes.0, &a);
            let b = shaped(shapes.1, &b);
            let largest = |v: &[f32]| v.iter().fold(0.0_f32, |largest, v| largest.max(v.abs()));
            let (of_a, of_b) = (largest(&a), largest(&b));
            prop_assume!(of_a > 0.0 && of_b > 0.0);
            let mixed = |(a, b): (&f32, &f32)| a / of_a * alike + b / of_b * (1.0 - alike);
            let asked: Vec<f32> = a.iter().zip(&b).map(mixed).collect();
            let exact = merkwelt_store::ranking::cosine(&a, &asked);
            let (Some(exact), Some(probe)) = (exact, Probe::of(&asked)) else { return Ok(()) };
            let mut vectors = Vectors::default();
            vectors.set(0, Some(&a));
            let mut coarse = Vec::new();
            vectors.coarse(&[0], &probe, &mut coarse);
            prop_assert!(exact <= coarse[0].at_most, "{exact} {}", coarse[0].at_most);
            let near = vectors.cosine(0, &probe).unwrap();
            let slack = vectors.slack(0, &probe);
            prop_assert!((near - exact).abs() <= slack, "{near} {exact} {slack}");
        }
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        let ones = vec![1.0_f32; 4096];
        let mut vectors = Vectors::default();
        vectors.set(0, Some(&ones));
        let near = cosines(&vectors, &[0], &Probe::of(&ones).unwrap())[0].unwrap();
        assert!((near - 1.0).abs() < 1e-3, "{near}");
    }

    #[test]
    fn rows_without_a_vector_have_no_cosine() {
        let mut vectors = Vectors::default();
        vectors.set(0, None);
        vectors.set(2, Some(&[1.0, 0.0]));
        vectors.set(1, Some(&[0.0, 1.0]));
        let probe = Probe::of(&[1.0, 0.0]).unwrap();
        let found = cosines(&vectors, &[0, 1, 2, 3], &probe);
        assert_eq!((found[0], found[3]), (None, None));
        assert!(found[1].unwrap().abs() < 1e-3);
        assert!((found[2].unwrap() - 1.0).abs() < 1e-3);
        vectors.retain(&[false, false, true]);
        assert!((cosines(&vectors, &[0], &probe)[0].unwrap() - 1.0).abs() < 1e-3);
        assert_eq!(cosines(&vectors, &[0], &Probe::of(&[1.0, 0.0, 0.0]).unwrap()), [None]);
        assert!(Probe::of(&[0.0, 0.0]).is_none());
    }
}
