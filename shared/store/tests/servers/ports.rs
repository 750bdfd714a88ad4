use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that the kernel gives to connections that are being made, so that a server which is down for a while
/// finds its port free; and low enough for a Cluster's second port, which by default is 10,000 higher.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// A port that nobody listens at. Never the same twice in a process, and in another one probably another.
pub(super) fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Spreads neighbouring processes over the range.
    let start = process::id().wrapping_mul(2_654_435_761) % COUNT;
    for _ in 0..COUNT {
        let offset = (start + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}
