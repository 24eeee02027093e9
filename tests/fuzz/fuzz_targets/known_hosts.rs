#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| grit_ssh::fuzz::known_hosts(bytes));
