use std::io::{self, IsTerminal, Write};
use std::time::Duration;
use tokio::time::{Instant, interval_at};

/// Work that takes less time shows no progress line.
const SHOW_AFTER: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(250);

/// Does the work. If it takes longer than a moment, and stderr is a terminal, a line there shows what is waited for; it
/// is removed when the work is done.
pub(crate) async fn with_progress<T>(
    work: impl Future<Output = T>,
    waits_for: impl Fn() -> String,
) -> T {
    let stderr = io::stderr();
    if !stderr.is_terminal() {
        return work.await;
    }
    drawn_on(stderr, work, waits_for).await
}

async fn drawn_on<T>(
    mut screen: impl Write,
    work: impl Future<Output = T>,
    waits_for: impl Fn() -> String,
) -> T {
    let started = Instant::now();
    let mut work = std::pin::pin!(work);
    let mut redraw = interval_at(started + SHOW_AFTER, REDRAW);
    let mut is_drawn = false;
    loop {
        tokio::select! {
            outcome = &mut work => {
                if is_drawn {
                    // A screen that is gone needs no cleaning.
                    let _ = write!(screen, "{ERASE}").and_then(|()| screen.flush());
                }
                return outcome;
            }
            _ = redraw.tick() => {
                let seconds = started.elapsed().as_secs();
                let line = format!("{ERASE}{} ({seconds} s)", waits_for());
                is_drawn = write!(screen, "{line}").and_then(|()| screen.flush()).is_ok();
            }
        }
    }
}

/// To the start of the line, and nothing left on it.
const ERASE: &str = "\r\x1b[K";

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::timeout;

    async fn drawn(takes: Duration) -> String {
        let mut screen = Vec::new();
        let work = timeout(takes, pending::<()>());
        let _ = drawn_on(&mut screen, work, || "waiting for b".to_owned()).await;
        String::from_utf8(screen).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_quick_says_nothing() {
        assert_eq!(drawn(Duration::from_millis(900)).await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_says_what_it_waits_for_and_cleans_up() {
        let text = drawn(Duration::from_millis(2_100)).await;
        assert!(text.starts_with("\r\x1b[Kwaiting for b (1 s)"), "{text:?}");
        assert!(text.contains("waiting for b (2 s)") && text.ends_with(ERASE), "{text:?}");
    }
}
