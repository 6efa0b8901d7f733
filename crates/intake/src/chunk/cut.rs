//! Where a section that is too large is cut: before the atom of the lowest rank, and then each half again, until
//! the parts fit. A boundary depends on the ranks around it and not on how much text stands before it, so a
//! change moves only the boundaries next to it.

use std::ops::Range;

use super::{Atom, ChunkRule};

/// The parts of a section, in order.
pub(super) fn parts<'a>(section: &'a [Atom], rule: &ChunkRule<'_>, text: &str) -> Vec<&'a [Atom]> {
    let lowest = Lowest::of(section);
    let mut sums = Vec::with_capacity(section.len() + 1);
    let mut sum = 0usize;
    sums.push(0);
    for atom in section {
        // One more for what stands between two atoms.
        sum = sum.saturating_add(atom.size).saturating_add(1);
        sums.push(sum);
    }
    let mut done = Vec::new();
    let whole = 0..section.len();
    let mut open = vec![whole];
    while let Some(range) = open.pop() {
        let Some(part) = section.get(range.clone()) else { continue };
        if part.len() < 2 || fits(part, &sums, &range, rule, text) {
            done.push(part);
            continue;
        }
        let at = lowest.within(candidates(&sums, &range, rule.size_min));
        open.push(at..range.end);
        open.push(range.start..at);
    }
    done
}

/// Tokens do not add up exactly, so near the bound the joined text is measured.
fn fits(part: &[Atom], sums: &[usize], range: &Range<usize>, rule: &ChunkRule<'_>, text: &str) -> bool {
    let sum = between(sums, range.start, range.end).saturating_sub(1);
    let (Some(first), Some(last)) = (part.first(), part.last()) else { return true };
    let whole = || text.get(first.range.start..last.range.end).unwrap_or_default();
    sum <= rule.size_max && (sum <= rule.size_max / 4 * 3 || rule.measure.size(whole()) <= rule.size_max)
}

fn between(sums: &[usize], from: usize, to: usize) -> usize {
    sums.get(to).unwrap_or(&0).saturating_sub(*sums.get(from).unwrap_or(&0))
}

/// Before which atoms the range may be cut: those that leave enough on both sides, or any.
fn candidates(sums: &[usize], range: &Range<usize>, size_min: usize) -> Range<usize> {
    let inside = range.start + 1..range.end;
    let starts = sums.get(inside.clone()).unwrap_or_default();
    let (from, to) = (*sums.get(range.start).unwrap_or(&0), *sums.get(range.end).unwrap_or(&0));
    let first = inside.start + starts.partition_point(|sum| sum.saturating_sub(from) < size_min);
    let end = inside.start + starts.partition_point(|sum| to.saturating_sub(*sum) >= size_min);
    if first < end { first..end } else { inside }
}

/// Finds the atom of the lowest rank in any range at once. Without it, ranks chosen by somebody who means harm
/// would make the work quadratic.
struct Lowest {
    /// Level `n` holds the position of the lowest of each run of 2^n atoms.
    levels: Vec<Vec<usize>>,
    ranks: Vec<u32>,
}

impl Lowest {
    fn of(section: &[Atom]) -> Self {
        let ranks: Vec<u32> = section.iter().map(|atom| atom.rank).collect();
        let mut lowest = Self { levels: vec![(0..ranks.len()).collect()], ranks };
        let mut len = 1;
        while len * 2 <= lowest.ranks.len() {
            let last = lowest.levels.last().map(Vec::as_slice).unwrap_or_default();
            let pairs = last.iter().zip(last.iter().skip(len));
            let next = pairs.map(|(left, right)| lowest.lower(*left, *right)).collect();
            lowest.levels.push(next);
            len *= 2;
        }
        lowest
    }

    /// The first of the lowest in a range that is not empty.
    fn within(&self, range: Range<usize>) -> usize {
        let level = range.len().checked_ilog2().unwrap_or(0);
        let runs = usize::try_from(level).ok().and_then(|level| self.levels.get(level));
        let at = |index: usize| runs.and_then(|runs| runs.get(index)).copied();
        let right = at(range.end.saturating_sub(1 << level));
        match (at(range.start), right) {
            (Some(left), Some(right)) => self.lower(left, right),
            _ => range.start,
        }
    }

    fn lower(&self, left: usize, right: usize) -> usize {
        if self.ranks.get(right) < self.ranks.get(left) { right } else { left }
    }
}
