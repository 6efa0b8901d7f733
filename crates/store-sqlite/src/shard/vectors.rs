//! Packed vectors: eight bits per component with one scale per row, compared with a question of sixteen
//! bits. The scan only proposes; the hits are ranked again by the exact vectors of the records. It is compiled for
//! each kind of vector instructions, and the best the processor has is taken; sums are of integers and equal.

use fearless_simd::{Level, Simd, dispatch};

/// Components added up before the sum is widened: 128 · 127 · 32,767 stays below 2³¹.
const CHUNK: usize = 128;

/// Rows of equal dimension, one behind the other.
#[derive(Default, Clone)]
pub(crate) struct Vectors {
    dimension: usize,
    components: Vec<i8>,
    /// Zero where a row has no vector.
    scales: Vec<f32>,
}

/// A question's vector.
pub(crate) struct Probe {
    components: Vec<i16>,
    scale: f32,
    /// The vector instructions there are.
    level: Level,
}

impl Probe {
    /// `None` for a vector without direction.
    pub(crate) fn of(values: &[f32]) -> Option<Self> {
        let (norm, largest) = size(values)?;
        let factor = 32_767.0 / largest;
        let components = values.iter().map(|v| narrow_16(v * factor)).collect();
        Some(Self { components, scale: largest / norm / 32_767.0, level: Level::new() })
    }
}

/// The length of a vector and its largest component; `None` without a direction.
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn size(values: &[f32]) -> Option<(f32, f32)> {
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
    (norm > 0.0 && norm.is_finite() && largest > 0.0).then_some((norm, largest))
}

#[expect(clippy::cast_possible_truncation, reason = "the value was scaled into the range and rounded")]
fn narrow_16(value: f32) -> i16 {
    rounded(value).clamp(-32_767.0, 32_767.0) as i16
}

#[expect(clippy::cast_possible_truncation, reason = "the value was scaled into the range and rounded")]
fn narrow_8(value: f32) -> i8 {
    rounded(value).clamp(-127.0, 127.0) as i8
}

/// Eight bits of each component.
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn pack(values: &[f32], factor: f32, to: &mut [i8]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to = narrow_8(value * factor);
    }
}

/// To be cut off: `round` is a call of a function where the processor may be old.
fn rounded(value: f32) -> f32 {
    value + 0.5_f32.copysign(value)
}

impl Vectors {
    /// None yet, with room for so many rows as soon as their dimension is known.
    pub(crate) fn for_rows(rows: usize) -> Self {
        Self { scales: Vec::with_capacity(rows), ..Self::default() }
    }

    /// Sets the vector of row `row`, or that it has none. Rows may be set in any order.
    pub(crate) fn set(&mut self, row: usize, values: Option<&[f32]>) {
        let level = Level::new();
        let sized = values.and_then(|values| Some((values, dispatch!(level, _simd => size(values))?)));
        if self.dimension == 0
            && let Some((values, _)) = sized
        {
            self.dimension = values.len();
            self.components = Vec::with_capacity(self.scales.capacity() * self.dimension);
            self.components.resize(self.scales.len() * self.dimension, 0);
        }
        if self.scales.len() <= row {
            self.scales.resize(row + 1, 0.0);
            self.components.resize((row + 1) * self.dimension, 0);
        }
        let range = row * self.dimension..(row + 1) * self.dimension;
        let (Some(scale), Some(to)) = (self.scales.get_mut(row), self.components.get_mut(range)) else {
            return;
        };
        match sized {
            // INVARIANT: I-14, rows of one shard have one dimension; the writer refuses other models.
            Some((values, (norm, largest))) if values.len() == to.len() => {
                let factor = 127.0 / largest;
                *scale = largest / norm / 127.0;
                dispatch!(level, _simd => pack(values, factor, to));
            }
            _ => {
                *scale = 0.0;
                to.fill(0);
            }
        }
    }

