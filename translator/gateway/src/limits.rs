//! Limits on one object's use of shared resources.

use crate::infra::bootstrap::REGEX_PROGRAM_SIZE;

/// The budgets of objects and namespaces. An object that exceeds one is rejected with a condition, and affects no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most instructions that a regular expression may have in RE2, which is what Envoy's runtime key
    /// `re2.max_program_size.error_level` bounds. Envoy rejects a route table that has a larger one.
    pub regex_program_size: u32,
    /// The most instructions that the regular expressions of a namespace's routes may have for one hostname, together. Envoy
    /// tries them one after the other, in the worst case at some 20 ns for each instruction and byte of the path, and
    /// its worker answers no other request meanwhile.
    pub host_regex_size: u64,
    /// The most bytes that a route may take in the route tables that it is in, over all its matches and hosts.
    pub route_bytes: u64,
    /// The same for all routes of a namespace.
    pub namespace_bytes: u64,
    /// The most bytes of content that Secrets and ConfigMaps of a namespace may have, those that are named. From an API,
    /// contents beyond it are not kept; here it is for the message of the condition.
    pub content_bytes: u64,
    /// The most bytes that a route table may have. The store refuses a resource of more than 64 MiB.
    pub table_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            regex_program_size: REGEX_PROGRAM_SIZE,
            host_regex_size: 8192,
            route_bytes: 1 << 20,
            namespace_bytes: 16 << 20,
            content_bytes: 16 << 20,
            table_bytes: 48 << 20,
        }
    }
}

/// How much that is, for people.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
