//! What the machine may do to the real program: no room, no right to write, too few open files, a taken address,
//! a second process, callers that never end. Each ends in a clear text and in nothing lost.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::running::{Running, binary, doctor, folder, run, serve, text, texts};

fn fact(words: &str) -> Value {
    json!({"kind": "user_fact", "text": words})
}

fn remember(service: &Running, words: &str) -> u16 {
    service.person("anna").post("/v1/memories", &fact(words), None).unwrap().status
}

/// A shell that does `before` and then becomes the program.
fn shell(before: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{before} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_merkwelt")]);
    command
}

/// Fills until it is refused, looks at the refusals, makes room, and goes on with the same process.
fn full_and_room_again(service: &Running, codes: &[&str], make_room: &dyn Fn(&Running)) {
    assert_eq!(remember(service, "kept before"), 201);
    let words = "x".repeat(8000);
    let mut kept = 1;
    let refused = (0..4000).find_map(|number| {
        let answer =
            service.person("anna").post("/v1/memories", &fact(&format!("{number} {words}")), None).unwrap();
        if answer.status == 201 {
            kept += 1;
            return None;
        }
        Some(answer)
    });
    let refused = refused.expect("the disk never got full");
    let problem = refused.json().unwrap();
    assert!(
        [503, 507].contains(&refused.status) && codes.contains(&problem["code"].as_str().unwrap()),
        "{problem}"
    );
    // What leaves needs its evidence first; either there was room for that, or it is refused as clearly.
    let read = service.person("anna").get("/v1/memories?limit=1").unwrap();
    assert!([200, 503, 507].contains(&read.status), "{}", read.body);
    // A new person needs a key first.
    let new = service.person("somebody-new").post("/v1/memories", &fact(&words), None).unwrap();
    assert!([201, 503, 507].contains(&new.status), "{}", new.body);
    assert_eq!(service.client("").get("/healthz").unwrap().status, 200);
    if codes == ["storage_full"] {
        let (status, ready) = service.ready();
        assert_eq!((status, &ready["code"]), (507, &json!("storage_full")), "{ready}");
    }
    make_room(service);
    // The answer of the last trial holds for a second.
    let until = (0..100).find(|_| {
        std::thread::sleep(Duration::from_millis(50));
        service.ready().0 == 200
    });
    assert!(until.is_some(), "it is not ready again: {}", service.log());
    assert_eq!(remember(service, "kept after"), 201);
    let texts = texts(&service.person("anna"));
    assert_eq!(texts.len(), kept + 1, "acknowledged and stored differ");
    let found = service.person("anna").post("/v1/recall", &json!({"question": "kept after"}), None).unwrap();
    assert_eq!(found.success().unwrap()["hits"][0]["text"], "kept after");
    service.verified_ledger();
}

#[test]
fn at_a_size_limit_writes_are_refused_and_go_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let keys = Running::start(&data).stop();
    let service = Running::launch(serve(shell("ulimit -S -f 1200"), &data)).unwrap().with_keys(keys);
    full_and_room_again(&service, &["unavailable", "storage_full"], &|service| {
        let pid = service.pid().to_string();
        let lifted =
            Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:unlimited"]).status().unwrap();
        assert!(lifted.success());
    });
    service.stop();
    let (content, said) = doctor(&data);
    assert!(content, "{said}");
}

/// A file system of its own for one process tree that does `before` first, where the machine lets anybody make one.
fn small_disk(dir: &Path, size: &str, before: &str) -> Option<Command> {
    let mut command = Command::new("unshare");
    let mount = format!("mount -t tmpfs -o size={size},mode=700 tmpfs {}", dir.display());
    let script = format!("{mount} && {before}exec \"$0\" \"$@\"");
    command.args(["--user", "--map-root-user", "--mount", "--", "bash", "-c"]);
    let may = Command::new(command.get_program()).args(command.get_args()).arg(mount).output();
    if !may.is_ok_and(|done| done.status.success()) {
        println!("skipped: this machine does not let a test make a file system of its own");
        return None;
    }
    command.arg(script).arg(env!("CARGO_BIN_EXE_merkwelt"));
    Some(command)
}

/// Runs a command where the service sees its files.
fn inside(service: &Running, command: &str) {
    let pid = service.pid().to_string();
    let done = Command::new("nsenter")
        .args(["--target", &pid, "--user", "--mount", "--preserve-credentials", "bash", "-c", command])
        .output()
        .unwrap();
    assert!(done.status.success(), "{command}: {}", text(&done.stderr));
}

