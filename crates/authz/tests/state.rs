//! No process-wide mutable state in the two crates that know who somebody is: what one request learnt
//! cannot be read by another. The test reads the sources, so it also sees what no test runs.
#![cfg(test)]

use std::path::{Path, PathBuf};

/// Types that can change behind a shared reference.
const CHANGEABLE: [&str; 9] =
    ["Mutex", "RwLock", "OnceLock", "LazyLock", "OnceCell", "LazyCell", "RefCell", "UnsafeCell", "Atomic"];

/// The line without its comment.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(before, _)| before)
}

/// Whether the code from a `static` on declares something that can change.
fn is_changeable(declaration: &str) -> bool {
    let kind = declaration.split(['=', ';']).next().unwrap_or_default();
    declaration.starts_with("static mut ")
        || kind.contains(':') && (CHANGEABLE.iter().any(|name| kind.contains(name)) || kind.contains("Cell<"))
}

/// The numbers of the lines, counted from one, on which changeable state of the process begins.
fn findings(source: &str) -> Vec<usize> {
    let lines: Vec<_> = source.lines().map(code).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let declares = line.match_indices("static ").any(|(at, _)| {
            let is_word =
                line[..at].chars().next_back().is_none_or(|c| !(c.is_alphanumeric() || "'_".contains(c)));
            // A declaration may go on over several lines.
            is_word && is_changeable(&[&line[at..], &lines[index + 1..].join(" ")].join(" "))
        });
        if declares || line.contains("thread_local!") || line.contains("lazy_static!") {
            found.push(index + 1);
        }
    }
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn r_046_neither_authz_nor_domain_keeps_state_between_requests() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let mut found = Vec::new();
    for name in ["authz", "domain"] {
        let files = sources(&crates.join(name).join("src"));
        assert!(files.iter().any(|file| file.ends_with("lib.rs")), "no sources of {name} to look at");
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            let short = file.strip_prefix(&crates).unwrap().display().to_string();
            found.extend(findings(&source).iter().map(|line| format!("crates/{short}:{line}")));
        }
    }
    assert!(found.is_empty(), "process-wide mutable state (R-046):\n{}", found.join("\n"));
}

#[test]
fn r_046_the_search_sees_each_form_of_shared_state() {
    for bad in [
        "static mut LAST: u8 = 0;",
        "pub static SEEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());",
        "pub(crate) static SEEN: std::sync::RwLock<u8> = RwLock::new(0);",
        "    static KEY: OnceLock<String> = OnceLock::new();",
        "static KEY: LazyLock<String> = LazyLock::new(String::new);",
        "static COUNT: AtomicU64 = AtomicU64::new(0);",
        "static COUNT:\n    AtomicBool = AtomicBool::new(false);",
        "thread_local! { static NOW: u8 = 0; }",
        "thread_local! {\n    static NOW: Cell<u8> = Cell::new(0);\n}",
    ] {
        assert!(!findings(bad).is_empty(), "{bad}");
    }
    assert_eq!(findings("fn f() {}\n\nstatic N: AtomicI64 = AtomicI64::new(0);\n"), [3]);
}

#[test]
fn r_046_constants_lifetimes_fields_and_comments_are_no_shared_state() {
    for good in [
        "static NAMES: [&str; 1] = [\"a\"];",
        "pub const ALL: &'static [Self] = &[];",
        "struct Clock { now: AtomicI64 }",
        "// static SEEN: Mutex<u8> = Mutex::new(0);",
        "fn f(text: &'static str, state: &Mutex<u8>) {}",
        "static NAME: &str = \"a\"; struct Clock { now: AtomicI64 }",
    ] {
        assert_eq!(findings(good), [0usize; 0], "{good}");
    }
}
