#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| merkwelt_fuzz::run("engine", bytes));
