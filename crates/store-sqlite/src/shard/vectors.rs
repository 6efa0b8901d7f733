//! Packed vectors: eight bits per component with one scale per row, compared with a question of sixteen
//! bits. The scan only proposes; the hits are ranked again by the exact vectors of the records.

/// Components added up before the sum is widened: 256 · 127 · 32,767 stays below 2³¹.
const CHUNK: usize = 256;

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
}

impl Probe {
    /// `None` for a vector without direction.
    pub(crate) fn of(values: &[f32]) -> Option<Self> {
        let (unit, largest) = unit(values)?;
        let scale = largest / 32_767.0;
        Some(Self { components: unit.iter().map(|v| narrow_16(v / scale)).collect(), scale })
    }
}

fn unit(values: &[f32]) -> Option<(Vec<f32>, f32)> {
    let norm = values.iter().map(|v| v * v).sum::<f32>().sqrt();
    if norm <= 0.0 || !norm.is_finite() {
        return None;
    }
    let unit: Vec<f32> = values.iter().map(|v| v / norm).collect();
    let largest = unit.iter().fold(0.0_f32, |largest, v| largest.max(v.abs()));
    (largest > 0.0).then_some((unit, largest))
}

#[expect(clippy::cast_possible_truncation, reason = "the value was scaled into the range and rounded")]
fn narrow_16(value: f32) -> i16 {
    value.round().clamp(-32_767.0, 32_767.0) as i16
}

#[expect(clippy::cast_possible_truncation, reason = "the value was scaled into the range and rounded")]
fn narrow_8(value: f32) -> i8 {
    value.round().clamp(-127.0, 127.0) as i8
}

impl Vectors {
    /// Sets the vector of row `row`, or that it has none. Rows may be set in any order.
    pub(crate) fn set(&mut self, row: usize, values: Option<&[f32]>) {
        let packed = values.and_then(unit);
        if self.dimension == 0
            && let Some((unit, _)) = &packed
        {
            self.dimension = unit.len();
            self.components = vec![0; self.scales.len() * self.dimension];
        }
        if self.scales.len() <= row {
            self.scales.resize(row + 1, 0.0);
            self.components.resize((row + 1) * self.dimension, 0);
        }
        let range = row * self.dimension..(row + 1) * self.dimension;
        let (Some(scale), Some(to)) = (self.scales.get_mut(row), self.components.get_mut(range)) else {
            return;
        };
        match packed {
            // INVARIANT: I-14, rows of one shard have one dimension; the writer refuses other models.
            Some((unit, largest)) if unit.len() == to.len() => {
                *scale = largest / 127.0;
                for (to, value) in to.iter_mut().zip(unit) {
                    *to = narrow_8(value / *scale);
                }
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

    /// About the cosine of a row and the question; `None` if the row has no vector or another dimension.
    pub(crate) fn cosine(&self, row: usize, probe: &Probe) -> Option<f32> {
        let scale = *self.scales.get(row)?;
        if scale == 0.0 || probe.components.len() != self.dimension {
            return None;
        }
        let components = self.components.get(row * self.dimension..(row + 1) * self.dimension)?;
        Some(dot(components, &probe.components) * scale * probe.scale)
    }

    /// By how much the cosine of a row may be off: four standard deviations of the rounding, which is even
    /// within half a step.
    pub(crate) fn slack(&self, row: usize) -> f32 {
        const DEVIATIONS: f32 = 4.0 * 0.289;
        self.scales.get(row).map_or(0.0, |scale| scale * DEVIATIONS)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.components.capacity() + self.scales.capacity() * 4
    }
}

/// Plain loops over chunks, which the compiler turns into vector instructions of any machine.
#[expect(clippy::cast_precision_loss, reason = "an approximation; the hits are ranked again exactly")]
fn dot(row: &[i8], probe: &[i16]) -> f32 {
    let mut total = 0_i64;
    for (row, probe) in row.chunks(CHUNK).zip(probe.chunks(CHUNK)) {
        let mut sum = 0_i32;
        for (a, b) in row.iter().zip(probe) {
            // Wrapping, because the check for an overflow that cannot happen would keep the compiler from
            // using vector instructions.
            sum = sum.wrapping_add(i32::from(i16::from(*a)).wrapping_mul(i32::from(*b)));
        }
        total = total.wrapping_add(i64::from(sum));
    }
    total as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let near = vectors.cosine(0, &Probe::of(&b).unwrap()).unwrap();
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
        let near = vectors.cosine(0, &Probe::of(&ones).unwrap()).unwrap();
        assert!((near - 1.0).abs() < 1e-3, "{near}");
    }

    #[test]
    fn rows_without_a_vector_have_no_cosine() {
        let mut vectors = Vectors::default();
        vectors.set(0, None);
        vectors.set(2, Some(&[1.0, 0.0]));
        vectors.set(1, Some(&[0.0, 1.0]));
        let probe = Probe::of(&[1.0, 0.0]).unwrap();
        assert_eq!(vectors.cosine(0, &probe), None);
        assert!(vectors.cosine(1, &probe).unwrap().abs() < 1e-3);
        assert!((vectors.cosine(2, &probe).unwrap() - 1.0).abs() < 1e-3);
        vectors.retain(&[false, false, true]);
        assert!((vectors.cosine(0, &probe).unwrap() - 1.0).abs() < 1e-3);
        assert!(Probe::of(&[0.0, 0.0]).is_none());
    }
}
