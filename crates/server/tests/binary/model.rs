//! The embedding model as an operator meets it: import, start, what was written before, and wrong files. What
//! needs the real file is skipped where it is not at hand (`MERKWELT_MODEL_DIR` or the usual places).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engines::soon;
use crate::running::{Running, binary, run, text};
use merkwelt_inference::models::{self, FILE_BYTES, FILE_NAME};
use merkwelt_server::config::{Config, ModelPlaces, Places};
use merkwelt_server::wiring;
use merkwelt_store::query::ModelId;
use serde_json::{Value, json};

/// The real model file, or a line that says what is skipped.
pub(crate) fn real() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test reads where the machine keeps its models")]
    let given = std::env::var("MERKWELT_MODEL_DIR").ok().map(PathBuf::from);
    let dirs = ModelPlaces { model_dir: given, no_model: false }.dirs();
    let found = models::find(&dirs);
    if found.is_none() {
        println!("skipped: no {FILE_NAME} in {dirs:?}");
    }
    found
}

fn start(data: &Path, models: &Path) -> Running {
    Running::start_with(data, &[OsStr::new("--model-dir"), models.as_os_str()])
}

fn remember(service: &Running, words: &str) {
    let body = json!({"kind": "user_fact", "text": words});
    service.person("anna").post("/v1/memories", &body, None).unwrap().success().unwrap();
}

fn ask(service: &Running, question: &str) -> Value {
    let body = json!({"question": question, "k": 3});
    service.person("anna").post("/v1/recall", &body, None).unwrap().success().unwrap()
}

fn first(found: &Value) -> &str {
    found["hits"][0]["text"].as_str().unwrap()
}

const PASSAGES: [&str; 4] = [
    "The contract ends on 31 December",
    "Anna prefers tea to coffee",
    "The forklift is repaired every spring",
    "Invoices go to the office in Kiel",
];
const QUESTION: &str = "Wann läuft mein Vertrag ab?";

#[test]
fn i_014_after_an_import_a_german_question_finds_the_english_passage_that_words_miss() {
    let Some(file) = real() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (data, models) = (dir.path().join("data"), dir.path().join("models"));
    let service = Running::start(&data);
    for passage in PASSAGES {
        remember(&service, passage);
    }
    let before = ask(&service, QUESTION);
    assert_eq!(
        (&before["retrieval"], &before["hits"][0]["score"]["lexical"]),
        (&json!("lexical"), &json!(0.0))
    );
    assert_ne!(first(&before), PASSAGES[0], "words alone find it; the test shows nothing");
    let keys = service.stop();

    let done = run(&["models", "import", file.to_str().unwrap(), "--model-dir", models.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let service = start(&data, &models).with_keys(keys);
    let ready = service.client("").get("/readyz").unwrap().json().unwrap();
    assert_eq!(ready["retrieval"], "hybrid");
    // What was written before gets its vectors beside the requests.
    soon("the passages are embedded", || first(&ask(&service, QUESTION)) == PASSAGES[0]);
    assert_eq!(ask(&service, QUESTION)["retrieval"], "hybrid");
    remember(&service, "The rent is due on the first of each month");
    assert!(first(&ask(&service, "Bis wann muss die Miete bezahlt sein?")).starts_with("The rent"));
    let pack = json!({"question": QUESTION, "budget": 400});
    let pack = service.person("anna").post("/v1/context", &pack, None).unwrap().success().unwrap();
    assert_eq!(pack["retrieval"], "hybrid");
    let keys = service.stop();

    let status = run(&["models", "status", "--model-dir", models.to_str().unwrap()]);
    assert!(text(&status.stdout).contains("installed"), "{}", text(&status.stdout));
    // Without the model again: slower to find by meaning, but nothing is lost or refused.
    let service = Running::start(&data).with_keys(keys);
    assert_eq!(ask(&service, QUESTION)["retrieval"], "lexical");
}

#[test]
fn r_117_a_model_file_that_appears_while_the_service_runs_is_taken_up_without_a_new_start() {
    let Some(file) = real() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (data, models) = (dir.path().join("data"), dir.path().join("models"));
    let service = start(&data, &models);
    for passage in PASSAGES {
        remember(&service, passage);
    }
    assert_eq!(ask(&service, QUESTION)["retrieval"], "lexical");
    // A half copy is refused and looked at again when it is whole.
    std::fs::create_dir(&models).unwrap();
    std::fs::write(models.join(FILE_NAME), &std::fs::read(&file).unwrap()[..1 << 20]).unwrap();
    soon("the half file is refused", || service.log().contains("1048576 bytes instead of 71622400"));
    import(&file, &models);
    soon("the model is taken up", || first(&ask(&service, QUESTION)) == PASSAGES[0]);
    assert_eq!(service.ready().1["retrieval"], "hybrid");

    // Its name is taken away: whoever has the file open is not hurt.
    let path = models.join(FILE_NAME);
    let held = models.join("held");
    std::fs::hard_link(&path, &held).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ask(&service, QUESTION)["retrieval"], "hybrid");
    // Another model under the same name: the one in use stays in use.
    std::fs::write(&path, b"another model").unwrap();
    assert_eq!(
        (first(&ask(&service, QUESTION)), service.ready().1["retrieval"].as_str()),
        (PASSAGES[0], Some("hybrid"))
    );
    // Somebody writes into the very file: its vectors would mean nothing any more.
    let open = std::fs::OpenOptions::new().write(true).open(&held).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, &[7; 4096], 40 << 20).unwrap();
    assert_eq!(
        (ask(&service, QUESTION)["retrieval"].as_str(), service.ready().1["retrieval"].as_str()),
        (Some("lexical"), Some("lexical"))
    );
    remember(&service, "The rent is due on the first of each month");
    // The right one again, and what was written meanwhile is embedded.
    import(&file, &models);
    let rent = "Bis wann muss die Miete bezahlt sein?";
    soon("the right file is taken up", || first(&ask(&service, rent)).starts_with("The rent"));
}

