//! Durations as Gateway API writes them.

use std::time::Duration;

/// `1h30m`, `500ms`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let parsed: gateway_api::Duration =
        text.parse().map_err(|_| format!("{text:?} is not a duration like 10s"))?;
    // They are whole milliseconds below 100,000 hours.
    Ok(Duration::from_millis(u64::try_from(parsed.as_millis()).unwrap_or(u64::MAX)))
}
