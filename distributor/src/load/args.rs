use heliograph_shared::{duration, size};
use std::time::Duration;

/// The flags that say how much clients may ask of a replica, and how long they stay at it.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct LoadArgs {
    /// How many connections are open at once of clients that have shown who they are; 0 for any number
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_CONNECTIONS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_connections
    )]
    pub max_connections: usize,

    /// How many connections one address may have open at once, and how many streams; 0 for any number, for example behind
    /// a load balancer that hides the addresses of proxies
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_CONNECTIONS_PER_ADDRESS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_connections_per_address
    )]
    pub max_connections_per_address: usize,

    /// How many ADS streams are open at once; 0 for any number
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_STREAMS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_streams
    )]
    pub max_streams: usize,

    /// How much of --max-streams, --max-connections and --admission-rate one identity may have if it is alone, in percent. It may
    /// have as many times what is free as this share is of the rest, with 90 nine times, so something is always left for others;
    /// 0 or 100 for all
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_IDENTITY_SHARE",
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(0..=100),
        default_value_t = LoadArgs::DEFAULT.max_identity_share
    )]
    pub max_identity_share: u8,

    /// The same for all identities of one namespace together
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_NAMESPACE_SHARE",
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(0..=100),
        default_value_t = LoadArgs::DEFAULT.max_namespace_share
    )]
    pub max_namespace_share: u8,

    /// How many connections are open at once, beside --max-connections, of clients that have not shown yet who they are. One more
    /// closes the oldest of them; 0 for any number
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_UNAUTHENTICATED",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_unauthenticated
    )]
    pub max_unauthenticated: usize,

    /// How many streams are told their first configuration at the same time, the others wait for their turn; 0 for any
    /// number
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_MAX_SETUPS",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.max_setups
    )]
    pub max_setups: usize,

    /// How many new streams are accepted per second; more are refused with UNAVAILABLE and retry. One identity and one namespace
    /// have shares of it, as of streams; 0 for any number
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_ADMISSION_RATE",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.admission_rate
    )]
    pub admission_rate: u32,

    /// How many requests per second one stream may send for long, ten times as many at once; what is more is read slower,
    /// and a stream that goes on for a minute is ended; 0 for any number
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_REQUEST_RATE",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.request_rate
    )]
    pub request_rate: u32,

    /// How long a connection stays, give or take a fifth; 0 for as long as it likes
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_CONNECTION_AGE",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "1h"
    )]
    pub connection_age: Duration,

    /// How long a new connection may take until its first request, after its TLS handshake if it has one; 0 for as long as it likes
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_FIRST_REQUEST_TIMEOUT",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "10s"
    )]
    pub first_request_timeout: Duration,

    /// How long a stream waits for a fleet that is not published, give or take a fifth; 0 for as long as it likes
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_UNPUBLISHED_TIMEOUT",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "5m"
    )]
    pub unpublished_timeout: Duration,

    /// How long something may wait for a client that does not read, before its connection is closed; 0 for ever
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_SEND_TIMEOUT",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "30s"
    )]
    pub send_timeout: Duration,

    /// How many streams per second a replica lets go at most while it has more than the others; 0 for none
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_REBALANCE_RATE",
        value_name = "COUNT",
        default_value_t = LoadArgs::DEFAULT.rebalance_rate
    )]
    pub rebalance_rate: u32,

    /// How much memory all streams may keep for names that their fleets do not have, and for requests that wait. The identities of
    /// one namespace may have half of it together; 0 for any
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_SUBSCRIPTION_MEMORY",
        value_name = "SIZE",
        value_parser = size::parse,
        default_value = "256MiB"
    )]
    pub subscription_memory: u64,

    /// The same for the streams of one identity, or of one address without authentication; 0 for no limit
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_SUBSCRIPTION_MEMORY_PER_IDENTITY",
        value_name = "SIZE",
        value_parser = size::parse,
        default_value = "32MiB"
    )]
    pub subscription_memory_per_identity: u64,

    /// How much memory snapshots may take that no proxy uses; 0 for any. Fleets are loaded ahead of their proxies as far as
    /// they fit, the others when the first proxy asks
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_FLEET_MEMORY",
        value_name = "SIZE",
        value_parser = size::parse,
        default_value = "512MiB"
    )]
    pub fleet_memory: u64,

    /// How long a fleet stays in memory without a proxy once there is more than --fleet-memory
    #[arg(
        long,
        help_heading = "Load",
        env = "HELIO_FLEET_IDLE",
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "10m"
    )]
    pub fleet_idle: Duration,

    /// How long after SIGTERM the streams end, spread over that time so that other replicas are not rushed; 0 for all at
    /// once. Without it, 20s; `helio standalone`, which has no other replica, ends them at once
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
    /// How long the program `distributor` drains unless told otherwise.
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
