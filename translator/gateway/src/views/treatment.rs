use super::plan::Planned;
use crate::objects::ObjectName;
use crate::objects::core::Service;
use crate::world::{Reader, TreatmentOf};
pub(super) use heliograph_envoy_dialect::Patch;
use heliograph_envoy_dialect::{self as envoy, names};
use heliograph_model::{UpstreamId, UpstreamKind};
use heliograph_snapshot::{FleetName, Resource, ResourceType};
use heliograph_views::{Preference, Treatment, Variant, ZONE};
use std::sync::Arc;

/// The rendered rules for a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TreatmentResult {
    /// `None`: nothing.
    pub(crate) rule: Option<Arc<Resource>>,
    /// The policies that cannot do what they say, and why.
    pub(crate) problems: Vec<(ObjectName, String)>,
}

pub(crate) fn treatment(
    reader: &Reader<'_>,
    fleet: &FleetName,
    of: &TreatmentOf,
) -> TreatmentResult {
    let (kind, name, upstream) = match of {
        TreatmentOf::Endpoints(upstream) => {
            (ResourceType::Endpoints, names::cluster(upstream).into(), Some(upstream))
        }
        TreatmentOf::Named(kind, name) => (*kind, name.clone(), None),
    };
    let name: &Arc<str> = &name;
    let plan = reader.plan(fleet);
    let planned = plan.and_then(|plan| plan.resources.get(&(kind, name.clone())));
    let Planned { admissions, overlays } = planned.cloned().unwrap_or_default();
    let mut treatment = Treatment { admissions, ..Treatment::default() };
    let (mut problems, mut is_confidential) = (Vec::new(), false);
    for overlay in overlays {
        let rendered = match reader.resource(fleet, kind, name) {
            Some(resource) => {
                is_confidential |= resource.is_confidential;
                envoy::variant(kind, resource, &overlay.patch)
            }
            None => Err("there is no such resource".to_owned()),
        };
        match rendered {
            Ok(body) => {
                let audience = overlay.audience.to_string();
                treatment.variants.push(Variant { audience, body });
            }
            Err(why) => problems.push((overlay.policy, format!("{kind} {name}: {why}"))),
        }
    }
    if let Some(upstream) = upstream {
        treatment.preferences = plan.map(|plan| plan.preferences.clone()).unwrap_or_default();
        treatment.preferences.extend(wish(reader, upstream));
    }
    // What is done to endpoints is done where their upstream is known.
    let is_done = kind != ResourceType::Endpoints || upstream.is_some();
    let rule = (is_done && !treatment.is_nothing())
        .then(|| Arc::new(treatment.resource(kind, name).confidential(is_confidential)));
    TreatmentResult { rule, problems }
}

/// The preference of the object of an upstream, which comes after those of policies.
fn wish(reader: &Reader<'_>, upstream: &UpstreamId) -> Option<Preference> {
    let service = match upstream.kind {
        UpstreamKind::Service => reader.object::<Service>(&upstream.name)?,
    };
    let wish = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    // A gateway's proxies seldom share a node with endpoints: who wants the same node is content with the same zone.
    let is_near = matches!(wish, "PreferClose" | "PreferSameZone" | "PreferSameNode");
    is_near.then(|| Preference { audience: String::new(), labels: vec![ZONE.to_owned()] })
}