#[test]
fn on_a_full_disk_writes_are_refused_and_go_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = small_disk(dir.path(), "3m", "") else { return };
    let service = Running::launch(serve(program, &dir.path().join("data"))).unwrap();
    full_and_room_again(&service, &["storage_full"], &|service| {
        inside(service, &format!("mount -o remount,size=64m {}", dir.path().display()));
    });
    service.stop();
}

#[test]
fn a_data_directory_that_cannot_be_written_is_named_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let keys = Running::start(&data).stop();
    let mut command = Command::new("unshare");
    let script =
        format!("mount --bind {0} {0} && mount -o remount,bind,ro {0} && exec \"$0\" \"$@\"", data.display());
    command.args(["--user", "--map-root-user", "--mount", "--", "bash", "-c", &script]);
    command.arg(env!("CARGO_BIN_EXE_merkwelt"));
    if !Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "true"])
        .status()
        .is_ok_and(|s| s.success())
    {
        println!("skipped: this machine does not let a test make a file system of its own");
        return;
    }
    let said = Running::launch(serve(command, &data)).err().expect("it started");
    assert!(said.contains("read-only") && said.contains(data.to_str().unwrap()), "{said}");
    assert!(Running::start(&data).with_keys(keys).ready().0 == 200);
}

#[test]
fn with_few_open_files_it_serves_fewer_tenants_at_once_and_still_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut program = serve(shell("ulimit -n 112"), &data);
    let toml = dir.path().join("data.toml");
    std::fs::write(&toml, "[server]\nconcurrent_requests = 8\n").unwrap();
    program.env("RUST_BACKTRACE", "0");
    let service = Running::launch(program).unwrap();
    assert!(service.log().contains("raise the limit"), "{}", service.log());
    let admin = service.client(&service.keys.admin);
    let mut apps = Vec::new();
    for number in 0..12 {
        let tenant = admin.post("/v1/tenants", &json!({"name": format!("t{number}")}), None).unwrap();
        let key = tenant.success().unwrap()["key"].as_str().unwrap().to_owned();
        let app = json!({"label": "app", "role": "app", "act_for": true});
        let app = service.client(&key).post("/v1/keys", &app, None).unwrap().success().unwrap();
        apps.push(app["key"].as_str().unwrap().to_owned());
    }
    for round in 0..2 {
        for app in &apps {
            let anna = service.client(app).acting_for("anna");
            let kept = anna.post("/v1/memories", &fact(&format!("round {round}")), None).unwrap();
            assert_eq!(kept.status, 201, "{}", kept.body);
        }
    }
    let idle: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(address(&service)).ok()).collect();
    drop(idle);
    std::thread::sleep(Duration::from_millis(1200));
    for app in &apps {
        assert_eq!(texts(&service.client(app).acting_for("anna")).len(), 2);
    }
    assert_eq!(
        service.ready().1["status"],
        "ready",
        "a lack of files was taken for damage: {}",
        service.log()
    );
    service.stop();
}

fn address(service: &Running) -> String {
    service.url.strip_prefix("http://").unwrap().to_owned()
}

#[test]
fn a_taken_address_is_named_before_anything_is_created_or_shown() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = dir.path().join("data");
    let serve = binary()
        .args(["serve", "--no-model", "--listen", &address, "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    let said = text(&serve.stderr);
    assert!(!serve.status.success() && said.contains(&address) && said.contains("--listen"), "{said}");
    assert!(serve.stdout.is_empty() && std::fs::read_dir(dir.path()).unwrap().next().is_none(), "{said}");
}

#[test]
fn a_second_process_is_told_that_the_first_must_stop() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let service = Running::start(&data);
    let said = Running::launch(serve(binary(), &data)).err().expect("two at once");
    assert!(said.contains("in use by another process") && said.contains("stop"), "{said}");
    let (content, said) = doctor(&data);
    assert!(!content && said.contains("in use by another process"), "{said}");
    assert_eq!(remember(&service, "undisturbed"), 201);
}

#[test]
fn it_stops_in_bounded_time_whatever_callers_do() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::write(dir.path().join("data.toml"), "[server]\nrequest_seconds = 2\n").unwrap();
    let service = Running::start(&data);
    for number in 0..400 {
        assert_eq!(remember(&service, &format!("{number} {}", "x".repeat(400))), 201);
    }
    // One never sends its body, one never reads its answer, one says nothing at all.
    let mut slow = TcpStream::connect(address(&service)).unwrap();
    write!(slow, "POST /v1/memories HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{").unwrap();
    let mut deaf = TcpStream::connect(address(&service)).unwrap();
    let export = format!(
        "GET /v1/ledger/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        service.keys.tenant
    );
    for _ in 0..40 {
        deaf.write_all(export.as_bytes()).unwrap();
    }
    let silent = TcpStream::connect(address(&service)).unwrap();
    let (keys, took) = service.stop_in();
    assert!(took < Duration::from_secs(12), "it took {took:?} to stop");
    drop((slow, deaf, silent));
    assert_eq!(texts(&Running::start(&data).with_keys(keys).person("anna")).len(), 400);
}

