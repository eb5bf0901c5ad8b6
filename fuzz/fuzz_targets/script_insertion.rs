//! `lull_fuzz::insert_script` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lull_fuzz::insert_script(bytes));
