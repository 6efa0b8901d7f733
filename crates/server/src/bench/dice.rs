//! A seeded generator (SplitMix64): the same seed gives the same run.

/// Where chance comes from. It is predictable and used for measurements only.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl Dice {
    /// The generator of one run and one of its parts.
    pub(super) fn seeded(seed: u64, part: u64) -> Self {
        let mut dice = Self(seed ^ part.wrapping_mul(0xA24B_AED4_963E_E407));
        dice.roll();
        dice
    }

    /// Any number.
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; zero if there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.roll() % end).unwrap_or(0)
    }

    /// True in `percent` of a hundred cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// One of these texts; empty if there is none.
    pub(super) fn word<'a>(&mut self, from: &[&'a str]) -> &'a str {
        self.pick(from).copied().unwrap_or("")
    }

    /// Lower-case letters and digits, as ids and marks are made of.
    pub(super) fn letters(&mut self, n: usize) -> String {
        let mut letter = || LETTERS.get(self.below(LETTERS.len())).copied().map_or('a', char::from);
        (0..n).map(|_| letter()).collect()
    }

    /// A number between -1 and 1.
    pub(super) fn signed(&mut self) -> f32 {
        let part = u16::try_from(self.roll() >> 48).unwrap_or(0);
        f32::from(part) / 32_768.0 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_run_and_another_part_another() {
        let rolls = |seed, part| (0..8).map(|_| Dice::seeded(seed, part).roll()).collect::<Vec<_>>();
        assert_eq!(rolls(1, 2), rolls(1, 2));
        assert_ne!(rolls(1, 2), rolls(1, 3));
        let mut dice = Dice::seeded(1, 1);
        assert!((0..1000).all(|_| dice.below(3) < 3 && dice.signed().abs() <= 1.0));
        assert_eq!((dice.below(0), dice.letters(26).len()), (0, 26));
    }
}
