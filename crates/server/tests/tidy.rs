//! Keeps the house in order: who imports whom, how long a file may be, which names are not used for rooms,
//! and which files may implement the ports that decide who sees what. A failure says what to do.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which crates of ours a crate may import (ARCHITECTURE.md). A new arrow is a decision: it comes with a
/// page in `docs/decisions`.
const IMPORTS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("authz", &["domain"]),
    ("ledger", &[]),
    ("intake", &["domain"]),
    ("inference", &[]),
    ("store", &["authz", "domain", "ledger"]),
    ("store-sqlite", &["authz", "domain", "ledger", "store"]),
    ("app", &["authz", "domain", "inference", "ledger", "store"]),
    ("sim", &["app", "authz", "domain", "inference", "ledger", "store", "store-sqlite"]),
    ("server", &["app", "authz", "domain", "inference", "intake", "ledger", "store", "store-sqlite"]),
];

/// Worldly dependencies and the only crates that may name them.
const WORLDLY: &[(&str, &[&str])] = &[
    ("axum", &["server"]),
    ("hyper", &["server"]),
    ("hyper-util", &["server"]),
    ("clap", &["server"]),
    ("utoipa", &["server", "app"]),
    ("utoipa-axum", &["server"]),
    ("ureq", &["server"]),
    ("rustls", &["server"]),
    ("anyhow", &["server"]),
    ("tokio", &["server", "store-sqlite"]),
    ("rusqlite", &["store-sqlite"]),
    ("tikv-jemallocator", &["server"]),
    ("tiktoken-rs", &["inference"]),
    ("memmap2", &["inference"]),
    ("rust-stemmers", &["store"]),
    // Parsers of documents: what they read is hostile.
    ("hayro-cmap", &["intake"]),
    ("hayro-syntax", &["intake"]),
    ("html5gum", &["intake"]),
    ("pulldown-cmark", &["intake"]),
    ("quick-xml", &["intake"]),
];

/// Who may say who asks, who may what, and what time it is. A lying implementation could open every door,
/// so each is named here (SECURITY.md).
const TRUSTED: &[(&str, &[&str])] = &[
    // The suite has a lying source, to show that a store does not believe it.
    (
        "impl GrantSource for",
        &["crates/store/src/reference", "crates/store/src/conformance", "crates/store-sqlite/src", SIM],
    ),
    ("impl CredentialSource for", &["crates/store/src/reference", "crates/store-sqlite/src", SIM]),
    ("impl Env for", &["crates/domain/src/env.rs", "crates/server/src/env.rs", SIM]),
    ("impl Library for", &["crates/store/src/reference", "crates/store-sqlite/src", "crates/sim/src"]),
    ("impl Store for", &["crates/store/src", "crates/store-sqlite/src", SIM]),
    ("impl EvidenceLog for", &["crates/store/src", "crates/store-sqlite/src", SIM]),
];

/// Wraps backends and lies on purpose; nothing that is shipped imports it.
const SIM: &str = "crates/sim/src";

const FILE_LINES_MAX: usize = 500;
const BANNED_ROOMS: &[&str] = &[
    "common", "utils", "util", "helpers", "helper", "types", "misc", "shared", "manager", "service",
    "handlers",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn production() -> Vec<(String, String)> {
    let root = root();
    let is_test = |name: &str| {
        name.ends_with("/tests.rs")
            || name.contains("/tests/")
            || name.contains("/benches/")
            || name.contains("/examples/")
    };
    sources(&root.join("crates"))
        .into_iter()
        .map(|path| {
            (path.strip_prefix(&root).unwrap().display().to_string(), std::fs::read_to_string(&path).unwrap())
        })
        .filter(|(name, _)| name.contains("/src/") && !is_test(name))
        .collect()
}

/// The text before the file's own tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap()
}

