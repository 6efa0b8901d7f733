//! How much a document may cost. Work is counted in steps instead of time, so that the same bytes are
//! accepted or refused on every machine.

use crate::refusal::{Bound, Refusal};

/// The most that one document may cost. Every field may be lowered or raised; the defaults suit a service that
/// reads documents of offices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes_max: usize,
    /// Bytes of all that is unpacked from it, together.
    pub expanded_bytes_max: usize,
    /// How many times larger than its packed form a part may become, once it is larger than 1 MiB.
    pub ratio_max: usize,
    /// Bytes of the text that comes out.
    pub text_bytes_max: usize,
    /// Pages of a PDF.
    pub pages_max: usize,
    /// Entries of an archive, objects of a PDF, blocks of the text.
    pub entries_max: usize,
    /// How deep elements may stand in each other.
    pub depth_max: usize,
    /// Steps of work: about one per byte, character, element or drawing instruction that is looked at.
    pub steps_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 32 << 20,
            expanded_bytes_max: 128 << 20,
            ratio_max: 200,
            text_bytes_max: 16 << 20,
            pages_max: 5_000,
            entries_max: 200_000,
            depth_max: 256,
            steps_max: 400_000_000,
        }
    }
}

/// What was used of the [`Limits`] so far.
#[derive(Debug)]
pub(crate) struct Meter<'l> {
    limits: &'l Limits,
    n_steps: u64,
    n_expanded: usize,
    n_entries: usize,
}

impl<'l> Meter<'l> {
    pub(crate) fn new(limits: &'l Limits) -> Self {
        Self { limits, n_steps: 0, n_expanded: 0, n_entries: 0 }
    }

    pub(crate) fn limits(&self) -> &'l Limits {
        self.limits
    }

    pub(crate) fn bytes(&self, n: usize) -> Result<(), Refusal> {
        within(n, self.limits.bytes_max, Bound::Bytes)
    }

    /// Counts what something unpacks to, before it is unpacked.
    pub(crate) fn expands(&mut self, n: usize) -> Result<(), Refusal> {
        self.n_expanded = self.n_expanded.saturating_add(n);
        if self.n_expanded > self.limits.expanded_bytes_max { Err(Refusal::Bomb) } else { Ok(()) }
    }

    pub(crate) fn text(&self, n: usize) -> Result<(), Refusal> {
        within(n, self.limits.text_bytes_max, Bound::TextBytes)
    }

    pub(crate) fn depth(&self, n: usize) -> Result<(), Refusal> {
        within(n, self.limits.depth_max, Bound::Depth)
    }

    pub(crate) fn entry(&mut self) -> Result<(), Refusal> {
        self.n_entries += 1;
        within(self.n_entries, self.limits.entries_max, Bound::Entries)
    }

    pub(crate) fn steps(&mut self, n: usize) -> Result<(), Refusal> {
        self.n_steps = self.n_steps.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
        if self.n_steps > self.limits.steps_max { Err(Refusal::TooComplex) } else { Ok(()) }
    }
}

fn within(n: usize, max: usize, bound: Bound) -> Result<(), Refusal> {
    if n > max { Err(Refusal::TooLarge { bound, max }) } else { Ok(()) }
}
