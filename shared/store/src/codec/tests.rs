use super::*;
use crate::keys::Place;
use crate::{Dispute, FleetReport, RejectionReport, State};
use heliograph_snapshot::{Entry, FleetName, Head, ResourceType, Version};
use proptest::prelude::*;
use std::time::{Duration, SystemTime};

/// Values as they were stored by programs of format 1. What is in these files never changes: every later program has to
/// read them as the same values.
macro_rules! stored {
    ($name:literal) => {
        unhex(include_str!(concat!("format1/", $name, ".hex")))
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
    let roots = ResourceType::ALL.map(|kind| (kind.into(), Address::of(kind.as_str().as_bytes())));
    Record {
        fleet: FleetName::new("default", "edge"),
        head: head(300),
        state: State::Live(roots.into()),
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_123),
        cause: "HTTPRoute default/shop changed".into(),
        pinned: None,
        bytes: 0,
        has_unknown_types: false,
    }
}

fn retired() -> Record {
    Record { state: State::Retired, cause: "Gateway default/edge is gone".into(), ..live() }
}

fn pinned() -> Record {
    Record { state: State::Live([].into()), pinned: Some(head(298)), ..live() }
}

fn pin_of_live() -> Pin {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_100_000);
    Pin { record: Arc::new(live()), time, cause: "checkout is broken".into() }
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
    let hash = keys().secret_hash(SECRET);
    (keys().seal(&place(&hash), SECRET).unwrap(), hash)
}

fn place(hash: &[u8; 32]) -> Place<'_> {
    Place { fleet: "default/edge", kind: "secret", name: "default/tls", hash }
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
        disputes: vec![],
    };
    let fleets = [(FleetName::new("default", "edge"), fleet)];
    AckReport { replica: "distributor-1".into(), fleets: fleets.into(), damaged: [].into() }
}

/// What this program writes is what the files say, too. Where a field is added this half changes, and the file does not.
#[test]
fn values_of_format_1() {
    let keys = keys();
    for (stored, value) in [
        (stored!("record-live"), live()),
        (stored!("record-retired"), retired()),
        (stored!("record-pinned"), pinned()),
    ] {
        assert_eq!(read_record(&stored, &keys), Ok(value.clone()));
        assert_eq!(hex(&record(&value, &keys)), hex(&stored));
    }
    assert_eq!(read_pin(&stored!("pin"), &keys), Ok(pin_of_live()));
    assert_eq!(hex(&pin(&pin_of_live(), &keys)), hex(&stored!("pin")));
    for (stored, part, written) in [
        (stored!("leaf"), leaf_part(false), leaf(ResourceType::Secret.into(), &resources())),
        (stored!("leaf-bodies"), leaf_part(true), leaf(ResourceType::Cluster.into(), &resources())),
        (stored!("branch"), Part::Branch(children()), branch(&children())),
    ] {
        assert_eq!(hex(&written), hex(&stored));
        assert_eq!(read_part(&stored), Ok(part));
    }
    let Ok(Body::Plain(plain)) = read_body(&stored!("body")) else { panic!("a plain body") };
    assert_eq!(plain, "a protobuf message");
    assert_eq!(hex(&body(&plain)), hex(&stored!("body")));
    let Ok(Body::Sealed(found)) = read_body(&stored!("sealed")) else { panic!("a sealed body") };
    let (ours, hash) = sealed_secret();
    assert_eq!(keys.open(&place(&hash), &found).unwrap(), SECRET);
    assert_eq!(hex(&sealed(&ours)), hex(&stored!("sealed")));
    assert_eq!(read_acks(&stored!("acks")), Ok(report()));
    assert_eq!(hex(&acks(&report())), hex(&stored!("acks")));
}

/// Every value, with how it is read and how long its proof is.
type Reader = fn(&Bytes) -> Option<CodecError>;

fn all() -> Vec<(&'static str, Bytes, usize, Reader)> {
    let of_record: Reader = |bytes| read_record(bytes, &keys()).err();
    let of_pin: Reader = |bytes| read_pin(bytes, &keys()).err();
    let of_part: Reader = |bytes| read_part(bytes).err();
    let of_body: Reader = |bytes| read_body(bytes).err();
    let of_acks: Reader = |bytes| read_acks(bytes).err();
    vec![
        ("a record", stored!("record-live"), MAC, of_record),
        ("a pin", stored!("pin"), MAC, of_pin),
        ("a leaf", stored!("leaf"), 0, of_part),
        ("a branch", stored!("branch"), 0, of_part),
        ("a body", stored!("body"), 0, of_body),
        ("a sealed body", stored!("sealed"), 0, of_body),
        ("a report", stored!("acks"), CHECKSUM, of_acks),
    ]
}