fn crate_names() -> BTreeSet<String> {
    std::fs::read_dir(root().join("crates"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Names in `[dependencies]` of a manifest; what only tests need is no arrow of the house.
fn dependencies(name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line.trim() == "[dependencies]" || line.starts_with("[target.");
        } else if inside && let Some((key, _)) = line.split_once(['.', '=', ' ']) {
            found.insert(key.trim().to_owned());
        }
    }
    found
}

#[test]
fn imports_follow_the_table() {
    let table: BTreeMap<_, _> = IMPORTS.iter().copied().collect();
    for name in crate_names() {
        let allowed = table.get(name.as_str()).unwrap_or_else(|| {
            panic!(
                "crates/{name} is not in the import table of tidy.rs: add it with a page in docs/decisions"
            )
        });
        for import in dependencies(&name) {
            if let Some(ours) = import.strip_prefix("merkwelt-") {
                assert!(allowed.contains(&ours), "crates/{name} must not import crates/{ours}");
            }
        }
    }
}

/// Names of packages that a crate of ours depends on, as a lock file tells them.
fn locked(lock: &str, name: &str) -> BTreeSet<String> {
    let package = lock
        .split("[[package]]")
        .find(|package| package.contains(&format!("\nname = \"merkwelt-{name}\"\n")))
        .unwrap_or_default();
    let names = package.lines().filter_map(|line| line.trim().strip_prefix('"')?.split(['"', ' ']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_lock_of_the_fuzz_targets_knows_what_our_crates_depend_on() {
    let lock = std::fs::read_to_string(root().join("fuzz/Cargo.lock")).unwrap();
    let mut n_crates = 0;
    for name in crate_names() {
        let known = locked(&lock, &name);
        if known.is_empty() {
            continue; // No target needs it, or it depends on nothing.
        }
        n_crates += 1;
        for wanted in dependencies(&name) {
            assert!(
                known.contains(&wanted),
                "fuzz/Cargo.lock lacks {wanted} of crates/{name}: run `cargo metadata` in fuzz and commit it"
            );
        }
    }
    assert!(n_crates >= 8, "{n_crates} crates were compared");
}

#[test]
fn worldly_dependencies_stay_in_their_rooms() {
    for name in crate_names() {
        for import in dependencies(&name) {
            if let Some((_, rooms)) = WORLDLY.iter().find(|(worldly, _)| *worldly == import) {
                assert!(rooms.contains(&name.as_str()), "crates/{name} must not depend on {import}");
            }
        }
    }
}

#[test]
fn files_open_with_a_sentence_and_are_not_too_long() {
    for (name, text) in production() {
        assert!(text.starts_with("//!") || text.starts_with("#!["), "{name} does not open with `//!`");
        let lines = without_tests(&text).lines().count();
        assert!(lines <= FILE_LINES_MAX, "{name} has {lines} lines without tests: split it by room");
    }
}

#[test]
fn rooms_are_named_for_what_is_in_them() {
    for (name, _) in production() {
        for part in Path::new(&name).components() {
            let part = part.as_os_str().to_string_lossy();
            let room = part.trim_end_matches(".rs");
            assert!(!BANNED_ROOMS.contains(&room), "{name}: `{room}` says nothing; name the thing");
        }
    }
}

#[test]
fn r_035_only_listed_files_implement_the_trusted_ports() {
    for (name, text) in production() {
        for (port, files) in TRUSTED {
            if without_tests(&text).contains(port) {
                let listed = files.iter().any(|file| name.starts_with(file));
                assert!(listed, "{name} has `{port}`, which only {files:?} may");
            }
        }
    }
}

#[test]
fn i_001_capabilities_and_callers_are_built_in_one_place_each() {
    let mut builders = BTreeMap::new();
    for (name, text) in production() {
        for needle in ["Ok(Authorized {", "Ok(Caller {", "Ok(Fresh("] {
            for _ in without_tests(&text).matches(needle) {
                builders.entry(needle).or_insert_with(Vec::new).push(name.clone());
            }
        }
    }
    assert_eq!(builders.get("Ok(Authorized {"), Some(&vec!["crates/authz/src/authorized.rs".to_owned()]));
    assert_eq!(builders.len(), 3, "a maker moved: {builders:?}");
    assert!(builders.values().all(|files| files.len() == 1), "more than one maker: {builders:?}");
}

#[test]
fn nothing_borrowed_is_made_eternal() {
    // A leaked request would make a capability that outlives it (I-1).
    for (name, text) in production() {
        for needle in ["Box::leak", ".leak()", "mem::forget", "ManuallyDrop"] {
            assert!(!without_tests(&text).contains(needle), "{name} uses {needle}");
        }
    }
}

#[test]
fn unsafe_code_stands_in_one_file() {
    let with_unsafe: Vec<_> = production()
        .into_iter()
        .filter(|(_, text)| text.lines().any(|l| !l.trim_start().starts_with("//") && l.contains("unsafe {")))
        .map(|(name, _)| name)
        .collect();
    assert!(with_unsafe.len() <= 1, "unsafe code in {with_unsafe:?}");
    assert!(
        with_unsafe.iter().all(|name| name.starts_with("crates/inference/src/native/")),
        "{with_unsafe:?}"
    );
}

#[test]
fn r_046_no_process_wide_state_holds_anything_of_a_person() {
    for (name, text) in production() {
        for line in without_tests(&text).lines() {
            let line = line.trim_start();
            let is_static = line.starts_with("static ")
                || line.starts_with("pub static ")
                || line.starts_with("pub(crate) static ");
            let mutable = ["Mutex", "RwLock", "OnceLock", "LazyLock", "Atomic", "static mut"]
                .iter()
                .any(|m| line.contains(m));
            // Token tables are the same for everybody and are filled from the program itself.
            let tables = name.starts_with("crates/inference/src/tokens");
            assert!(!(is_static && mutable) || tables, "{name} holds process-wide state: {line}");
            assert!(!line.starts_with("thread_local!"), "{name} holds thread-local state");
        }
    }
}

#[test]
fn sql_stands_in_drivers_only() {
    for (name, text) in production() {
        if name.starts_with("crates/store-sqlite/") {
            continue;
        }
        for needle in ["SELECT ", "INSERT INTO", "DELETE FROM", "PRAGMA "] {
            assert!(!without_tests(&text).contains(needle), "{name} holds SQL");
        }
    }
}

#[test]
fn exceptions_from_the_lints_are_few_and_each_has_a_reason() {
    let mut count = 0;
    for (name, text) in production() {
        let text = without_tests(&text);
        assert!(
            !text.contains("#[allow(") && !text.contains("#![allow("),
            "{name} uses `allow`; use `expect` with a reason"
        );
        count += text.matches("#[expect(").count() + text.matches("#![expect(").count();
    }
    assert!(count <= EXPECTATIONS_MAX, "{count} exceptions from the lints; {EXPECTATIONS_MAX} are agreed on");
}

/// Raised only together with a reason in the change's description.
const EXPECTATIONS_MAX: usize = 60;

#[test]
fn the_requirement_table_claims_nothing_without_a_test() {
    let root = root();
    let table =
        std::fs::read_to_string(root.join("docs/requirements.md")).expect("docs/requirements.md exists");
    let mut tests = BTreeSet::new();
    for path in sources(&root.join("crates")) {
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines() {
            if let Some(rest) =
                line.trim_start().trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ")
            {
                tests.insert(rest.split('(').next().unwrap().to_owned());
            }
        }
    }
    let mut n_done = 0;
    for line in table.lines().filter(|line| line.starts_with("| R-") || line.starts_with("| L-")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let (number, named, state) = (cells[1], cells[3], cells[4]);
        assert!(["done", "partly", "open"].contains(&state), "{number}: state `{state}`");
        if state == "open" {
            continue;
        }
        n_done += 1;
        let prefix = number.to_lowercase().replace('-', "_") + "_";
        assert!(
            tests.iter().any(|t| t.starts_with(&prefix)),
            "{number} is {state}, but no test is named {prefix}…"
        );
        for test in named.split(',').map(|t| t.trim().trim_matches('`')).filter(|t| !t.is_empty()) {
            assert!(tests.contains(test), "{number} names the test {test}, which does not exist");
        }
    }
    assert!(n_done > 0, "the table has no rows");
}
