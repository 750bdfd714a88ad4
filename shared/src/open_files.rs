//! The limit of files and connections that a process may have open at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of this process as far as it may itself, and returns the new limit; `None` is no limit. Runtimes
/// begin with a low one, for programs that cannot handle more; where it may not be raised, it stays.
pub fn raise() -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current
}
