//! Loss of power, simulated. A recorder (`recorder.c`) writes down what the real program asks of the file system.
//! From that the test builds directories as a loss of power may leave them: what was made durable is there, of
//! the rest any part in any order, torn at sectors. The program is started over each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::running::{Keys, Running, binary, run, serve, size, text};

/// One call, as `recorder.c` writes it.
struct Call {
    what: u8,
    file: u64,
    offset: usize,
    bytes: Vec<u8>,
}

impl Call {
    fn path(&self) -> PathBuf {
        PathBuf::from(text(&self.bytes))
    }
}

fn calls(record: &[u8]) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut rest = record;
    while let Some((head, after)) = rest.split_first_chunk::<25>() {
        let number = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap());
        let (bytes, after) = after.split_at(usize::try_from(number(17)).unwrap());
        let offset = usize::try_from(number(9)).unwrap();
        calls.push(Call { what: head[0], file: number(1), offset, bytes: bytes.to_vec() });
        rest = after;
    }
    calls
}

/// A change that is not durable yet.
#[derive(Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    Cut(usize),
}

impl Pending {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Cut(length) => to.resize(*length, 0),
            Self::Write(at, bytes) => {
                if to.len() < at + bytes.len() {
                    to.resize(at + bytes.len(), 0);
                }
                to[*at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

#[derive(Clone, Default)]
struct Content {
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

/// A name that came, went or moved and is not durable yet. `None` is a folder.
#[derive(Clone)]
enum Name {
    Made(PathBuf, Option<usize>),
    Gone(PathBuf),
    Moved(PathBuf, PathBuf),
}

impl Name {
    fn folder(&self) -> &Path {
        let (Self::Made(path, _) | Self::Gone(path) | Self::Moved(_, path)) = self;
        path.parent().unwrap()
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Option<usize>>) {
        match self {
            Self::Made(path, what) => drop(names.insert(path.clone(), *what)),
            Self::Gone(path) => drop(names.remove(path)),
            Self::Moved(from, to) => {
                if let Some(what) = names.remove(from) {
                    names.insert(to.clone(), what);
                }
            }
        }
    }
}

/// The disk below one folder.
#[derive(Default)]
struct Disk {
    contents: Vec<Content>,
    /// Which content an inode number means now; numbers are used again.
    inodes: BTreeMap<u64, usize>,
    names: BTreeMap<PathBuf, Option<usize>>,
    pending: Vec<Name>,
}

impl Disk {
    fn step(&mut self, call: &Call, root: &Path) {
        match call.what {
            b'c' => {
                self.contents.push(Content::default());
                self.inodes.insert(call.file, self.contents.len() - 1);
                self.name(Name::Made(call.path(), Some(self.contents.len() - 1)), root);
            }
            b'm' => self.name(Name::Made(call.path(), None), root),
            b'u' => self.name(Name::Gone(call.path()), root),
            b'r' => {
                let (from, to) = call.bytes.split_at(call.offset - 1);
                let path = |bytes: &[u8]| PathBuf::from(text(bytes));
                self.name(Name::Moved(path(from), path(&to[1..])), root);
            }
            b'w' => self.change(call.file, Pending::Write(call.offset, call.bytes.clone())),
            b't' => self.change(call.file, Pending::Cut(call.offset)),
            b's' => {
                if let Some(content) = self.content(call.file) {
                    let pending = std::mem::take(&mut content.pending);
                    pending.iter().for_each(|change| change.apply(&mut content.durable));
                }
            }
            b'S' => {
                let folder = call.path();
                let (durable, rest) =
                    std::mem::take(&mut self.pending).into_iter().partition(|name| name.folder() == folder);
                self.pending = rest;
                let durable: Vec<Name> = durable;
                durable.iter().for_each(|name| name.apply(&mut self.names));
            }
            _ => {}
        }
    }

    fn name(&mut self, name: Name, root: &Path) {
        if name.folder().starts_with(root) {
            self.pending.push(name);
        }
    }

    fn content(&mut self, inode: u64) -> Option<&mut Content> {
        let content = *self.inodes.get(&inode)?;
        self.contents.get_mut(content)
    }

    fn change(&mut self, inode: u64, change: Pending) {
        if let Some(content) = self.content(inode) {
            content.pending.push(change);
        }
    }

    /// Builds below `to` what a loss of power now leaves of `root`.
    fn lose_power(&self, root: &Path, to: &Path, luck: &mut Luck) {
        let mut names = self.names.clone();
        let folders: BTreeSet<_> = self.pending.iter().map(|name| name.folder().to_owned()).collect();
        for folder in folders {
            // A journal keeps the order of the names in a folder.
            let own: Vec<_> = self.pending.iter().filter(|name| name.folder() == folder).collect();
            let kept = luck.prefix(own.len());
            own.iter().take(kept).for_each(|name| name.apply(&mut names));
        }
        for (path, what) in names {
            let Ok(below) = path.strip_prefix(root) else { continue };
            let target = to.join(below);
            // A name is of no use if the folder it stands in was lost.
            let is_reachable = target.parent().is_some_and(Path::exists);
            let is_index = path.to_string_lossy().ends_with("-shm");
            match what {
                _ if !is_reachable || is_index => {}
                None => make_folder(&target),
                Some(content) => write(&target, &luck.content(&self.contents[content])),
            }
        }
    }
}

fn make_folder(path: &Path) {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(path).unwrap();
}

fn write(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
}

const SECTOR: usize = 512;

/// What of the changes that are not durable reached the disk.
enum Luck {
    /// Nothing.
    None,
    /// Everything; as after the death of the process.
    All,
    /// The last change of each file, and none before it.
    Last,
    /// Any of them, some torn; by a generator with this state.
    Some(u64),
}

impl Luck {
    fn draw(state: &mut u64) -> u64 {
        // SplitMix64, so that a failure can be repeated from its number.
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn prefix(&mut self, length: usize) -> usize {
        match self {
            Self::None => 0,
            Self::All | Self::Last => length,
            Self::Some(state) => usize::try_from(Self::draw(state) % (length as u64 + 1)).unwrap(),
        }
    }

    fn content(&mut self, content: &Content) -> Vec<u8> {
        let mut bytes = content.durable.clone();
        let last = content.pending.len().wrapping_sub(1);
        for (number, change) in content.pending.iter().enumerate() {
            match self {
                Self::None => {}
                Self::All => change.apply(&mut bytes),
                Self::Last if number == last => change.apply(&mut bytes),
                Self::Last => {}
                Self::Some(state) => match (Self::draw(state) % 3, change) {
                    (0, _) => {}
                    (1, Pending::Write(at, written)) => {
                        for (part, sector) in written.chunks(SECTOR).enumerate() {
                            if Self::draw(state).is_multiple_of(2) {
                                Pending::Write(at + part * SECTOR, sector.to_vec()).apply(&mut bytes);
                            }
                        }
                    }
                    _ => change.apply(&mut bytes),
                },
            }
        }
        bytes
    }
}

/// What the program said to its caller up to some call; from then on it is a promise.
#[derive(Default, Clone)]
struct Promised {
    listens: bool,
    memories: BTreeSet<String>,
    reads: BTreeSet<String>,
    checkpoint: Option<String>,
    key: Option<String>,
}

impl Promised {
    fn hear(&mut self, said: &str) {
        self.listens |= said.contains("merkwelt listens on");
        self.memories.extend(ids(said, "mem_"));
        if let Some(read) = said.split("merkwelt-read-id: ").nth(1).and_then(|rest| rest.split("\r\n").next())
        {
            self.reads.insert(read.to_owned());
        }
        if said.contains("\n\u{2014} merkwelt/tenant/") {
            self.checkpoint = said.find("merkwelt/tenant/").map(|at| said[at..].to_owned());
        }
        if let Some(at) = said.find("\"key\":\"mk_") {
            self.key = said[at + 7..].split('"').next().map(ToOwned::to_owned);
        }
    }
}

fn ids(said: &str, prefix: &str) -> Vec<String> {
    let starts = said.match_indices(prefix).map(|(at, _)| &said[at..]);
    starts.filter_map(|rest| rest.get(..30)).map(ToOwned::to_owned).collect()
}

/// Two lives of the service, recorded: the first start with its keys, writes, reads, a key, and a clean stop; a start, an erasure of nothing, more writes, and sudden death.
fn recorded(root: &Path, recorder: &Path) -> (Vec<Call>, Keys) {
    let record = root.with_extension("record");
    let (data, mut keys) = (root.join("data"), None);
    for life in 0..2 {
        let mut command = serve(binary(), &data);
        command.env("LD_PRELOAD", recorder).env("MERKWELT_RECORD", &record);
        let service = Running::launch(command).unwrap();
        let service = match keys.take() {
            None => service,
            Some(keys) => service.with_keys(keys),
        };
        let anna = service.person("anna");
        for number in 0..size("POWER_WRITES", 5) {
            let fact = json!({"kind": "user_fact", "text": format!("life {life} fact {number}")});
            anna.post("/v1/memories", &fact, None).unwrap().success().unwrap();
        }
        anna.post("/v1/recall", &json!({"question": "fact 3"}), None).unwrap().success().unwrap();
        let tenant = service.client(&service.keys.tenant);
        let key = json!({"label": "auditor", "role": "auditor"});
        tenant.post("/v1/keys", &key, None).unwrap().success().unwrap();
        assert_eq!(tenant.get("/v1/ledger/checkpoint").unwrap().status, 200);
        let fact = json!({"kind": "user_fact", "text": format!("life {life} last fact")});
        service.person("bob").post("/v1/memories", &fact, None).unwrap().success().unwrap();
        keys = Some(if life == 0 { service.stop() } else { service.kill() });
    }
    (calls(&std::fs::read(record).unwrap()), keys.unwrap())
}

/// Starts the program over what was left and holds it to what it had promised.
fn hold_to_the_promise(data: &Path, keys: &Keys, promised: &Promised, case: &str) {
    let service = Running::launch(serve(binary(), data)).unwrap_or_else(|said| panic!("{case}: {said}"));
    if !promised.listens {
        // Nothing was promised; but the start must succeed, with the old keys or with new ones.
        return;
    }
    assert_eq!(service.keys.app, "", "{case}: a finished first start was begun anew");
    let service = service.with_keys(keys.clone());
    let (_, ready) = service.ready();
    assert_eq!(ready["status"], "ready", "{case}: {}", service.log());
    let mut stored = BTreeSet::new();
    for person in ["anna", "bob"] {
        let listed = service.person(person).get("/v1/memories?limit=500").unwrap().success().unwrap();
        let items: Vec<Value> = listed["items"].as_array().unwrap().clone();
        stored.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
    }
    let lost: Vec<_> = promised.memories.difference(&stored).collect();
    assert!(lost.is_empty(), "{case}: lost {lost:?}");
    let ledger = service.verified_ledger();
    for read in &promised.reads {
        assert!(ledger.contains(read), "{case}: the read event {read} of delivered content is lost");
    }
    assert!(ledger.matches("\"type\":\"memory_written\"").count() == stored.len(), "{case}");
    if let Some(key) = &promised.key {
        let seen = service.client(key).get("/v1/ledger/checkpoint").unwrap();
        assert_eq!(seen.status, 200, "{case}: an acknowledged key is lost");
    }
    if let Some(checkpoint) = &promised.checkpoint {
        let (export, kept) = (data.with_extension("export"), data.with_extension("checkpoint"));
        std::fs::write(&export, service.verified_export()).unwrap();
        std::fs::write(&kept, checkpoint).unwrap();
        let verified = run(&["verify", export.to_str().unwrap(), "--previous", kept.to_str().unwrap()]);
        assert!(verified.status.success(), "{case}: {}", text(&verified.stderr));
    }
}

/// More cuts with `MERKWELT_POWER_CUTS`, another choice of them with `MERKWELT_POWER_SEED`.
#[test]
fn r_100_after_a_loss_of_power_everything_that_was_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = dir.path().join("recorder.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/recorder.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&recorder)
        .arg(source)
        .arg("-ldl")
        .output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let root = dir.path().join("recorded");
    std::fs::create_dir(&root).unwrap();
    let (calls, keys) = recorded(&root, &recorder);
    assert!(calls.iter().filter(|call| call.what == b's').count() > 20, "the recorder saw nothing");

    let (n_cuts, mut state) = (size("POWER_CUTS", 9), size("POWER_SEED", 1) as u64);
    let total = calls.len() as u64;
    let mut cuts: BTreeSet<usize> =
        (0..n_cuts).map(|_| usize::try_from(Luck::draw(&mut state) % total).unwrap()).collect();
    // A promise is weakest at once.
    let spoken: Vec<_> = (0..calls.len()).filter(|at| calls[*at].what == b'a').collect();
    cuts.extend(spoken.iter().step_by(spoken.len().div_ceil(n_cuts.max(1))));
    let (mut disk, mut promised) = (Disk::default(), Promised::default());
    let mut n_promised = 0;
    for (at, call) in calls.iter().enumerate() {
        if call.what == b'a' {
            promised.hear(&text(&call.bytes));
        } else {
            disk.step(call, &root);
        }
        if !cuts.contains(&at) {
            continue;
        }
        for (number, mut luck) in
            [Luck::None, Luck::Last, Luck::Some(at as u64), Luck::All].into_iter().enumerate()
        {
            if n_cuts < 100 && number != at % 4 {
                continue;
            }
            let left = dir.path().join("left");
            make_folder(&left);
            disk.lose_power(&root, &left, &mut luck);
            hold_to_the_promise(&left.join("data"), &keys, &promised, &format!("cut {at}, luck {number}"));
            n_promised += promised.memories.len();
            std::fs::remove_dir_all(&left).unwrap();
        }
    }
    assert!(n_promised > 30, "only {n_promised} promises were looked at");
    assert!(promised.listens && promised.reads.len() == 2, "{:?}", promised.reads);
    assert!(
        promised.checkpoint.is_some() && promised.key.is_some(),
        "{:?} {:?}",
        promised.checkpoint,
        promised.key
    );
}
