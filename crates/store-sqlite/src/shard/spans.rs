//! What is known of many neighbouring rows at once: between which bounds their numbers lie, and which of them are
//! alive. Bounds only widen, so what a row of a span may be is never denied; they are drawn anew when dead rows are
//! cleared away.

use crate::shard::index::{PASSAGE, Row, TURN};

/// Rows of a span.
pub(crate) const SPAN: usize = 512;
/// Rows that share a word.
pub(crate) const WORD: usize = 64;

/// The lowest and the highest of some numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds<T> {
    pub(crate) lowest: T,
    pub(crate) highest: T,
}

impl<T: Copy + Ord> Bounds<T> {
    fn of(number: T) -> Self {
        Self { lowest: number, highest: number }
    }

    fn widen(&mut self, number: T) {
        self.lowest = self.lowest.min(number);
        self.highest = self.highest.max(number);
    }

    /// The number, if it is the same everywhere.
    pub(crate) fn only(self) -> Option<T> {
        (self.lowest == self.highest).then_some(self.lowest)
    }
}

/// Neighbouring rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// A bit for each row that is alive.
    pub(crate) alive: [u64; SPAN / WORD],
    /// The sum of the lengths of those alive.
    pub(crate) length: u64,
    pub(crate) owner: Bounds<u32>,
    pub(crate) valid_from: Bounds<i64>,
    pub(crate) end: Bounds<i64>,
    pub(crate) written_at: Bounds<i64>,
    kinds: u32,
}

/// A bit for a kind: the code of a memory's, or one of the two highest.
fn bit(kind: u8) -> u32 {
    match kind {
        TURN => 1 << 30,
        PASSAGE => 1 << 31,
        kind => 1_u32.wrapping_shl(kind.into()),
    }
}

impl Span {
    fn of(row: &Row) -> Self {
        Self {
            alive: [0; SPAN / WORD],
            length: 0,
            owner: Bounds::of(row.owner),
            valid_from: Bounds::of(row.valid_from),
            end: Bounds::of(row.end),
            written_at: Bounds::of(row.written_at),
            kinds: 0,
        }
    }

    fn add(&mut self, place: usize, row: &Row) {
        self.owner.widen(row.owner);
        self.valid_from.widen(row.valid_from);
        self.end.widen(row.end);
        self.written_at.widen(row.written_at);
        self.kinds |= bit(row.kind);
        if let Some(word) = self.alive.get_mut(place / WORD).filter(|_| !row.dead) {
            *word |= 1 << (place % WORD);
            self.length += u64::from(row.length);
        }
    }

    /// The kinds of its memories: a bit for each code.
    pub(crate) fn memories(&self) -> u32 {
        self.kinds & !bit(TURN) & !bit(PASSAGE)
    }

    /// Whether a row is, or was, of a kind.
    pub(crate) fn has(&self, kind: u8) -> bool {
        self.kinds & bit(kind) != 0
    }

    /// How many rows are alive.
    pub(crate) fn living(&self) -> u64 {
        self.alive.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// The spans of a shard.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    pub(crate) fn of(rows: &[Row]) -> Self {
        let mut spans = Self::default();
        for (at, row) in rows.iter().enumerate() {
            spans.push(at, row);
        }
        spans
    }

    /// Takes in the row that comes next.
    pub(crate) fn push(&mut self, at: usize, row: &Row) {
        if at.is_multiple_of(SPAN) {
            self.0.push(Span::of(row));
        }
        if let Some(span) = self.0.last_mut() {
            span.add(at % SPAN, row);
        }
    }

    /// A row has died.
    pub(crate) fn bury(&mut self, at: usize, row: &Row) {
        let Some(span) = self.0.get_mut(at / SPAN) else { return };
        if let Some(word) = span.alive.get_mut(at % SPAN / WORD) {
            *word &= !(1 << (at % WORD));
            span.length = span.length.saturating_sub(u64::from(row.length));
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Span> {
        self.0.iter()
    }

    pub(crate) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Span>()
    }
}
