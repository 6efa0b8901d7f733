//! Folders that the running service follows by itself: what is put there, changed, closed or taken away takes
//! effect without a request, also over restarts and sudden ends.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::folders::{asked, hostile, sources, write};
use crate::running::{Keys, Running, doctor, run, text};

const QUESTION: &str = "What is the limit for travel expenses?";
const TRAVEL: &str = "The limit for travel expenses is thirty euros.";

/// A service that follows a folder, and what it needs to be started again.
struct Scene {
    dir: tempfile::TempDir,
    service: Option<Running>,
    keys: Keys,
}

impl Scene {
    /// The connector looks every second; `more` are lines of its configuration.
    fn new(more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let service = Running::start(&dir.path().join("data"));
        std::fs::create_dir(dir.path().join("policies")).unwrap();
        let admin = service.client(&service.keys.tenant);
        for (path, body) in [
            ("/v1/groups", json!({ "name": "sales" })),
            ("/v1/groups/sales/members", json!({ "add": ["anna"] })),
        ] {
            admin.post(path, &body, None).unwrap().success().unwrap();
        }
        let made = admin.post("/v1/keys", &json!({ "label": "folder", "role": "app" }), None).unwrap();
        let key = made.success().unwrap()["key"].as_str().unwrap().to_owned();
        private(&dir.path().join("folder.key"), &key);
        let keys = service.stop();
        let scene = Self { dir, service: None, keys };
        scene.configure(more);
        scene.started()
    }

    fn configure(&self, more: &str) {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let config = format!(
            "[[connector]]\nname = 'policies'\ntenant = 'default'\nfolder = '{}'\nkey_file = '{}'\n\
             poll_seconds = 1\nsettle_seconds = 1\n{more}\n",
            at("policies"),
            at("folder.key")
        );
        std::fs::write(self.dir.path().join("data.toml"), config).unwrap();
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn started(mut self) -> Self {
        self.service = Some(Running::start(&self.data()).with_keys(self.keys.clone()));
        self
    }

    fn stopped(mut self) -> Self {
        self.service.take().unwrap().stop();
        self
    }

    fn service(&self) -> &Running {
        self.service.as_ref().unwrap()
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("policies")
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        write(&self.folder(), name, bytes);
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder().join(name)).unwrap();
    }

    fn sources(&self) -> BTreeMap<String, Value> {
        sources(&self.service().client(&self.keys.app))
    }

    fn state(&self, name: &str) -> String {
        let sources = self.sources();
        let found = sources.get(&format!("folder:policies/{name}"));
        found.map_or("none", |source| source["state"].as_str().unwrap()).to_owned()
    }

    fn asked(&self, who: &str) -> String {
        asked(&self.service().person(who), QUESTION)
    }

    fn status(&self) -> String {
        let done = run(&["connector", "status", "--data-dir", self.data().to_str().unwrap()]);
        let said = text(&done.stdout);
        let idle = |line: &str| !line.contains(": working; ") && !line.contains("has not looked");
        let works = !said.lines().any(|line| line.starts_with("policies: ") && idle(line));
        assert_eq!(done.status.success(), works, "{said}{}", text(&done.stderr));
        said
    }

