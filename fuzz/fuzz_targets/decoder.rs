//! The body is that of a test, which runs with chosen bytes wherever there is a stable Rust.
#![no_main]

#[path = "../../distributor/protocol/tests/bytes/decoder.rs"]
mod decoder;
#[allow(dead_code, reason = "the other target uses the rest")]
#[path = "../../distributor/protocol/tests/bytes/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decoder::read(bytes));
