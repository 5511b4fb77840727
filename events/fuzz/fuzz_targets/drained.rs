//! Fuzz target of drained cache events; must never hold a check of its own (they are in the crate).
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| warmpath_events::fuzz::drained(data));
