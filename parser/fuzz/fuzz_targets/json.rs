//! Fuzz target of the look at JSON members; must never hold a check of its own (they are in the crate).
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| warmpath_parser::fuzz::json(data));
