//! A search needs a capability.
use merkwelt_store::Store;
use merkwelt_store::query::RecallQuery;

fn search(store: &dyn Store, query: &RecallQuery) {
    let _ = store.recall(query);
}

fn main() {}
