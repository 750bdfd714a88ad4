use heliograph_snapshot::Head;
use std::fmt;

/// Names one reply of one stream. It begins with the head that the reply was built from: versions are hashes and
/// carry no order, so this is how a reader of a log, or another replica, sees which of two replies is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonce {
    count: u64,
    head: Head,
}

#[derive(Debug, Default)]
pub(crate) struct Nonces {
    count: u64,
}

impl Nonce {
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    pub(crate) fn is(&self, text: &str) -> bool {
        // The count first, since that needs no writing.
        let count = text.rsplit('-').next().and_then(|count| count.parse().ok());
        count == Some(self.count) && self.to_string() == text
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.head, self.count)
    }
}

impl Nonces {
    pub(crate) fn next(&mut self, head: Head) -> Nonce {
        self.count += 1;
        Nonce { head, count: self.count }
    }
}
