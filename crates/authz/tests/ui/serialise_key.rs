//! An API key cannot be written into a file or an answer by accident (I-12).

use merkwelt_authz::ApiKey;

fn file(key: &ApiKey) -> String {
    serde_json::to_string(key).unwrap()
}

fn main() {
    let _ = file;
}
