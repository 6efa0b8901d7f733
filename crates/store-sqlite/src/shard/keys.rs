//! Where the row of a key stands: the numbers of the rows in the order of their keys. The keys themselves stand
//! in the rows, so this takes four bytes a row. A dead row stays until the shard is tidied.

use crate::shard::index::{Row, RowKey, make_room};

/// Row numbers by key.
#[derive(Default)]
pub(crate) struct Keys {
    sorted: Vec<u32>,
}

fn row_of(rows: &[Row], number: u32) -> Option<&Row> {
    rows.get(usize::try_from(number).ok()?)
}

impl Keys {
    /// Of all rows at once, and the numbers of those whose key a later row has too.
    pub(crate) fn of(rows: &[Row]) -> (Self, Vec<u32>) {
        let key = |number: u32| row_of(rows, number).map(Row::key);
        let mut sorted: Vec<u32> = (0_u32..).take(rows.len()).collect();
        // Stable, so that of equal keys the latest comes last.
        sorted.sort_by_key(|number| key(*number));
        let mut taken = Vec::new();
        sorted.dedup_by(|later, kept| {
            let same = key(*later) == key(*kept);
            if same {
                taken.push(std::mem::replace(kept, *later));
            }
            same
        });
        (Self { sorted }, taken)
    }

    fn place(&self, rows: &[Row], key: &RowKey) -> Result<usize, usize> {
        self.sorted.binary_search_by(|number| row_of(rows, *number).map(Row::key).cmp(&Some(*key)))
    }

    /// The living row of a key.
    pub(crate) fn find(&self, rows: &[Row], key: &RowKey) -> Option<u32> {
        let number = *self.sorted.get(self.place(rows, key).ok()?)?;
        row_of(rows, number).is_some_and(|row| !row.dead).then_some(number)
    }

    /// Gives a key to a row that is not among `rows` yet. Ids are random, so half of the numbers move on average: 4 bytes
    /// of each.
    pub(crate) fn set(&mut self, rows: &[Row], key: &RowKey, number: u32) {
        match self.place(rows, key) {
            Ok(at) => {
                if let Some(kept) = self.sorted.get_mut(at) {
                    *kept = number;
                }
            }
            Err(at) => {
                make_room(&mut self.sorted, 1);
                self.sorted.insert(at, number);
            }
        }
    }

    /// Gives rows new numbers; those without one are gone.
    pub(crate) fn renumber(&mut self, to: impl Fn(u32) -> Option<u32>) {
        self.sorted = self.sorted.iter().filter_map(|number| to(*number)).collect();
    }

    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.sorted.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::index::TURN;

    fn row(key: u32) -> Row {
        Row {
            symbols: [b'A'; 26],
            number: key,
            owner: 0,
            seq: 0,
            conversation: 0,
            valid_from: 0,
            end: 0,
            written_at: 0,
            length: 0,
            kind: TURN,
            dead: false,
        }
    }

    #[test]
    fn a_key_leads_to_its_latest_living_row() {
        let mut rows: Vec<Row> = [5, 3, 9, 3].map(row).into();
        let (mut keys, taken) = Keys::of(&rows);
        assert_eq!(taken, [1]);
        let found = |keys: &Keys, rows: &[Row]| [3, 4, 5, 9].map(|key| keys.find(rows, &row(key).key()));
        assert_eq!(found(&keys, &rows), [Some(3), None, Some(0), Some(2)]);
        rows[0].dead = true;
        assert_eq!(found(&keys, &rows), [Some(3), None, None, Some(2)]);
        for (number, key) in [(4, 5), (5, 4)] {
            keys.set(&rows, &row(key).key(), number);
            rows.push(row(key));
        }
        assert_eq!(found(&keys, &rows), [Some(3), Some(5), Some(4), Some(2)]);
        keys.renumber(|number| number.checked_sub(2));
        rows.drain(..2);
        assert_eq!(found(&keys, &rows), [Some(1), Some(3), Some(2), Some(0)]);
        assert_eq!(keys.sorted.len(), 4);
    }
}
