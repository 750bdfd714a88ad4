//! When to stop.

use std::io;
use tokio::signal::unix::{SignalKind, signal as listen};

/// Resolves at the first SIGINT, SIGTERM or SIGHUP, with its name. They are caught from this call on, not only once the
/// future is polled: a signal during start-up also ends the program in order.
///
/// A terminal that closes sends SIGHUP. Where that was ignored from the start, as under `nohup`, it stays ignored.
pub fn signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) };
    let hung_up = async move {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    Ok(async move {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hung_up => "SIGHUP",
        };
        tracing::info!(signal = name, "shutting down");
    })
}

/// Whether this process was started with SIGHUP ignored. Where the system does not tell, it was not.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (SignalKind::hangup().as_raw_value() - 1)) != 0)
}
