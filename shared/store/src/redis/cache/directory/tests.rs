use super::*;
use std::os::unix::net::UnixListener;

#[test]
fn only_a_mistake_in_the_flags_ends_the_program() {
    let is_mistake = |code| is_mistake(&io::Error::from_raw_os_error(code));
    for code in [
        libc::ENOENT,
        libc::EACCES,
        libc::EPERM,
        libc::ENOTDIR,
        libc::EEXIST,
        libc::EISDIR,
        libc::EINVAL,
        libc::ENAMETOOLONG,
    ] {
        assert!(is_mistake(code), "{}", io::Error::from_raw_os_error(code));
    }
    for code in [
        libc::EROFS,
        libc::EIO,
        libc::ENOSPC,
        libc::EDQUOT,
        libc::EFBIG,
        libc::ENXIO,
        libc::ENODEV,
        libc::ESTALE,
        libc::ETIMEDOUT,
        libc::EMFILE,
        libc::ENFILE,
    ] {
        assert!(!is_mistake(code), "{}", io::Error::from_raw_os_error(code));
    }
}

/// A socket in the place of the lock: that it cannot be opened for writing is not an expected error.
#[test]
fn with_a_disk_that_fails_what_is_there_is_read() {
    let there = tempfile::tempdir().unwrap();
    let fleet = FleetName::new("default", "one");
    let (directory, fault) = Directory::open(there.path(), 1 << 20).unwrap();
    assert!(fault.is_none());
    let header = file::fleet_header(&fleet, Default::default(), 0, "", &Bytes::new(), &[]).unwrap();
    directory.write(&FileName::of(&fleet), &header, &[]).unwrap();
    drop(directory);
    let lock = there.path().join(LOCK);
    fs::remove_file(&lock).unwrap();
    let _socket = UnixListener::bind(&lock).unwrap();

    let (directory, fault) = Directory::open(there.path(), 1 << 20).unwrap();
    assert_eq!(fault.unwrap().raw_os_error(), Some(libc::ENXIO));
    assert_eq!(directory.list().unwrap().len(), 1);
    assert_eq!(directory.header(&FileName::of(&fleet)).unwrap().unwrap().fleet, fleet);
}
