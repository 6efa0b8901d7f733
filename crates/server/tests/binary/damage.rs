//! Damaged, missing and foreign files under the real program: one damaged tenant stops nobody else, is named in
//! the log, by `/readyz` and by `doctor`, and its callers get a clear refusal without content or path.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use merkwelt_server::cli::Client;
use serde_json::json;

use crate::running::{Keys, Running, binary, copy, doctor, folder, run, serve, text, texts};

const SECRET: &str = "Anna leads the marzipan depot";

/// An instance with two tenants, each with something of Anna in it, and a copy to start each case from.
struct Instance {
    dir: tempfile::TempDir,
    keys: Keys,
    first: String,
    second: String,
    /// The application key of the second tenant.
    second_app: String,
}

impl Instance {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("whole/data");
        std::fs::create_dir(dir.path().join("whole")).unwrap();
        let service = Running::start(&data);
        let tenants = service.client(&service.keys.admin);
        let made = tenants.post("/v1/tenants", &json!({"name": "second"}), None).unwrap().success().unwrap();
        let (second, admin) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
        let listed = tenants.get("/v1/tenants").unwrap().success().unwrap();
        let first = listed["tenants"].as_array().unwrap().iter().find(|tenant| tenant["name"] == "default");
        let first = first.unwrap()["id"].as_str().unwrap().to_owned();
        let key = json!({"label": "app", "role": "app", "act_for": true});
        let key = service.client(admin).post("/v1/keys", &key, None).unwrap().success().unwrap();
        let (second, second_app) = (second.to_owned(), key["key"].as_str().unwrap().to_owned());
        for client in [service.person("anna"), service.client(&second_app).acting_for("anna")] {
            for number in 0..40 {
                let fact = json!({"kind": "user_fact", "text": format!("{SECRET} number {number}")});
                client.post("/v1/memories", &fact, None).unwrap().success().unwrap();
            }
        }
        let keys = service.stop();
        Self { dir, keys, first, second, second_app }
    }

    /// The data of a fresh copy.
    fn fresh(&self, case: &str) -> PathBuf {
        let case = self.dir.path().join(case);
        let _ = std::fs::remove_dir_all(&case);
        copy(&self.dir.path().join("whole"), &case);
        case.join("data")
    }

    fn file(&self, data: &Path, name: &str) -> PathBuf {
        folder(data, &self.first).join(name)
    }

    fn start(&self, data: &Path) -> Running {
        Running::start(data).with_keys(self.keys.clone())
    }

    /// The first tenant is refused clearly and named everywhere with `why`; the second is served.
    fn refuses_the_first_only(&self, data: &Path, why: &str) {
        let service = self.start(data);
        for answer in [
            service.person("anna").get("/v1/memories"),
            service.person("anna").post("/v1/recall", &json!({"question": "who leads?"}), None),
            service.person("anna").post("/v1/memories", &json!({"kind": "user_fact", "text": "new"}), None),
            service.person("somebody-new").get("/v1/memories"),
            service.client(&self.keys.tenant).get("/v1/ledger/export"),
        ] {
            let answer = answer.unwrap();
            assert_eq!(answer.status, 503, "{why}: {}", answer.body);
            let problem = answer.json().unwrap();
            assert_eq!(problem["code"], "storage_damaged", "{why}");
            assert!(problem["detail"].as_str().unwrap().contains("merkwelt doctor"), "{}", answer.body);
            for told in ["marzipan", "cell.db", data.to_str().unwrap(), &self.first] {
                assert!(!answer.body.contains(told), "the refusal tells `{told}`: {}", answer.body);
            }
        }
        let others = service.client(&self.second_app).acting_for("anna");
        assert_eq!(texts(&others).len(), 40, "{why}: the second tenant is not served");
        others
            .post("/v1/memories", &json!({"kind": "user_fact", "text": "new"}), None)
            .unwrap()
            .success()
            .unwrap();
        let (status, ready) = service.ready();
        assert_eq!((status, &ready["status"]), (200, &json!("degraded")), "{why}");
        assert_eq!(ready["damaged_tenants"], json!([self.first]), "{why}");
        let log = service.log();
        let line = log.lines().find(|line| line.contains("ERROR") && line.contains(&self.first));
        assert!(line.is_some_and(|line| line.contains(why)), "`{why}` is not in the log: {log}");
        service.stop();
        let (content, said) = doctor(data);
        let line = said.lines().find(|line| line.starts_with("BAD") && line.contains(&self.first));
        assert!(
            !content && line.is_some_and(|line| line.contains(why)),
            "`{why}` is not said by doctor: {said}"
        );
        assert!(said.contains(&format!("ok    tenant {}", self.second)), "{said}");
    }
}

fn flip(path: &Path, at: u64, bit: u8) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ bit], at).unwrap();
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

