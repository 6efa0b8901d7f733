//! The seal of actions and classes cannot be reached.

enum Everything {}

impl merkwelt_authz::authorized::sealed::Sealed for Everything {}

fn main() {}
