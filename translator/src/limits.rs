use heliograph_translator_core::Limits;
use heliograph_translator_core::infra::bootstrap::REGEX_PROGRAM_SIZE;

/// How much one object may ask of what it shares with others
#[derive(Clone, Debug, clap::Args)]
pub struct LimitArgs {
    /// The largest regular expression of a route, in instructions of RE2. Larger than what every Envoy takes
    /// (re2.max_program_size.error_level in its runtime, 100 where its bootstrap does not say), it breaks route tables
    #[arg(
        long,
        env = "HELIO_MAX_REGEX_PROGRAM_SIZE",
        value_name = "COUNT",
        default_value_t = REGEX_PROGRAM_SIZE
    )]
    pub max_regex_program_size: u32,
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits { regex_program_size: self.max_regex_program_size }
    }
}
