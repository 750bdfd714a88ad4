use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize, de, ser};
use std::time::Duration;

/// A histogram of latencies in microseconds, from one microsecond to an hour, exact to three digits. A longer one counts
/// as an hour.
///
/// In JSON it is an HDR histogram in its second format and base64, which other tools read too, beside a summary for
/// people, which is not read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Histogram<u64>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    pub count: u64,
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub max: Duration,
}

#[derive(Serialize)]
struct Written {
    count: u64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    p999_us: u64,
    max_us: u64,
    histogram: String,
}

#[derive(Deserialize)]
struct Read {
    histogram: String,
}

const LOWEST: u64 = 1;
const HIGHEST: u64 = 3_600_000_000;
const DIGITS: u8 = 3;
/// More is damage, and sums of such counts would overflow.
const MOST: u64 = 1 << 53;

/// Of the second format: cookie, length, offset, digits, lowest, highest, ratio.
const HEADER: usize = 40;
const COOKIE: [u8; 4] = [0x1c, 0x84, 0x93, 0x13];

impl Latencies {
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(HIGHEST));
    }

    pub fn merge(&mut self, other: &Self) {
        // All have the same bounds, so this is a sum of counts and cannot fail.
        let _ = self.0.add(&other.0);
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latency that this share of all, from 0 to 1, does not exceed; zero if nothing was recorded.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_micros(self.0.value_at_quantile(share))
    }

    pub fn max(&self) -> Duration {
        Duration::from_micros(self.0.max())
    }

    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max(),
        }
    }

    /// `earlier` is an earlier state of this one. If it is not, nothing is left.
    pub(crate) fn subtract(&mut self, earlier: &Self) {
        if self.0.subtract(&earlier.0).is_err() {
            *self = Self::default();
        }
    }

    fn encode(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(|error| format!("a histogram that cannot be written: {error:?}"))?;
        Ok(BASE64_STANDARD.encode(bytes))
    }

    fn decode(text: &str) -> Result<Self, String> {
        let bytes = BASE64_STANDARD
            .decode(text)
            .map_err(|error| format!("a histogram that is not base64: {error}"))?;
        // The length is looked at first: the decoder allocates what it says.
        let length =
            bytes.get(4..8).and_then(|field| field.try_into().ok()).map(u32::from_be_bytes);
        let length = length.and_then(|length| usize::try_from(length).ok());
        if !bytes.starts_with(&COOKIE) || length != bytes.len().checked_sub(HEADER) {
            return Err("a histogram that is not in HDR's format V2".to_owned());
        }
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("a damaged histogram: {error}"))?;
        let bounds = (histogram.low(), histogram.high(), histogram.sigfig());
        if bounds != (LOWEST, HIGHEST, DIGITS) {
            return Err(format!("a histogram with other bounds: {bounds:?}"));
        }
        if histogram.len() > MOST {
            return Err("a histogram with impossible counts".to_owned());
        }
        Ok(Self(histogram))
    }
}

impl Default for Latencies {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "constants, and every test makes one")]
        let histogram = Histogram::new_with_bounds(LOWEST, HIGHEST, DIGITS).expect("valid bounds");
        Self(histogram)
    }
}

impl Serialize for Latencies {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LatencySummary { count, p50, p90, p99, p999, max } = self.summary();
        let micros = |latency: Duration| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        Written {
            count,
            p50_us: micros(p50),
            p90_us: micros(p90),
            p99_us: micros(p99),
            p999_us: micros(p999),
            max_us: micros(max),
            histogram: self.encode().map_err(ser::Error::custom)?,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Read::deserialize(deserializer)?;
        Self::decode(&read.histogram).map_err(de::Error::custom)
    }
}
