//! Whether a record may be served as current: one pure function with one reason per refusal (I-7). Every
//! path that serves content passes here, and only [`admit`] makes a [`Fresh`].

use serde::{Deserialize, Serialize};

use crate::memory::{Expiry, Revision};
use crate::time::{Interval, Timestamp};

/// From when until when a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first time at which it holds.
    pub from: Timestamp,
    /// Its end.
    pub expiry: Expiry,
}

impl Validity {
    /// The time from which it no longer holds, if it ends.
    #[must_use]
    pub fn end(self) -> Option<Timestamp> {
        match self.expiry {
            Expiry::At(end) => Some(end),
            Expiry::Never(_) => None,
        }
    }
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It stands.
    Active,
    /// A newer revision took its place.
    Superseded {
        /// The revision that took its place.
        by: Revision,
        /// When.
        at: Timestamp,
    },
    /// It was withdrawn without a successor.
    Retracted {
        /// When.
        at: Timestamp,
    },
    /// It is kept but must not be served (L-08).
    Restricted {
        /// Since when.
        at: Timestamp,
    },
}

/// Why a record may not be served as current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Stale {
    /// Its end has come, whether or not a sweep has run.
    #[error("expired")]
    Expired,
    /// It does not hold yet.
    #[error("not yet valid")]
    NotYetValid,
    /// A newer revision took its place.
    #[error("superseded")]
    Superseded,
    /// It was withdrawn.
    #[error("retracted")]
    Retracted,
    /// It is restricted.
    #[error("restricted")]
    Restricted,
    /// It does not hold during the interval the caller asked for.
    #[error("outside the interval asked for")]
    OutsideInterval,
    /// It claims to have been written after the present server time.
    #[error("written in the future")]
    FromTheFuture,
}

/// What [`admit`] needs to know. It is read from the value itself, so no caller can pass another's.
pub trait Evidence {
    /// From when until when it holds.
    fn validity(&self) -> Validity;
    /// What became of it.
    fn standing(&self) -> Standing;
    /// When it was written.
    fn written_at(&self) -> Timestamp;
}

impl Evidence for crate::memory::Memory {
    fn validity(&self) -> Validity {
        crate::memory::Memory::validity(self)
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn written_at(&self) -> Timestamp {
        self.written_at
    }
}

/// The receipt that a value was admitted as current. It has one maker: [`admit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh<T>(T);

impl<T> Fresh<T> {
    /// The admitted value.
    pub fn get(&self) -> &T {
        &self.0
    }

    /// The admitted value, consuming the receipt.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Clocks of machines that write into one cell may differ by this much without a refusal, in
/// milliseconds.
pub const SKEW_MILLIS: i64 = 5_000;

/// Admits a value as current at `now`, and, if an interval is given, as holding throughout the part of
/// it that lies ahead: a value that ends inside a narrower interval is still current, one that does not
/// touch the interval is not.
///
/// # Errors
/// The first reason, in the order of [`Stale`]'s listing in the code below, why it may not be served.
pub fn admit<T: Evidence>(value: T, now: Timestamp, interval: Option<Interval>) -> Result<Fresh<T>, Stale> {
    match value.standing() {
        Standing::Active => {}
        Standing::Superseded { .. } => return Err(Stale::Superseded),
        Standing::Retracted { .. } => return Err(Stale::Retracted),
        Standing::Restricted { .. } => return Err(Stale::Restricted),
    }
    let validity = value.validity();
    if validity.end().is_some_and(|end| end <= now) {
        return Err(Stale::Expired);
    }
    if now < validity.from {
        return Err(Stale::NotYetValid);
    }
    if value.written_at().millis() > now.millis().saturating_add(SKEW_MILLIS) {
        return Err(Stale::FromTheFuture);
    }
    if interval.is_some_and(|asked| !overlaps(validity, asked)) {
        return Err(Stale::OutsideInterval);
    }
    Ok(Fresh(value))
}

fn overlaps(validity: Validity, asked: Interval) -> bool {
    validity.from < asked.until() && validity.end().is_none_or(|end| asked.from() < end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Row {
        from: i64,
        end: i64,
        standing: Standing,
    }

    impl Evidence for Row {
        fn validity(&self) -> Validity {
            Validity { from: t(self.from), expiry: Expiry::At(t(self.end)) }
        }
        fn standing(&self) -> Standing {
            self.standing
        }
        fn written_at(&self) -> Timestamp {
            t(self.from)
        }
    }

    fn t(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn row(standing: Standing) -> Row {
        Row { from: 100, end: 200, standing }
    }

    #[test]
    fn r_011_a_row_is_served_inside_its_window_only() {
        assert_eq!(admit(row(Standing::Active), t(99), None), Err(Stale::NotYetValid));
        assert!(admit(row(Standing::Active), t(100), None).is_ok());
        assert!(admit(row(Standing::Active), t(199), None).is_ok());
        assert_eq!(admit(row(Standing::Active), t(200), None), Err(Stale::Expired));
    }

    #[test]
    fn r_011_a_narrower_interval_excludes_what_does_not_touch_it() {
        let asked = |a, b| Some(Interval::new(t(a), t(b)).unwrap());
        assert_eq!(admit(row(Standing::Active), t(150), asked(0, 100)), Err(Stale::OutsideInterval));
        assert!(admit(row(Standing::Active), t(150), asked(0, 101)).is_ok());
        assert!(admit(row(Standing::Active), t(150), asked(199, 300)).is_ok());
        assert_eq!(admit(row(Standing::Active), t(150), asked(200, 300)), Err(Stale::OutsideInterval));
    }

    #[test]
    fn r_017_what_was_replaced_withdrawn_or_restricted_is_refused_with_its_reason() {
        let at = t(120);
        for (standing, stale) in [
            (Standing::Superseded { by: Revision::from_number(2), at }, Stale::Superseded),
            (Standing::Retracted { at }, Stale::Retracted),
            (Standing::Restricted { at }, Stale::Restricted),
        ] {
            assert_eq!(admit(row(standing), t(150), None), Err(stale));
        }
    }

    #[test]
    fn a_row_written_further_in_the_future_than_clocks_differ_is_refused() {
        struct Future(Row, i64);
        impl Evidence for Future {
            fn validity(&self) -> Validity {
                self.0.validity()
            }
            fn standing(&self) -> Standing {
                self.0.standing()
            }
            fn written_at(&self) -> Timestamp {
                t(self.1)
            }
        }
        let admitted = |written_at| {
            let mut late = row(Standing::Active);
            late.from = 100;
            admit(Future(late, written_at), t(150), None).map(|_| ())
        };
        assert_eq!(admitted(150 + SKEW_MILLIS), Ok(()));
        assert_eq!(admitted(150 + SKEW_MILLIS + 1), Err(Stale::FromTheFuture));
    }

    proptest! {
        #[test]
        fn nothing_is_served_outside_its_window(from in 0i64..1000, len in 1i64..1000, now in 0i64..3000) {
            let row = Row { from, end: from + len, standing: Standing::Active };
            prop_assert_eq!(admit(row, t(now), None).is_ok(), from <= now && now < from + len);
        }
    }
}
