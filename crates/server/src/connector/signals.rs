//! What the connectors of this process say of themselves to the metrics: names from the configuration, counts and
//! times, nothing of a file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// The last known state of each connector. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<Mutex<BTreeMap<String, Signal>>>);

/// One connector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Signal {
    /// Whether its last look was whole.
    pub(super) works: bool,
    /// Files that are current, refused, and not settled yet.
    pub(super) files: BTreeMap<&'static str, usize>,
    /// When it last looked, in seconds since 1970.
    pub(super) looked_at: i64,
}

impl Signals {
    pub(super) fn set(&self, name: &str, signal: Signal) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), signal);
    }

    /// In the Prometheus text format; nothing without connectors.
    pub(crate) fn render(&self) -> String {
        let signals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        if signals.is_empty() {
            return out;
        }
        // Writing into a `String` cannot fail.
        let head = |out: &mut String, name: &str, help: &str| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        };
        head(&mut out, "merkwelt_connector_up", "Whether the last look at the folder was whole.");
        for (name, signal) in signals.iter() {
            let _ = writeln!(out, "merkwelt_connector_up{{connector=\"{name}\"}} {}", u8::from(signal.works));
        }
        head(&mut out, "merkwelt_connector_files", "Files of the folder by what became of them.");
        for (name, signal) in signals.iter() {
            for (state, n) in &signal.files {
                let labels = format!("connector=\"{name}\",state=\"{state}\"");
                let _ = writeln!(out, "merkwelt_connector_files{{{labels}}} {n}");
            }
        }
        head(&mut out, "merkwelt_connector_looked_seconds", "When the folder was last looked through.");
        for (name, signal) in signals.iter() {
            let at = signal.looked_at;
            let _ = writeln!(out, "merkwelt_connector_looked_seconds{{connector=\"{name}\"}} {at}");
        }
        out
    }
}
