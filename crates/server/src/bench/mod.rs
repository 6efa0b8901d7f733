//! Measurements of the running service, kept in the binary so that everybody can repeat them: whether the
//! promise of isolation holds under attack ([`isolation`]), how well questions find what they need
//! ([`quality`]), and what the promises cost ([`load`]).

mod child;
mod clock;
mod dice;
pub mod isolation;
pub mod load;
pub mod quality;
mod wire;
