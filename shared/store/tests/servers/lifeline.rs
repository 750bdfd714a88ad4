//! What the standard library cannot ask of the kernel.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Makes the kernel kill the child when the thread that starts it ends, however it ends, so that no server outlives a
/// test that was killed. So start servers in the test itself, not in a task that may run elsewhere.
pub(crate) fn tie(command: &mut Command) {
    let tie = || {
        // SAFETY: `prctl` with these arguments reads no memory of ours.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only calls that are safe for signals are allowed; the closure makes one system call,
    // and neither allocates nor locks.
    unsafe { command.pre_exec(tie) };
}
