use std::time::Duration;

/// The time after which a silent replica is forgotten. A replica reports its presence several times as often.
pub const PRESENCE_EXPIRY: Duration = Duration::from_secs(10);

/// That a distributor is there, for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// The replica, by a name that no other has.
    pub replica: String,
    /// Another number each time, so that who reads it twice knows that the replica lives, whatever the clocks say.
    pub beat: u64,
    /// How many streams it has.
    pub streams: u64,
    /// It drains: its streams are about to go elsewhere.
    pub leaving: bool,
}

impl Presence {
    /// At most this many replicas are listed.
    pub const REPLICAS: usize = 1_000;
}
