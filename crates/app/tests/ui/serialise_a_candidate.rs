//! A proposal of the index cannot leave.
use merkwelt_store::record::Candidate;

fn leak(candidate: &Candidate) -> String {
    serde_json::to_string(candidate).unwrap_or_default()
}

fn main() {}
