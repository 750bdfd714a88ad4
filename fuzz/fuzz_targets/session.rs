//! The body is that of a test, which runs with chosen bytes wherever there is a stable Rust.
#![no_main]

#[path = "../../distributor/protocol/tests/bytes/session.rs"]
mod session;
#[path = "../../distributor/protocol/tests/bytes/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    session::talk(bytes);
});
