use super::*;
use crate::keys::{KeyRing, SealContext};
use crate::{Dispute, FleetReport, PinState, RejectionReport, State, Voter, Voters};
use heliograph_snapshot::{Entry, FleetName, Head, ResourceType, Version};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// Values as they were stored by programs of format 1 and, what is signed, of format 2. What is in these files never changes:
/// every later program has to read them as the same values.
macro_rules! stored {
    ($name:literal) => {
        unhex(include_str!(concat!($name, ".hex")))
    };
}

/// The ring that the files were made with.
const KEYS: &str = "\
root: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
seal:
  - id: k1
    key: ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=
";

fn keys() -> KeyRing {
    KeyRing::parse(KEYS).unwrap()
}

fn signer() -> Signer {
    Signer::new(keys(), "heliograph".into())
}

fn edge() -> FleetName {
    FleetName::new("default", "edge")
}

fn unhex(text: &str) -> Bytes {
    let digits: Vec<_> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits
        .as_bytes()
        .chunks(100)
        .map(|line| format!("{}\n", String::from_utf8_lossy(line)))
        .collect()
}

fn head(sequence: u64) -> Head {
    Head { epoch: 1, fence: (1 << 100) + 7, sequence }
}

fn live() -> Record {
    use ResourceType::{Cluster, Endpoints, Listener, Route, Secret};
    let roots = [Secret, Cluster, Endpoints, Listener, Route];
    let roots = roots.map(|kind| (kind.into(), Address::of(kind.as_str().as_bytes())));
    Record {
        fleet: edge(),
        head: head(300),
        state: State::Live(roots.into()),
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_123),
        cause: "HTTPRoute default/shop changed".into(),
        pin: PinState::default(),
        bytes: 0,
        partly_sealed: BTreeSet::new(),
        has_unknown_types: false,
    }
}

fn retired() -> Record {
    Record { state: State::Retired, cause: "Gateway default/edge is gone".into(), ..live() }
}

fn pinned() -> Record {
    let pin = order_of_pin().state(head(298));
    Record { state: State::Live([].into()), pin, ..live() }
}

fn order_of_pin() -> PinOrder {
    PinOrder {
        number: 1_800_000_100_000,
        at: Some(Arc::new(live())),
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_100_000),
        by: "ann".into(),
        reason: "checkout is broken".into(),
    }
}

fn order_of_release() -> PinOrder {
    PinOrder { number: 1_800_000_200_000, at: None, reason: "".into(), ..order_of_pin() }
}

/// One small and one large.
fn resources() -> [Arc<Resource>; 2] {
    [("default/cart/8080", Bytes::from_static(b"cart")), ("default/shop/8080", vec![7; 513].into())]
        .map(|(name, body)| Arc::new(Resource::new(name, body)))
}

/// With the small body, or as before there were bodies in leaves, and as it is for secrets.
fn leaf_part(with_body: bool) -> Part {
    let entry = |resource: &Arc<Resource>| Entry {
        name: resource.name.clone(),
        address: resource.address,
        body: (with_body && resource.body.len() < 10).then(|| resource.body.clone()),
    };
    Part::Leaf(resources().iter().map(entry).collect())
}

fn children() -> Box<[Option<Address>; 16]> {
    let child = |slot: usize| (slot % 3 != 1).then(|| Address::of(&[slot as u8]));
    Box::new(std::array::from_fn(child))
}

const SECRET: &[u8] = b"-----BEGIN PRIVATE KEY-----";

fn sealed_secret() -> (Sealed, [u8; 32]) {
    let hash = keys().sealed_hash("secret", "default/tls", SECRET);
    (keys().seal(&seal_context(&hash), SECRET).unwrap(), hash)
}

fn seal_context(hash: &[u8; 32]) -> SealContext<'_> {
    SealContext { fleet: "default/edge", kind: "secret", name: "default/tls", hash }
}

fn report() -> AckReport {
    let rejection = RejectionReport {
        kind: ResourceType::Listener,
        detail: "error adding listener".into(),
        resources: vec![("http".into(), Some(Version::of(b"http"))), ("gone".into(), None)],
        count: 2,
    };
    let fleet = FleetReport {
        connected: 9,
        acknowledged: [(head(299), 2), (head(300), 7)].into(),
        rejections: vec![rejection],
        ..FleetReport::default()
    };
    AckReport {
        replica: "distributor-1".into(),
        start: 1_800_000_000_000,
        sequence: 17,
        fleets: [(edge(), fleet)].into(),
        damaged: [].into(),
        remembered: vec![Arc::new(live())],
    }
}

