use heliograph_shared::{duration, size};
use std::time::Duration;

/// The flags that say how much clients may ask of a replica, and how long they stay at it.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct LoadArgs {
    /// Maximum number of connections of authenticated clients; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_CONNECTIONS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_connections
    )]
    pub max_connections: usize,

    /// Maximum number of connections, and of streams, from one address; 0 for no limit, for example behind a load balancer that
    /// hides the addresses of proxies
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_CONNECTIONS_PER_ADDRESS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_connections_per_address
    )]
    pub max_connections_per_address: usize,

    /// Maximum number of ADS streams; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_STREAMS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_streams
    )]
    pub max_streams: usize,

    /// Share of --max-streams, --max-connections and --admission-rate that one identity may use if it is alone, in percent. The
    /// more others use, the less it may use, so that capacity is always left for others: with 90, at most nine times what is
    /// free. 0 or 100 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_IDENTITY_SHARE",
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(0..=100),
        default_value_t = LoadArgs::DEFAULT.max_identity_share
    )]
    pub max_identity_share: u8,

    /// The same share for all identities of one namespace together, in percent
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_NAMESPACE_SHARE",
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(0..=100),
        default_value_t = LoadArgs::DEFAULT.max_namespace_share
    )]
    pub max_namespace_share: u8,

    /// Maximum number of connections of clients that have not authenticated yet, in addition to --max-connections. Beyond it, a
    /// new connection closes the oldest one; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_UNAUTHENTICATED",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_unauthenticated
    )]
    pub max_unauthenticated: usize,

    /// Maximum number of streams that receive their first configuration at the same time; the others wait. 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_SETUPS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_setups
    )]
    pub max_setups: usize,

    /// Maximum number of new streams per second; further ones get UNAVAILABLE and retry. One identity and one namespace have
    /// shares of it, as of streams. 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_ADMISSION_RATE",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.admission_rate
    )]
    pub admission_rate: u32,

    /// Maximum rate of requests on one stream, per second, with bursts of ten times as many. A faster stream is slowed down, and
    /// ends if it stays faster for a minute. 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_REQUEST_RATE",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.request_rate
    )]
    pub request_rate: u32,

    /// Maximum age of a connection, plus or minus a fifth; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_CONNECTION_AGE",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "1h"
    )]
    pub connection_age: Duration,

    /// Maximum time from the start of a connection (with TLS: from the end of the handshake) to its first request; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_FIRST_REQUEST_TIMEOUT",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "10s"
    )]
    pub first_request_timeout: Duration,

    /// Maximum time that a stream waits for a fleet that is not published, plus or minus a fifth; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_UNPUBLISHED_TIMEOUT",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "5m"
    )]
    pub unpublished_timeout: Duration,

    /// Maximum time that data waits for a client that does not read; then its connection is closed. 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_SEND_TIMEOUT",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "30s"
    )]
    pub send_timeout: Duration,

    /// Maximum number of streams per second that a replica closes to rebalance while it has more than the others; 0 to disable
    /// rebalancing
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_REBALANCE_RATE",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.rebalance_rate
    )]
    pub rebalance_rate: u32,

    /// Maximum memory of all streams for subscriptions to names that their fleets do not have, and for waiting requests. All
    /// identities of one namespace together may use half of it. 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_SUBSCRIPTION_MEMORY",
        value_name = "SIZE",
        value_parser = size::parse,
        default_value = "256MiB"
    )]
    pub subscription_memory: u64,

    /// The same maximum for the streams of one identity, or of one address without authentication; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_SUBSCRIPTION_MEMORY_PER_IDENTITY",
        value_name = "SIZE",
        value_parser = size::parse,
        default_value = "32MiB"
    )]
    pub subscription_memory_per_identity: u64,

    /// Maximum memory of snapshots that no proxy uses; 0 for no limit. Fleets are loaded in advance as long as they fit, the
    /// others when their first proxy connects
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_FLEET_MEMORY",
        value_name = "SIZE",
        value_parser = size::parse,
        default_value = "512MiB"
    )]
    pub fleet_memory: u64,

    /// How long a fleet without a proxy stays in memory while --fleet-memory is exceeded
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_FLEET_IDLE",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "10m"
    )]
    pub fleet_idle: Duration,

    /// Time after SIGTERM over which the streams are closed, so that other replicas are not overloaded; 0 closes all at once
    /// [default: 20s; for `helio standalone`, which has no other replica, 0]
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_DRAIN_TIME",
        value_name = "DURATION",
        value_parser = duration::parse
    )]
    pub drain_time: Option<Duration>,
}

impl LoadArgs {
    /// What the flags say if they are not given.
    pub const DEFAULT: Self = Self {
        max_connections: 20_000,
        max_connections_per_address: 1_000,
        max_streams: 20_000,
        max_identity_share: 90,
        max_namespace_share: 95,
        max_unauthenticated: 10_000,
        max_setups: 1_000,
        admission_rate: 2_000,
        request_rate: 1_000,
        connection_age: Duration::from_secs(3600),
        first_request_timeout: Duration::from_secs(10),
        unpublished_timeout: Duration::from_secs(300),
        send_timeout: Duration::from_secs(30),
        rebalance_rate: 50,
        subscription_memory: 256 << 20,
        subscription_memory_per_identity: 32 << 20,
        fleet_memory: 512 << 20,
        fleet_idle: Duration::from_secs(600),
        drain_time: None,
    };
    /// How long the program `distributor` drains by default.
    pub const DRAIN_TIME: Duration = Duration::from_secs(20);
}

impl Default for LoadArgs {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        load: LoadArgs,
    }

    #[test]
    fn the_flags_have_the_defaults_that_the_code_has() {
        assert_eq!(Program::parse_from(["program"]).load, LoadArgs::default());
    }
}
