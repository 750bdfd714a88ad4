//! The body is that of a test, which runs with chosen bytes wherever there is a stable Rust.
#![no_main]

#[allow(dead_code, reason = "the other targets use the rest")]
#[path = "../../distributor/protocol/tests/bytes/input.rs"]
mod input;
#[path = "../../distributor/protocol/tests/bytes/node.rs"]
mod node;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| node::read(bytes));
