use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// The place of a snapshot in its fleet's history. Greater is newer, and nothing else is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Head {
    /// Raised by an operator when fencing tokens start low again, as after an etcd restore.
    pub epoch: u64,
    /// The token of the leader's term.
    pub fence: u128,
    /// Counts the publishes of a fleet, across terms.
    pub sequence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a head: write EPOCH.FENCE.SEQUENCE")]
pub struct InvalidHead(String);

/// `epoch.fence.sequence`, as nonces begin.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch, self.fence, self.sequence)
    }
}

impl FromStr for Head {
    type Err = InvalidHead;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidHead(text.chars().take(100).collect());
        let mut numbers = text.splitn(3, '.');
        let mut next = || numbers.next().ok_or_else(invalid);
        let (epoch, fence, sequence) = (next()?, next()?, next()?);
        Ok(Self {
            epoch: epoch.parse().map_err(|_| invalid())?,
            fence: fence.parse().map_err(|_| invalid())?,
            sequence: sequence.parse().map_err(|_| invalid())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_epoch_then_fence_then_sequence() {
        let head = |epoch, fence, sequence| Head { epoch, fence, sequence };
        assert!(head(0, 2, 1) > head(0, 1, 9));
        assert!(head(1, 0, 0) > head(0, u128::MAX, u64::MAX));
        assert!(head(1, 7, 3) > head(1, 7, 2));
        assert_eq!(head(1, 22, 333).to_string(), "1.22.333");
        assert_eq!("1.22.333".parse(), Ok(head(1, 22, 333)));
        for text in ["", "1.2", "1.2.x", "1.2.3.4", "-1.2.3", "1..3"] {
            assert!(text.parse::<Head>().is_err(), "{text}");
        }
    }
}
