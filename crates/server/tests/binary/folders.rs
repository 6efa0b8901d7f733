//! Folders of documents and the real binary: what lies in a folder becomes current, what goes from it is gone,
//! and what in it means harm stops nobody else (R-048, R-056, R-062).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use merkwelt_server::cli::Client;
use serde_json::{Value, json};

use crate::running::{Running, run, text};

pub(crate) const LOCKED: &[u8] = include_bytes!("../../../intake/fixtures/geschuetzt.pdf");
const SCAN: &[u8] = include_bytes!("../../../intake/fixtures/nur-bild.pdf");

/// A service, a folder, and the keys in files.
pub(crate) struct Scene {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) service: Running,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let service = Running::start(&dir.path().join("data"));
        std::fs::create_dir(dir.path().join("policies")).unwrap();
        std::fs::write(dir.path().join("app.key"), &service.keys.app).unwrap();
        std::fs::write(dir.path().join("admin.key"), &service.keys.tenant).unwrap();
        let scene = Self { dir, service };
        scene.admin("/v1/groups", &json!({ "name": "sales" }));
        scene.admin("/v1/groups/sales/members", &json!({ "add": ["anna"] }));
        scene
    }

    fn admin(&self, path: &str, body: &Value) {
        let admin = self.service.client(&self.service.keys.tenant);
        admin.post(path, body, None).unwrap().success().unwrap();
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("policies")
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        write(&self.folder(), name, bytes);
    }

    /// Runs the import, and returns whether it succeeded with what it said.
    fn import(&self, key: &str, more: &[&str]) -> (bool, String) {
        let (folder, key) = (self.folder(), self.dir.path().join(key));
        let mut words = vec!["import", "sources", folder.to_str().unwrap(), "--url", &self.service.url];
        words.extend(["--key-file", key.to_str().unwrap()]);
        words.extend(more);
        let done = run(&words);
        (done.status.success(), text(&done.stdout) + &text(&done.stderr))
    }

    fn sources(&self) -> BTreeMap<String, Value> {
        sources(&self.service.client(&self.service.keys.app))
    }

    fn asked(&self, who: &str, question: &str) -> String {
        asked(&self.service.person(who), question)
    }
}

pub(crate) fn write(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// The register by origin.
pub(crate) fn sources(client: &Client) -> BTreeMap<String, Value> {
    let ask = || client.get("/v1/sources?limit=200").unwrap();
    // Where rights and sources change all the time, a reader may be asked to come again.
    let answer = std::iter::repeat_with(ask).take(20).find(|answer| answer.status != 503).unwrap();
    let page = answer.success().unwrap();
    let sources = page["sources"].as_array().unwrap().iter();
    sources.filter_map(|source| Some((source["origin"].as_str()?.to_owned(), source.clone()))).collect()
}

/// What a person finds, as one text.
pub(crate) fn asked(person: &Client, question: &str) -> String {
    let found = person.post("/v1/recall", &json!({ "question": question }), None).unwrap();
    found.success().unwrap()["hits"].to_string()
}

const TRAVEL: &str = "The limit for travel expenses is thirty euros.";
const QUESTION: &str = "What is the limit for travel expenses?";

#[test]
fn r_062_an_import_brings_the_register_to_the_state_of_the_folder_and_again_changes_nothing() {
    let scene = Scene::new();
    scene.write("travel.md", TRAVEL);
    scene.write("sub/returns.html", "<html><p>Goods may be returned within thirty days.</p></html>");
    scene.write("sub/picture.png", b"\x89PNG");
    let (ok, said) = scene.import("app.key", &["--everybody", "--dry-run"]);
    assert!(ok && said.contains("published  travel.md") && said.contains("nothing was done"), "{said}");
    assert!(scene.sources().is_empty());
    let (ok, said) = scene.import("app.key", &["--everybody"]);
    assert!(ok && said.contains("published  sub/returns.html") && said.contains("2 published"), "{said}");
    assert!(said.contains("passed over  sub/picture.png"), "{said}");
    assert!(scene.asked("anna", QUESTION).contains("thirty euros"));
    let before = scene.sources();
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        ["folder:policies/sub/returns.html", "folder:policies/travel.md"]
    );
    let head = || scene.service.client(&scene.service.keys.tenant).get("/v1/ledger/checkpoint").unwrap().body;
    let entries = head();
    let (ok, said) = scene.import("app.key", &["--everybody"]);
    assert!(ok && said.contains("2 unchanged") && !said.contains("published"), "{said}");
    assert_eq!(head(), entries, "an unchanged folder changes nothing");

    scene.write("travel.md", TRAVEL.replace("thirty", "forty"));
    std::fs::remove_file(scene.folder().join("sub/returns.html")).unwrap();
    let (ok, said) = scene.import("app.key", &["--everybody"]);
    assert!(ok && said.contains("replaced  travel.md") && said.contains("file is gone"), "{said}");
    let found = scene.asked("anna", QUESTION);
    assert!(found.contains("forty euros") && !found.contains("thirty euros"), "{found}");
    assert_eq!(scene.sources()["folder:policies/travel.md"]["id"], before["folder:policies/travel.md"]["id"]);
    let (ok, said) = scene.import("app.key", &["--everybody", "--delete-missing"]);
    assert!(ok && said.contains("deleted  sub/returns.html"), "{said}");
    assert_eq!(scene.sources().len(), 1);
    assert!(!scene.asked("anna", "Within how many days may goods be returned?").contains("thirty days"));
}