#[test]
fn who_listens_for_other_machines_is_told_about_tls_and_who_does_not_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut open = binary();
    open.args(["serve", "--no-model", "--listen", "0.0.0.0:0", "--data-dir"]).arg(dir.path().join("open"));
    let service = Running::launch(open).unwrap();
    assert!(service.log().contains("without TLS"), "{}", service.log());
    let service = Running::start(&dir.path().join("closed"));
    assert!(!service.log().contains("TLS"), "{}", service.log());
}

#[test]
fn a_reader_that_goes_away_does_not_make_a_good_ledger_bad() {
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    assert_eq!(remember(&service, "something"), 201);
    let file = dir.path().join("ledger.jsonl");
    std::fs::write(&file, service.verified_export()).unwrap();
    let mut verify = binary()
        .arg("verify")
        .arg(&file)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(verify.stdout.take());
    let mut said = String::new();
    verify.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(verify.wait().unwrap().success() && said.is_empty(), "{said}");
}

#[test]
fn an_unknown_key_of_the_configuration_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let toml = dir.path().join("data.toml");
    for (file, named) in [
        ("[server]\nlisten_on = 'x'\n", "listen_on"),
        ("[sever]\nlisten = 'x'\n", "sever"),
        ("[server]\nrequest_seconds = 'soon'\n", "request_seconds"),
        ("[server]\nrequest_seconds = 0\n", "server.request_seconds"),
        ("[server]\nlisten = 'nowhere'\n", "nowhere"),
        ("[server\n", "line 1"),
        ("[context]\ntokenizer = 'gpt2'\n", "context.tokenizer `gpt2`"),
    ] {
        std::fs::write(&toml, file).unwrap();
        for command in ["serve", "init"] {
            let done = run(&[command, "--data-dir", dir.path().join("data").to_str().unwrap()]);
            let said = text(&done.stderr);
            assert!(!done.status.success() && said.contains(named), "{file}: {said}");
            assert!(done.stdout.is_empty() && !dir.path().join("data").exists(), "{file}: {command}");
        }
    }
}

/// The program as an ordinary user, who may not use what its mode forbids: the root of a test run may everything.
fn ordinary() -> Option<Command> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Some(binary());
    }
    let arguments = ["--bounding-set=-all", "--"];
    let may = Command::new("setpriv").args(arguments).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        println!("skipped: this machine does not let a test give up the rights of root");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(arguments).arg(env!("CARGO_BIN_EXE_merkwelt"));
    Some(command)
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The findings of `doctor`, as an ordinary user.
fn findings(data: &Path) -> Vec<String> {
    let done = ordinary().unwrap().args(["doctor", "--no-model", "--data-dir"]).arg(data).output().unwrap();
    let (said, error) = (text(&done.stdout), text(&done.stderr));
    let found: Vec<String> = said.lines().filter(|line| line.starts_with("BAD")).map(str::to_owned).collect();
    assert_eq!(done.status.success(), found.is_empty() && error.is_empty(), "{said}{error}");
    if found.is_empty() { error.lines().map(str::to_owned).collect() } else { found }
}

