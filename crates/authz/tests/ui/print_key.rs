//! An API key cannot be written into a message (I-12).

use merkwelt_authz::ApiKey;

fn message(key: &ApiKey) -> String {
    format!("refused {key}")
}

fn main() {
    let _ = message;
}
