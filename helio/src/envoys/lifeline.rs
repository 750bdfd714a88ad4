//! A system call that the standard library does not have. The only unsafe code of the program.
#![allow(unsafe_code)]

use std::io;
use tokio::process::{Child, Command};

/// Makes the kernel kill the child when the thread that starts it ends, so that no child outlives this process
/// however it ends. The thread must live as long as the child is wanted.
pub(super) fn tie(command: &mut Command) {
    let parent = std::process::id();
    let tie = move || {
        // SAFETY: `prctl` with these arguments reads no memory of ours.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have ended before the kernel was asked, and then nothing would tell.
        if std::os::unix::process::parent_id() != parent {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe));
        }
        Ok(())
    };
    // SAFETY: between fork and exec only calls that are safe for signals are allowed; the closure makes two system
    // calls, and neither allocates nor locks.
    unsafe { command.pre_exec(tie) };
}

/// Asks a child to end.
pub(super) fn terminate(child: &Child) {
    // None once the child has been waited for; its number may belong to another process then.
    if let Some(id) = child.id().and_then(|id| libc::pid_t::try_from(id).ok()) {
        // SAFETY: `kill` takes two numbers.
        unsafe { libc::kill(id, libc::SIGTERM) };
    }
}
