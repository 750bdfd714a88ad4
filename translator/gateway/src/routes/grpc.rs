use super::rules::{self, BackendRef, RouteFields};
use super::{RouteScope, Rules};
use crate::filters::{self, FilterPosition};
use crate::objects::gateway;
use crate::world::Reader;
use heliograph_model::{
    HttpMatch, HttpRule, PathMatch, RouteId, RpcMatch, StringMatch, Timeouts, UpstreamProtocol,
};

pub(super) fn accept(reader: &Reader<'_>, id: &RouteId) -> Option<Rules> {
    let object = reader.object::<gateway::GrpcRoute>(&id.name)?;
    let gateway::GrpcRouteSpec {
        hostnames,
        parent_refs,
        rules: given_rules,
        // No Gateway is one by default.
        use_default_gateways: _,
    } = &object.spec;
    let given = RouteFields {
        metadata: &object.metadata,
        parents: parent_refs.iter().flatten().map(parent).collect(),
        hostnames: hostnames.as_deref().unwrap_or_default(),
        default_protocol: UpstreamProtocol::Http2,
    };
    Some(rules::accept(reader, id, given, |scope, expressions| {
        rules::over_http(scope, given_rules.as_deref(), expressions, rule)
    }))
}

/// The generated types of parentRefs differ in name alone.
fn parent(reference: &gateway::GrpcParentRef) -> gateway::ParentRef {
    let gateway::GrpcParentRef { group, kind, name, namespace, port, section_name } =
        reference.clone();
    gateway::ParentRef { group, kind, name, namespace, port, section_name }
}

fn rule(scope: &mut RouteScope<'_>, rule: &gateway::GrpcRule) -> Result<HttpRule, String> {
    // All fields by name: one that is not understood must not be ignored.
    let gateway::GrpcRule { backend_refs, filters, matches, name, session_persistence } = rule;
    if session_persistence.is_some() {
        return Err("sessionPersistence is not supported".to_owned());
    }
    let matches = match matches.as_deref().filter(|matches| !matches.is_empty()) {
        None => vec![grpc_match(&gateway::GrpcMatch::default())?],
        Some(matches) => matches.iter().map(grpc_match).collect::<Result<_, _>>()?,
    };
    let position = FilterPosition::Rule { matches: &matches };
    let filters = filters::accept(scope, filters.as_deref().unwrap_or_default(), position)?;
    let mut targets = Vec::new();
    for reference in backend_refs.iter().flatten() {
        let gateway::GrpcBackendRef { filters, group, kind, name, namespace, port, weight } =
            reference;
        let reference = BackendRef {
            group: group.as_deref(),
            kind: kind.as_deref(),
            name,
            namespace: namespace.as_deref(),
            port: *port,
            weight: *weight,
        };
        targets.push(rules::target(scope, &reference, filters.as_deref(), &matches)?);
    }
    let (name, timeouts) = (name.as_deref().map(Into::into), Timeouts::default());
    Ok(HttpRule { name, matches, filters, targets, timeouts, retry: None })
}

fn grpc_match(given: &gateway::GrpcMatch) -> Result<HttpMatch, String> {
    let gateway::GrpcMatch { headers, method } = given;
    let headers = headers.iter().flatten().map(|header| {
        let is_pattern = header.r#type == Some(gateway::GrpcHeaderMatchType::RegularExpression);
        (header.name.as_str(), is_pattern, header.value.as_str())
    });
    Ok(HttpMatch {
        path: PathMatch::Rpc(method.as_ref().map(rpc).transpose()?.unwrap_or_default()),
        method: None,
        headers: rules::headers(headers)?,
        query: Vec::new(),
    })
}

fn rpc(given: &gateway::RpcMatch) -> Result<RpcMatch, String> {
    let gateway::RpcMatch { method, service, r#type } = given;
    let is_pattern = *r#type == Some(gateway::RpcMatchType::RegularExpression);
    let part = |text: Option<&str>| -> Result<Option<StringMatch>, String> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        match is_pattern || text.bytes().all(name) {
            true => rules::text(is_pattern, text).map(Some),
            false => Err(format!("{text:?} is not the name of a service or method")),
        }
    };
    Ok(RpcMatch { service: part(service.as_deref())?, method: part(method.as_deref())? })
}
