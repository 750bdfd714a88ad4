use std::fmt;
use std::str::FromStr;

/// A version of Envoy, or the beginning of one: `1.31` stands for every `1.31.x`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Message)]
pub struct EnvoyVersion {
    /// Major, minor, patch.
    #[prost(uint32, repeated, tag = "1")]
    pub parts: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version of Envoy is one to three numbers, as 1.31 or 1.31.2")]
pub struct InvalidEnvoyVersion;

impl EnvoyVersion {
    /// This version, cut to the length of `bound`.
    fn as_far_as(&self, bound: &Self) -> &[u32] {
        &self.parts[..self.parts.len().min(bound.parts.len())]
    }

    pub(crate) fn is_at_least(&self, bound: &Self) -> bool {
        self.as_far_as(bound) >= &*bound.parts
    }

    pub(crate) fn is_at_most(&self, bound: &Self) -> bool {
        self.as_far_as(bound) <= &*bound.parts
    }
}

impl FromStr for EnvoyVersion {
    type Err = InvalidEnvoyVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        match parts {
            Ok(parts) if parts.len() <= 3 => Ok(Self { parts }),
            _ => Err(InvalidEnvoyVersion),
        }
    }
}

impl fmt::Display for EnvoyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> EnvoyVersion {
        text.parse().unwrap()
    }

    #[test]
    fn a_bound_says_as_much_as_it_says() {
        let here = version("1.31.2");
        for least in ["1", "1.31", "1.31.2", "1.30.9"] {
            assert!(here.is_at_least(&version(least)), "{least}");
        }
        for most in ["1", "1.31", "1.31.2", "1.32"] {
            assert!(here.is_at_most(&version(most)), "{most}");
        }
        assert!(!here.is_at_least(&version("1.31.3")));
        assert!(!here.is_at_most(&version("1.30")));
    }

    #[test]
    fn other_texts_are_no_versions() {
        for text in ["", "1.", "v1.31", "1.2.3.4", "1.-1"] {
            assert_eq!(text.parse::<EnvoyVersion>(), Err(InvalidEnvoyVersion), "{text}");
        }
    }
}
