//! `lull_fuzz::plan` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lull_fuzz::plan(bytes));
