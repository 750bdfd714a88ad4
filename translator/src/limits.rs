use heliograph_gateway::Limits;
use heliograph_gateway::infra::bootstrap::REGEX_PROGRAM_SIZE;
use heliograph_shared::size;

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

    /// How many instructions of RE2 the regular expressions of a namespace's routes may have for one hostname, together; the
    /// youngest routes are refused. Envoy tries them one after the other for each request, and its worker waits
    #[arg(
        long,
        env = "HELIO_MAX_HOST_REGEX_SIZE",
        value_name = "COUNT",
        default_value_t = Limits::default().host_regex_size
    )]
    pub max_host_regex_size: u64,

    /// How much one route may take in route tables, over all its matches and hostnames
    #[arg(
        long,
        env = "HELIO_MAX_ROUTE_SIZE",
        value_name = "SIZE",
        default_value = "1MiB",
        value_parser = size::parse,
    )]
    pub max_route_size: u64,

    /// How much the routes of a namespace may take together; the youngest are refused
    #[arg(
        long,
        env = "HELIO_MAX_NAMESPACE_SIZE",
        value_name = "SIZE",
        default_value = "16MiB",
        value_parser = size::parse,
    )]
    pub max_namespace_size: u64,

    /// How much content the Secrets and ConfigMaps of a namespace may have together, those that Gateways, ListenerSets and
    /// BackendTLSPolicies name in a cluster; the youngest are refused. For files there is no such limit
    #[arg(
        long,
        env = "HELIO_MAX_CONTENT_SIZE",
        value_name = "SIZE",
        default_value = "16MiB",
        value_parser = size::parse,
    )]
    pub max_content_size: u64,

    /// How large a route table may be, at most 60MiB; namespaces beyond their share lose copies and routes
    #[arg(
        long,
        env = "HELIO_MAX_TABLE_SIZE",
        value_name = "SIZE",
        default_value = "48MiB",
        value_parser = table_size,
    )]
    pub max_table_size: u64,
}

/// The store refuses a resource of more than 64 MiB, and what goes with it has to fit as well.
const LARGEST_TABLE: u64 = 60 << 20;

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits {
            regex_program_size: self.max_regex_program_size,
            host_regex_size: self.max_host_regex_size,
            route_bytes: self.max_route_size,
            namespace_bytes: self.max_namespace_size,
            content_bytes: self.max_content_size,
            table_bytes: self.max_table_size,
        }
    }
}

fn table_size(text: &str) -> Result<u64, String> {
    match size::parse(text).map_err(|error| error.to_string())? {
        size if size <= LARGEST_TABLE => Ok(size),
        _ => Err("at most 60MiB: the store takes no resource of more than 64MiB".to_owned()),
    }
}