fn cut(path: &Path, length: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

const RESTORE: &str = "restore it from a backup";

#[test]
fn one_damaged_tenant_is_named_and_refused_and_the_others_are_served() {
    let instance = Instance::new();
    let case = |name: &str, file: &str, why: &str, damage: &dyn Fn(&Path)| {
        let data = instance.fresh("case");
        damage(&instance.file(&data, file));
        println!("{name}");
        instance.refuses_the_first_only(&data, why);
    };
    let newer = |path: &Path| flip(path, 63, 0x40);
    case("cut off", "cell.db", RESTORE, &|path| cut(path, length(path) / 2));
    case("empty", "cell.db", RESTORE, &|path| cut(path, 0));
    case("missing", "cell.db", RESTORE, &|path| std::fs::remove_file(path).unwrap());
    case("flipped in the name of the format", "cell.db", "from a backup", &|path| flip(path, 3, 1));
    case("flipped in the kind of file", "cell.db", "from a backup", &|path| flip(path, 71, 1));
    case("newer", "cell.db", "newer version", &newer);
    case("no keyring", "keys.db", RESTORE, &|path| std::fs::remove_file(path).unwrap());
    case("empty keyring", "keys.db", RESTORE, &|path| cut(path, 0));
    case("newer keyring", "keys.db", "newer version", &newer);
    case("older", "cell.db", RESTORE, &|path| {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0], 63).unwrap();
    });
}

#[test]
fn i_005_files_of_another_tenant_or_instance_are_never_served() {
    let (instance, other) = (Instance::new(), Instance::new());
    let why = "another tenant or another instance";
    for name in ["cell.db", "keys.db"] {
        let data = instance.fresh("foreign");
        std::fs::copy(other.file(&other.fresh("foreign"), name), instance.file(&data, name)).unwrap();
        instance.refuses_found_when_used(&data, why);
    }
    // Whole folders exchanged: each file fits the other, and both belong to the wrong tenant.
    let data = instance.fresh("swapped");
    let (one, two) = (folder(&data, &instance.first), folder(&data, &instance.second));
    let aside = data.join("aside");
    std::fs::rename(&one, &aside).unwrap();
    std::fs::rename(&two, &one).unwrap();
    std::fs::rename(&aside, &two).unwrap();
    let service = instance.start(&data);
    for client in [service.person("anna"), service.client(&instance.second_app).acting_for("anna")] {
        let answer = client.get("/v1/memories").unwrap();
        assert_eq!((answer.status, answer.body.contains("storage_damaged")), (503, true), "{}", answer.body);
    }
    assert_eq!(service.ready().1["damaged_tenants"].as_array().unwrap().len(), 2);
    service.stop();
    let (content, said) = doctor(&data);
    assert!(!content && said.matches(why).count() == 2, "{said}");
}

impl Instance {
    /// The same for what shows when the tenant is used first: the log knows it from then on.
    fn refuses_found_when_used(&self, data: &Path, why: &str) {
        let service = self.start(data);
        let answer = service.person("anna").get("/v1/memories").unwrap();
        assert_eq!((answer.status, answer.body.contains("storage_damaged")), (503, true), "{}", answer.body);
        assert_eq!(texts(&service.client(&self.second_app).acting_for("anna")).len(), 40);
        assert_eq!(service.ready().1["damaged_tenants"], json!([self.first]));
        let log = service.log();
        assert!(log.lines().any(|line| line.contains(&self.first) && line.contains(why)), "{log}");
        service.stop();
        let (content, said) = doctor(data);
        assert!(!content && said.contains(why) && said.contains(&self.first), "{said}");
    }
}

/// Anna's client and everything of hers that may be told.
fn is_whole_or_refused(client: &Client) -> bool {
    let answer = client.get("/v1/memories?limit=500").unwrap();
    if answer.status == 503 {
        assert!(answer.body.contains("storage_damaged"), "{}", answer.body);
        return false;
    }
    let items = answer.success().unwrap()["items"].as_array().unwrap().clone();
    assert_eq!(items.len(), 40, "half of it was served");
    assert!(items.iter().all(|item| item["text"].as_str().unwrap().starts_with(SECRET)));
    true
}

#[test]
fn a_changed_page_is_found_by_doctor_and_never_half_served() {
    let instance = Instance::new();
    let whole = instance.fresh("pages");
    let pages = length(&instance.file(&whole, "cell.db")) / 8192;
    let mut n_found = 0;
    for page in (1..pages).step_by(5) {
        let data = instance.fresh("pages");
        let path = instance.file(&data, "cell.db");
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        // Pages are filled from their end.
        file.write_all_at(&[0xA5; 1190], page * 8192 + 7000).unwrap();
        let service = instance.start(&data);
        let served = is_whole_or_refused(&service.person("anna"));
        assert_eq!(texts(&service.client(&instance.second_app).acting_for("anna")).len(), 40);
        if !served {
            assert_eq!(service.ready().1["damaged_tenants"], json!([instance.first]));
        }
        service.stop();
        let (content, said) = doctor(&data);
        assert!(served || !content, "page {page} was refused and doctor is content: {said}");
        if !content {
            assert!(said.contains(&format!("BAD   tenant {}", instance.first)), "{said}");
            n_found += 1;
        }
    }
    // The others hold nothing yet where they were changed.
    assert!(n_found >= 3, "doctor found {n_found} of {} changed pages", pages / 5);
}

