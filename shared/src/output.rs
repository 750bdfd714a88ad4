//! The output of a command: its result on stdout, the rest on stderr. `print!` and `eprintln!` panic when the reader has
//! closed the pipe.

use std::io::{self, Write};

/// Writes a result. A reader that has seen enough, as `head` does, is no error.
pub fn result(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Prints a message that is not part of the result, on stderr.
pub fn message(text: &str) {
    // A closed stderr is no reason to end.
    let _ = writeln!(io::stderr(), "{text}");
}
