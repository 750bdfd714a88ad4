//! How much one object may ask of what it shares with others.

use crate::infra::bootstrap::REGEX_PROGRAM_SIZE;

/// What is refused beyond these is refused on the object, and changes nothing for any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most instructions that a regular expression may have in RE2, which is what Envoy's runtime key
    /// `re2.max_program_size.error_level` bounds. Envoy rejects a route table that has a larger one.
    pub regex_program_size: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { regex_program_size: REGEX_PROGRAM_SIZE }
    }
}
