//! Server time in UTC with millisecond precision, and half-open intervals of it. Every time that crosses
//! an edge is RFC 3339; anything else is refused (I-15).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is not a time or two times are not an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not an RFC 3339 date and time with an offset.
    #[error("not an RFC 3339 date and time with an offset, such as 2026-03-01T12:00:00Z")]
    Malformed,
    /// Before 1970 or after what can be written.
    #[error("must lie between 1970-01-01T00:00:00Z and 9999-12-30T22:00:00Z")]
    OutOfRange,
    /// The interval ends before it begins.
    #[error("interval ends before it begins")]
    Reversed,
}

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

/// 9999-12-30T22:00:00Z: the last second that is in the year 9999 everywhere on earth, and the last that can
/// be written.
const LAST_MILLIS: i64 = 253_402_207_200_000;

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// One day in milliseconds.
    pub const DAY_MILLIS: i64 = 86_400_000;

    /// A time from milliseconds since 1970, held within 1970 and 9999.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(0, LAST_MILLIS))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.0
    }

    /// This time plus whole days of 24 hours, held at the end of 9999.
    #[must_use]
    pub fn plus_days(self, days: u32) -> Self {
        Self::from_millis(self.0.saturating_add(i64::from(days).saturating_mul(Self::DAY_MILLIS)))
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // RFC 3339 wants a `T` and an offset; the library also reads looser forms.
        let strict = text.len() <= 40 && text.as_bytes().get(10) == Some(&b'T') && !text.contains('[');
        if !strict {
            return Err(Error::Malformed);
        }
        let parsed: jiff::Timestamp = match text.parse() {
            Ok(parsed) => parsed,
            // The library ends before the year does.
            Err(_) if text.starts_with("9999-12-3") => return Err(Error::OutOfRange),
            Err(_) => return Err(Error::Malformed),
        };
        let millis = parsed.as_millisecond();
        if (0..=LAST_MILLIS).contains(&millis) { Ok(Self(millis)) } else { Err(Error::OutOfRange) }
    }
}

impl TryFrom<String> for Timestamp {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> String {
        time.to_string()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => Err(fmt::Error),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// From `from` (included) to `until` (excluded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    from: Timestamp,
    until: Timestamp,
}

impl Interval {
    /// An interval whose end is not before its beginning.
    ///
    /// # Errors
    /// [`Error::Reversed`].
    pub fn new(from: Timestamp, until: Timestamp) -> Result<Self, Error> {
        if until < from { Err(Error::Reversed) } else { Ok(Self { from, until }) }
    }

    /// The first time inside.
    #[must_use]
    pub fn from(self) -> Timestamp {
        self.from
    }

    /// The first time after.
    #[must_use]
    pub fn until(self) -> Timestamp {
        self.until
    }

    /// Whether `time` lies inside.
    #[must_use]
    pub fn contains(self, time: Timestamp) -> bool {
        self.from <= time && time < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc_with_milliseconds() {
        let time: Timestamp = "2026-03-01T13:00:00+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2026-03-01T12:00:00.000Z");
        assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn the_first_and_the_last_time_can_be_written_and_read() {
        for edge in [
            Timestamp::from_millis(i64::MIN),
            Timestamp::from_millis(i64::MAX),
            Timestamp::EPOCH.plus_days(u32::MAX),
        ] {
            assert_eq!(edge.to_string().parse(), Ok(edge));
        }
        assert_eq!("9999-12-31T23:59:59Z".parse::<Timestamp>(), Err(Error::OutOfRange));
        assert!(Error::OutOfRange.to_string().ends_with(&format!(
            "{} and {}",
            Timestamp::EPOCH.to_string().replace(".000", ""),
            Timestamp::from_millis(LAST_MILLIS).to_string().replace(".000", "")
        )));
    }

    #[test]
    fn what_is_not_rfc_3339_is_refused() {
        for bad in [
            "",
            "yesterday",
            "2026-03-01",
            "2026-03-01 12:00:00Z",
            "2026-03-01T12:00:00",
            "2026-13-01T00:00:00Z",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_interval_excludes_its_end_and_cannot_be_reversed() {
        let (a, b) = (Timestamp::from_millis(10), Timestamp::from_millis(20));
        let interval = Interval::new(a, b).unwrap();
        assert!(interval.contains(a) && !interval.contains(b));
        assert_eq!(Interval::new(b, a), Err(Error::Reversed));
    }
}
