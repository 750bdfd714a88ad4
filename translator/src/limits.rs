use heliograph_gateway::Limits;
use heliograph_gateway::infra::bootstrap::REGEX_PROGRAM_SIZE;
use heliograph_shared::size;

/// How much one object may ask of what it shares with others
#[derive(Clone, Debug, clap::Args)]
pub struct LimitArgs {
    /// Maximum size of a regular expression in a route, in RE2 instructions. It must not exceed the limit of any Envoy
    /// (re2.max_program_size.error_level in its runtime; 100 if its bootstrap does not set it): Envoys reject route tables with
    /// larger expressions
    #[arg(
        long,
        env = "HELIO_MAX_REGEX_PROGRAM_SIZE",
        value_name = "COUNT",
        default_value_t = REGEX_PROGRAM_SIZE
    )]
    pub max_regex_program_size: u32,

    /// Maximum total size of the regular expressions that the routes of one namespace have for one hostname, in RE2 instructions;
    /// beyond it, the youngest routes are rejected. Envoy evaluates these expressions one by one for each request, which blocks
    /// the worker thread
    #[arg(
        long,
        env = "HELIO_MAX_HOST_REGEX_SIZE",
        value_name = "COUNT",
        default_value_t = Limits::default().host_regex_size
    )]
    pub max_host_regex_size: u64,

    /// Maximum size of one route in route tables, for all its matches and hostnames together
    #[arg(
        long,
        env = "HELIO_MAX_ROUTE_SIZE",
        value_name = "SIZE",
        default_value = "1MiB",
        value_parser = size::parse,
    )]
    pub max_route_size: u64,

    /// Maximum total size of the routes of one namespace in route tables; beyond it, the youngest routes are rejected
    #[arg(
        long,
        env = "HELIO_MAX_NAMESPACE_SIZE",
        value_name = "SIZE",
        default_value = "16MiB",
        value_parser = size::parse,
    )]
    pub max_namespace_size: u64,

    /// Maximum total size of the Secrets and ConfigMaps of one namespace that Gateways, ListenerSets and BackendTLSPolicies refer
    /// to; beyond it, the youngest are rejected. Applies to objects of a cluster, not to files
    #[arg(
        long,
        env = "HELIO_MAX_CONTENT_SIZE",
        value_name = "SIZE",
        default_value = "16MiB",
        value_parser = size::parse,
    )]
    pub max_content_size: u64,

    /// Maximum size of a route table, at most 60MiB; beyond it, namespaces that use more than their share lose copies and routes
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
        _ => Err("at most 60MiB: the store accepts no resource of more than 64MiB".to_owned()),
    }
}
