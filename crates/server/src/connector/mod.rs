//! Connectors: folders that the service itself keeps the register of sources in step with. A connector works
//! with a key of its tenant like any other caller; the service holds no right of its own to anybody's sources.

mod app_shelf;
mod examine;
mod report;
mod run;
mod setting;
mod signals;
mod watcher;

pub(crate) use examine::examine;
pub(crate) use report::{Report, WORKING};
pub(crate) use run::Connectors;
pub(crate) use setting::RawConnector;
pub use setting::Setting;
pub use signals::Signals;
