//! The prober of isolation in a small run against the real binary. That it can fail is shown beside its judge,
//! which is given false answers.

#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Where the cases of others lie, or a line that says what is skipped.
fn shared() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test reads where the machine keeps its evaluation data")]
    let given = std::env::var("MERKWELT_SHARED").ok().map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).map(|root| root.join("shared"));
    let found = given.or(beside).filter(|dir| dir.join("data/isolation").exists());
    if found.is_none() {
        println!("skipped: no cases of others; name their directory with MERKWELT_SHARED");
    }
    found
}

#[test]
fn r_034_a_small_attack_finds_nothing_and_every_scenario_holds() {
    let mut probe = Command::new(env!("CARGO_BIN_EXE_merkwelt"));
    probe.args([
        "bench",
        "isolation",
        "--attempts",
        "4000",
        "--clients",
        "16",
        "--timing-samples",
        "0",
        "--json",
    ]);
    if let Some(shared) = shared() {
        probe.arg("--shared").arg(shared);
    }
    let output = probe.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let told = format!("{report:#}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}");
    assert!(report["attempts"].as_u64().unwrap() >= 4000, "{told}");
    assert_eq!((&report["wrong"], &report["recall"]), (&json!({}), &json!(1.0)), "{told}");
    assert!(
        report["pairs"].as_u64().unwrap() > 500 && report["recall_asked"].as_u64().unwrap() > 100,
        "{told}"
    );
    let outcomes = report["outcomes"].as_array().unwrap();
    assert!(outcomes.iter().filter(|outcome| outcome["verdict"] == "pass").count() >= 21, "{told}");
}
