//! Durations in flags: `500ms`, `10s`, `5m`, `1h`.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a number and ms, s, m or h, as in 500ms")]
pub struct NoDuration;

/// For `value_parser` of a flag. Nothing is `0`, whatever its unit.
pub fn parse(text: &str) -> Result<Duration, NoDuration> {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| NoDuration)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" if number == 0 => 0,
        _ => return Err(NoDuration),
    };
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or(NoDuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000)];
        for (text, milliseconds) in cases {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn a_number_alone_is_no_duration() {
        for text in ["", "s", "10", "-1s", "1.5s", "1d", "10 s", "99999999999999999999h"] {
            assert_eq!(parse(text), Err(NoDuration), "{text}");
        }
        let huge = format!("{}h", u64::MAX);
        assert_eq!(parse(&huge), Err(NoDuration));
    }
}