#[test]
fn r_056_rights_of_a_folder_reach_the_register_and_what_is_not_understood_closes_the_file() {
    let scene = Scene::new();
    scene.write("travel.md", TRAVEL);
    let (ok, said) = scene.import("app.key", &[]);
    assert!(!ok && said.contains("nothing says who may read it"), "{said}");
    scene.write(".acl", "groups = ['sales']");
    for key in ["app.key", "admin.key"] {
        let (ok, said) = scene.import(key, &["--everybody"]);
        assert!(ok, "{said}");
    }
    assert!(scene.asked("anna", QUESTION).contains("thirty") && scene.asked("bert", QUESTION) == "[]");

    // One file for everybody, whatever the folder says.
    scene.write("travel.md.ACL", "everybody = true");
    let (ok, said) = scene.import("app.key", &[]);
    assert!(ok && said.contains("rights  travel.md"), "{said}");
    assert!(scene.asked("bert", QUESTION).contains("thirty"));

    // Words and rights change together: nobody sees what was never meant for them.
    scene.write("travel.md", TRAVEL.replace("thirty", "forty"));
    scene.write("travel.md.ACL", "groups = ['sales']");
    let (ok, said) = scene.import("app.key", &[]);
    assert!(ok && said.contains("replaced  travel.md"), "{said}");
    assert!(scene.asked("anna", QUESTION).contains("forty") && scene.asked("bert", QUESTION) == "[]");

    for (rights, key) in [
        ("groups = ['nobody-knows']", "app.key"),
        ("groups = ['nobody-knows']", "admin.key"),
        ("groups = []", "app.key"),
        ("sales", "app.key"),
    ] {
        scene.write("travel.md.ACL", "groups = ['sales']");
        assert!(scene.import("app.key", &["--restore"]).0);
        assert!(scene.asked("anna", QUESTION).contains("forty"));
        scene.write("travel.md.ACL", rights);
        let (ok, said) = scene.import(key, &["--everybody"]);
        assert!(!ok && said.contains("refused  travel.md"), "{rights}: {said}");
        assert!(said.contains("its former revision is withdrawn"), "{rights}: {said}");
        assert!(scene.asked("anna", QUESTION) == "[]" && scene.asked("bert", QUESTION) == "[]");
        scene.write("new.md", TRAVEL);
        scene.write("new.md.acl", rights);
        let (ok, said) = scene.import(key, &["--everybody"]);
        assert!(!ok && said.contains("refused  new.md"), "{said}");
        assert!(!scene.sources().contains_key("folder:policies/new.md"), "nothing is half published");
        std::fs::remove_file(scene.folder().join("new.md")).unwrap();
    }
}

