//! The binary `merkwelt`.

fn main() {}
