//! A change of the model as an operator makes it: refused at the start, made by one command, and unhurt by the
//! sudden death of that command or of the engine.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::engines::{ask, by_meaning, configured, remember, soon, toml};
use crate::running::{Running, binary, copy, run, text};
use crate::scripted::{Mood, Scripted};

const N_TEXTS: usize = 130;
const CONTRACT: &str = "The agreement ends in December";
const QUESTION: &str = "Wann läuft mein Vertrag ab?";
/// Makes it another model.
const ANOTHER: &str = "passage_prefix = 'passage: '\n";

fn reembed(data: &Path) -> (bool, String) {
    let done = run(&["reembed", "--data-dir", data.to_str().unwrap()]);
    (done.status.success(), text(&done.stdout) + &text(&done.stderr))
}

/// Texts that were sent to be kept; the trial sentences are not among them.
fn n_sent(server: &Scripted) -> usize {
    let texts = server.calls().into_iter().flat_map(|call| call.texts());
    texts.filter(|text| text.contains("fact") || text.contains("agreement")).count()
}

#[test]
fn i_014_reembedding_survives_kill_9_and_an_engine_that_goes_away_and_never_mixes_two_models() {
    let (former, new) = (Scripted::start(Mood::Good), Scripted::start(Mood::Good));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let with_former = toml("openai", &former.url, "");
    let with_new = toml("tei", &new.url, ANOTHER);
    configured(&data, &with_former);
    let service = Running::start_with(&data, &[]);
    let many: Vec<_> =
        (1..N_TEXTS).map(|n| json!({"kind": "user_fact", "text": format!("fact {n}")})).collect();
    for part in many.chunks(50) {
        let body = json!({ "memories": part });
        let done = service.person("anna").post("/v1/memories/batch", &body, None).unwrap();
        assert!(done.status < 300, "{}", done.body);
    }
    remember(&service, CONTRACT);
    assert!(by_meaning(&ask(&service, QUESTION), CONTRACT));
    let running = reembed(&data);
    assert!(!running.0 && running.1.contains("in use by another process"), "{}", running.1);
    let keys = service.stop();

    // kill -9 in the midst of it.
    configured(&data, &with_new);
    new.calls();
    new.be(Mood::Slow(Duration::from_millis(10)));
    let mut command = binary();
    command.args(["reembed", "--data-dir"]).arg(&data).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = command.spawn().unwrap();
    let mut sent = 0;
    soon("half of the texts were sent", || {
        sent += n_sent(&new);
        sent >= 70
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    sent += n_sent(&new);
    assert!(sent < N_TEXTS, "it was killed too late: the test shows nothing");

    // The new model is still refused, and the former answers as before.
    let refused = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("run `merkwelt reembed`"));
    configured(&data, &with_former);
    let service = Running::start_with(&data, &[]).with_keys(keys);
    assert!(by_meaning(&ask(&service, QUESTION), CONTRACT));
    let keys = service.stop();

    // The engine goes away and comes back; the command goes on where the killed one was.
    configured(&data, &with_new);
    new.be(Mood::Status(503, None));
    let (went, said) = reembed(&data);
    assert!(!went && said.contains("nothing was changed"), "{said}");
    new.be(Mood::Good);
    new.calls();
    let (went, said) = reembed(&data);
    assert!(went && said.contains("every vector is of the new model"), "{said}");
    let again = n_sent(&new);
    // Of what the killed one sent, the last call was not kept.
    assert!((N_TEXTS - sent..=N_TEXTS - sent + 64).contains(&again), "{sent} sent before, {again} after");

    let service = Running::start_with(&data, &[]).with_keys(keys);
    assert!(by_meaning(&ask(&service, QUESTION), CONTRACT));
    assert_eq!(service.ready().1["retrieval"], "hybrid");
    drop(service);
    configured(&data, &with_former);
    let refused = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("vectors are of model"));
    // Nothing is left to do.
    configured(&data, &with_new);
    let (went, said) = reembed(&data);
    assert!(went && said.contains("embedded 0 of 0"), "{said}");
}

#[test]
fn i_014_death_at_any_commit_of_a_reembedding_leaves_one_model_whole() {
    let (former, new) = (Scripted::start(Mood::Good), Scripted::start(Mood::Good));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (with_former, with_new) = (toml("openai", &former.url, ""), toml("tei", &new.url, ANOTHER));
    configured(&data, &with_former);
    let service = Running::start_with(&data, &[]);
    remember(&service, CONTRACT);
    let many: Vec<_> = (1..40).map(|n| json!({"kind": "user_fact", "text": format!("fact {n}")})).collect();
    let done = service.person("anna").post("/v1/memories/batch", &json!({ "memories": many }), None).unwrap();
    assert!(done.status < 300, "{}", done.body);
    let keys = service.stop();
    let (mut n_deaths, mut n_changed) = (0, 0);
    for arrival in 1.. {
        let here = dir.path().join(format!("{arrival}"));
        std::fs::create_dir(&here).unwrap();
        for name in ["data", "data.key"] {
            copy(&dir.path().join(name), &here.join(name));
        }
        let data = here.join("data");
        configured(&data, &with_new);
        let mut command = binary();
        command.args(["reembed", "--data-dir"]).arg(&data);
        let died = command.env("MERKWELT_ABORT_AT", format!("after-commit:{arrival}")).output().unwrap();
        if died.status.success() {
            break;
        }
        n_deaths += 1;
        // Either the former model answers, or the change is finished and the new one does.
        configured(&data, &with_former);
        let mut serve = binary();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
        let service = Running::launch(serve).unwrap_or_else(|said| {
            assert!(said.contains("run `merkwelt reembed`"), "{said}");
            n_changed += 1;
            configured(&data, &with_new);
            Running::start_with(&data, &[])
        });
        let service = service.with_keys(keys.clone());
        assert!(by_meaning(&ask(&service, QUESTION), CONTRACT), "after death at commit {arrival}");
        drop(service);
        configured(&data, &with_new);
        assert!(reembed(&data).0, "after death at commit {arrival}");
    }
    assert!(
        n_deaths >= 5 && n_changed >= 1 && n_changed < n_deaths,
        "{n_deaths} deaths, {n_changed} changed"
    );
}
