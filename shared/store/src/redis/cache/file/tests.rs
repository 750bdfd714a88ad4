use super::*;
use proptest::prelude::*;

fn fleet() -> impl Strategy<Value = FleetName> {
    ("[a-z]{1,20}", "[a-z:]{1,20}").prop_map(|(namespace, name)| FleetName::new(&namespace, &name))
}

fn head() -> impl Strategy<Value = Head> {
    any::<(u64, u128, u64)>().prop_map(|(epoch, fence, sequence)| Head { epoch, fence, sequence })
}

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

fn objects() -> impl Strategy<Value = Vec<(Address, Bytes)>> {
    let object = (any::<[u8; 32]>().prop_map(Address), bytes(200));
    prop::collection::vec(object, 0..20)
}

fn summary() -> impl Strategy<Value = Vec<FleetSummary>> {
    let fleet = (fleet(), head(), any::<(u64, u64, u64, u64)>(), "[a-z]{0,8}").prop_map(
        |(fleet, head, (order, bytes, last_use, confirmed), sealed_with)| FleetSummary {
            fleet,
            head,
            order,
            bytes,
            last_use,
            confirmed,
            sealed_with,
        },
    );
    prop::collection::vec(fleet, 0..10)
}

fn whole_file(
    fleet: &FleetName,
    head: Head,
    record: &Bytes,
    objects: &[(Address, Bytes)],
) -> Vec<u8> {
    let mut file = fleet_header(fleet, head, 7, "key", record, objects).unwrap();
    objects.iter().for_each(|(_, object)| file.extend_from_slice(object));
    file
}

/// As the directory reads it, and no more than there is.
fn read_fleet(file: &[u8]) -> Result<(Header, HashMap<Address, Bytes>), FileError> {
    let (frame, rest) = file.split_at(file.len().min(FRAME));
    let layout = layout(Kind::Fleet, frame, file.len() as u64)?;
    assert_eq!(layout.header + layout.objects, rest.len(), "no length is believed");
    let (header, contents) = rest.split_at(layout.header);
    let header = read_header(&layout, Bytes::copy_from_slice(header))?;
    assert!(header.objects.capacity() <= rest.len() / ENTRY);
    let objects = header.objects(contents)?;
    Ok((header, objects))
}

fn read_summary(file: &[u8]) -> Result<Vec<FleetSummary>, FileError> {
    let (frame, rest) = file.split_at(file.len().min(FRAME));
    let layout = layout(Kind::Directory, frame, file.len() as u64)?;
    let summary = read_directory(&layout, &rest[..layout.header])?;
    assert!(summary.capacity() <= rest.len() / SMALLEST_DIRECTORY_ENTRY);
    Ok(summary)
}

/// A frame that is right in all but what it says of the rest.
fn in_a_frame(kind: Kind, index: &[u8], record: &[u8], objects: &[u8]) -> Vec<u8> {
    let sum = *blake3::hash(objects).as_bytes();
    let mut file = framed(kind, index, record, objects.len(), sum).unwrap();
    file.extend_from_slice(objects);
    file
}

