//! Every `sh` block of the documentation is run: against a live service where it needs one, in a directory
//! with the files it names. What runs for ever (`serve`) is only held to the command line's grammar.

use std::path::Path;
use std::process::Command;

use clap::Parser as _;
use merkwelt_server::cli::Cli;
use merkwelt_server::config::{Config, Places};

use crate::engines::toml;
use crate::running::Running;
use crate::scripted::{Mood, Scripted};

const PAGES: [&str; 4] = ["docs/operators.md", "docs/auditors.md", "docs/de/datenschutz.md", "SECURITY.md"];

fn blocks(page: &Path, of: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    text.split(&format!("```{of}\n"))
        .skip(1)
        .map(|b| b.split("```").next().unwrap().trim().to_owned())
        .collect()
}

/// A directory with the files that the pages name, and the service they talk to.
fn stage(dir: &Path) -> Running {
    let service = Running::start(&dir.join("live"));
    let tenant = service.client(&service.keys.tenant);
    let checkpoint = tenant.get("/v1/ledger/checkpoint").unwrap().body;
    std::fs::write(dir.join("tenant-admin.key"), &service.keys.tenant).unwrap();
    std::fs::write(dir.join("checkpoint"), checkpoint).unwrap();
    let fact = serde_json::json!({"kind": "user_fact", "text": "Anna leads the depot"});
    service.person("anna").post("/v1/memories", &fact, None).unwrap().success().unwrap();
    std::fs::write(dir.join("app.key"), &service.keys.app).unwrap();
    let engine = Scripted::start(Mood::Good);
    std::fs::write(dir.join("data.toml"), toml("openai", &engine.url, "")).unwrap();
    tenant.post("/v1/groups", &serde_json::json!({"name": "sales"}), None).unwrap().success().unwrap();
    std::fs::create_dir(dir.join("policies")).unwrap();
    std::fs::write(dir.join("policies/travel.md"), "The limit for travel expenses is thirty euros.").unwrap();
    std::fs::write(dir.join("ledger.jsonl"), tenant.get("/v1/ledger/export").unwrap().body).unwrap();
    service
}

fn verifier_key(dir: &Path) -> String {
    let export = std::fs::read_to_string(dir.join("ledger.jsonl")).unwrap();
    let header: serde_json::Value = serde_json::from_str(export.lines().next().unwrap()).unwrap();
    header["key"].as_str().unwrap().to_owned()
}

#[test]
fn every_command_of_the_documentation_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let service = stage(dir.path());
    let bin = Path::new(env!("CARGO_BIN_EXE_merkwelt")).parent().unwrap();
    let mut made = String::new();
    let mut n_run = 0;
    for page in PAGES {
        for block in blocks(&root.join(page), "sh") {
            let arguments: Vec<_> = block.split_whitespace().map(|word| word.trim_matches('"')).collect();
            if arguments.contains(&"models") {
                // Talks to a package registry; its grammar is checked like that of `serve`.
                assert!(Cli::try_parse_from(&arguments).is_ok(), "{page}: {block}");
                continue;
            }
            assert!(Cli::try_parse_from(&arguments).is_ok(), "{page}: {block}");
            if arguments.get(1) == Some(&"serve") {
                continue;
            }
            let command = block
                .replace("merkwelt key", &format!("merkwelt key --url {}", service.url))
                .replace("import sources", &format!("import sources --url {}", service.url))
                .replace("key_aaaaaaaaaaaaaaaaaaaaaaaaaa", &public_part(&made));
            #[expect(clippy::disallowed_methods, reason = "the command needs the tools of the machine")]
            let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
            let output = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &command])
                .current_dir(dir.path())
                .env("PATH", path)
                .env("VERIFIER_KEY", verifier_key(dir.path()))
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{page}: `{block}` failed: {error}");
            let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if said.starts_with("mk_") {
                made = said;
            }
            n_run += 1;
        }
    }
    assert!(n_run >= 9, "only {n_run} commands were found");
}

#[test]
fn every_configuration_of_the_documentation_can_be_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let places = Places { data_dir: "data".into(), instance_key: None, config: None };
    let mut n_seen = 0;
    for block in blocks(&root.join("docs/operators.md"), "toml") {
        // The others are files that say who may read.
        if block.starts_with('[') {
            Config::parse(&block, &places, None).unwrap_or_else(|error| panic!("{block}\n{error:#}"));
            n_seen += 1;
        }
    }
    assert!(n_seen >= 4, "only {n_seen} configurations were found");
}

/// `mk_<id>_<secret>` as its public part `key_<id>`.
fn public_part(key: &str) -> String {
    format!("key_{}", key.strip_prefix("mk_").and_then(|rest| rest.split('_').next()).unwrap_or_default())
}
