use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use tokio_util::sync::CancellationToken;

/// The open connections, up to a limit. No connection is rejected: kubelet must learn that the program lives however
/// many others connect, so at the limit an old connection is closed for a new one.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// By their number, so the oldest first.
    open: BTreeMap<u64, Connection>,
    next: u64,
}

#[derive(Debug)]
struct Connection {
    from: IpAddr,
    end: CancellationToken,
}

/// A handful of probes, scrapes and people.
const MOST: usize = 128;

impl Connections {
    /// Returns its number, and the token that ends it at once.
    pub(super) fn open(&mut self, from: IpAddr) -> (u64, CancellationToken) {
        if self.open.len() >= MOST {
            self.end_one();
        }
        let (number, end) = (self.next, CancellationToken::new());
        self.next += 1;
        self.open.insert(number, Connection { from, end: end.clone() });
        (number, end)
    }

    pub(super) fn close(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// The oldest of the address that has most, so that one that floods harms itself.
    fn end_one(&mut self) {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for connection in self.open.values() {
            *counts.entry(connection.from).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(from, _)| from);
        let oldest = self.open.iter().find(|(_, connection)| Some(connection.from) == most);
        if let Some(number) = oldest.map(|(number, _)| *number)
            && let Some(connection) = self.open.remove(&number)
        {
            connection.end.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_floods_ends_its_own_connections() {
        let mut connections = Connections::default();
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let (_, kubelet) = connections.open(address(1));
        let flood: Vec<_> = (0..10 * MOST).map(|_| connections.open(address(2))).collect();
        assert_eq!(connections.open.len(), MOST);
        assert!(!kubelet.is_cancelled());
        let open = flood.iter().filter(|(_, end)| !end.is_cancelled()).count();
        assert_eq!(open, MOST - 1);
        assert!(!flood.last().unwrap().1.is_cancelled(), "a new one is let in");
        for (number, _) in flood {
            connections.close(number);
        }
        assert_eq!(connections.open.len(), 1);
    }
}
