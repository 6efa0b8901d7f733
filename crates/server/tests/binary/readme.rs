//! The README is true: every command of its walk is run against the real binary, and what it shows is what
//! the binary answers. `MERKWELT_UPDATE=1 cargo test -p merkwelt-server --test binary` writes the answers anew.

use std::path::Path;
use std::process::Command;

use crate::running::Running;
use serde_json::Value;

/// A command of the walk and the answer that the README shows for it.
struct Step {
    command: String,
    shown: Option<String>,
}

const WALK: &str = "## A first walk";

fn steps(readme: &str) -> Vec<Step> {
    let walk = readme.split(WALK).nth(1).unwrap().split("\n## ").next().unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for block in walk.split("```").skip(1).step_by(2) {
        let (language, body) = block.split_once('\n').unwrap();
        match language {
            // What a person does once, with keys of their own.
            "bash" => {}
            "sh" => steps.push(Step { command: body.to_owned(), shown: None }),
            "json" | "text" => steps.last_mut().unwrap().shown = Some(body.to_owned()),
            other => panic!("a block of `{other}` in the walk"),
        }
    }
    steps
}

/// The answer with everything that differs from run to run taken out.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| {
        !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.' | '+' | '/' | '='))
    }) {
        let end = word.trim_end_matches(|c: char| {
            !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.' | '+' | '/' | '='))
        });
        let rest = &word[end.len()..];
        let is_id = end.len() == 30 && end.as_bytes()[3] == b'_';
        let is_time =
            end.len() >= 20 && end.ends_with('Z') && end.starts_with("20") && !end.starts_with("2099");
        let is_hash = end.len() >= 24 && end.bytes().all(|b| b.is_ascii_hexdigit());
        let is_base64 = end.len() >= 30 && !is_id;
        out.push_str(if is_id {
            &end[..4]
        } else if is_time {
            "TIME"
        } else if is_hash || is_base64 {
            "HASH"
        } else {
            end
        });
        out.push_str(rest);
    }
    out
}

/// Indented as a person would want to read it; other text stays as it is.
fn pretty(answer: &str) -> String {
    match serde_json::from_str::<Value>(answer) {
        Ok(value) => serde_json::to_string_pretty(&value).unwrap() + "\n",
        Err(_) => answer.to_owned(),
    }
}

fn run(command: &str, service: &Running, dir: &Path) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_merkwelt")).parent().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the command needs the tools of the machine")]
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", command])
        .current_dir(dir)
        .env("PATH", path)
        .env("URL", &service.url)
        .env("APP", &service.keys.app)
        .env("TENANT", &service.keys.tenant)
        .output()
        .unwrap();
    assert!(output.status.success(), "`{command}` failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_walk_of_the_readme_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let path = root.join("README.md");
    let mut readme = std::fs::read_to_string(&path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let service = Running::start(&dir.path().join("data"));
    #[expect(clippy::disallowed_methods, reason = "asked for by the person who runs the test")]
    let update = std::env::var("MERKWELT_UPDATE").is_ok();
    for step in steps(&readme.clone()) {
        let answer = pretty(&run(&step.command, &service, dir.path()));
        let shown = step.shown.unwrap_or_default();
        if masked(&answer) == masked(&shown) {
            continue;
        }
        assert!(update, "the README shows for\n{}\n{shown}\nbut the answer is\n{answer}", step.command);
        let language = if answer.starts_with('{') { "json" } else { "text" };
        let command = format!("```sh\n{}```\n", step.command);
        let new = format!("{command}\n```{language}\n{answer}```\n");
        let old = ["json", "text"].map(|l| format!("{command}\n```{l}\n{shown}```\n"));
        let old = old.into_iter().find(|old| readme.contains(old.as_str())).unwrap_or(command);
        readme = readme.replacen(&old, &new, 1);
        std::fs::write(&path, &readme).unwrap();
    }
}

#[test]
fn the_two_commands_of_the_readme_are_the_real_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let commands = readme.split("## Two commands").nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks: Vec<_> =
        commands.split("```sh\n").skip(1).map(|b| b.split("```").next().unwrap().trim()).collect();
    assert_eq!(blocks, ["cargo run --release -- serve --fetch-model", ".ci/run"]);
    assert!(root.join(".ci/run").exists());
}
