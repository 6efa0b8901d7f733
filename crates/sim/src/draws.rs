//! Every choice of a run comes from one number. SplitMix64, written out so that a seed means the same on
//! every machine and with every version of every library.

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes a number so that neighbours have nothing in common.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of choices.
#[derive(Debug, Clone)]
pub(crate) struct Draws(u64);

impl Draws {
    /// The stream of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// A stream of its own for one part of the run: what one part draws does not shift another.
    pub(crate) fn apart(seed: u64, part: u64) -> Self {
        Self(mix(seed) ^ mix(part.wrapping_mul(0xD6E8_FEB8_6659_FD93)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Below `end`; zero if `end` is zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        let drawn = self.next().checked_rem(end).unwrap_or(0);
        usize::try_from(drawn).unwrap_or(0)
    }

    /// True in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them, if there is one.
    pub(crate) fn pick<'t, T>(&mut self, of: &'t [T]) -> Option<&'t T> {
        let place = self.below(of.len());
        of.get(place)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = usize::try_from(high.saturating_sub(low)).unwrap_or(0).saturating_add(1);
        low.saturating_add(i64::try_from(self.below(width)).unwrap_or(0))
    }
}