    /// Waits until it is so, or says what is instead.
    fn until(&self, what: &str, so: impl Fn() -> bool) {
        for _ in 0..400 {
            if so() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("{what} did not happen: {}\n{}", self.status(), self.service().log());
    }

    fn post(&self, path: &str, id: &str) {
        let sent = self.service().client(&self.keys.app).post_nothing(&path.replace("{id}", id)).unwrap();
        sent.success().unwrap();
    }
}

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn r_062_a_folder_is_followed_new_changed_closed_and_deleted() {
    let scene = Scene::new("everybody = true");
    scene.write("travel.md", TRAVEL);
    scene.until("publication", || scene.asked("bert").contains("thirty euros"));
    let id = scene.sources()["folder:policies/travel.md"]["id"].clone();
    scene.write("travel.md", TRAVEL.replace("thirty", "forty"));
    scene.until("replacement", || scene.asked("bert").contains("forty euros"));
    assert!(!scene.asked("bert").contains("thirty"));
    assert_eq!(scene.sources()["folder:policies/travel.md"]["id"], id, "the source stays the same");

    scene.write(".acl", "groups = ['sales']");
    scene.until("closing", || scene.asked("bert") == "[]" && scene.asked("anna").contains("forty"));
    scene.write("travel.md.acl", "groups = ['nobody-knows']");
    scene.until("withdrawal", || scene.asked("anna") == "[]" && scene.state("travel.md") == "withdrawn");
    assert!(scene.status().contains("unknown_group"), "{}", scene.status());
    scene.remove("travel.md.acl");
    scene.until("return", || scene.asked("anna").contains("forty"));
    assert_eq!(scene.asked("bert"), "[]");

    scene.remove("travel.md");
    scene.until("deletion", || scene.sources().is_empty());
    assert_eq!(scene.asked("anna"), "[]");
    scene.until("metrics", || {
        let metrics = scene.service().client("").get("/metrics").unwrap().body;
        metrics.contains("merkwelt_connector_up{connector=\"policies\"} 1")
            && metrics.contains("merkwelt_connector_files{connector=\"policies\",state=\"current\"} 0")
    });
    scene.service().verified_ledger();
}

#[test]
fn a_file_that_is_being_written_is_not_published_half() {
    let scene = Scene::new("everybody = true");
    let path = scene.folder().join("long.txt");
    let mut file = std::fs::File::create(&path).unwrap();
    for n in 0..15 {
        std::io::Write::write_all(&mut file, format!("Rule {n} is that rules are kept.\n\n").as_bytes())
            .unwrap();
        sleep(Duration::from_millis(200));
        assert!(scene.sources().is_empty(), "published while it was written");
    }
    drop(file);
    scene.until("publication", || scene.state("long.txt") == "active");
    assert_eq!(scene.sources()["folder:policies/long.txt"]["revisions"].as_array().unwrap().len(), 1);

    // A program that replaces a file takes it away for a moment.
    let before = scene.sources();
    scene.remove("long.txt");
    sleep(Duration::from_millis(300));
    scene.write("long.txt", "Rule 99 is the only one.");
    scene.until("replacement", || {
        scene.sources().values().any(|source| source["revisions"].as_array().unwrap().len() == 2)
    });
    assert_eq!(scene.sources()["folder:policies/long.txt"]["id"], before["folder:policies/long.txt"]["id"]);
}

#[test]
fn r_062_what_changed_while_the_service_was_down_or_died_is_caught_up_with_exactly_once() {
    let mut scene = Scene::new("everybody = true");
    for n in 0..60 {
        scene.write(&format!("rule-{n}.txt"), format!("Rule {n} says that number {n} is kept."));
    }
    for _ in 0..3 {
        scene.until("some work", || !scene.sources().is_empty());
        sleep(Duration::from_millis(150));
        scene.service.take().unwrap().kill();
        scene = scene.started();
    }
    let all_active = |n: usize| {
        let sources = scene.sources();
        sources.len() == n && sources.values().all(|source| source["state"] == "active")
    };
    scene.until("all", || all_active(60));
    for source in scene.sources().values() {
        assert_eq!(source["revisions"].as_array().unwrap().len(), 1, "{source}");
    }
    scene = scene.stopped();
    scene.write("rule-1.txt", "Rule 1 says something else now.");
    scene.remove("rule-2.txt");
    scene.write("new.txt", "A new rule.");
    scene = scene.started();
    scene.until("catching up", || scene.state("new.txt") == "active" && scene.state("rule-2.txt") == "none");
    scene.until("catching up", || {
        scene.sources()["folder:policies/rule-1.txt"]["revisions"].as_array().unwrap().len() == 2
    });
    assert_eq!(scene.sources().len(), 60);
}

#[test]
fn r_110_a_hostile_folder_stops_nothing_and_no_name_reaches_the_log() {
    let scene = Scene::new("everybody = true");
    let refused = hostile(&scene.folder());
    let n_refused = refused.len();
    scene.until("all reasons", || scene.status().contains(&format!("{n_refused} refused")));
    let status = scene.status();
    for (name, reason) in &refused {
        let line = status.lines().find(|line| line.starts_with(&format!("  refused  {name}  ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{name}: {reason}: {status}");
    }
    assert!(scene.asked("anna").contains("thirty euros"));
    assert_eq!(scene.state("a/good.txt"), "active");
    let log = scene.service().log();
    assert!(log.contains("a file is not published") && log.contains("encrypted"), "{log}");
    for (name, _) in &refused {
        // `up` and `linked` are words of their own.
        assert!(!name.contains('.') || !log.contains(name), "{name} is in the log: {log}");
    }
    let report = scene.data().join("connectors/policies.json");
    assert_eq!(std::fs::metadata(report).unwrap().permissions().mode() & 0o777, 0o600);
    let scene = scene.stopped();
    let (ok, said) = doctor(&scene.data());
    assert!(ok && said.contains("ok    connector policies: its folder can be read"), "{said}");
    assert!(said.contains(&format!("{n_refused} refused")), "{said}");
}

#[test]
fn r_051_what_somebody_took_back_or_deleted_does_not_come_back_from_the_folder() {
    let scene = Scene::new("everybody = true\nremoval = 'withdraw'\nrescan_seconds = 2");
    scene.write("travel.md", TRAVEL);
    scene.until("publication", || scene.state("travel.md") == "active");
    scene.remove("travel.md");
    scene.until("withdrawal", || scene.state("travel.md") == "withdrawn");
    scene.write("travel.md", TRAVEL);
    scene.until("return", || scene.asked("anna").contains("thirty"));

    let id = scene.sources()["folder:policies/travel.md"]["id"].as_str().unwrap().to_owned();
    scene.post("/v1/sources/{id}/withdraw", &id);
    scene.until("notice", || scene.status().contains("was withdrawn and stays so"));
    scene.write("travel.md", TRAVEL.replace("thirty", "forty"));
    sleep(Duration::from_secs(4));
    assert_eq!(scene.asked("anna"), "[]");

    let deleted = scene.service().client(&scene.keys.app).delete(&format!("/v1/sources/{id}")).unwrap();
    deleted.success().unwrap();
    let scene = scene.stopped().started();
    scene.until("notice", || scene.status().contains("deleted by somebody else"));
    assert!(scene.sources().is_empty());
    scene.remove("travel.md");
    scene.until("oblivion", || scene.status().contains("0 refused"));
    scene.write("travel.md", TRAVEL);
    scene.until("a new beginning", || scene.state("travel.md") == "active");
}

#[test]
fn r_031_a_connector_may_what_its_key_may_and_no_more() {
    let scene = Scene::new("everybody = true");
    scene.write("travel.md", TRAVEL);
    scene.until("publication", || scene.state("travel.md") == "active");
    let admin = scene.service().client(&scene.keys.tenant);
    let keys = admin.get("/v1/keys").unwrap().success().unwrap();
    let own = keys["keys"].as_array().unwrap().iter().find(|key| key["label"] == "folder").unwrap();
    admin.delete(&format!("/v1/keys/{}", own["id"].as_str().unwrap())).unwrap();
    scene.write("travel.md", TRAVEL.replace("thirty", "forty"));
    scene.until("refusal", || scene.status().contains("is not valid (any more)"));
    assert!(scene.asked("anna").contains("thirty"));
    let up = "merkwelt_connector_up{connector=\"policies\"} 0";
    assert!(scene.service().client("").get("/metrics").unwrap().body.contains(up));

    for (role, told) in [("agent", "may not manage sources"), ("auditor", "may not manage sources")] {
        let made = scene.service().client(&scene.keys.tenant).post(
            "/v1/keys",
            &json!({ "label": format!("folder-{role}"), "role": role }),
            None,
        );
        let key = made.unwrap().success().unwrap()["key"].as_str().unwrap().to_owned();
        private(&scene.dir.path().join("folder.key"), &key);
        let (ok, said) = doctor_of(&scene);
        assert!(!ok && said.contains(told), "{said}");
    }
    private(&scene.dir.path().join("folder.key"), &scene.keys.admin);
    let (ok, said) = doctor_of(&scene);
    assert!(!ok && said.contains("not of the tenant `default`"), "{said}");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(scene.dir.path().join("folder.key"), open).unwrap();
    let (ok, said) = doctor_of(&scene);
    assert!(!ok && said.contains("chmod 600"), "{said}");
}

/// `doctor` over a copy, because the service holds the original.
fn doctor_of(scene: &Scene) -> (bool, String) {
    let copy = tempfile::tempdir().unwrap();
    for name in ["data", "data.key", "data.toml"] {
        crate::running::copy(&scene.dir.path().join(name), copy.path());
    }
    doctor(&copy.path().join("data"))
}

#[test]
fn a_volume_that_is_not_mounted_deletes_nothing() {
    let scene = Scene::new("everybody = true");
    scene.write("travel.md", TRAVEL);
    scene.until("publication", || scene.state("travel.md") == "active");
    let away = scene.dir.path().join("away");
    std::fs::rename(scene.folder(), &away).unwrap();
    scene.until("notice", || scene.status().contains("cannot look into the folder"));
    std::fs::create_dir(scene.folder()).unwrap();
    let scene = scene.stopped().started();
    scene.until("notice", || scene.status().contains("is not the one it was"));
    sleep(Duration::from_secs(2));
    assert_eq!(scene.state("travel.md"), "active");
    std::fs::remove_dir(scene.folder()).unwrap();
    std::fs::rename(&away, scene.folder()).unwrap();
    let scene = scene.stopped().started();
    scene.until("recovery", || scene.status().contains("policies: working"));
    // The folder itself may be emptied.
    scene.remove("travel.md");
    scene.until("deletion", || scene.sources().is_empty());
}
