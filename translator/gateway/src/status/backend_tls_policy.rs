use super::reasons::backend_tls_policy::accepted::{CONFLICTED, TARGET_NOT_FOUND};
use super::{Condition, Conditions};
use crate::CONTROLLER_NAME;
use crate::backends::policy;
use crate::objects::backend_tls_policy::{BackendTlsPolicy, targets};
use crate::objects::core::Service;
use crate::objects::gateway::{self, ParentRef};
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::world::Reader;
use serde::Serialize;
use std::collections::BTreeSet;

/// Of policies that change what others do: said once for each Gateway that is concerned.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// Only those that are ours; others' entries are theirs.
    pub ancestors: Vec<AncestorStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AncestorStatus {
    pub ancestor_ref: ParentRef,
    pub controller_name: &'static str,
    pub conditions: Conditions,
}

/// The API's bound.
const MOST_ANCESTORS: usize = 16;

/// `None` where no Gateway of ours leads to what the policy is about.
pub(super) fn status(reader: &Reader<'_>, key: &ObjectKey) -> Option<PolicyStatus> {
    let policy = reader.object::<BackendTlsPolicy>(&key.name)?;
    let gateways: BTreeSet<&ObjectName> =
        targets(policy).flat_map(|(service, _)| reader.leading_to(&service)).collect();
    if gateways.is_empty() {
        return None;
    }
    let verdict = policy::verdict(reader, policy);
    let accepted = match refusal(reader, policy) {
        Some(refused) => refused,
        None => verdict.accepted,
    };
    let conditions = Conditions::from([accepted, verdict.resolved])
        .observed(policy.metadata.generation.unwrap_or_default());
    let ancestor = |gateway: &ObjectName| AncestorStatus {
        ancestor_ref: ParentRef {
            group: Some(gateway::GROUP.to_owned()),
            kind: Some(Kind::Gateway.as_str().to_owned()),
            name: gateway.name.to_string(),
            namespace: Some(gateway.namespace.to_string()),
            ..Default::default()
        },
        controller_name: CONTROLLER_NAME,
        conditions: conditions.clone(),
    };
    let ancestors = gateways.into_iter().take(MOST_ANCESTORS).map(ancestor).collect();
    Some(PolicyStatus { ancestors })
}

/// Why a policy does not hold, whatever it says.
fn refusal(reader: &Reader<'_>, policy: &BackendTlsPolicy) -> Option<Condition> {
    if let Some(rival) = policy::rival(reader, policy) {
        let rival = rival.metadata.name.as_deref().unwrap_or_default();
        let why = format!("BackendTLSPolicy {rival} has the same target and is older");
        return Some(Condition::new(CONFLICTED, why));
    }
    let missing = |(service, section): (ObjectKey, Option<&str>)| {
        let object = reader.object::<Service>(&service.name);
        let has_port = |section: &str| {
            let spec = object.and_then(|object| object.spec.as_ref());
            let mut ports = spec.into_iter().flat_map(|spec| spec.ports.iter().flatten());
            ports.any(|port| port.name.as_deref() == Some(section))
        };
        match section {
            _ if object.is_none() => Some(format!("{service} does not exist")),
            Some(section) if !has_port(section) => {
                Some(format!("{service} has no port with the name {section}"))
            }
            _ => None,
        }
    };
    let why = targets(policy).find_map(missing)?;
    Some(Condition::new(TARGET_NOT_FOUND, why))
}
