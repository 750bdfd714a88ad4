#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use futures::FutureExt;
use heliograph_shared::shutdown;
use std::process::Command;
use std::time::Duration;

fn send(signal: &str) {
    let command = format!("kill -{signal} {}", std::process::id());
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
}

/// One test, because signals reach the whole process.
#[tokio::test]
async fn each_signal_ends_the_wait() {
    let deadline = Duration::from_secs(10);
    for name in ["TERM", "INT", "HUP"] {
        let signal = shutdown::signal().unwrap();
        send(name);
        tokio::time::timeout(deadline, signal).await.expect("the signal was not heard");
    }
    let signal = shutdown::signal().unwrap();
    assert!(signal.now_or_never().is_none(), "a signal was heard that nobody sent");
}
