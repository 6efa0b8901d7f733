//! The open black-box scenarios, each taken from a public report about a peer and worded anew: one function
//! each, one named result each. What the service has no operation for is said to be not applicable.

mod apart;
mod stage;
mod storing;

use super::catalogue::Operation;
use super::judge::Tally;
use super::report::Outcome;
use super::world::World;
use stage::Stage;

/// What a scenario says.
#[derive(Debug)]
pub(super) enum Check {
    /// It holds, with what was looked at.
    Pass(String),
    /// There is nothing to look at, and why.
    NotApplicable(&'static str),
}

type Scenario = fn(&mut Stage<'_>) -> anyhow::Result<Check>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("L1 foreign ids are like unknown ones", apart::l1),
    ("L2 a bound key stays bound", apart::l2),
    ("L3 every operation keeps marks in", apart::l3),
    ("L4 filters do not widen", apart::l4),
    ("L5 a key works for its role only", apart::l5),
    ("L6 equal names in two tenants stay apart", apart::l6),
    ("L7 an answer to one is none to another", apart::l7),
    ("L8 no key, no path, no file", apart::l8),
    ("L9 identity headers change nothing", apart::l9),
    ("L10 one identity in every client", apart::l10),
    ("L11 a text cannot promote itself", apart::l11),
    ("D1 what was withdrawn is in no file", storing::d1),
    ("D2 erasing a person with thousands of items", storing::d2),
    ("S1 what was recalled is not stored again", storing::s1),
    ("S2 a change back to an old value counts", storing::s2),
    ("S3 what expired is gone at once", storing::s3),
    ("S4 what was superseded is on no path", storing::s4),
    ("C1 what was accepted is found", storing::c1),
    ("C2 many writers lose nothing", storing::c2),
    ("C3 a plain write is quick", storing::c3),
    ("C4 strange names and values come back", storing::c4),
    ("N1 languages are equal", storing::n1),
    ("X1 a list is complete", storing::x1),
];

/// Plays all scenarios.
pub(super) fn play(world: &World, operations: &[Operation], seed: u64, tally: &mut Tally) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (part, (name, scenario)) in (0..).zip(SCENARIOS) {
        let Some(mut stage) = Stage::set(world, operations, seed, part) else { continue };
        let result = scenario(&mut stage);
        let leaks = stage.leaks.clone();
        tally.add(stage.into_tally());
        let (verdict, note) = match result {
            _ if !leaks.is_empty() => ("fail", format!("foreign in an answer: {leaks:?}")),
            Ok(Check::Pass(note)) => ("pass", note),
            Ok(Check::NotApplicable(why)) => ("not applicable", why.to_owned()),
            Err(error) => ("fail", format!("{error:#}")),
        };
        outcomes.push(Outcome { name: (*name).to_owned(), verdict, note });
    }
    outcomes
}
