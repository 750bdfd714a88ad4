//! Whatever bytes come, nothing panics, and what is kept is bounded.
//!
//! The bodies of these tests are those of the targets in `fuzz`, which let coverage choose the bytes (`make fuzz`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod decoder;
mod input;
mod node;
mod session;

use heliograph_distributor_protocol::{NodeFields, Protocol, Request, RequestError};
use heliograph_envoy::append_message;
use parking_lot::{Mutex, MutexGuard};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_scanned_as_it_would_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decoder::read(&bytes);
    }

    #[test]
    fn a_node_is_scanned_as_it_would_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        node::read(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_session_takes_whatever_comes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        session::talk(&bytes);
    }
}

/// What was found by coverage, once and for all.
#[test]
fn what_was_found_is_not_found_again() {
    // A map with the wire type of a number.
    decoder::read(&[110, 0, 96, 45, 0, 96, 45]);
}

/// As many requests as a client sends in an hour, on one stream.
#[test]
fn a_session_that_hears_much_keeps_little() {
    // Not by chance, so that two runs are the same: a walk through all bytes.
    let mut seed = 1_u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    })
    .take(400_000)
    .collect();
    let _alone = alone();
    let before = memory();
    let replies = session::talk(&bytes);
    assert!(replies > 5000, "{replies} replies");
    let taken = memory().saturating_sub(before);
    assert!(taken < 200, "{taken} MiB");
}

/// A decoder would make hundreds of megabytes of each of these requests, and gigabytes of the first.
#[test]
fn requests_of_millions_of_empty_parts_take_little() {
    // In a node its extensions, features, addresses, parameters and metadata; names, versions and locators; details of an
    // error.
    let in_node: [&[u32]; 5] = [&[1, 9], &[1, 10], &[1, 11], &[1, 12], &[1, 3, 1]];
    let others: [&[u32]; 6] = [&[3], &[4], &[5], &[8], &[9], &[7, 3]];
    let _alone = alone();
    for path in in_node.into_iter().chain(others) {
        let message = empty_parts(path, 15 << 20);
        let before = peak_from_now();
        let refused = Request::scan(Protocol::Delta, message.into()).unwrap_err();
        let taken = peak().saturating_sub(before);
        assert!(!matches!(refused, RequestError::Malformed(_)), "{path:?}: {refused}");
        assert!(taken < 100, "{path:?}: {taken} MiB");
    }
}

/// Nor does the largest node that is allowed.
#[test]
fn the_largest_nodes_take_little() {
    let _alone = alone();
    let before = peak_from_now();
    for path in [&[9][..], &[10], &[11], &[12], &[3, 1]] {
        let node = [within(&[1], b"me"), empty_parts(path, 500_000)].concat();
        assert_eq!(NodeFields::scan(&node).unwrap().id, "me");
    }
    let labels = [within(&[1], b"labels"), empty_parts(&[2, 5, 1], 500_000)].concat();
    let node = within(&[3, 1], &labels);
    assert_eq!(NodeFields::scan(&node).unwrap().labels, [("", None)].into());
    let taken = peak().saturating_sub(before);
    assert!(taken < 100, "{taken} MiB");
}

/// A message with so many empty parts in the last of these fields, each of which is in the one before it.
fn empty_parts(path: &[u32], count: usize) -> Vec<u8> {
    let (last, path) = path.split_last().unwrap();
    within(path, &[*last as u8 * 8 + 2, 0].repeat(count))
}

fn within(path: &[u32], content: &[u8]) -> Vec<u8> {
    path.iter().rev().fold(content.to_vec(), |content, field| {
        let mut message = Vec::new();
        append_message(&mut message, *field, &content);
        message
    })
}

/// The memory of this process is that of all tests that run at once, so those that measure it take turns. All others take
/// little.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

/// That of this process, in MiB.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() / 256
}

/// Forgets the most that it ever had, where that is allowed, and returns what it has now.
fn peak_from_now() -> usize {
    drop(std::fs::write("/proc/self/clear_refs", "5"));
    peak()
}

/// The most that it had since then.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() >> 10
}
