use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A port of this machine for a program that cannot choose one itself, reserved until this process ends.
///
/// A port that was merely free a moment ago is not enough: the kernel may give it to any connection that is being made,
/// and another test may find it free, too. So the kernel does not give this port to connections, no program listens
/// there on any address, and every other caller, in this process or in another one, gets a different port.
///
/// It stays reserved when no program listens there any more, because clients may go on to reconnect: a translator that a
/// test has cut off would find the Redis of another test, and write to it.
#[derive(Clone, Copy, Debug)]
pub struct Port(u16);

/// All have five digits, which the proxy in the store's tests counts on.
const FIRST: u16 = 12_000;

impl Port {
    pub fn reserve() -> io::Result<Self> {
        // Never the same one twice in a row: who still knows the server of an earlier test does not find another's.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        static CANDIDATES: LazyLock<Vec<u16>> = LazyLock::new(|| {
            let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
            candidates(parse(&range.unwrap_or_default()))
        });
        // Spreads neighbouring processes over the range.
        let start = usize::try_from(process::id().wrapping_mul(2_654_435_761)).unwrap_or_default();
        for _ in 0..CANDIDATES.len() {
            let index = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = CANDIDATES[index % CANDIDATES.len()];
            let Some(reservation) = taken_as_none(reserve(number))? else { continue };
            let anywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, number));
            if taken_as_none(anywhere)?.is_some() {
                // It goes with the process, however that ends.
                std::mem::forget(reservation);
                return Ok(Self(number));
            }
        }
        Err(io::Error::new(ErrorKind::AddrInUse, "no port of this machine is free"))
    }

    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name that one socket can have at a time, among all processes that share the machine's ports.
fn reserve(number: u16) -> io::Result<UnixListener> {
    let name = format!("heliograph-port-{number}");
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn taken_as_none<T>(bound: io::Result<T>) -> io::Result<Option<T>> {
    match bound {
        Ok(it) => Ok(Some(it)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// All ports that connections do not get, or all there are where connections get all.
fn candidates(of_connections: Option<RangeInclusive<u16>>) -> Vec<u16> {
    let is_outside = |port: &u16| !of_connections.as_ref().is_some_and(|them| them.contains(port));
    let outside: Vec<_> = (FIRST..=u16::MAX).filter(is_outside).collect();
    if outside.is_empty() { (FIRST..=u16::MAX).collect() } else { outside }
}

fn parse(range: &str) -> Option<RangeInclusive<u16>> {
    let mut bounds = range.split_whitespace().map(|bound| bound.parse().ok());
    Some(bounds.next()??..=bounds.next()??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;

    #[test]
    fn ports_of_connections_are_left_out() {
        let range = parse("32768\t60999\n");
        assert_eq!(range, Some(32_768..=60_999));
        let candidates = candidates(range);
        assert!(candidates.contains(&32_767) && candidates.contains(&61_000));
        assert!(!candidates.contains(&32_768) && !candidates.contains(&60_999));
    }

    #[test]
    fn where_connections_get_all_ports_one_of_them_is_better_than_none() {
        assert!(candidates(parse("1024 65535")).contains(&40_000));
        assert_eq!(parse(""), None);
        assert!(candidates(None).contains(&40_000));
    }

    #[test]
    fn no_port_is_reserved_twice_and_all_can_be_listened_at() {
        let reserve = || (0..100).map(|_| Port::reserve().unwrap()).collect::<Vec<_>>();
        let all: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(reserve)).collect();
            threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
        });
        let numbers: BTreeSet<_> = all.into_iter().map(Port::number).collect();
        assert_eq!(numbers.len(), 400);
        for number in numbers {
            TcpListener::bind(("127.0.0.1", number)).unwrap();
        }
    }

    #[test]
    fn one_that_is_reserved_or_listened_at_is_not_reserved_again() {
        let port = Port::reserve().unwrap();
        assert!(taken_as_none(super::reserve(port.number())).unwrap().is_none());
        drop(TcpListener::bind(("127.0.0.1", port.number())).unwrap());
        let again = taken_as_none(super::reserve(port.number()));
        assert!(again.unwrap().is_none(), "others may still try to connect there");
    }
}
