use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The hosts that a listener or a route speaks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hostname {
    /// No hostname was given: all of them.
    Any,
    /// `*.example.com`: any name below, at any depth, but not `example.com` itself. Holds `example.com`.
    Below(Arc<str>),
    Exact(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a hostname")]
pub struct InvalidHostname(String);

impl Hostname {
    /// An absent or empty hostname means all of them.
    pub fn parse(text: Option<&str>) -> Result<Self, InvalidHostname> {
        text.filter(|text| !text.is_empty()).map_or(Ok(Self::Any), str::parse)
    }

    /// Whether every host of `other` is one of ours.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Exact(ours), Self::Exact(theirs)) => ours == theirs,
            (Self::Below(ours), Self::Exact(theirs)) => is_below(theirs, ours),
            (Self::Below(ours), Self::Below(theirs)) => ours == theirs || is_below(theirs, ours),
            (Self::Below(_), Self::Any) | (Self::Exact(_), Self::Any | Self::Below(_)) => false,
        }
    }

    /// The hosts of both: of two hostnames one covers the other, or they have none in common.
    pub fn intersection<'a>(&'a self, other: &'a Self) -> Option<&'a Self> {
        if self.covers(other) {
            Some(other)
        } else if other.covers(self) {
            Some(self)
        } else {
            None
        }
    }

    /// Its bytes, the last one first. Then a hostname begins with every wildcard that covers it, dot included.
    pub(crate) fn backwards(&self) -> impl Iterator<Item = u8> + '_ {
        let (name, dot) = match self {
            Self::Any => ("", None),
            Self::Below(name) => (&**name, Some(b'.')),
            Self::Exact(name) => (&**name, None),
        };
        name.bytes().rev().chain(dot)
    }

    /// The narrowest hostname that covers both and is neither.
    pub(crate) fn narrowest_above(&self, other: &Self) -> Self {
        let both = self.backwards().zip(other.backwards()).take_while(|(a, b)| a == b);
        let dots = both.enumerate().filter(|(_, (byte, _))| *byte == b'.');
        let (Self::Below(name) | Self::Exact(name)) = other else { return Self::Any };
        let labels = dots.last().and_then(|(length, _)| name.get(name.len() - length..));
        labels.map_or(Self::Any, |labels| Self::Below(labels.into()))
    }

    /// Greater is more specific: an exact name before any wildcard, a longer one before a shorter.
    pub fn specificity(&self) -> impl Ord + use<> {
        match self {
            Self::Any => (0, 0),
            Self::Below(name) => (1, name.len()),
            Self::Exact(name) => (2, name.len()),
        }
    }

    pub fn by_specificity(one: &Self, other: &Self) -> Ordering {
        one.specificity().cmp(&other.specificity())
    }
}

/// `example.com` or `*.example.com`, in any case.
impl FromStr for Hostname {
    type Err = InvalidHostname;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_prefix("*.").unwrap_or(&lower);
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let valid = name.len() <= 253
            && name.split('.').all(label)
            // Gateway API: hostnames are names, not addresses.
            && name.parse::<std::net::IpAddr>().is_err();
        match valid {
            false => Err(InvalidHostname(text.chars().take(300).collect())),
            true if name.len() < lower.len() => Ok(Self::Below(name.into())),
            true => Ok(Self::Exact(name.into())),
        }
    }
}

/// As Envoy writes the domains of a virtual host: `*`, `*.example.com`, `example.com`.
impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Exact(name) => f.write_str(name),
        }
    }
}

impl Serialize for Hostname {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(Some(text).filter(|text| *text != "*")).unwrap()
    }

    #[test]
    fn a_wildcard_covers_any_depth_but_not_its_own_parent() {
        assert!(host("*.example.com").covers(&host("a.example.com")));
        assert!(host("*.example.com").covers(&host("a.b.example.com")));
        assert!(host("*.example.com").covers(&host("*.b.example.com")));
        assert!(!host("*.example.com").covers(&host("example.com")));
        assert!(!host("*.example.com").covers(&host("badexample.com")));
        assert!(!host("a.example.com").covers(&host("*.example.com")));
        assert!(host("*").covers(&host("*.com")));
    }

    #[test]
    fn an_intersection_is_the_narrower_of_the_two() {
        let intersection =
            |one: &str, other: &str| host(one).intersection(&host(other)).map(ToString::to_string);
        assert_eq!(intersection("*", "a.com").as_deref(), Some("a.com"));
        assert_eq!(intersection("*.a.com", "x.a.com").as_deref(), Some("x.a.com"));
        assert_eq!(intersection("x.a.com", "*.a.com").as_deref(), Some("x.a.com"));
        assert_eq!(intersection("*.a.com", "*.b.com"), None);
    }

    #[test]
    fn exact_names_are_more_specific_than_longer_wildcards() {
        assert!(host("a.com").specificity() > host("*.long.example.com").specificity());
        assert!(host("*.b.a.com").specificity() > host("*.a.com").specificity());
        assert!(host("*.com").specificity() > host("*").specificity());
    }

    #[test]
    fn names_are_lower_case_and_checked() {
        assert_eq!(host("WWW.Example.COM"), host("www.example.com"));
        for bad in ["", "a..b", "-a.com", "a_b.com", "*", "*.*.com", "10.0.0.1", "a.com:80"] {
            assert!(bad.parse::<Hostname>().is_err(), "{bad}");
        }
    }
}
