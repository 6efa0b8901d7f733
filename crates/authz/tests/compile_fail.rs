//! The ways round the trusted core, each written down as a program that must not compile (I-1). The
//! expected errors belong to the pinned toolchain; after a new one, read what `TRYBUILD=overwrite` changed
//! before keeping it: an error for another reason proves nothing.
#![cfg(test)]

#[test]
fn r_031_no_way_round_the_capability_compiles() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