fn there() -> Presence {
    Presence { replica: "one".into(), beat: u64::MAX, streams: 15_000, leaving: true }
}

/// What this program writes is what the files say, too. Where a field is added this half changes, and the file does not.
#[test]
fn values_of_format_2() {
    let signer = signer();
    for (stored, value) in [
        (stored!("format2/record-live"), live()),
        (stored!("format2/record-retired"), retired()),
        (stored!("format2/record-pinned"), pinned()),
    ] {
        assert_eq!(hex(&record(&value, &signer)), hex(&stored));
        assert_eq!(read_record(&stored, &signer), Ok(value));
    }
    for (stored, value) in [
        (stored!("format2/order-pin"), order_of_pin()),
        (stored!("format2/order-release"), order_of_release()),
    ] {
        assert_eq!(hex(&order(&edge(), &value, &signer)), hex(&stored));
        assert_eq!(read_order(&edge(), &stored, &signer), Ok(value));
    }
    assert_eq!(hex(&acks(&report(), &signer)), hex(&stored!("format2/acks")));
    assert_eq!(read_acks(&stored!("format2/acks"), &signer), Ok(report()));
    assert_eq!(hex(&presence(&there(), &signer)), hex(&stored!("format2/presence")));
    assert_eq!(read_presence(&stored!("format2/presence"), &signer), Ok(there()));
}

#[test]
fn values_of_format_1() {
    let keys = keys();
    for (stored, part, written) in [
        (
            stored!("format1/leaf"),
            leaf_part(false),
            leaf(ResourceType::Secret.into(), &resources()),
        ),
        (
            stored!("format1/leaf-bodies"),
            leaf_part(true),
            leaf(ResourceType::Cluster.into(), &resources()),
        ),
        (stored!("format1/branch"), Part::Branch(children()), branch(&children())),
    ] {
        assert_eq!(hex(&written), hex(&stored));
        assert_eq!(read_part(&stored), Ok(part));
    }
    let Ok(Body::Plain(plain)) = read_body(&stored!("format1/body")) else {
        panic!("a plain body")
    };
    assert_eq!(plain, "a protobuf message");
    assert_eq!(hex(&body(&plain)), hex(&stored!("format1/body")));
    let Ok(Body::Sealed(found)) = read_body(&stored!("format1/sealed")) else {
        panic!("a sealed body")
    };
    let (ours, hash) = sealed_secret();
    assert_eq!(keys.open(&seal_context(&hash), &found).unwrap(), SECRET);
    assert_eq!(hex(&sealed(&ours)), hex(&stored!("format1/sealed")));
}

/// Every value, with how it is read and how long its proof is.
type Reader = fn(&Bytes) -> Option<CodecError>;

fn all() -> Vec<(&'static str, Bytes, usize, Reader)> {
    let of_record: Reader = |bytes| read_record(bytes, &signer()).err();
    let of_order: Reader = |bytes| read_order(&edge(), bytes, &signer()).err();
    let of_part: Reader = |bytes| read_part(bytes).err();
    let of_body: Reader = |bytes| read_body(bytes).err();
    let of_acks: Reader = |bytes| read_acks(bytes, &signer()).err();
    let of_presence: Reader = |bytes| read_presence(bytes, &signer()).err();
    vec![
        ("a record", stored!("format2/record-live"), MAC, of_record),
        ("an order", stored!("format2/order-pin"), MAC, of_order),
        ("a leaf", stored!("format1/leaf"), 0, of_part),
        ("a branch", stored!("format1/branch"), 0, of_part),
        ("a body", stored!("format1/body"), 0, of_body),
        ("a sealed body", stored!("format1/sealed"), 0, of_body),
        ("a report", stored!("format2/acks"), MAC, of_acks),
        ("a presence", stored!("format2/presence"), MAC, of_presence),
    ]
}

#[test]
fn a_newer_format_is_refused_with_advice() {
    for (name, stored, _, read) in all() {
        let mut newer = stored.to_vec();
        newer[2] += 1;
        let error = read(&newer.into()).unwrap();
        assert_eq!(error, CodecError::Newer(stored[2] + 1), "{name}");
        assert!(error.to_string().contains("upgrade"), "{error}");
    }
}

