use super::render::Renderer;
use crate::objects::core::Service;
use crate::objects::proxy_config::{ServiceType, TrafficPolicy};
use heliograph_model::Transport;
use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(super) fn service(renderer: &Renderer<'_>, mut metadata: ObjectMeta) -> Service {
    let config = renderer.proxies.config.service.clone().unwrap_or_default();
    let kind = config.r#type.unwrap_or_default();
    let annotations = metadata.annotations.get_or_insert_default();
    // All of the Gateway's: they configure load balancers.
    annotations.extend(renderer.proxies.annotations.clone());
    annotations.extend(config.annotations.unwrap_or_default());
    // Added last, so that no other setting changes the owner.
    renderer.add_owner_annotation(annotations);
    let ports = renderer.infra.ports.iter().map(|port| ServicePort {
        name: Some(match port.transport {
            Transport::Tcp => format!("port-{}", port.port),
            Transport::Udp => format!("port-{}-udp", port.port),
        }),
        port: port.port.into(),
        target_port: Some(IntOrString::Int(port.bind_port.into())),
        protocol: Some(port.transport.as_str().to_owned()),
        ..ServicePort::default()
    });
    let policy = config.external_traffic_policy.map(|policy| match policy {
        TrafficPolicy::Cluster => "Cluster",
        TrafficPolicy::Local => "Local",
    });
    let is_balanced = kind == ServiceType::LoadBalancer;
    let type_ = match kind {
        ServiceType::LoadBalancer => "LoadBalancer",
        ServiceType::NodePort => "NodePort",
        ServiceType::ClusterIP => "ClusterIP",
    };
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(type_.to_owned()),
            selector: Some(renderer.selector()),
            ports: Some(ports.collect()),
            // The API server rejects it for a Service without access from outside.
            external_traffic_policy: policy
                .filter(|_| kind != ServiceType::ClusterIP)
                .map(str::to_owned),
            load_balancer_class: config.load_balancer_class.filter(|_| is_balanced),
            // A Service has a field for one. Further requested addresses are reported as not usable.
            load_balancer_ip: renderer.proxies.addresses.first().filter(|_| is_balanced).cloned(),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
