//! Deterministic simulation: the application over a backend, many callers at once, a clock that jumps, a machine
//! that fails, and an oracle that knows what may be seen. A run is a function of its seed: the same seed gives
//! the same trace, so a finding is a number.

mod act;
mod apply;
mod audit;
mod check;
mod draws;
mod env;
mod failure;
mod journal;
mod library;
mod marker;
mod model;
mod mutant;
mod plan;
mod shelf;
mod sim;
mod stage;
mod twins;
mod view;
mod words;
mod world;

pub use failure::{Failure, Property};
pub use mutant::Mutant;
pub use shelf::{ShelfReport, shelf};
pub use sim::{Options, Report, replay, run};
pub use twins::twins;
pub use world::BackendKind;
