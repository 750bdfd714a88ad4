//! Disputes in reports, under the rules of [`super::messages`].

use super::CodecError;
use super::messages::{kind_of, number_of};
use crate::Dispute;

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
}

impl From<&Dispute> for StoredDispute {
    fn from(dispute: &Dispute) -> Self {
        let Dispute { kind, name, version, rejected, accepted } = dispute;
        Self {
            kind: number_of(*kind),
            name: name.to_string(),
            version: version.to_string(),
            rejected: *rejected,
            accepted: *accepted,
        }
    }
}

impl StoredDispute {
    /// `None`: of a type that this program does not know.
    pub(super) fn read(self) -> Option<Result<Dispute, CodecError>> {
        let Self { kind, name, version, rejected, accepted } = self;
        let kind = kind_of(kind)?;
        let version = version.parse().map_err(|_| CodecError::Damaged);
        Some(version.map(|version| Dispute {
            kind,
            name: name.into(),
            version,
            rejected,
            accepted,
        }))
    }
}
