use crate::wire::{Ended, Opener, Protocol, Server, Stream};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::OnceCell;

/// The connections of a crowd that puts several streams on each.
pub(super) struct Lines {
    streams_each: usize,
    /// By the server's address.
    open: Mutex<BTreeMap<Arc<str>, Vec<Weak<Line>>>>,
}

/// A connection. It ends when none has it any more.
pub(super) struct Line {
    opener: OnceCell<Opener>,
    dead: Arc<AtomicBool>,
}

impl Lines {
    pub(super) fn new(streams_each: usize) -> Self {
        Self { streams_each: streams_each.max(1), open: Mutex::default() }
    }

    /// A stream on a connection of its own, which it drives, or on one with others.
    pub(super) async fn stream(
        &self,
        server: &Server,
        protocol: Protocol,
        connected: impl FnOnce(),
    ) -> Result<(Stream, Option<Arc<Line>>), Ended> {
        if self.streams_each == 1 {
            let (opener, connection) = server.connect().await?;
            connected();
            return Ok((Stream::open(server, protocol, opener, Some(connection)).await?, None));
        }
        let line = self.line_to(server);
        let opener = line.opener(server).await?;
        connected();
        Ok((Stream::open(server, protocol, opener, None).await?, Some(line)))
    }

    fn line_to(&self, server: &Server) -> Arc<Line> {
        let mut open = self.open.lock();
        let lines = open.entry(server.address.clone()).or_default();
        lines.retain(|line| line.strong_count() > 0);
        // Who has a line is a stream on it.
        let free = lines.iter().filter(|line| line.strong_count() < self.streams_each);
        if let Some(line) = free.filter_map(Weak::upgrade).find(|line| line.lives()) {
            return line;
        }
        let line = Arc::new(Line { opener: OnceCell::new(), dead: Arc::default() });
        lines.push(Arc::downgrade(&line));
        line
    }
}

impl Line {
    fn lives(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    async fn opener(&self, server: &Server) -> Result<Opener, Ended> {
        let connect = || async {
            let (opener, connection) = server.connect().await?;
            let dead = self.dead.clone();
            tokio::spawn(async move {
                // How it ended, its streams know too.
                let _ = connection.await;
                dead.store(true, Ordering::Relaxed);
            });
            Ok(opener)
        };
        self.opener.get_or_try_init(connect).await.cloned()
    }
}
