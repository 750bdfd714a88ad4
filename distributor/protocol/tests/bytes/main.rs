//! Whatever bytes come, nothing panics, and what is kept is bounded.
//!
//! The bodies of these tests are those of the targets in `fuzz`, which let coverage choose the bytes (`make fuzz`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod decoder;
mod input;
mod session;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_scanned_as_it_would_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decoder::read(&bytes);
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
    let before = memory();
    let replies = session::talk(&bytes);
    assert!(replies > 5000, "{replies} replies");
    let taken = memory().saturating_sub(before);
    assert!(taken < 200, "{taken} MiB");
}

/// That of this process, in MiB.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() / 256
}
