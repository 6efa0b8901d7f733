//! Every reader is interrupted at every call by every change that takes something away: what leaves afterwards is
//! right after it.

use merkwelt_app::SummaryRequest;
use merkwelt_domain::Content;
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::summary::SummaryOf;

use super::*;
use crate::plan::text_of;
use crate::world::BackendKind;

/// How many readers there are; the last one is handed an approved summary, the one before it the turns.
const N_READERS: usize = 9;
/// More calls than any reader makes.
const CALLS_MAX: usize = 64;

fn ask(run: &mut Run, ask: Ask) -> Reader {
    run.next_task += 1;
    let (app, key, task) = (run.instance.app().unwrap(), run.app.clone(), run.next_task);
    Reader { app, key, person: 0, name: person(0).unwrap(), task, ask }
}

fn hear(run: &mut Run, wanted: Ask) -> Heard {
    let reader = ask(run, wanted);
    let mut running: Running = (reader.clone(), Box::pin(reader.hear()));
    run.finish(&mut running)
}

/// A source for one group, an answer from it in a conversation, a kept answer, and a pack of that turn alone.
fn begun(seed: u64) -> (Run, Basis, Ask) {
    let mut run = Run::begin(seed, Options::new(BackendKind::Reference)).unwrap();
    let group = group(0).unwrap();
    run.carry_out(Change::Join { group: group.clone(), person: person(0).unwrap() }, false).unwrap();
    run.carry_out(Change::Register { group: Some(group), copied: true }, false).unwrap();
    let source = run.shelf.papers[0].id.clone();
    run.carry_out(Change::Publish { source: source.clone(), serial: 1 }, false).unwrap();
    let basis = Basis { source, revision: Revision::from_number(1) };
    let talk = run.talks[0].clone();
    hear(&mut run, Ask::Say(talk.clone(), basis.clone(), 1));
    hear(&mut run, Ask::Keep(basis.clone(), 1));
    let pack = hear(&mut run, Ask::Context(talk, false)).unwrap();
    assert!(words_in(&pack.to_string()).contains(&1), "the pack shows the turn");
    let pack = Ask::Pack(pack["pack_id"].as_str().unwrap().parse().unwrap());
    (run, basis, pack)
}

/// The only thing that may go along is a summary, and there is one.
fn sum_up(run: &Run) {
    let app = run.instance.app().unwrap();
    let made = at_once(async {
        let admin = request(&app, &run.admin, None).await?;
        app.set_organisation_switch(&admin, OrganisationSwitch::ApprovedSummary).await.ok()?;
        let own = request(&app, &run.app, Some(&person(0).unwrap())).await?;
        let wanted = SummaryRequest {
            conversation: run.talks[0].clone(),
            text: Content::to_keep(&text_of(1), 1_000).unwrap(),
            summary: SummaryOf::new(1, "v1".parse().unwrap(), true).unwrap(),
            known_historical: RestsOn::default(),
        };
        app.sum_up(&own, &wanted, None).await.ok()
    });
    assert!(made.flatten().is_some(), "the turn is summed up");
}

fn readers(run: &Run, basis: &Basis, pack: Ask) -> Vec<Ask> {
    let talk = run.talks[0].clone();
    let sheet = run.shelf.papers[0].sheets[0].id.clone();
    vec![
        pack,
        Ask::Recall,
        Ask::Context(talk.clone(), true),
        Ask::Context(talk.clone(), false),
        Ask::Conversation(talk.clone()),
        Ask::Citation(sheet),
        Ask::LookUp(basis.clone()),
        Ask::HandOver(talk.clone()),
        Ask::HandOver(talk),
    ]
}

#[test]
fn r_056_no_change_at_any_moment_of_any_read_lets_the_old_through() {
    // An odd seed withholds what rests on a removed source, an even one marks it.
    let (mut interrupted, mut heard_after) = (0, 0);
    for seed in [1, 2] {
        for (reader, change) in (0..N_READERS).flat_map(|reader| (0..4).map(move |change| (reader, change))) {
            for calls in 0..CALLS_MAX {
                let (mut run, basis, pack) = begun(seed);
                if reader + 1 == N_READERS {
                    sum_up(&run);
                }
                let wanted = readers(&run, &basis, pack)[reader].clone();
                let reading = ask(&mut run, wanted.clone());
                let mut running: Running = (reading.clone(), Box::pin(reading.hear()));
                if (0..calls).any(|_| run.poll(&mut running).is_some()) {
                    break;
                }
                let (released, before) = (run.released(), run.shelf.clone());
                let source = basis.source.clone();
                let change = match change {
                    0 => Change::Withdraw { source },
                    1 => Change::Delete { source },
                    2 => Change::Publish { source, serial: 2 },
                    _ => Change::Leave { group: group(0).unwrap(), person: person(0).unwrap() },
                };
                run.carry_out(change.clone(), false).unwrap();
                interrupted += 1;
                let Some(heard) = run.finish(&mut running) else { continue };
                let shelf = if released.contains(&running.0.task) { &before } else { &run.shelf };
                let checked = ask::check(&wanted, 0, &heard, shelf, run.withholds);
                assert!(checked.is_ok(), "{wanted:?} interrupted after {calls} by {change:?}: {checked:?}");
                heard_after += 1;
            }
        }
    }
    assert!(interrupted > 300 && heard_after > 100, "{interrupted} interrupted, {heard_after} heard");
}
