//! What must hold for every sequence of bytes from outside, one function for each kind of it. The fuzz targets
//! call these functions with bytes that a fuzzer makes up, `cargo test` calls them with the committed corpus, so
//! there is one place that says what a parser promises.

mod acl;
mod config;
mod cursor;
mod engine;
mod evidence;
mod face;
mod import;
mod strict;
mod words;

/// A target: its name, which is that of its corpus, and its property, which panics where it does not hold.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// The targets that are replayed here. `document` is replayed in the room that reads documents; `model` and
/// `tokens` go through a door that only tests and fuzzers have, and are replayed behind it.
pub(crate) const TARGETS: &[Target] = &[
    ("json", evidence::json),
    ("words", words::words),
    ("note", evidence::note),
    ("checkpoint", evidence::checkpoint),
    ("proof", evidence::proof),
    ("policy", evidence::policy),
    ("export", evidence::export),
    ("trace", evidence::trace),
    ("strict", strict::strict),
    ("face", face::face),
    ("config", config::config),
    ("import", import::import),
    ("cursor", cursor::cursor),
    ("acl", acl::acl),
    ("engine", engine::engine),
];
