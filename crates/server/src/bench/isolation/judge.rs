//! The verdict on one answer: is anything foreign in it, did the service fail, was something accepted that had
//! to be refused, and do an unknown and a foreign id get the same bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::attack::{Attempt, Expect};
use super::marks::{Marks, Sight};
use crate::bench::wire::Answer;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wrong {
    /// Something of somebody else came out.
    Leak,
    /// A refusal, a log line or a metric held a text or a name of anybody.
    Spill,
    /// The service answered 5xx.
    ServerError,
    /// Unknown and foreign were answered differently.
    Difference,
    /// Something was accepted that had to be refused.
    Accepted,
    /// An owner did not find what is theirs.
    Lost,
    /// Something of somebody else was changed.
    Changed,
    /// Content was delivered that the ledger does not know of.
    Unrecorded,
}

/// Something that must not be.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub(super) wrong: Wrong,
    /// Where it was seen.
    pub(super) place: String,
    /// Who asked.
    pub(super) who: String,
    pub(super) detail: String,
}

/// The most findings that are told in full.
const TOLD_MAX: usize = 50;

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) attempts: u64,
    pub(super) by_class: BTreeMap<&'static str, u64>,
    pub(super) by_status: BTreeMap<u16, u64>,
    pub(super) by_operation: BTreeMap<String, u64>,
    pub(super) pairs: u64,
    pub(super) asked: u64,
    pub(super) found: u64,
    pub(super) recall_millis: Vec<f64>,
    pub(super) reads: BTreeMap<usize, Vec<String>>,
    pub(super) broken: u64,
    pub(super) bytes: u64,
    pub(super) n_wrong: BTreeMap<Wrong, u64>,
    pub(super) findings: Vec<Finding>,
}

impl Tally {
    /// Counts something that must not be.
    pub(super) fn blame(&mut self, wrong: Wrong, place: &str, who: &str, detail: String) {
        *self.n_wrong.entry(wrong).or_default() += 1;
        if self.findings.len() < TOLD_MAX {
            self.findings.push(Finding { wrong, place: place.to_owned(), who: who.to_owned(), detail });
        }
    }

    /// Takes in what another one counted.
    pub(super) fn add(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.pairs += other.pairs;
        self.asked += other.asked;
        self.found += other.found;
        self.broken += other.broken;
        self.bytes += other.bytes;
        self.recall_millis.extend(other.recall_millis);
        other.by_class.into_iter().for_each(|(key, n)| *self.by_class.entry(key).or_default() += n);
        other.by_status.into_iter().for_each(|(key, n)| *self.by_status.entry(key).or_default() += n);
        other.by_operation.into_iter().for_each(|(key, n)| *self.by_operation.entry(key).or_default() += n);
        other.n_wrong.into_iter().for_each(|(key, n)| *self.n_wrong.entry(key).or_default() += n);
        other.reads.into_iter().for_each(|(key, ids)| self.reads.entry(key).or_default().extend(ids));
        let room = TOLD_MAX.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.into_iter().take(room));
    }

    /// Looks at one answer to a caller with this sight, who sent these bytes.
    pub(super) fn look(&mut self, marks: &Marks, seen: &Seen<'_>, answer: &Answer) {
        *self.by_status.entry(answer.status).or_default() += 1;
        self.bytes += u64::try_from(answer.head.len() + answer.body.len()).unwrap_or(0);
        if answer.status >= 500 && answer.status != 505 {
            let problem = answer.value();
            let code = problem.get("code").and_then(|code| code.as_str()).unwrap_or("?").to_owned();
            self.blame(Wrong::ServerError, seen.place, seen.who, format!("{} {code}", answer.status));
        }
        for bytes in [&answer.head, &answer.body] {
            for mark in marks.foreign(bytes, seen.sight, seen.sent) {
                self.blame(
                    Wrong::Leak,
                    seen.place,
                    seen.who,
                    format!("{mark} in an answer {}", answer.status),
                );
            }
            if answer.status >= 400 {
                // INVARIANT: I-12, a refusal repeats nothing, not even what the caller sent.
                for mark in marks.any_text(bytes) {
                    self.blame(Wrong::Spill, seen.place, seen.who, format!("{mark} in a refusal"));
                }
            }
        }
        if let (Some(tenant), Some(read)) = (seen.sight.tenant, answer.header("merkwelt-read-id")) {
            self.reads.entry(tenant).or_default().push(read);
        }
    }

    /// Judges an attempt by its answer.
    pub(super) fn judge(&mut self, marks: &Marks, attempt: &Attempt<'_>, sent: &[u8], answer: &Answer) {
        self.attempts += 1;
        *self.by_class.entry(attempt.class).or_default() += 1;
        *self.by_operation.entry(attempt.operation.clone()).or_default() += 1;
        let place = format!("{}: {}", attempt.class, attempt.operation);
        let seen = Seen { place: &place, who: attempt.actor.what, sight: &attempt.actor.sight, sent };
        self.look(marks, &seen, answer);
        if attempt.expect == Expect::Refusal && (200..300).contains(&answer.status) {
            let target = &attempt.ask.target;
            self.blame(
                Wrong::Accepted,
                &place,
                attempt.actor.what,
                format!("{} for {target}", answer.status),
            );
        }
    }

    /// Judges whether two answers are the same but for what names the request.
    pub(super) fn same(&mut self, attempt: &Attempt<'_>, one: &Answer, other: &Answer) {
        self.pairs += 1;
        let (one, other) = (canonical(one), canonical(other));
        if one != other {
            let detail = format!("{one:?} is not {other:?}");
            self.blame(Wrong::Difference, &attempt.operation, attempt.actor.what, detail);
        }
    }
}

