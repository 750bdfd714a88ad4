//! When to stop.

use std::io;
use tokio::signal::unix::{SignalKind, signal as listen};

/// Resolves at the first SIGINT or SIGTERM, and says which it was. Both are caught from this call on, not only
/// once the future is polled: a signal during start-up ends the program in order too.
pub fn signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        };
        tracing::info!(signal = name, "shutting down");
    })
}
