//! Disputes in reports, under the rules of [`super::messages`].

use super::CodecError;
use super::messages::kind_of;
use crate::{Dispute, Voter};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredDispute {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    version: String,
    #[prost(uint64, tag = "4")]
    rejected: u64,
    #[prost(uint64, tag = "5")]
    accepted: u64,
    #[prost(fixed64, repeated, tag = "6")]
    rejecting: Vec<u64>,
    #[prost(fixed64, repeated, tag = "7")]
    accepting: Vec<u64>,
}

impl From<&Dispute> for StoredDispute {
    fn from(dispute: &Dispute) -> Self {
        let Dispute { kind, name, version, rejected, accepted, rejecting, accepting } = dispute;
        let digests = |voters: &[Voter]| voters.iter().map(|Voter(digest)| *digest).collect();
        Self {
            kind: kind.properties().number,
            name: name.to_string(),
            version: version.to_string(),
            rejected: *rejected,
            accepted: *accepted,
            rejecting: digests(rejecting),
            accepting: digests(accepting),
        }
    }
}

impl StoredDispute {
    /// `None`: of a type that this program does not know.
    pub(super) fn read(self) -> Option<Result<Dispute, CodecError>> {
        let Self { kind, name, version, rejected, accepted, rejecting, accepting } = self;
        let voters = |digests: Vec<u64>| digests.into_iter().map(Voter).collect();
        let kind = kind_of(kind)?;
        let version = version.parse().map_err(|_| CodecError::Damaged);
        Some(version.map(|version| Dispute {
            kind,
            name: name.into(),
            version,
            rejected,
            accepted,
            rejecting: voters(rejecting),
            accepting: voters(accepting),
        }))
    }
}
