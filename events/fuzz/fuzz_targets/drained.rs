#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| warmpath_events::fuzz::drained(data));
