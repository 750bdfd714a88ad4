use crate::rules::Class;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Locality;
use heliograph_envoy::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints,
};
use heliograph_envoy::google::protobuf::UInt32Value;
use heliograph_envoy::google::protobuf::value::Kind;
use heliograph_snapshot::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The labels of a place, under the names that Kubernetes has for them. Endpoints have them as their locality.
pub const REGION: &str = "topology.kubernetes.io/region";
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Kubernetes has no name for it.
pub const SUBZONE: &str = "heliograph.dev/subzone";
/// Under this name an endpoint's metadata has its other labels, as far as rules look at them.
pub const LABELS: &str = "heliograph.dev/labels";

/// The endpoints, those first that have most in common with the class: Envoy uses the others when these are too few or
/// unhealthy. The resource itself where that makes no difference, or where it is no endpoints.
pub(crate) fn preferred(
    resource: &Arc<Resource>,
    labels: &[String],
    class: &Class,
) -> Arc<Resource> {
    let Ok(mut message) = ClusterLoadAssignment::decode(resource.body.clone()) else {
        return resource.clone();
    };
    // By distance, then by what they were grouped by before.
    let mut groups: BTreeMap<(usize, u32, usize), Vec<LbEndpoint>> = BTreeMap::new();
    for (at, group) in message.endpoints.iter().enumerate() {
        for endpoint in &group.lb_endpoints {
            let distance = distance(group.locality.as_ref(), endpoint, labels, class);
            let key = (distance, group.priority, at);
            groups.entry(key).or_default().push(endpoint.clone());
        }
    }
    let mut ranks: Vec<(usize, u32)> = groups.keys().map(|(far, old, _)| (*far, *old)).collect();
    ranks.dedup();
    if ranks.iter().all(|(distance, _)| Some(distance) == ranks.first().map(|(first, _)| first)) {
        return resource.clone();
    }
    message.endpoints = groups
        .into_iter()
        .map(|((distance, old, at), endpoints)| {
            // Priorities have no gaps, or Envoy treats the missing ones as empty groups.
            let rank = ranks.iter().position(|rank| *rank == (distance, old)).unwrap_or_default();
            regrouped(&message.endpoints[at], rank, endpoints)
        })
        .collect();
    Arc::new(Resource::new(resource.name.clone(), message.encode_to_vec().into()))
}

fn regrouped(
    group: &LocalityLbEndpoints,
    rank: usize,
    endpoints: Vec<LbEndpoint>,
) -> LocalityLbEndpoints {
    LocalityLbEndpoints {
        priority: u32::try_from(rank).unwrap_or(u32::MAX),
        // Where a group is split, each part keeps its share.
        load_balancing_weight: group.load_balancing_weight.as_ref().map(|weight| {
            let (all, some) = (group.lb_endpoints.len().max(1) as u64, endpoints.len() as u64);
            let share = (u64::from(weight.value) * some / all).max(1);
            UInt32Value { value: u32::try_from(share).unwrap_or(u32::MAX) }
        }),
        lb_endpoints: endpoints,
        ..group.clone()
    }
}

/// How many of the labels, from the first that differs on, are not in common.
fn distance(
    locality: Option<&Locality>,
    endpoint: &LbEndpoint,
    labels: &[String],
    class: &Class,
) -> usize {
    let in_common = labels.iter().take_while(|label| {
        let theirs = value(locality, endpoint, label);
        theirs.is_some() && theirs == class.label(label)
    });
    labels.len() - in_common.count()
}

fn value<'a>(
    locality: Option<&'a Locality>,
    endpoint: &'a LbEndpoint,
    label: &str,
) -> Option<&'a str> {
    let place = |of: fn(&Locality) -> &String| locality.map(of).filter(|it| !it.is_empty());
    match label {
        REGION => place(|it| &it.region).map(String::as_str),
        ZONE => place(|it| &it.zone).map(String::as_str),
        SUBZONE => place(|it| &it.sub_zone).map(String::as_str),
        other => {
            let metadata = endpoint.metadata.as_ref()?.filter_metadata.get(LABELS)?;
            match metadata.fields.get(other)?.kind.as_ref()? {
                Kind::StringValue(value) => Some(value),
                _ => None,
            }
        }
    }
}