#[test]
fn a_model_file_that_is_removed_cut_off_corrupted_or_another_leaves_the_service_lexical_and_nothing_is_lost()
{
    let Some(file) = real() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (data, models) = (dir.path().join("data"), dir.path().join("models"));
    import(&file, &models);
    let service = start(&data, &models);
    for passage in PASSAGES {
        remember(&service, passage);
    }
    assert_eq!(first(&ask(&service, QUESTION)), PASSAGES[0]);
    let mut keys = service.stop();
    let path = models.join(FILE_NAME);
    let whole = std::fs::read(&path).unwrap();
    let mut corrupted = whole.clone();
    corrupted[50 << 20] ^= 1;
    for (bytes, said) in [
        (None, "there is no e5-small-q4.bin"),
        (Some(&whole[..whole.len() / 2]), "35811200 bytes instead of 71622400"),
        (Some(corrupted.as_slice()), "the digest of the model file is"),
        (Some(b"another model".as_slice()), "13 bytes instead of 71622400"),
    ] {
        std::fs::remove_file(&path).unwrap();
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        let service = start(&data, &models).with_keys(keys);
        let found = ask(&service, "When does the contract end?");
        assert_eq!((first(&found), &found["retrieval"]), (PASSAGES[0], &json!("lexical")), "{said}");
        assert!(service.log().contains(said), "{}", service.log());
        keys = service.stop();
        std::fs::write(&path, b"").unwrap();
    }
    std::fs::write(&path, &whole).unwrap();
    let service = start(&data, &models).with_keys(keys);
    assert_eq!(first(&ask(&service, QUESTION)), PASSAGES[0]);
}

fn import(file: &Path, models: &Path) {
    let done = run(&["models", "import", file.to_str().unwrap(), "--model-dir", models.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn a_wrong_model_file_is_not_used_and_the_service_starts_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let models = dir.path().join("models");
    std::fs::create_dir(&models).unwrap();
    let file = std::fs::File::create(models.join(FILE_NAME)).unwrap();
    file.set_len(FILE_BYTES).unwrap();
    let service = start(&dir.path().join("data"), &models);
    remember(&service, PASSAGES[0]);
    let found = ask(&service, "When does the contract end?");
    assert_eq!((first(&found), &found["retrieval"]), (PASSAGES[0], &json!("lexical")));
    drop(service);
    let mut doctor = binary();
    doctor.args(["doctor", "--data-dir"]).arg(dir.path().join("data")).arg("--model-dir").arg(&models);
    let doctor = doctor.output().unwrap();
    assert!(text(&doctor.stdout).contains("digest of the model file"), "{}", text(&doctor.stdout));
    let status = run(&["models", "status", "--model-dir", models.to_str().unwrap()]);
    assert!(!status.status.success() && text(&status.stdout).contains("refused"));
}

#[test]
fn a_truncated_model_file_is_not_imported_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (file, models) = (dir.path().join("half.bin"), dir.path().join("models"));
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let refused = run(&["models", "import", file.to_str().unwrap(), "--model-dir", models.to_str().unwrap()]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("1048576 bytes instead of 71622400"), "{said}");
    assert_eq!(std::fs::read_dir(&models).map_or(0, Iterator::count), 0);
}

#[test]
fn without_python_fetch_says_what_to_do_instead() {
    let dir = tempfile::tempdir().unwrap();
    let models = dir.path().join("models");
    let mut fetch = binary();
    fetch.args(["models", "fetch", "--model-dir"]).arg(&models).env("PATH", dir.path());
    let refused = fetch.env("TMPDIR", dir.path()).output().unwrap();
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("merkwelt models import FILE"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn i_014_data_with_vectors_of_another_model_are_refused_with_a_text_that_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let places = Places { data_dir: dir.path().join("data"), instance_key: None, config: None };
    let config = Config::load(&places, None).unwrap();
    let env = wiring::system_env();
    let (one, other) = (ModelId::new("one", "1", 3), ModelId::new("other", "1", 3));
    drop(wiring::found(&config, &env, Some(&one)).unwrap());
    let refused = wiring::open(&config, &env, Some(&other)).unwrap_err();
    let said = format!("{refused:#}");
    assert!(said.contains("one@1/3") && said.contains("start without a model"), "{said}");
    assert!(wiring::open(&config, &Arc::clone(&env), Some(&one)).is_ok());
    assert!(wiring::open(&config, &env, None).is_ok());
    let Some(file) = real() else { return };
    let mut serve = binary();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&config.data_dir);
    let serve = serve.arg("--model-dir").arg(file.parent().unwrap()).output().unwrap();
    assert!(!serve.status.success() && text(&serve.stderr).contains("one@1/3"), "{}", text(&serve.stderr));
}