#[test]
fn a_newer_format_is_refused_with_advice() {
    for (name, stored, _, read) in all() {
        let mut newer = stored.to_vec();
        newer[2] = FORMAT + 1;
        let error = read(&newer.into()).unwrap();
        assert_eq!(error, CodecError::Newer(FORMAT + 1), "{name}");
        assert!(error.to_string().contains("upgrade"), "{error}");
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
    let other = KeyRing::parse(&KEYS.replace("root: A", "root: B")).unwrap();
    assert_eq!(read_record(&stored!("record-live"), &other), Err(CodecError::Forged));
    assert_eq!(read_pin(&stored!("record-live"), &keys()), Err(CodecError::Foreign));
}

/// The same value with more fields, as a later program of the same format writes it.
fn with_fields(stored: &Bytes, proof: usize, fields: &[u8]) -> Bytes {
    let mut content = BytesMut::from(&stored[..stored.len() - proof]);
    content.put_slice(fields);
    match proof {
        MAC => with_mac(content, &keys()),
        CHECKSUM => {
            let sum = checksum(&content);
            content.put_slice(&sum);
            content.freeze()
        }
        _ => content.freeze(),
    }
}

#[test]
fn a_record_says_how_large_its_snapshot_is_and_an_earlier_one_does_not() {
    let sized = Record { bytes: 5 << 30, ..live() };
    assert_eq!(read_record(&record(&sized, &keys()), &keys()), Ok(sized));
    assert_eq!(read_record(&stored!("record-live"), &keys()).map(|record| record.bytes), Ok(0));
}

#[test]
fn what_a_later_program_adds_is_skipped() {
    // Tag 99, a number; tag 100, a text.
    let fields = [0x98, 0x06, 0x01, 0xa2, 0x06, 0x02, b'h', b'i'];
    let record = with_fields(&stored!("record-live"), MAC, &fields);
    assert_eq!(read_record(&record, &keys()), Ok(live()));
    assert_eq!(read_pin(&with_fields(&stored!("pin"), MAC, &fields), &keys()), Ok(pin_of_live()));
    assert_eq!(read_part(&with_fields(&stored!("leaf"), 0, &fields)), Ok(leaf_part(false)));
    assert_eq!(read_acks(&with_fields(&stored!("acks"), CHECKSUM, &fields)), Ok(report()));

    // A root of a type that there is not yet: tag 3 with tags 1 (the type) and 2 (the address).
    let root = [&[0x1a, 36, 0x08, 99, 0x12, 32][..], &[7; 32]].concat();
    let record = read_record(&with_fields(&stored!("record-live"), MAC, &root), &keys()).unwrap();
    assert!(!record.is_understood(), "what is skipped is not forgotten");
    assert_eq!(Record { has_unknown_types: false, ..record }, live());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..10u8) {
        let framed = Bytes::from([&[b'H', b'G', 1, kind][..], &bytes].concat());
        let signed = with_mac(BytesMut::from(&framed[..]), &keys());
        for bytes in [Bytes::from(bytes), framed, signed] {
            let _ = (read_part(&bytes), read_body(&bytes), read_acks(&bytes));
            let _ = read_presence(&bytes);
            let _ = (read_record(&bytes, &keys()), read_pin(&bytes, &keys()));
        }
    }
}

#[test]
fn a_report_tells_of_damage() {
    let report = AckReport { damaged: [FleetName::new("default", "edge")].into(), ..report() };
    assert_eq!(read_acks(&acks(&report)), Ok(report));
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
        }];
    }
    assert_eq!(read_acks(&acks(&report)), Ok(report));
}

#[test]
fn a_presence_is_read_as_it_was_written() {
    let there = Presence { replica: "one".into(), beat: u64::MAX, streams: 15_000, leaving: true };
    let bytes = presence(&there);
    assert_eq!(read_presence(&bytes), Ok(there));
    assert_eq!(read_presence(&stored!("acks")), Err(CodecError::Foreign));
    for length in 0..FRAME {
        assert!(read_presence(&bytes.slice(..length)).is_err());
    }
}
