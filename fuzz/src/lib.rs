//! The fuzz targets by name. Their properties are shared with the tests of the workspace.

#[path = "properties/document.rs"]
mod document;
#[path = "properties/model.rs"]
mod model;
mod properties;

/// Runs one target on one input.
///
/// # Panics
/// A property does not hold, or there is no target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    // A parser that panics inside the reader of documents is contained there, and a property that does not hold
    // ends the process all the same.
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        if name == "document" {
            std::panic::set_hook(Box::new(|told| eprintln!("{told}")));
        }
    });
    let others =
        [("document", document::document as fn(&[u8])), ("model", model::model), ("tokens", model::tokens)];
    let found = properties::TARGETS.iter().chain(&others).find(|(known, _)| *known == name);
    found.expect("a target of this name exists").1(bytes);
}
