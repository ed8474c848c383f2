#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| forebay_simtest::fuzz::snapshot(input));