/// It had a MAC that every installation with the same key ring accepts.
#[test]
fn what_is_signed_in_format_1_is_refused() {
    for (name, stored, _, read) in all().into_iter().filter(|(_, _, proof, _)| *proof > 0) {
        let mut older = BytesMut::from(&stored[..stored.len() - MAC]);
        older[2] = 1;
        let error = read(&with_mac(older, &signer()));
        assert_eq!(error, Some(CodecError::Older(1)), "{name}");
    }
}

#[test]
fn what_is_none_of_ours_is_refused() {
    for (name, stored, _, read) in all() {
        for foreign in [
            &b""[..],
            b"H",
            b"HG",
            b"HG\x01",
            b"GZ\x01\x01 and more of it, so that a MAC fits in there",
        ] {
            assert!(read(&Bytes::copy_from_slice(foreign)).is_some(), "{name}");
        }
        // Of another kind, or of one that there is not yet.
        for kind in (0..=255).filter(|kind| *kind != stored[3]) {
            let mut other = stored.to_vec();
            other[3] = kind;
            let related = matches!((stored[3], kind), (3, 4) | (4, 3) | (5, 6) | (6, 5));
            assert!(related || read(&other.into()).is_some(), "{name} as kind {kind}");
        }
    }
    let large = Bytes::from(vec![b'H'; LARGEST + 1]);
    assert_eq!(read_part(&large), Err(CodecError::TooLarge));
}

#[test]
fn what_is_signed_cannot_be_changed() {
    for (name, stored, proof, read) in all().into_iter().filter(|(_, _, proof, _)| *proof > 0) {
        for place in 0..stored.len() {
            let mut changed = stored.to_vec();
            changed[place] ^= 1;
            assert!(read(&changed.into()).is_some(), "{name}, byte {place}");
            assert!(read(&stored.slice(..place)).is_some(), "{name}, cut at {place}");
        }
        assert!(proof < stored.len());
    }
    let record = stored!("format2/record-live");
    let other = KeyRing::parse(&KEYS.replace("root: A", "root: B")).unwrap();
    let other = Signer::new(other, "heliograph".into());
    assert_eq!(read_record(&record, &other), Err(CodecError::Forged));
    let elsewhere = Signer::new(keys(), "heliograph-blue".into());
    assert_eq!(read_record(&record, &elsewhere), Err(CodecError::Forged));
    assert_eq!(read_order(&edge(), &record, &signer()), Err(CodecError::Foreign));
    for order in [stored!("format2/order-pin"), stored!("format2/order-release")] {
        let inner = FleetName::new("default", "inner");
        assert_eq!(read_order(&inner, &order, &signer()), Err(CodecError::Forged));
    }
}

/// The same value with more fields, as a later program of the same format writes it.
fn with_fields(stored: &Bytes, proof: usize, fields: &[u8]) -> Bytes {
    let mut content = BytesMut::from(&stored[..stored.len() - proof]);
    content.put_slice(fields);
    match proof {
        MAC => with_mac(content, &signer()),
        _ => content.freeze(),
    }
}

#[test]
fn a_record_says_how_large_its_snapshot_is_and_an_earlier_one_does_not() {
    let sized = Record { bytes: 5 << 30, ..live() };
    assert_eq!(read_record(&record(&sized, &signer()), &signer()), Ok(sized));
    let earlier = read_record(&stored!("format2/record-live"), &signer());
    assert_eq!(earlier.map(|record| record.bytes), Ok(0));
}

#[test]
fn what_a_later_program_adds_is_skipped() {
    // Tag 99, a number; tag 100, a text.
    let fields = [0x98, 0x06, 0x01, 0xa2, 0x06, 0x02, b'h', b'i'];
    let signer = signer();
    let record = with_fields(&stored!("format2/record-live"), MAC, &fields);
    assert_eq!(read_record(&record, &signer), Ok(live()));
    let order = with_fields(&stored!("format2/order-pin"), MAC, &fields);
    assert_eq!(read_order(&edge(), &order, &signer), Ok(order_of_pin()));
    assert_eq!(read_part(&with_fields(&stored!("format1/leaf"), 0, &fields)), Ok(leaf_part(false)));
    let acks = with_fields(&stored!("format2/acks"), MAC, &fields);
    assert_eq!(read_acks(&acks, &signer), Ok(report()));

    // A root of a type that there is not yet: tag 3 with tags 1 (the type) and 2 (the address).
    let root = [&[0x1a, 36, 0x08, 99, 0x12, 32][..], &[7; 32]].concat();
    let record = with_fields(&stored!("format2/record-live"), MAC, &root);
    let record = read_record(&record, &signer).unwrap();
    assert!(!record.is_understood(), "what is skipped is not forgotten");
    assert_eq!(Record { has_unknown_types: false, ..record }, live());
}