#[test]
fn a_changed_write_ahead_log_is_refused_instead_of_forgetting_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let service = Running::start(&data);
    for number in 0..12 {
        let fact = json!({"kind": "user_fact", "text": format!("fact {number}")});
        service.person("anna").post("/v1/memories", &fact, None).unwrap().success().unwrap();
    }
    let tenant = std::fs::read_dir(data.join("tenants")).unwrap().map(|entry| entry.unwrap().path());
    let log = tenant.map(|tenant| tenant.join("cell.db-wal")).max_by_key(|log| length(log)).unwrap();
    let keys = service.kill();
    let whole = std::fs::read(&log).unwrap();
    for at in [5, 40, whole.len() / 3, whole.len() / 2] {
        flip(&log, u64::try_from(at).unwrap(), 0x20);
        let service = Running::start(&data).with_keys(keys.clone());
        let answer = service.person("anna").get("/v1/memories").unwrap();
        assert_eq!((answer.status, answer.body.contains("storage_damaged")), (503, true), "{}", answer.body);
        assert!(service.log().contains("cell.db-wal is damaged"), "{}", service.log());
        service.kill();
        let (content, said) = doctor(&data);
        assert!(!content && said.contains("cell.db-wal is damaged") && said.contains("restore"), "{said}");
        std::fs::write(&log, &whole).unwrap();
    }
    let service = Running::start(&data).with_keys(keys);
    assert_eq!(texts(&service.person("anna")).len(), 12, "the refusals changed something");
}

#[test]
fn damage_of_what_all_tenants_need_stops_the_start_with_its_name_and_a_remedy() {
    let instance = Instance::new();
    let case = |name: &str, why: &[&str], damage: &dyn Fn(&Path)| {
        let data = instance.fresh("case");
        damage(&data);
        let said =
            Running::launch(serve(binary(), &data)).err().unwrap_or_else(|| panic!("{name}: it started"));
        let (content, doctor) = doctor(&data);
        for part in why {
            assert!(said.contains(part), "{name}: {said}");
            assert!(doctor.contains(part), "{name}: doctor says: {doctor}");
        }
        assert!(!content && !said.contains("marzipan"));
        assert!(doctor.matches("BAD").count() == 1, "{name}: said twice: {doctor}");
    };
    let control = |data: &Path| data.join("control.db");
    case("cut off", &["control.db", RESTORE], &|data| cut(&control(data), 100));
    case("empty", &["control.db", RESTORE], &|data| cut(&control(data), 0));
    case("flipped", &["control.db", "from a backup"], &|data| flip(&control(data), 1, 4));
    case("newer", &["control.db", "newer version"], &|data| flip(&control(data), 63, 0x40));
    case("missing", &["control.db", RESTORE], &|data| {
        for name in ["control.db", "control.db-wal", "control.db-shm"] {
            let _ = std::fs::remove_file(data.join(name));
        }
    });
    case("a page", &["control.db", RESTORE], &|data| {
        let file = std::fs::OpenOptions::new().write(true).open(control(data)).unwrap();
        file.write_all_at(&[0xA5; 4096], 8192).unwrap();
    });
    let key = |data: &Path| data.with_extension("key");
    case("no key", &["data.key", "bring it back"], &|data| std::fs::remove_file(key(data)).unwrap());
    case("another key", &["instance key does not belong", "bring back"], &|data| {
        std::fs::write(key(data), "00".repeat(32)).unwrap();
    });
    case("half a key", &["data.key", "64 hexadecimal digits", "bring back"], &|data| cut(&key(data), 30));
    case("a readable key", &["data.key", "chmod 600"], &|data| {
        std::fs::set_permissions(key(data), std::fs::Permissions::from_mode(0o640)).unwrap();
    });
}

#[test]
fn a_first_start_that_died_is_begun_anew_with_new_keys() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for arrival in 1..6 {
        let mut doomed = binary();
        doomed.args(["init", "--data-dir"]).arg(&data);
        let died = doomed.env("MERKWELT_ABORT_AT", format!("after-commit:{arrival}")).output().unwrap();
        assert!(!died.status.success() && died.stdout.is_empty(), "{}", text(&died.stdout));
        let (_, said) = doctor(&data);
        assert!(said.contains("there is no data"), "{said}");
    }
    let service = Running::start(&data);
    let fact = json!({"kind": "user_fact", "text": "kept"});
    service.person("anna").post("/v1/memories", &fact, None).unwrap().success().unwrap();
    let keys = service.stop();
    let service = Running::start(&data);
    assert_eq!(service.keys.app, "", "a finished start was begun anew");
    assert_eq!(texts(&service.with_keys(keys).person("anna")), ["kept"]);
}

#[test]
fn keys_that_could_not_be_shown_open_nothing_and_the_next_start_shows_others() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let deaf = binary().args(["init", "--data-dir"]).arg(&data).stdout(full).output().unwrap();
    assert!(!deaf.status.success() && text(&deaf.stderr).contains("start again"), "{}", text(&deaf.stderr));
    let init = run(&["init", "--data-dir", data.to_str().unwrap()]);
    assert!(init.status.success() && text(&init.stdout).contains("app key"), "{}", text(&init.stderr));
}
