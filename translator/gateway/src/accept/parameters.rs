use crate::objects::proxy_config::{ProxyConfig, ProxyConfigSpec};
use crate::objects::{Kind, ObjectName, gateway};
use crate::status::Condition;
use crate::status::reasons;
use crate::world::Reader;
use heliograph_model::FleetOwner;

/// Why a GatewayClass of ours cannot be used.
pub(crate) fn class_refusal(
    reader: &Reader<'_>,
    class: &gateway::GatewayClass,
) -> Option<Condition> {
    let refused = |why| {
        let reason = reasons::gateway_class::accepted::INVALID_PARAMETERS;
        Condition::new(reason, format!("parametersRef: {why}"))
    };
    of_class(reader, class).err().map(refused)
}

/// The owner of the fleet that serves a Gateway of a class of ours.
pub(super) fn owner(
    reader: &Reader<'_>,
    class: &gateway::GatewayClass,
    gateway: &ObjectName,
) -> FleetOwner {
    let reference = class.spec.parameters_ref.as_ref();
    let namespace = reference.and_then(|reference| reference.namespace.as_deref());
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let shared = namespace.map(|namespace| FleetOwner::Class(ObjectName::new(namespace, name)));
    let is_shared = |shared: &FleetOwner| match named_by(reader, class) {
        Ok(config) => config.is_some_and(ProxyConfigSpec::merges),
        // As before the ProxyConfig was missing: Gateways that share proxies go on to share them.
        Err(_) => super::service(reader, shared).is_some(),
    };
    shared.filter(is_shared).unwrap_or_else(|| FleetOwner::Gateway(gateway.clone()))
}

/// The merged parameters of a Gateway and of its class, or why the Gateway is rejected.
pub(super) fn of_gateway(
    reader: &Reader<'_>,
    class: &gateway::GatewayClass,
    object: &gateway::Gateway,
) -> Result<ProxyConfigSpec, Condition> {
    let of_class = of_class(reader, class).map_err(|why| {
        let name = &object.spec.gateway_class_name;
        refused(format!("GatewayClass {name}: parametersRef: {why}"))
    })?;
    let infrastructure = object.spec.infrastructure.as_ref();
    let Some(reference) = infrastructure.and_then(|infra| infra.parameters_ref.as_ref()) else {
        return Ok(of_class);
    };
    if of_class.merges() {
        let why =
            "its class merges its Gateways, so only the class has parameters: remove this field";
        return Err(refused(format!("infrastructure.parametersRef: {why}")));
    }
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let own = find(reader, &reference.group, &reference.kind, namespace, &reference.name);
    own.and_then(|own| match own.merges() {
        true => {
            Err("mergeGateways is allowed only in the ProxyConfig of a GatewayClass".to_owned())
        }
        false => own.over(&of_class).map_err(|error| error.to_string()),
    })
    .map_err(|why| refused(format!("infrastructure.parametersRef: {why}")))
}

pub(super) fn of_class(
    reader: &Reader<'_>,
    class: &gateway::GatewayClass,
) -> Result<ProxyConfigSpec, String> {
    named_by(reader, class).map(|named| named.cloned().unwrap_or_default())
}

/// `None` where a class names none.
fn named_by<'a>(
    reader: &Reader<'a>,
    class: &gateway::GatewayClass,
) -> Result<Option<&'a ProxyConfigSpec>, String> {
    let Some(reference) = &class.spec.parameters_ref else { return Ok(None) };
    let Some(namespace) = &reference.namespace else {
        return Err(format!("{} {} has no namespace", reference.kind, reference.name));
    };
    find(reader, &reference.group, &reference.kind, namespace, &reference.name).map(Some)
}

fn find<'a>(
    reader: &Reader<'a>,
    group: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<&'a ProxyConfigSpec, String> {
    if Kind::find(group, kind) != Some(Kind::ProxyConfig) {
        return Err(format!("{kind} {name} is not supported: refer to a ProxyConfig of {GROUP}"));
    }
    let name = ObjectName::new(namespace, name);
    let found = reader.object::<ProxyConfig>(&name);
    found.map(|found| &found.spec).ok_or_else(|| format!("ProxyConfig {name} does not exist"))
}

const GROUP: &str = "heliograph.dev";

fn refused(why: String) -> Condition {
    Condition::new(reasons::gateway::accepted::INVALID_PARAMETERS, why)
}