/// Each numbered field `from` that is followed by a text, as a program of another release writes it.
fn renumbered(bytes: &Bytes, from: u32, to: u8) -> Bytes {
    let mut content = bytes[..bytes.len() - MAC].to_vec();
    let before = [0x08, from as u8, 0x12];
    for at in 0..content.len() - before.len() {
        if content[at..].starts_with(&before) {
            content[at + 1] = to;
        }
    }
    with_mac(BytesMut::from(&content[..]), &signer())
}

/// What this program serves, as one reads it that does not know the newest type yet: without that, and with all else.
#[test]
fn an_earlier_program_reads_what_it_knows() {
    let kind = ResourceType::ExtensionConfig;
    let number = kind.properties().number;
    let State::Live(mut roots) = live().state else { panic!("live() is live") };
    roots.insert(kind.into(), Address::of(b"extension configs"));
    let newer = Record { state: State::Live(roots), partly_sealed: [kind.into()].into(), ..live() };
    let bytes = record(&newer, &signer());
    assert_eq!(read_record(&bytes, &signer()), Ok(newer));
    let read = read_record(&renumbered(&bytes, number, 99), &signer()).unwrap();
    assert!(!read.is_understood());
    assert_eq!(Record { has_unknown_types: false, ..read }, live());

    let mut newer = report();
    let fleet = newer.fleets.get_mut(&edge()).unwrap();
    fleet.rejections.push(RejectionReport { kind, ..fleet.rejections[0].clone() });
    let dispute = |kind| Dispute::new(kind, "http".into(), Version::of(b"http"), 1, 2);
    fleet.disputes = vec![dispute(ResourceType::Listener), dispute(kind)];
    let bytes = acks(&newer, &signer());
    assert_eq!(read_acks(&bytes, &signer()).as_ref(), Ok(&newer));
    let fleet = newer.fleets.get_mut(&edge()).unwrap();
    fleet.rejections.pop();
    fleet.disputes.pop();
    assert_eq!(read_acks(&renumbered(&bytes, number, 99), &signer()), Ok(newer));
}

#[test]
fn a_record_says_which_sections_are_sealed_in_part() {
    let sections = [Section::from(ResourceType::Cluster)];
    let record = Record { partly_sealed: sections.into(), ..live() };
    let bytes = super::record(&record, &signer());
    assert_eq!(read_record(&bytes, &signer()), Ok(record));
    assert_ne!(bytes, super::record(&live(), &signer()), "where none is, nothing is said");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..10u8) {
        let signer = signer();
        for format in [1, 2] {
            let framed = Bytes::from([&[b'H', b'G', format, kind][..], &bytes].concat());
            let signed = with_mac(BytesMut::from(&framed[..]), &signer);
            for bytes in [Bytes::from(bytes.clone()), framed, signed] {
                let _ = (read_part(&bytes), read_body(&bytes), read_acks(&bytes, &signer));
                let _ = (read_presence(&bytes, &signer), read_record(&bytes, &signer));
                let _ = read_order(&edge(), &bytes, &signer);
            }
        }
    }
}

#[test]
fn a_report_tells_of_damage() {
    let report = AckReport { damaged: [(edge(), head(3))].into(), ..report() };
    assert_eq!(read_acks(&acks(&report, &signer()), &signer()), Ok(report));
}

#[test]
fn a_report_tells_of_disputes() {
    let mut report = report();
    for fleet in report.fleets.values_mut() {
        fleet.disputes = vec![Dispute {
            kind: ResourceType::Listener,
            name: "http".into(),
            version: Version::of(b"http"),
            rejected: 2,
            accepted: u64::MAX,
            rejecting: vec![Voter(0), Voter(u64::MAX)],
            accepting: vec![],
        }];
        let one = Voters { count: 1, only: Some(Voter(0)) };
        fleet.voters = Voters { count: 70, only: None };
        fleet.votes = [(head(1), one), (head(2), fleet.voters)].into();
    }
    assert_eq!(read_acks(&acks(&report, &signer()), &signer()), Ok(report));
}
