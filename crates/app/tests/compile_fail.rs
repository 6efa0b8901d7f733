//! Ways round the store and the release that must not compile (I-1, I-4). The ways round the capability
//! itself stand in the authz crate.

#![cfg(test)]

#[test]
fn r_100_ways_round_the_recorded_release_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
