use crate::program::path;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Calls of the program that end soon, what each ends with, and whether it prints a result.
const CALLS: [(&[&str], i32, bool); 5] = [
    (&["list"], 0, true),
    (&["show", "idle"], 0, true),
    (&["show", "nothing-like-it"], 2, false),
    (&["compare", "/nowhere", "/nowhere"], 2, false),
    (&["run", "idle", "--brief", "--server", "http://127.0.0.1:1"], 1, false),
];

/// What a pipe is whose reader is gone.
fn unread() -> io::PipeWriter {
    io::pipe().unwrap().1
}

/// With one of its outputs piped to this test alone.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
    (output.status.code(), text)
}

#[test]
fn nobody_who_reads_what_it_says_changes_nothing() {
    for (args, code, prints) in CALLS {
        let (ended_with, stdout) = ended(Command::new(path()).args(args).stderr(unread()));
        assert_eq!((ended_with, stdout.is_empty()), (Some(code), !prints), "{args:?}: {stdout}");
        let (ended_with, stderr) = ended(Command::new(path()).args(args).stdout(unread()));
        assert_eq!((ended_with, stderr.is_empty()), (Some(code), prints), "{args:?}: {stderr}");
        let (mut command, unread) = (Command::new(path()), unread());
        command.args(args).stdout(unread.try_clone().unwrap()).stderr(unread);
        assert_eq!(ended(&mut command).0, Some(code), "{args:?}");
        for closed in ["2>&-", ">&-", ">&- 2>&-"] {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(format!("exec \"$0\" \"$@\" {closed}")).arg(path()).args(args);
            let (ended_with, text) = ended(&mut shell);
            assert_eq!(ended_with, Some(code), "{args:?} {closed}: {text}");
            assert!(!text.contains("panicked"), "{args:?} {closed}: {text}");
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut command = Command::new(path());
    command.arg("list").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
    assert!(!line.is_empty());
}

/// Not somebody who left, but a result that is lost.
#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (code, stderr) = ended(Command::new(path()).arg("list").stdout(full));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("No space left on device") && stderr.lines().count() == 1, "{stderr}");
}
