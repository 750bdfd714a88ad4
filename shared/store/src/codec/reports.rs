//! The reports of replicas: the answers of their proxies, and their presence.

use super::CodecError;
use super::disputes::StoredDispute;
use super::messages::{Head, Record, fleet, kind_of};
use crate::{AckReport, FleetReport, RejectionReport, Voter, Voters};
use heliograph_snapshot::Version;
use std::sync::Arc;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Presence {
    #[prost(string, tag = "1")]
    replica: String,
    #[prost(uint64, tag = "2")]
    beat: u64,
    #[prost(uint64, tag = "3")]
    streams: u64,
    #[prost(bool, tag = "4")]
    leaving: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Acks {
    #[prost(string, tag = "1")]
    replica: String,
    #[prost(message, repeated, tag = "2")]
    fleets: Vec<FleetAcks>,
    #[prost(message, repeated, tag = "3")]
    damaged: Vec<Damaged>,
    #[prost(uint64, tag = "4")]
    start: u64,
    #[prost(uint64, tag = "5")]
    sequence: u64,
    #[prost(message, repeated, tag = "6")]
    remembered: Vec<Record>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FleetAcks {
    #[prost(string, tag = "1")]
    fleet: String,
    #[prost(uint64, tag = "2")]
    connected: u64,
    #[prost(message, repeated, tag = "3")]
    acknowledged: Vec<Acknowledged>,
    #[prost(message, repeated, tag = "4")]
    rejections: Vec<Rejection>,
    #[prost(message, repeated, tag = "5")]
    disputes: Vec<StoredDispute>,
    #[prost(uint64, tag = "6")]
    voters: u64,
    #[prost(fixed64, optional, tag = "7")]
    only: Option<u64>,
    #[prost(message, repeated, tag = "8")]
    votes: Vec<Vote>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Damaged {
    #[prost(string, tag = "1")]
    fleet: String,
    #[prost(message, optional, tag = "2")]
    head: Option<Head>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Acknowledged {
    #[prost(message, optional, tag = "1")]
    head: Option<Head>,
    #[prost(uint64, tag = "2")]
    count: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Vote {
    #[prost(message, optional, tag = "1")]
    head: Option<Head>,
    #[prost(uint64, tag = "2")]
    count: u64,
    #[prost(fixed64, optional, tag = "3")]
    only: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Rejection {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    detail: String,
    #[prost(message, repeated, tag = "3")]
    resources: Vec<Rejected>,
    #[prost(uint64, tag = "4")]
    count: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Rejected {
    #[prost(string, tag = "1")]
    name: String,
    /// None: a removal was rejected.
    #[prost(string, optional, tag = "2")]
    version: Option<String>,
}

impl From<&AckReport> for Acks {
    fn from(report: &AckReport) -> Self {
        let AckReport { replica, start, sequence, fleets, damaged, remembered } = report;
        let fleets = fleets.iter().map(|(fleet, report)| {
            let FleetReport { connected, acknowledged, rejections, disputes, voters, votes } =
                report;
            let counted = |(head, count): (&heliograph_snapshot::Head, &u64)| Acknowledged {
                head: Some((*head).into()),
                count: *count,
            };
            let vote = |(head, voters): (&heliograph_snapshot::Head, &Voters)| Vote {
                head: Some((*head).into()),
                count: voters.count,
                only: voters.only.map(|Voter(digest)| digest),
            };
            FleetAcks {
                fleet: fleet.to_string(),
                connected: *connected,
                acknowledged: acknowledged.iter().map(counted).collect(),
                rejections: rejections.iter().map(Into::into).collect(),
                disputes: disputes.iter().map(Into::into).collect(),
                voters: voters.count,
                only: voters.only.map(|Voter(digest)| digest),
                votes: votes.iter().map(vote).collect(),
            }
        });
        let damaged = damaged
            .iter()
            .map(|(fleet, head)| Damaged { fleet: fleet.to_string(), head: Some((*head).into()) });
        Self {
            replica: replica.clone(),
            fleets: fleets.collect(),
            damaged: damaged.collect(),
            start: *start,
            sequence: *sequence,
            remembered: remembered.iter().map(|record| (&**record).into()).collect(),
        }
    }
}

impl TryFrom<Acks> for AckReport {
    type Error = CodecError;

    fn try_from(acks: Acks) -> Result<Self, CodecError> {
        let fleets = acks.fleets.into_iter().map(|found| {
            let acknowledged = found.acknowledged.into_iter().map(|entry| {
                let head = entry.head.ok_or(CodecError::Damaged)?;
                Ok((head.try_into()?, entry.count))
            });
            let rejections = found.rejections.into_iter().filter_map(Rejection::read);
            let disputes = found.disputes.into_iter().filter_map(StoredDispute::read);
            let votes = found.votes.into_iter().map(|vote| {
                let head = vote.head.ok_or(CodecError::Damaged)?;
                let voters = Voters { count: vote.count, only: vote.only.map(Voter) };
                Ok((head.try_into()?, voters))
            });
            let report = FleetReport {
                connected: found.connected,
                acknowledged: acknowledged.collect::<Result<_, CodecError>>()?,
                rejections: rejections.collect::<Result<_, _>>()?,
                disputes: disputes.collect::<Result<_, _>>()?,
                voters: Voters { count: found.voters, only: found.only.map(Voter) },
                votes: votes.collect::<Result<_, CodecError>>()?,
            };
            Ok((fleet(&found.fleet)?, report))
        });
        let damaged = acks.damaged.into_iter().map(|found| {
            let head = found.head.ok_or(CodecError::Damaged)?;
            Ok((fleet(&found.fleet)?, head.try_into()?))
        });
        let remembered = acks.remembered.into_iter().map(|record| record.try_into().map(Arc::new));
        Ok(Self {
            replica: acks.replica,
            start: acks.start,
            sequence: acks.sequence,
            fleets: fleets.collect::<Result<_, CodecError>>()?,
            damaged: damaged.collect::<Result<_, CodecError>>()?,
            remembered: remembered.collect::<Result<_, CodecError>>()?,
        })
    }
}

impl From<&RejectionReport> for Rejection {
    fn from(rejection: &RejectionReport) -> Self {
        let RejectionReport { kind, detail, resources, count } = rejection;
        let rejected = |(name, version): &(Arc<str>, Option<Version>)| Rejected {
            name: name.to_string(),
            version: version.map(|version| version.to_string()),
        };
        Self {
            kind: kind.properties().number,
            detail: detail.clone(),
            resources: resources.iter().map(rejected).collect(),
            count: *count,
        }
    }
}

impl Rejection {
    /// `None`: of a type that this program does not know.
    fn read(self) -> Option<Result<RejectionReport, CodecError>> {
        let kind = kind_of(self.kind)?;
        let resources = self.resources.into_iter().map(|rejected| {
            let version = rejected.version.map(|text| text.parse()).transpose();
            Ok((rejected.name.into(), version.map_err(|_| CodecError::Damaged)?))
        });
        let resources = resources.collect::<Result<_, _>>();
        Some(resources.map(|resources| RejectionReport {
            kind,
            detail: self.detail,
            resources,
            count: self.count,
        }))
    }
}

impl From<&crate::Presence> for Presence {
    fn from(presence: &crate::Presence) -> Self {
        let crate::Presence { replica, beat, streams, leaving } = presence;
        Self { replica: replica.clone(), beat: *beat, streams: *streams, leaving: *leaving }
    }
}

impl From<Presence> for crate::Presence {
    fn from(presence: Presence) -> Self {
        let Presence { replica, beat, streams, leaving } = presence;
        Self { replica, beat, streams, leaving }
    }
}