proptest! {
    #[test]
    fn a_file_comes_back(fleet in fleet(), head in head(), record in bytes(400), objects in objects()) {
        let file = whole_file(&fleet, head, &record, &objects);
        let (header, found) = read_fleet(&file).unwrap();
        prop_assert_eq!((header.fleet, header.head, header.record), (fleet, head, record));
        prop_assert_eq!((header.order, &*header.sealed_with), (7, "key"));
        prop_assert_eq!(found, objects.into_iter().collect::<HashMap<_, _>>());
    }

    #[test]
    fn so_does_the_directory(summary in summary()) {
        prop_assert_eq!(read_summary(&directory(&summary).unwrap()).unwrap(), summary);
    }

    #[test]
    fn any_byte_that_changes_is_seen(
        record in bytes(400), objects in objects(), at in any::<prop::sample::Index>(), other in 1..=255u8,
    ) {
        let mut file = whole_file(&FleetName::new("default", "edge"), Head::default(), &record, &objects);
        let at = at.index(file.len());
        file[at] ^= other;
        prop_assert!(read_fleet(&file).is_err());
    }

    #[test]
    fn so_is_any_byte_that_is_missing_or_too_many(
        record in bytes(400), objects in objects(), at in any::<prop::sample::Index>(), more in bytes(9),
    ) {
        let file = whole_file(&FleetName::new("default", "edge"), Head::default(), &record, &objects);
        let cut = read_fleet(&file[..at.index(file.len())]);
        prop_assert_eq!(cut.unwrap_err(), FileError::Truncated);
        let longer = [&file[..], &more].concat();
        prop_assert_eq!(read_fleet(&longer).is_err(), !more.is_empty());
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in bytes(600)) {
        prop_assert!(read_fleet(&bytes).is_err());
        prop_assert!(read_summary(&bytes).is_err());
    }

    /// The checksums are right, as an attacker could make them.
    #[test]
    fn nor_do_any_bytes_in_a_frame(index in bytes(300), record in bytes(50), objects in bytes(100)) {
        let _ = read_fleet(&in_a_frame(Kind::Fleet, &index, &record, &objects));
        let _ = read_summary(&in_a_frame(Kind::Directory, &index, &[], &[]));
    }

    /// A count or a length that is more than there is takes no memory.
    #[test]
    fn no_number_is_believed(count in any::<u64>(), length in any::<u64>()) {
        let index = |objects| FleetIndex {
            fleet: "default/edge".to_owned(),
            head: Head::default().into(),
            order: 0,
            sealed_with: String::new(),
            objects,
        };
        let many = encode(&index(count)).unwrap();
        let _ = read_fleet(&in_a_frame(Kind::Fleet, &many, &[], &[]));
        let entry = encode(&Entry { address: [7; 32], length }).unwrap();
        let long = [encode(&index(1)).unwrap(), entry].concat();
        let _ = read_fleet(&in_a_frame(Kind::Fleet, &long, &[], b"contents"));
        let many = encode(&DirectoryIndex { fleets: count }).unwrap();
        let _ = read_summary(&in_a_frame(Kind::Directory, &many, &[], &[]));
        // The length of a name.
        let name = [&length.to_le_bytes()[..], b"default/edge"].concat();
        let _ = read_fleet(&in_a_frame(Kind::Fleet, &name, &[], &[]));
    }
}

#[test]
fn what_is_of_somebody_else_or_of_another_time_is_told_apart() {
    let file = whole_file(&FleetName::new("default", "edge"), Head::default(), &Bytes::new(), &[]);
    assert_eq!(file.len(), FRAME + 8 + 12 + 32 + 8 + 8 + 3 + 8, "the frame has one length");
    assert_eq!(read_fleet(b"PNG").unwrap_err(), FileError::Foreign);
    assert_eq!(read_fleet(&[0; 500]).unwrap_err(), FileError::Foreign);
    assert_eq!(read_fleet(b"helio").unwrap_err(), FileError::Truncated);
    assert_eq!(read_summary(&file).unwrap_err(), FileError::Foreign);
    let mut newer = file;
    newer[8] += 1;
    assert_eq!(read_fleet(&newer).unwrap_err(), FileError::OtherFormat(FORMAT + 1));
    // Whatever the rest of another format is.
    newer.truncate(PREFACE);
    assert_eq!(read_fleet(&newer).unwrap_err(), FileError::OtherFormat(FORMAT + 1));
}

/// A file of that length may be a hole on the disk: what its frame says would be allocated at the start.
#[test]
fn a_header_that_no_fleet_has_is_refused_before_it_is_read() {
    let frame = |index| Frame {
        preface: Preface { magic: MAGIC, format: FORMAT },
        kind: Kind::Fleet as u8,
        index,
        record: 1,
        objects: 0,
        checksum: [0; 32],
        objects_checksum: [0; 32],
    };
    let layout =
        |index| layout(Kind::Fleet, &encode(&frame(index)).unwrap(), FRAME as u64 + index + 1);
    assert_eq!(layout(LONGEST_HEADER), Err(FileError::LongHeader(LONGEST_HEADER + 1)));
    assert_eq!(layout(LONGEST_HEADER - 1).unwrap().header as u64, LONGEST_HEADER);

    let (fleet, record) = (FleetName::new("default", "edge"), Bytes::new());
    let objects = vec![(Address([0; 32]), Bytes::new()); LONGEST_HEADER as usize / ENTRY];
    let written = fleet_header(&fleet, Head::default(), 0, "", &record, &objects);
    assert!(matches!(written, Err(FileError::LongHeader(_))), "nor is it written");
    assert!(fleet_header(&fleet, Head::default(), 0, "", &record, &objects[..400_000]).is_ok());
}
