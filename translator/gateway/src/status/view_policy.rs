use super::reasons::view_policy::{accepted, resolved_refs};
use super::{Condition, Conditions};
use crate::left_out;
use crate::objects::ObjectKey;
use crate::views::{AcceptedViewPolicy, Rule, ViewRules};
use crate::world::{InFleet, Reader, TreatmentOf};
use heliograph_snapshot::FleetName;
use heliograph_views::{Audience, Client};
use serde::Serialize;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewPolicyStatus {
    pub conditions: Conditions,
    /// The proxies that it is for, of those in the inventory.
    pub matches: Matches,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matches {
    pub count: usize,
    /// The first of them.
    pub proxies: Vec<Arc<str>>,
}

/// A status is for people: who wants all of them has the selector.
const SHOWN: usize = 10;

pub(super) fn status(reader: &Reader<'_>, key: &ObjectKey) -> Option<ViewPolicyStatus> {
    let AcceptedViewPolicy { generation, fleet, decoded, withheld } =
        reader.view_policy(&key.name)?;
    let (conditions, matches) = match (fleet, decoded) {
        (Some(fleet), Ok(decoded)) => holds(reader, key, fleet, decoded),
        (fleet, decoded) => {
            let reason = match fleet {
                Some(_) => accepted::NOT_UNDERSTOOD,
                None => accepted::TARGET_NOT_FOUND,
            };
            let mut why = decoded.as_ref().err().cloned().unwrap_or_default();
            if !withheld.is_empty() {
                let ports: Vec<_> = withheld.iter().map(ToString::to_string).collect();
                why +=
                    &format!("; until this is fixed, no proxy is served port {}", ports.join(", "));
            }
            (Conditions::from([Condition::new(reason, why)]), Matches::default())
        }
    };
    let mut conditions = conditions;
    if let Some(left_out) = fleet.as_ref().and_then(|fleet| left_out::condition(reader, fleet, key))
    {
        conditions.set(left_out);
    }
    Some(ViewPolicyStatus { conditions: conditions.observed(*generation), matches })
}

fn holds(
    reader: &Reader<'_>,
    key: &ObjectKey,
    fleet: &FleetName,
    decoded: &ViewRules,
) -> (Conditions, Matches) {
    // Proxies tell their versions to distributors, and not here.
    let audience = Audience { at_least: None, at_most: None, ..decoded.audience.clone() };
    let (mut listed, mut matches) = (0, Matches::default());
    for (name, proxy) in reader.proxies(fleet) {
        listed += 1;
        if audience.includes(&Client { proxy: proxy.proxy.clone(), ..Client::default() }) {
            matches.count += 1;
            if matches.proxies.len() < SHOWN {
                matches.proxies.push(name.name.clone());
            }
        }
    }
    let of_version = if audience == decoded.audience { "" } else { ", if their version matches" };
    let said =
        format!("Selects {} of {listed} proxies in the inventory{of_version}", matches.count);
    let mut conditions = Conditions::from([Condition::new(accepted::ACCEPTED, said)]);
    conditions.set(match problem(reader, key, fleet, decoded) {
        None => Condition::new(
            resolved_refs::RESOLVED_REFS,
            "All resources that the policy names exist",
        ),
        Some(why) => Condition::new(resolved_refs::INVALID_OVERLAY, why),
    });
    (conditions, matches)
}

/// The first overlay that cannot be laid over anything; the other rules of the policy hold.
fn problem(
    reader: &Reader<'_>,
    key: &ObjectKey,
    fleet: &FleetName,
    decoded: &ViewRules,
) -> Option<String> {
    decoded.rules.iter().find_map(|rule| {
        let Rule::Overlay { kind, name, .. } = rule else { return None };
        let named = TreatmentOf::Named(*kind, name.clone());
        let treated = reader.treatment(&InFleet::new(fleet, named))?;
        let own = treated.problems.iter().find(|(policy, _)| *policy == key.name);
        own.map(|(_, why)| format!("overlay of {why}"))
    })
}