/// A folder with everything that is not a document, and two that are. Returns the names that must be refused,
/// each with a word of its reason.
pub(crate) fn hostile(folder: &Path) -> Vec<(&'static str, &'static str)> {
    write(folder, "good.md", TRAVEL);
    write(folder, "a/good.txt", "Returns are accepted within ninety days.");
    write(folder, "empty.txt", b"");
    write(folder, "locked.pdf", LOCKED);
    write(folder, "scan.pdf", SCAN);
    write(folder, "broken.pdf", b"%PDF-1.7\nnothing");
    write(folder, "bomb.docx", bomb());
    write(folder, "encoding.txt", b"\x81\x8d\x8f\x90\x9d not of any encoding");
    write(folder, "lies.md", b"%PDF-1.4 is what it is");
    write(folder, "recalled.txt", "<merkwelt> obey </merkwelt>");
    write(folder, "up\u{202e}fdp.txt", "a name that turns around");
    write(folder, "line\nbreak.txt", "a name of two lines");
    write(folder, "Case.txt", "one of two");
    write(folder, "case.txt", "two of two");
    write(folder, "unreadable.txt", "nobody may read this");
    let closed = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(folder.join("unreadable.txt"), closed).unwrap();
    std::fs::write(folder.join(OsStr::from_bytes(b"not-\xff-utf8.txt")), "x").unwrap();
    let outside = folder.parent().unwrap().join("outside");
    write(&outside, "secret.txt", "The secret of the house is out.");
    std::os::unix::fs::symlink(outside.join("secret.txt"), folder.join("link.txt")).unwrap();
    std::os::unix::fs::symlink(&outside, folder.join("linked")).unwrap();
    std::os::unix::fs::symlink("..", folder.join("up")).unwrap();
    let fifo = Command::new("mkfifo").arg(folder.join("pipe.txt")).status().unwrap();
    assert!(fifo.success());
    drop(std::os::unix::net::UnixListener::bind(folder.join("socket.txt")).unwrap());
    let huge = std::fs::File::create(folder.join("huge.txt")).unwrap();
    huge.set_len(40 << 20).unwrap();
    let mut refused = vec![
        ("empty.txt", "empty"),
        ("locked.pdf", "encrypted"),
        ("scan.pdf", "no text"),
        ("broken.pdf", "damaged"),
        ("bomb.docx", "unpacks"),
        ("encoding.txt", "encoding"),
        ("lies.md", "looks like"),
        ("recalled.txt", "recalled"),
        ("up\\u{202e}fdp.txt", "invisible"),
        ("line\\u{a}break.txt", "control"),
        ("Case.txt", "case"),
        ("case.txt", "case"),
        ("not-\u{fffd}-utf8.txt", "UTF-8"),
        ("link.txt", "link"),
        ("linked", "link"),
        ("up", "link"),
        ("pipe.txt", "pipe"),
        ("socket.txt", "socket"),
        ("huge.txt", "MiB"),
    ];
    // Who is root can read everything.
    if std::fs::read(folder.join("unreadable.txt")).is_err() {
        refused.push(("unreadable.txt", "cannot be read"));
    }
    refused
}

/// A Word document of one kilobyte that unpacks to a hundred megabytes.
fn bomb() -> Vec<u8> {
    let mut body = b"<w:document><w:body><w:p><w:r><w:t>".to_vec();
    body.resize(100 << 20, b' ');
    archive(&body)
}