/// Who saw an answer.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) place: &'a str,
    pub(super) who: &'a str,
    pub(super) sight: &'a Sight,
    pub(super) sent: &'a [u8],
}

/// An answer without the time and the id of its request.
pub(super) fn canonical(answer: &Answer) -> String {
    let head = String::from_utf8_lossy(&answer.head);
    let changing = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        name == "date" || name == "x-request-id"
    };
    let mut lines: Vec<&str> = head.lines().filter(|line| !changing(line)).collect();
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    let body = match body.split_once("\"request_id\":\"") {
        Some((before, after)) => format!("{before}{}", after.get(30..).unwrap_or(after)),
        None => body,
    };
    lines.push(&body);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::dice::Dice;
    use crate::bench::isolation::marks::Owner;
    use crate::bench::isolation::world::Actor;
    use crate::bench::wire::Ask;

    fn attempt(actor: &Actor) -> Attempt<'_> {
        let ask = Ask::new("GET", "/v1/memories/mem_x");
        let operation = "GET /v1/memories/{id}".to_owned();
        Attempt { class: "test", operation, actor, ask, twin: None, expect: Expect::Refusal }
    }

    fn answer(status: u16, body: &str) -> Answer {
        let head = format!(
            "HTTP/1.1 {status} X\r\nx-request-id: req_{}\r\nmerkwelt-read-id: rea_1\r\n\r\n",
            body.len()
        );
        Answer { status, head: head.into_bytes(), body: body.as_bytes().to_vec() }
    }

    #[test]
    fn r_022_a_planted_leak_in_a_false_answer_is_found() {
        let (marks, mut dice) = (Marks::new(3), Dice::seeded(3, 0));
        let [own, foreign] = [0, 1].map(|tenant| marks.plant(&mut dice, tenant, Owner::Subject(0)));
        let actor = Actor::with("mallory", "mk", None, Sight::person(0, 0, &[]));
        let mut tally = Tally::default();
        tally.judge(&marks, &attempt(&actor), b"", &answer(404, "{\"code\":\"not_found\"}"));
        assert!(tally.n_wrong.is_empty(), "{:?}", tally.findings);
        tally.judge(&marks, &attempt(&actor), b"", &answer(200, &format!("{{\"text\":\"{foreign}\"}}")));
        assert_eq!(tally.n_wrong, BTreeMap::from([(Wrong::Leak, 1), (Wrong::Accepted, 1)]));
        tally.judge(&marks, &attempt(&actor), b"", &answer(400, &format!("{{\"detail\":\"{own}\"}}")));
        assert_eq!(tally.n_wrong.get(&Wrong::Spill), Some(&1));
        tally.judge(&marks, &attempt(&actor), b"", &answer(503, "{\"code\":\"busy\"}"));
        assert_eq!(tally.n_wrong.get(&Wrong::ServerError), Some(&1));
        assert_eq!((tally.attempts, tally.reads.get(&0).map(Vec::len)), (4, Some(4)));
    }

    #[test]
    fn r_034_answers_that_differ_in_more_than_the_request_id_are_told_apart() {
        let actor = Actor::with("mallory", "mk", None, Sight::person(0, 0, &[]));
        let problem =
            |id: &str, code| answer(404, &format!("{{\"code\":\"{code}\",\"request_id\":\"req_{id}\"}}"));
        let (a, b) = ("a".repeat(26), "b".repeat(26));
        let mut tally = Tally::default();
        tally.same(&attempt(&actor), &problem(&a, "not_found"), &problem(&b, "not_found"));
        assert!(tally.n_wrong.is_empty());
        tally.same(&attempt(&actor), &problem(&a, "not_found"), &problem(&b, "not_fount"));
        assert_eq!((tally.pairs, tally.n_wrong.get(&Wrong::Difference)), (2, Some(&1)));
    }
}
