//! The only strings an entry may carry: short ids without spaces, trace ids and UTC times. Free text has no way
//! in, so content cannot slip into the ledger.

use std::fmt;

/// A string that is not a token, an id of a trace or a time of the ledger's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not 1 to 128 of `A-Z a-z 0-9 _ : . -`.
    #[error("not an id of 1 to 128 letters, digits or _ : . -")]
    Token,
    /// Not the required number of lower-case hexadecimal digits, or all zeros.
    #[error("not a trace id")]
    Trace,
    /// Not `YYYY-MM-DDThh:mm:ss.mmmZ` between the years 1970 and 9999.
    #[error("not a UTC time in milliseconds")]
    Time,
}

/// An id or a word of a closed vocabulary: 1 to 128 of `A-Z a-z 0-9 _ : . -`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(String);

impl Token {
    /// Longest token, in bytes.
    pub const LENGTH_MAX: usize = 128;

    /// Checks a string.
    ///
    /// # Errors
    /// [`Error::Token`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        if is_token(text) { Ok(Self(text.to_owned())) } else { Err(Error::Token) }
    }

    /// A word of this crate's own text, which is known to be a token.
    pub(crate) fn word(text: &'static str) -> Self {
        debug_assert!(is_token(text), "a word of the program text is a token");
        Self(text.to_owned())
    }

    /// The string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

pub(crate) fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'.' | b'-');
    (1..=Token::LENGTH_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

/// A W3C trace id and the span that timed the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    trace_id: Token,
    span_id: Token,
}

impl Trace {
    /// Takes 32 and 16 lower-case hexadecimal digits, neither all zero.
    ///
    /// # Errors
    /// [`Error::Trace`]; by L-31 a caller then goes on without a trace.
    pub fn new(trace_id: &str, span_id: &str) -> Result<Self, Error> {
        let valid = |text: &str, length: usize| {
            text.len() == length
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
                && text.bytes().any(|byte| byte != b'0')
        };
        if valid(trace_id, 32) && valid(span_id, 16) {
            Ok(Self { trace_id: Token(trace_id.to_owned()), span_id: Token(span_id.to_owned()) })
        } else {
            Err(Error::Trace)
        }
    }

    /// Reads the W3C header `traceparent`. A malformed one is as good as none (L-31). Of a version that is not
    /// known yet only the first four parts are read, as the recommendation asks.
    #[must_use]
    pub fn from_traceparent(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id, span_id) = (parts.next()?, parts.next()?, parts.next()?);
        let flags = parts.next()?;
        let is_hex =
            |text: &str| text.len() == 2 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let known = is_hex(version) && version != "ff" && is_hex(flags);
        let complete = version != "00" || parts.next().is_none();
        if known && complete { Self::new(trace_id, span_id).ok() } else { None }
    }

    /// 32 hexadecimal digits.
    #[must_use]
    pub const fn trace_id(&self) -> &Token {
        &self.trace_id
    }

    /// 16 hexadecimal digits.
    #[must_use]
    pub const fn span_id(&self) -> &Token {
        &self.span_id
    }
}

/// A moment in UTC, in whole milliseconds since 1970-01-01, up to the end of the year 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcMillis(i64);

const DAY_MS: i64 = 86_400_000;
const LAST_MS: i64 = 253_402_300_799_999;

impl UtcMillis {
    /// 1970-01-01T00:00:00.000Z.
    pub const EPOCH: Self = Self(0);

    /// Takes milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`Error::Time`] before 1970 or after 9999.
    pub fn from_unix_ms(ms: i64) -> Result<Self, Error> {
        if (0..=LAST_MS).contains(&ms) { Ok(Self(ms)) } else { Err(Error::Time) }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// Reads `YYYY-MM-DDThh:mm:ss.mmmZ` and nothing else (RFC 3339 in fixed form; no leap seconds).
    ///
    /// # Errors
    /// [`Error::Time`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = [0_i64; 7];
        let mut slots = parts.iter_mut();
        let mut bytes = text.bytes();
        for (width, end) in [(4, b'-'), (2, b'-'), (2, b'T'), (2, b':'), (2, b':'), (2, b'.'), (3, b'Z')] {
            let slot = slots.next().ok_or(Error::Time)?;
            for _ in 0..width {
                let digit = bytes.next().filter(u8::is_ascii_digit).ok_or(Error::Time)?;
                *slot = *slot * 10 + i64::from(digit - b'0');
            }
            if bytes.next() != Some(end) {
                return Err(Error::Time);
            }
        }
        let [year, month, day, hour, minute, second, milli] = parts;
        if hour > 23 || minute > 59 || second > 59 || !(1..=12).contains(&month) || day < 1 {
            return Err(Error::Time);
        }
        let days = days_from_civil(year, month, day);
        let time = Self::from_unix_ms(days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + milli)?;
        // A day beyond the end of its month comes back as another date.
        if bytes.next().is_none() && civil_from_days(days) == (year, month, day) {
            Ok(time)
        } else {
            Err(Error::Time)
        }
    }
}

impl fmt::Display for UtcMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0 / DAY_MS);
        let in_day = self.0 % DAY_MS;
        let (seconds, milli) = (in_day / 1000, in_day % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

/// Days since 1970-01-01 of a proleptic Gregorian date; years are counted from March so that the leap day
/// ends them.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let from_march = (month + 9) % 12;
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

/// Inverse of [`days_from_civil`] for days from 1970 on.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}
