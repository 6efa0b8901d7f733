//! The fuzz targets by name. Their properties are shared with the tests of the workspace.

#[path = "properties/model.rs"]
mod model;
mod properties;

/// Runs one target on one input.
///
/// # Panics
/// A property does not hold, or there is no target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let closed = [("model", model::model as fn(&[u8])), ("tokens", model::tokens)];
    let found = properties::TARGETS.iter().chain(&closed).find(|(known, _)| *known == name);
    found.expect("a target of this name exists").1(bytes);
}
