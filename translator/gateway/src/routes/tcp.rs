use super::rules::{self, BackendRef, RouteFields};
use super::{RouteScope, Rules};
use crate::objects::gateway;
use crate::world::Reader;
use heliograph_model::{Route, RouteId, TcpRoute, TcpTarget, UpstreamProtocol};

/// The API's bound, which files need not keep: all of them are in each listener that has the route.
const MOST_BACKENDS: usize = 16;

pub(super) fn accept(reader: &Reader<'_>, id: &RouteId) -> Option<Rules> {
    let object = reader.object::<gateway::TcpRoute>(&id.name)?;
    let gateway::TcpRouteSpec {
        parent_refs,
        rules,
        // No Gateway is one by default.
        use_default_gateways: _,
    } = &object.spec;
    let given = RouteFields {
        metadata: &object.metadata,
        parents: parent_refs.iter().flatten().map(parent).collect(),
        // There is nothing in a connection that could name one.
        hostnames: &[],
        default_protocol: UpstreamProtocol::Tcp,
    };
    Some(rules::accept(reader, id, given, |scope, _| route(scope, rules).map(Route::Tcp)))
}

/// The generated types of parentRefs differ in name alone.
fn parent(reference: &gateway::TcpParentRef) -> gateway::ParentRef {
    let gateway::TcpParentRef { group, kind, name, namespace, port, section_name } =
        reference.clone();
    gateway::ParentRef { group, kind, name, namespace, port, section_name }
}

fn route(scope: &mut RouteScope<'_>, rules: &[gateway::TcpRule]) -> Result<TcpRoute, String> {
    // They have no matches, so a second one could have no connections.
    let [rule] = rules else {
        return Err(format!("rules: exactly one is supported, not {}", rules.len()));
    };
    // All fields by name: one that is not understood must not be ignored.
    let gateway::TcpRule { backend_refs, name: _ } = rule;
    if backend_refs.len() > MOST_BACKENDS {
        return Err(format!(
            "rule 0: backendRefs: at most {MOST_BACKENDS}, not {}",
            backend_refs.len()
        ));
    }
    let mut targets = Vec::new();
    for reference in backend_refs {
        let gateway::TcpBackendRef { group, kind, name, namespace, port, weight } = reference;
        let reference = BackendRef {
            group: group.as_deref(),
            kind: kind.as_deref(),
            name,
            namespace: namespace.as_deref(),
            port: *port,
            weight: *weight,
        };
        let (weight, target) =
            rules::backend(scope, &reference).map_err(|reason| format!("rule 0: {reason}"))?;
        targets.push(TcpTarget { weight, target });
    }
    Ok(TcpRoute { targets })
}
