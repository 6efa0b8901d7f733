//! How a server stands: in use, or left alone for ever longer times until it was tried out again. The rules are the
//! same for every kind of server; time is an argument.

use std::time::Duration;

/// The shortest and the longest time that a server is left alone, in milliseconds.
const WAIT_MS: (i64, i64) = (1_000, 30_000);
/// For how long a server that took the trial sentence is not to blame for texts that fail, in milliseconds.
const WELL_MS: i64 = 5_000;

/// The standing of one server; not in use at first, and due to be tried out.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    admitted: bool,
    /// How long it is left alone, and since when.
    wait_ms: i64,
    since: i64,
    /// When it took the trial sentence after texts had failed.
    well_at: Option<i64>,
}

impl Standing {
    /// Whether it is in use.
    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Takes it into use.
    pub(crate) fn admit(&mut self) {
        *self = Self { admitted: true, ..Self::default() };
    }

    /// Takes it out of use from `now` on, at least for as long as it wants. Whether it was in use.
    pub(crate) fn leave_alone(&mut self, now: i64, wanted: Option<Duration>) -> bool {
        let doubled = (self.wait_ms * 2).clamp(WAIT_MS.0, WAIT_MS.1);
        let wanted = wanted.map_or(0, |wait| i64::try_from(wait.as_millis()).unwrap_or(WAIT_MS.1));
        let was_admitted = self.admitted;
        *self = Self { wait_ms: doubled.max(wanted), since: now, ..Self::default() };
        was_admitted
    }

    /// Whether it may be tried out. A clock that was put back makes a trial of its own.
    pub(crate) fn is_due(&self, now: i64) -> bool {
        !(0..self.wait_ms).contains(&(now - self.since))
    }

    /// The same, for one of many who ask at once: the others are told to wait.
    pub(crate) fn claim(&mut self, now: i64) -> bool {
        let is_due = self.is_due(now);
        if is_due {
            (self.since, self.wait_ms) = (now, self.wait_ms.max(WAIT_MS.0));
        }
        is_due
    }

    /// Whether it took the trial sentence a moment ago, so that texts are to blame that fail.
    pub(crate) fn was_well(&self, now: i64) -> bool {
        self.well_at.is_some_and(|at| (0..WELL_MS).contains(&(now - at)))
    }

    /// Notes whether it took the trial sentence.
    pub(crate) fn note_trial(&mut self, now: i64, is_well: bool) {
        self.well_at = is_well.then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_left_alone_for_ever_longer_up_to_a_bound_or_as_long_as_it_wants() {
        let (mut standing, mut now, mut waits) = (Standing::default(), 0, Vec::new());
        for _ in 0..7 {
            standing.leave_alone(now, None);
            let due = (now..).find(|at| standing.is_due(*at)).unwrap();
            waits.push(due - now);
            now = due;
        }
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        standing.leave_alone(now, Some(Duration::from_secs(50)));
        assert!(!standing.is_due(now + 49_999) && standing.is_due(now + 50_000));
        assert!(standing.is_due(now - 1), "a clock that was put back waits for ever");
    }

    #[test]
    fn it_is_in_use_from_its_admission_until_it_is_left_alone_and_begins_anew() {
        let mut standing = Standing::default();
        assert!(!standing.is_admitted() && standing.is_due(0));
        assert!(!standing.leave_alone(0, None));
        standing.admit();
        assert!(standing.is_admitted() && standing.leave_alone(5_000, None));
        assert!(!standing.is_admitted() && standing.is_due(6_000), "it waits longer than the first time");
    }

    #[test]
    fn of_many_who_ask_at_once_one_tries_it_out() {
        let mut standing = Standing::default();
        assert_eq!([0, 0, 999, 1_000].map(|now| standing.claim(now)), [true, false, false, true]);
    }

    #[test]
    fn what_was_well_is_not_to_blame_for_a_moment() {
        let mut standing = Standing::default();
        standing.admit();
        standing.note_trial(10, true);
        assert!(standing.was_well(10) && standing.was_well(5_009));
        assert!(!standing.was_well(5_010) && !standing.was_well(9));
        standing.note_trial(20, false);
        assert!(!standing.was_well(20));
    }
}
