//! The real binary, seen from outside: first start, kill -9, import, verify, doctor, and what it connects to.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::running::{Running, run, text, texts};
use serde_json::{Value, json};

fn fact(words: &str) -> Value {
    json!({"kind": "user_fact", "text": words})
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_prints_the_keys_once_and_keeps_everything_private() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let service = Running::start(&data);
    assert!(service.keys.admin.starts_with("mk_") && service.keys.app.starts_with("mk_"));
    service
        .person("anna")
        .post("/v1/memories", &fact("Anna leads the depot"), None)
        .unwrap()
        .success()
        .unwrap();
    let mut open = vec![data.clone()];
    while let Some(path) = open.pop() {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let keys = service.stop();
    let again = Running::start(&data);
    assert_eq!(again.keys.app, "", "keys are shown once");
    let again = again.with_keys(keys);
    let found = again.person("anna").get("/v1/memories").unwrap().success().unwrap();
    assert_eq!(found["items"][0]["text"], "Anna leads the depot");
}

#[test]
fn r_117_the_main_job_needs_nothing_but_the_binary_and_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let anna = service.person("anna");
    anna.post("/v1/memories", &fact("Anna leads the depot in Rostock"), None).unwrap().success().unwrap();
    let pack = anna
        .post("/v1/context", &json!({"question": "Who leads the depot?"}), None)
        .unwrap()
        .success()
        .unwrap();
    assert!(pack["system"]["facts"].as_str().unwrap().contains("Rostock"));
    assert_eq!(pack["retrieval"], "lexical");
}

#[test]
fn r_118_the_service_opens_no_connection_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let anna = service.person("anna");
    for i in 0..5 {
        anna.post("/v1/memories", &fact(&format!("fact {i}")), None).unwrap().success().unwrap();
        anna.post("/v1/context", &json!({"question": "fact?"}), None).unwrap().success().unwrap();
    }
    let port = format!("{:04X}", service.url.rsplit(':').next().unwrap().parse::<u16>().unwrap());
    for (local, remote) in sockets(service.pid()) {
        assert!(
            local.ends_with(&format!(":{port}")),
            "a socket {local} -> {remote} that is not the service's own"
        );
    }
}