#[test]
fn a_file_the_service_may_not_use_is_named_by_doctor_the_log_and_readyz_until_it_may() {
    if ordinary().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let service = Running::start(&data);
    let tenants = service.client(&service.keys.admin).get("/v1/tenants").unwrap().success().unwrap();
    let tenants = tenants["tenants"].as_array().unwrap();
    let tenant = tenants.iter().find(|tenant| tenant["name"] == "default").unwrap();
    let tenant = tenant["id"].as_str().unwrap().to_owned();
    assert_eq!(remember(&service, "kept"), 201);
    let keys = service.stop();
    assert_eq!(findings(&data), [""; 0], "whole and private");

    let cell = folder(&data, &tenant).join("cell.db");
    set_mode(&cell, 0o400);
    set_mode(&data, 0o755);
    let service = Running::launch(serve(ordinary().unwrap(), &data)).unwrap().with_keys(keys);
    assert_eq!(service.person("anna").get("/v1/memories").unwrap().status, 503);
    assert_eq!(remember(&service, "refused"), 503);
    let (status, ready) = service.ready();
    assert_eq!((status, &ready["damaged_tenants"]), (200, &json!([tenant])), "{ready}");
    let told = |service: &Running, what: &str| {
        service.log().lines().filter(|line| line.contains(&tenant) && line.contains(what)).count()
    };
    assert_eq!(told(&service, "may not read and write cell.db"), 1, "{}", service.log());
    assert!(service.log().contains(&format!("chmod 700 {}", data.display())), "{}", service.log());
    set_mode(&cell, 0o600);
    let served = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        service.ready().1["status"] == "ready"
    });
    assert!(served && told(&service, "served again") == 1, "{}", service.log());
    assert_eq!(texts(&service.person("anna")), ["kept"]);
    service.stop();
    set_mode(&data, 0o700);

    let report = data.join("connectors/policies.json");
    std::fs::create_dir(report.parent().unwrap()).unwrap();
    set_mode(report.parent().unwrap(), 0o700);
    std::fs::write(&report, "{}").unwrap();
    set_mode(&report, 0o600);
    let ring = folder(&data, &tenant).join("keys.db");
    let control = data.join("control.db");
    for (path, mode, remedy) in [
        (cell.as_path(), 0o400, "chmod 600"),
        (&cell, 0o644, "chmod 600"),
        (&ring, 0o000, "chmod 600"),
        (&ring, 0o660, "chmod 600"),
        (&report, 0o644, "chmod 600"),
        (&control, 0o400, "chmod 600"),
        (&control, 0o640, "chmod 600"),
        (&data.with_extension("key"), 0o640, "chmod 600"),
        (cell.parent().unwrap(), 0o500, "chmod 700"),
        (&data, 0o755, "chmod 700"),
    ] {
        let before = std::fs::metadata(path).unwrap().permissions();
        set_mode(path, mode);
        let found = findings(&data);
        std::fs::set_permissions(path, before).unwrap();
        let named = found.len() == 1 && found[0].contains(&format!("{remedy} {}", path.display()));
        assert!(named, "{} at {mode:o}: {found:?}", path.display());
    }
    // Data that cannot be looked into are not taken for none.
    set_mode(&data, 0o000);
    let closed = findings(&data);
    set_mode(&data, 0o700);
    assert!(closed[0].contains("cannot be looked into"), "{closed:?}");
    assert_eq!(findings(&data), [""; 0], "whole and private again");
}

#[test]
fn a_tenant_that_is_opened_on_a_full_disk_lacks_room_and_is_not_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let before = format!("\"$0\" init --data-dir {} && ", data.display());
    let Some(program) = small_disk(dir.path(), "24m", &before) else { return };
    let service = Running::launch(serve(program, &data)).unwrap();
    let fill = dir.path().join("fill");
    inside(&service, &format!("cat /dev/zero > {} 2> /dev/null || true", fill.display()));
    // The first request of all: nothing is open yet.
    let refused = service.person("anna").post("/v1/memories", &fact("no room"), None).unwrap();
    assert_eq!((refused.status, refused.body.contains("storage_full")), (507, true), "{}", refused.body);
    assert_eq!(service.person("anna").get("/v1/memories").unwrap().status, 507);
    assert_eq!(service.ready().0, 507);
    inside(&service, &format!("rm {}", fill.display()));
    let again = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        // Nothing is asked of a tenant: it is looked at again by itself.
        service.log().contains("served again")
    });
    assert!(again, "{}", service.log());
    std::thread::sleep(Duration::from_millis(1000));
    let (status, ready) = service.ready();
    assert_eq!((status, &ready["status"]), (200, &json!("ready")), "{ready}");
    assert_eq!(remember(&service, "there is room"), 201);
    let log = service.log();
    assert!(log.contains("the disk is full") && !log.contains("the others are"), "{log}");
    service.verified_ledger();
    service.stop();
}

#[test]
fn what_a_command_cannot_use_is_named_before_it_begins_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let key = dir.path().join("open.key");
    std::fs::write(&key, "no key\n").unwrap();
    set_mode(&key, 0o644);
    let key = key.to_str().unwrap();
    // Nobody listens there.
    let nowhere = ["--url", "http://127.0.0.1:9"];
    for (command, named) in [
        (&["import", folder][..], format!("import sources {folder}")),
        (&["key", "list", "--key-file", key], format!("chmod 600 {key}")),
        (
            &["release-test", "--key-file", key, "--admin-key-file", key, "--json", "/nowhere/x.json"],
            "cannot write the report /nowhere/x.json".to_owned(),
        ),
    ] {
        let done = binary().args(command).args(nowhere).output().unwrap();
        let said = text(&done.stderr);
        assert!(!done.status.success() && said.contains(&named), "{command:?}: {said}");
    }
}
