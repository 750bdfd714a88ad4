//! Parses the kernel's files.

/// User and system time, in ticks, from `/proc/PID/stat`.
pub(super) fn ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, and may itself have spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // After the name come the state, then fields 4 and on; user time is the 14th, system time the 15th.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// The bytes in a line such as `VmRSS:   1234 kB`, of `/proc/PID/status` and its like.
pub(super) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let number: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// The number in a line such as `usage_usec 1234`, of a cgroup's files.
pub(super) fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 3 0 100 1 2";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("42 (short) S 1 2"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn sizes_are_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nVmRSSother:\t5 kB\n";
        assert_eq!(kilobytes(status, "VmRSS"), Some(1024 * 1024));
        assert_eq!(kilobytes(status, "VmHWM"), Some(2048 * 1024));
        assert_eq!(kilobytes(status, "Pss"), None);
        assert_eq!(kilobytes("Pss: many kB", "Pss"), None);
    }

    #[test]
    fn a_cgroups_numbers_are_found_by_their_whole_name() {
        let stat = "usage_usec 1234\nuser_usec 1000\n";
        assert_eq!(number(stat, "usage_usec"), Some(1234));
        assert_eq!(number(stat, "usec"), None);
        assert_eq!(number(stat, "usage"), None);
    }
}