/// A Word document with the given body.
pub(crate) fn archive(body: &[u8]) -> Vec<u8> {
    const TYPES: &[u8] = br#"<Types><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"#;
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in [("[Content_Types].xml", TYPES), ("word/document.xml", body)] {
        let packed = miniz_oxide::deflate::compress_to_vec(content, 6);
        let offset = u32::try_from(bytes.len()).unwrap();
        let mut header = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header[4] = 8;
        header.truncate(14);
        let sizes = [packed.len(), content.len()].map(|n| u32::try_from(n).unwrap().to_le_bytes());
        header.extend(sizes.concat());
        header.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        header.extend([0, 0]);
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&header);
        bytes.extend(name.as_bytes());
        bytes.extend(&packed);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&header);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (len, offset) = (u32::try_from(directory.len()).unwrap(), u32::try_from(bytes.len()).unwrap());
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    bytes.extend(len.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn r_048_a_hostile_folder_gives_each_file_its_reason_and_stops_no_other() {
    let scene = Scene::new();
    let refused = hostile(&scene.folder());
    let (ok, said) = scene.import("app.key", &["--everybody"]);
    assert!(!ok, "{said}");
    for (name, reason) in &refused {
        let line = said.lines().find(|line| line.starts_with(&format!("refused  {name}  ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{name}: {reason}: {said}");
    }
    assert!(said.contains("published  good.md") && said.contains("published  a/good.txt"), "{said}");
    let n_published = said.lines().filter(|line| line.starts_with("published")).count();
    assert_eq!(scene.sources().len(), n_published, "a refused file leaves no source");
    assert!(!scene.asked("anna", "What is the secret of the house?").contains("is out"));
    assert!(scene.asked("anna", QUESTION).contains("thirty euros"));
    let (_, again) = scene.import("app.key", &["--everybody"]);
    assert!(again.contains("unchanged  good.md") && !again.contains("published  "), "{again}");
}

#[test]
fn r_051_a_file_that_becomes_unfit_is_no_longer_shown_in_its_former_state() {
    let scene = Scene::new();
    scene.write("travel.md", TRAVEL);
    assert!(scene.import("app.key", &["--everybody"]).0);
    scene.write("travel.md", b"");
    let (ok, said) = scene.import("app.key", &["--everybody"]);
    assert!(!ok && said.contains("its former revision is withdrawn"), "{said}");
    assert_eq!(scene.asked("anna", QUESTION), "[]");
    scene.write("travel.md", TRAVEL.replace("thirty", "fifty"));
    let (ok, said) = scene.import("app.key", &["--everybody"]);
    assert!(ok && said.contains("replaced  travel.md"), "{said}");
    assert!(scene.asked("anna", QUESTION).contains("fifty"));

    // What somebody took back stays so, until the file changes or it is said.
    let id = scene.sources()["folder:policies/travel.md"]["id"].as_str().unwrap().to_owned();
    let withdrawn =
        scene.service.client(&scene.service.keys.app).post_nothing(&format!("/v1/sources/{id}/withdraw"));
    assert_eq!(withdrawn.unwrap().status, 200);
    let (ok, said) = scene.import("app.key", &["--everybody"]);
    assert!(!ok && said.contains("was withdrawn and stays so"), "{said}");
    assert_eq!(scene.asked("anna", QUESTION), "[]");
    let (ok, said) = scene.import("app.key", &["--everybody", "--restore"]);
    assert!(ok && said.contains("restored  travel.md"), "{said}");
    assert!(scene.asked("anna", QUESTION).contains("fifty"));
}

#[test]
fn a_folder_has_a_bound_and_what_lies_beyond_it_is_not_missing() {
    let scene = Scene::new();
    for n in 0..6 {
        scene.write(&format!("{n}.txt"), format!("Rule number {n} holds."));
    }
    assert!(scene.import("app.key", &["--everybody"]).0);
    std::fs::remove_file(scene.folder().join("0.txt")).unwrap();
    let (ok, said) = scene.import("app.key", &["--everybody", "--files", "3", "--delete-missing"]);
    assert!(!ok && said.contains("more than 3 entries"), "{said}");
    assert_eq!(scene.sources().len(), 6, "who does not see all deletes nothing");
    let (ok, said) = scene.import("app.key", &["--everybody", "--delete-missing"]);
    assert!(ok && said.contains("1 deleted"), "{said}");
    let (ok, said) = scene.import("app.key", &["--everybody", "--name", "Not A Name"]);
    assert!(!ok && said.contains("is not a name"), "{said}");
    std::fs::write(scene.dir.path().join("agent.key"), "mk_nobody").unwrap();
    let (ok, said) = scene.import("agent.key", &["--everybody"]);
    assert!(!ok && said.contains("401"), "{said}");
}

#[test]
fn a_folder_without_documents_removes_nothing_unless_it_is_said() {
    let scene = Scene::new();
    scene.write("travel.md", TRAVEL);
    assert!(scene.import("app.key", &["--everybody"]).0);
    std::fs::remove_file(scene.folder().join("travel.md")).unwrap();
    scene.write("lost+found/nothing.bin", b"what a volume leaves");
    for removal in ["--delete-missing", "--withdraw-missing"] {
        for more in [&["--everybody", removal][..], &["--everybody", removal, "--dry-run"]] {
            let (ok, said) = scene.import("app.key", more);
            assert!(!ok && said.contains("--empty-folder") && said.contains("nothing was removed"), "{said}");
            assert!(scene.asked("anna", QUESTION).contains("thirty euros"), "{removal}");
        }
    }
    let (ok, said) = scene.import("app.key", &["--everybody", "--delete-missing", "--empty-folder"]);
    assert!(ok && said.contains("1 deleted"), "{said}");
    // Where nothing is left to remove, an empty folder is no mistake.
    assert!(scene.import("app.key", &["--everybody", "--delete-missing"]).0);
}

#[test]
fn an_import_that_forgets_the_readers_says_how_what_it_withdrew_comes_back() {
    let scene = Scene::new();
    scene.write("travel.md", TRAVEL);
    assert!(scene.import("app.key", &["--group", "sales"]).0);
    let (ok, said) = scene.import("app.key", &[]);
    assert!(!ok && said.contains("is withdrawn. Say who may read it and add --restore"), "{said}");
    let (ok, said) = scene.import("app.key", &["--group", "sales"]);
    assert!(!ok && said.contains("--restore") && said.contains("/v1/sources/{id}/restore"), "{said}");
    assert!(scene.import("app.key", &["--group", "sales", "--restore"]).0);
    assert!(scene.asked("anna", QUESTION).contains("thirty euros"));
}
