//! Measurements of the running service, kept in the binary so that everybody can repeat them: whether the
//! promise of isolation holds under attack ([`isolation`]).

mod child;
mod clock;
mod dice;
pub mod isolation;
mod wire;
