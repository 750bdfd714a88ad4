use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration as people write it: `500ms`, `10s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub Duration);

/// A part of all clients: `all` or `10%`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(f64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("{0:?} is no duration: write a number and ms, s, m or h, as in 500ms")]
    Span(String),
    #[error("{0:?} is no share: write `all`, or a percentage above 0% up to 100%")]
    Share(String),
}

impl Share {
    pub const ALL: Self = Self(1.0);

    /// So many of a hundred.
    pub fn percent(part: u8) -> Self {
        Self(f64::from(part.clamp(1, 100)) / 100.0)
    }

    /// More than 0, at most 1.
    pub fn fraction(self) -> f64 {
        self.0
    }

    /// Of so many, at least one.
    pub fn of(self, count: usize) -> usize {
        let part = (count as f64 * self.0).round() as usize;
        part.clamp(usize::from(count > 0), count)
    }
}

impl FromStr for Span {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = || TextError::Span(text.to_owned());
        let digits = text.find(|char: char| !char.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let milliseconds = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let milliseconds = number.checked_mul(milliseconds).ok_or_else(wrong)?;
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}

impl FromStr for Share {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
        percent
            .map(|percent| Self(percent / 100.0))
            .ok_or_else(|| TextError::Share(text.to_owned()))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            whole if whole > 0 && whole % 1_000 == 0 => write!(f, "{}s", whole / 1_000),
            milliseconds => write!(f, "{milliseconds}ms"),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL { f.write_str("all") } else { write!(f, "{}%", self.0 * 100.0) }
    }
}

impl TryFrom<String> for Span {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        text.parse()
    }
}

impl TryFrom<String> for Share {
    type Error = TextError;

    fn try_from(text: String) -> Result<Self, TextError> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl From<Share> for String {
    fn from(share: Share) -> Self {
        share.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, milliseconds) in
            [("0ms", 0), ("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000)]
        {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        for text in ["", "10", "s", "1.5s", "-1s", "10 s", "99999999999999999999h"] {
            assert_eq!(text.parse::<Span>(), Err(TextError::Span(text.to_owned())));
        }
    }

    #[test]
    fn shares_are_read_and_written() {
        for (text, of_200) in [("all", 200), ("100%", 200), ("10%", 20), ("0.1%", 1)] {
            let share: Share = text.parse().unwrap();
            assert_eq!(share.of(200), of_200, "{text}");
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        assert_eq!(Share::ALL.of(0), 0);
        for text in ["", "10", "0%", "101%", "-1%", "NaN%"] {
            assert_eq!(text.parse::<Share>(), Err(TextError::Share(text.to_owned())));
        }
    }
}