    /// Keeps the rows that are told, in their order.
    pub(crate) fn retain(&mut self, keep: &[bool]) {
        let mut kept = Self { dimension: self.dimension, ..Self::default() };
        for (row, scale) in self.scales.iter().enumerate() {
            if keep.get(row).copied().unwrap_or(false) {
                kept.scales.push(*scale);
                let range = row * self.dimension..(row + 1) * self.dimension;
                kept.components.extend_from_slice(self.components.get(range).unwrap_or_default());
            }
        }
        *self = kept;
    }

    /// Adds about the cosines of rows and the question, in their order; `None` for a row that has no vector or one
    /// of another dimension.
    pub(crate) fn cosines(&self, rows: &[usize], probe: &Probe, to: &mut Vec<Option<f32>>) {
        // Chosen once for all rows: a function compiled for other instructions is not merged with its caller.
        dispatch!(probe.level, simd => self.cosines_with(simd, rows, probe, to));
    }

    #[expect(
        clippy::inline_always,
        reason = "it must become part of a function compiled for vector instructions"
    )]
    #[inline(always)]
    fn cosines_with<S: Simd>(&self, _: S, rows: &[usize], probe: &Probe, to: &mut Vec<Option<f32>>) {
        for row in rows {
            let components = self.components.get(row * self.dimension..(row + 1) * self.dimension);
            let cosine = match (self.scales.get(*row), components) {
                (Some(scale), Some(components))
                    if *scale != 0.0 && probe.components.len() == self.dimension =>
                {
                    Some(dot(components, &probe.components) * scale * probe.scale)
                }
                _ => None,
            };
            to.push(cosine);
        }
    }

    /// By how much the cosine of a row may be off: four standard deviations of the rounding, which is even
    /// within half a step.
    pub(crate) fn slack(&self, row: usize) -> f32 {
        const DEVIATIONS: f32 = 4.0 * 0.289;
        self.scales.get(row).map_or(0.0, |scale| scale * DEVIATIONS)
    }

    /// Gives back what was reserved for growth.
    pub(crate) fn shrink(&mut self) {
        self.components.shrink_to_fit();
        self.scales.shrink_to_fit();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.components.capacity() + self.scales.capacity() * 4
    }
}

/// Plain loops over chunks, which the compiler turns into the vector instructions it may use where this is put.
#[expect(clippy::cast_precision_loss, reason = "an approximation; the hits are ranked again exactly")]
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn dot(row: &[i8], probe: &[i16]) -> f32 {
    let mut total = 0_i64;
    let (mut rows, mut probes) = (row.chunks_exact(CHUNK), probe.chunks_exact(CHUNK));
    for (row, probe) in rows.by_ref().zip(probes.by_ref()) {
        total = total.wrapping_add(i64::from(short_dot(row, probe)));
    }
    total = total.wrapping_add(i64::from(short_dot(rows.remainder(), probes.remainder())));
    total as f32
}

/// At most [`CHUNK`] components. Wrapping, because the check for an overflow that cannot happen would keep the
/// compiler from using vector instructions.
#[expect(
    clippy::inline_always,
    reason = "it must become part of a function compiled for vector instructions"
)]
#[inline(always)]
fn short_dot(row: &[i8], probe: &[i16]) -> i32 {
    let products = row.iter().zip(probe).map(|(a, b)| i32::from(*a).wrapping_mul(i32::from(*b)));
    products.fold(0_i32, i32::wrapping_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cosines(vectors: &Vectors, rows: &[usize], probe: &Probe) -> Vec<Option<f32>> {
        let mut found = Vec::new();
        vectors.cosines(rows, probe, &mut found);
        found
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
            let near = cosines(&vectors, &[0], &Probe::of(&b).unwrap())[0].unwrap();
            let exact = merkwelt_store::ranking::cosine(&a, &b).unwrap();
            prop_assert!((near - exact).abs() < vectors.slack(0), "{near} {exact}");
            prop_assert!(vectors.slack(0) < 0.002, "{}", vectors.slack(0));
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
