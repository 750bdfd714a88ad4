//! Servers that all tests of a program share, each test with a prefix of its own.

// Each program of tests uses a part of this.
#![allow(dead_code)]

use crate::servers::{Cluster, Sentinels, Server};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, mpsc};
use std::thread;

/// A prefix that no other test of this program has.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn server() -> &'static str {
    static URL: LazyLock<String> = LazyLock::new(|| {
        keep(async || {
            let server = Server::start(&[]).await;
            (server.url(), server)
        })
    });
    &URL
}

pub(crate) fn sentinels() -> &'static str {
    static URL: LazyLock<String> = LazyLock::new(|| {
        keep(async || {
            let sentinels = Sentinels::start().await;
            (sentinels.url(), sentinels)
        })
    });
    &URL
}

pub(crate) fn cluster() -> &'static str {
    static URL: LazyLock<String> = LazyLock::new(|| {
        keep(async || {
            let cluster = Cluster::start().await;
            (cluster.url(), cluster)
        })
    });
    &URL
}

/// Starts servers in a thread that does not end before the program, as they end with their thread.
fn keep<S>(start: impl AsyncFnOnce() -> (String, S) + Send + 'static) -> String {
    let (sender, url) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (url, _servers) = runtime.block_on(start());
        sender.send(url).unwrap();
        loop {
            thread::park();
        }
    });
    url.recv().unwrap()
}