/// Local and remote address of every TCP socket of a process.
pub(crate) fn sockets(pid: u32) -> Vec<(String, String)> {
    let inodes: BTreeSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| Some(std::fs::read_link(fd.ok()?.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    assert!(!inodes.is_empty(), "the service has no socket at all");
    let tables = ["tcp", "tcp6", "udp", "udp6"].map(|t| format!("/proc/{pid}/net/{t}"));
    tables
        .iter()
        .flat_map(|table| {
            std::fs::read_to_string(table)
                .unwrap_or_default()
                .lines()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter_map(|line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            inodes.contains(*cells.get(9)?).then(|| (cells[1].to_owned(), cells[2].to_owned()))
        })
        .collect()
}

#[test]
fn an_import_names_faulty_lines_imports_nothing_then_and_goes_on_after_an_interruption() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    let key = dir.path().join("key");
    std::fs::write(&key, &service.keys.app).unwrap();
    let file = dir.path().join("memories.jsonl");
    let import = |extra: &[&str]| {
        let mut arguments = vec![
            "import",
            file.to_str().unwrap(),
            "--url",
            &service.url,
            "--key-file",
            key.to_str().unwrap(),
        ];
        arguments.extend(extra);
        run(&arguments)
    };
    let line =
        |i: usize| json!({"subject": "anna", "kind": "user_fact", "text": format!("import {i}")}).to_string();
    let mut lines: Vec<String> = (0..450).map(line).collect();
    lines[20] = r#"{"subject": "anna", "kind": "opinion", "text": "secret words"}"#.to_owned();
    lines[300] = "not json".to_owned();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let refused = import(&[]);
    assert!(!refused.status.success());
    let said = text(&refused.stdout) + &text(&refused.stderr);
    assert!(
        said.contains(":21: kind") && said.contains(":301:") && said.contains("nothing was imported"),
        "{said}"
    );
    assert!(!said.contains("secret words"), "{said}");
    assert_eq!(texts(&service.person("anna")).len(), 0);

    lines[20] = line(20);
    lines[300] = line(300);
    std::fs::write(&file, lines.join("\n")).unwrap();
    assert!(import(&["--check"]).status.success());
    assert_eq!(texts(&service.person("anna")).len(), 0);
    let done = import(&["--batch", "100"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(texts(&service.person("anna")).len(), 450);
    let again = import(&[]);
    assert!(again.status.success());
    assert_eq!(texts(&service.person("anna")).len(), 450, "a second import changes nothing");
}

#[test]
fn an_exported_ledger_is_verified_without_the_server_and_a_changed_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    service
        .person("anna")
        .post("/v1/memories", &fact("Anna leads the depot"), None)
        .unwrap()
        .success()
        .unwrap();
    let export = service.client(&service.keys.tenant).get("/v1/ledger/export").unwrap().body;
    drop(service);
    let file = dir.path().join("ledger.jsonl");
    std::fs::write(&file, &export).unwrap();
    let good = run(&["verify", file.to_str().unwrap()]);
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("integrity"));
    std::fs::write(&file, export.replacen("\"index\":1,", "\"index\":2,", 1)).unwrap();
    let bad = run(&["verify", file.to_str().unwrap()]);
    assert_eq!(bad.status.code(), Some(1), "{}", text(&bad.stderr));
    assert!(text(&bad.stderr).contains("NOT VERIFIED"), "{}", text(&bad.stderr));
    // What cannot be checked is no verdict on the log.
    std::fs::write(&file, &export).unwrap();
    let (file, dir) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    for misused in [
        &["verify", file, "--key", "mistyped"][..],
        &["verify", file, "--previous", "/nowhere/checkpoint"],
        &["verify", file, "--previous", file],
        &["verify", "/nowhere/ledger.jsonl"],
        &["verify", dir],
        &["verify", "--unknown", file],
    ] {
        let said = run(misused);
        assert_eq!(said.status.code(), Some(2), "{misused:?}: {}", text(&said.stderr));
        assert!(!text(&said.stderr).contains("NOT VERIFIED"), "{misused:?}: {}", text(&said.stderr));
    }
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let path = data.to_str().unwrap();
    let missing = run(&["doctor", "--data-dir", path]);
    assert!(!missing.status.success() && text(&missing.stderr).contains("merkwelt init"));
    assert!(run(&["init", "--data-dir", path]).status.success());
    let good = run(&["doctor", "--data-dir", path]);
    assert!(good.status.success(), "{}", text(&good.stderr));
    let again = run(&["init", "--data-dir", path]);
    assert!(!again.status.success() && text(&again.stderr).contains("already"));
    let key = dir.path().join("data.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = run(&["doctor", "--data-dir", path]);
    assert!(!open.status.success() && (text(&open.stderr) + &text(&open.stdout)).contains("chmod 600"));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, "00".repeat(32)).unwrap();
    let wrong = run(&["doctor", "--data-dir", path]);
    assert!(!wrong.status.success() && text(&wrong.stdout).contains("BAD"), "{}", text(&wrong.stdout));
    assert!(text(&wrong.stdout).contains("instance key does not belong"), "{}", text(&wrong.stdout));
}

#[test]
fn the_demo_keeps_its_promises() {
    let demo = run(&["demo"]);
    let said = text(&demo.stdout);
    assert!(demo.status.success(), "{said}{}", text(&demo.stderr));
    for part in ["Baltic Freight", "not_found", "nothing", "Thursday", "% saved", "entries verify", "refused"]
    {
        assert!(said.contains(part), "the demo did not show `{part}`:\n{said}");
    }
}
