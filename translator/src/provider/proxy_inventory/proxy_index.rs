use heliograph_gateway::Event;
use heliograph_gateway::infra::names;
use heliograph_gateway::objects::heliograph::{Proxy, ProxySpec, TargetRef};
use heliograph_gateway::objects::{Object, ObjectName};
use heliograph_model::FleetOwner;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The pods and nodes that are known, and the proxies that were sent for them.
#[derive(Default)]
pub(super) struct ProxyIndex {
    pods: BTreeMap<ObjectName, PodEntry>,
    on_node: BTreeMap<String, BTreeSet<ObjectName>>,
    /// Their location labels.
    nodes: BTreeMap<String, Labels>,
    /// What a list that is under way has not named yet.
    unseen_pods: BTreeSet<ObjectName>,
    unseen_nodes: BTreeSet<String>,
}

type Labels = BTreeMap<String, String>;

/// The known fields of a pod.
#[derive(Clone, PartialEq)]
struct PodEntry {
    owner: FleetOwner,
    labels: Labels,
    node: String,
    /// The object that was sent for it.
    reported: Option<Object>,
}

/// The labels that say where a node is.
const LOCATION_LABELS: [&str; 3] =
    ["kubernetes.io/hostname", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

impl ProxyIndex {
    pub(super) fn apply_pod(&mut self, event: watcher::Event<Pod>) -> Vec<Event> {
        match event {
            watcher::Event::Init => {
                self.unseen_pods = self.pods.keys().cloned().collect();
                Vec::new()
            }
            watcher::Event::InitApply(pod) => {
                self.unseen_pods.remove(&name_of(&pod.metadata));
                self.add_pod(pod)
            }
            watcher::Event::InitDone => {
                let gone = std::mem::take(&mut self.unseen_pods);
                gone.iter().filter_map(|name| self.remove_pod(name)).collect()
            }
            watcher::Event::Apply(pod) => self.add_pod(pod),
            watcher::Event::Delete(pod) => {
                self.remove_pod(&name_of(&pod.metadata)).into_iter().collect()
            }
        }
    }

    pub(super) fn apply_node(
        &mut self,
        event: watcher::Event<PartialObjectMeta<Node>>,
    ) -> Vec<Event> {
        match event {
            watcher::Event::Init => {
                self.unseen_nodes = self.nodes.keys().cloned().collect();
                Vec::new()
            }
            watcher::Event::InitApply(node) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                self.unseen_nodes.remove(&name);
                self.update_node(name, location_labels(&node.metadata))
            }
            watcher::Event::InitDone => {
                let gone = std::mem::take(&mut self.unseen_nodes);
                gone.into_iter().flat_map(|name| self.update_node(name, Labels::new())).collect()
            }
            watcher::Event::Apply(node) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                self.update_node(name, location_labels(&node.metadata))
            }
            watcher::Event::Delete(node) => {
                self.update_node(node.metadata.name.unwrap_or_default(), Labels::new())
            }
        }
    }

    fn add_pod(&mut self, pod: Pod) -> Vec<Event> {
        let name = name_of(&pod.metadata);
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let Some(owner) = names::annotated_owner(&name.namespace, &annotations) else {
            return Vec::new();
        };
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let before = self.pods.get(&name);
        if let Some(before) = before.filter(|before| before.node != node) {
            let old = before.node.clone();
            self.remove_from_node(&old, &name);
        }
        let reported = self.pods.get(&name).and_then(|before| before.reported.clone());
        let labels = pod.metadata.labels.unwrap_or_default();
        self.on_node.entry(node.clone()).or_default().insert(name.clone());
        let listed = PodEntry { owner, labels, node, reported };
        self.pods.insert(name.clone(), listed);
        self.update_proxy(&name).into_iter().collect()
    }

    fn remove_pod(&mut self, name: &ObjectName) -> Option<Event> {
        let listed = self.pods.remove(name)?;
        self.remove_from_node(&listed.node, name);
        listed.reported.map(|reported| Event::Deleted(reported.key()))
    }

    fn update_node(&mut self, node: String, location_labels: Labels) -> Vec<Event> {
        let before = if location_labels.is_empty() {
            self.nodes.remove(&node)
        } else {
            self.nodes.insert(node.clone(), location_labels.clone())
        };
        if before.unwrap_or_default() == location_labels {
            return Vec::new();
        }
        let pods = self.on_node.get(&node).cloned().unwrap_or_default();
        pods.iter().filter_map(|name| self.update_proxy(name)).collect()
    }

    fn remove_from_node(&mut self, node: &str, name: &ObjectName) {
        if let Some(pods) = self.on_node.get_mut(node) {
            pods.remove(name);
            if pods.is_empty() {
                self.on_node.remove(node);
            }
        }
    }

    /// The event for the proxy in a pod, if the proxy has changed since the last event.
    fn update_proxy(&mut self, name: &ObjectName) -> Option<Event> {
        let listed = self.pods.get_mut(name)?;
        let mut labels = self.nodes.get(&listed.node).cloned().unwrap_or_default();
        labels.extend(listed.labels.clone());
        let object = Object::Proxy(Arc::new(Proxy {
            metadata: ObjectMeta {
                // As the Envoy in it calls itself.
                name: Some(format!("{}.{}", name.name, name.namespace)),
                namespace: Some(name.namespace.to_string()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: ProxySpec {
                target_ref: TargetRef {
                    group: names::kind(&listed.owner).group().to_owned(),
                    kind: names::kind(&listed.owner).as_str().to_owned(),
                    name: listed.owner.name().name.to_string(),
                },
            },
        }));
        if listed.reported.as_ref() == Some(&object) {
            return None;
        }
        listed.reported = Some(object.clone());
        Some(Event::Applied(object))
    }
}

fn name_of(metadata: &ObjectMeta) -> ObjectName {
    ObjectName::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

fn location_labels(metadata: &ObjectMeta) -> Labels {
    let labels = metadata.labels.iter().flatten();
    labels
        .filter(|(name, _)| LOCATION_LABELS.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ZONE: &str = "topology.kubernetes.io/zone";

    fn pod(name: &str, node: &str) -> Pod {
        let metadata = json!({
            "name": name,
            "namespace": "shop",
            "labels": { "tier": "edge" },
            "annotations": { names::GATEWAY_ANNOTATION: "web" },
        });
        let spec = json!({ "nodeName": node, "containers": [] });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn node(name: &str, zone: &str) -> PartialObjectMeta<Node> {
        let metadata = json!({ "name": name, "labels": { ZONE: zone, "other": "x" } });
        serde_json::from_value(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
        }))
        .unwrap()
    }

    /// Names and zones; a proxy that is gone has a dash.
    fn names_and_zones(events: &[Event]) -> Vec<(String, String)> {
        let one = |event: &Event| match event {
            Event::Applied(object) => {
                let metadata = object.metadata();
                let zone = metadata.labels.as_ref().unwrap().get(ZONE).cloned();
                assert_eq!(metadata.labels.as_ref().unwrap()["tier"], "edge");
                (metadata.name.clone().unwrap(), zone.unwrap_or_default())
            }
            Event::Deleted(key) => (key.name.name.to_string(), "-".to_owned()),
        };
        events.iter().map(one).collect()
    }

    fn only(name: &str, zone: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), zone.to_owned())]
    }

    #[test]
    fn a_proxy_is_its_pod_in_the_zone_of_its_node() {
        let mut index = ProxyIndex::default();
        let events = index.apply_pod(watcher::Event::Apply(pod("a", "n1")));
        assert_eq!(names_and_zones(&events), only("a.shop", ""));
        let events = index.apply_node(watcher::Event::Apply(node("n1", "north")));
        assert_eq!(names_and_zones(&events), only("a.shop", "north"));
        let events = index.apply_node(watcher::Event::Apply(node("n2", "south")));
        assert_eq!(names_and_zones(&events), [], "nobody is there");
        let events = index.apply_pod(watcher::Event::Apply(pod("a", "n1")));
        assert_eq!(names_and_zones(&events), [], "nothing is new");
        let events = index.apply_pod(watcher::Event::Delete(pod("a", "n1")));
        assert_eq!(names_and_zones(&events), only("a.shop", "-"));
        assert!(index.pods.is_empty() && index.on_node.is_empty());
    }

    #[test]
    fn who_is_not_in_a_new_list_is_gone() {
        let mut index = ProxyIndex::default();
        index.apply_pod(watcher::Event::Apply(pod("a", "n1")));
        index.apply_pod(watcher::Event::Apply(pod("b", "n1")));
        index.apply_pod(watcher::Event::Init);
        index.apply_pod(watcher::Event::InitApply(pod("b", "n1")));
        let events = index.apply_pod(watcher::Event::InitDone);
        assert_eq!(names_and_zones(&events), only("a.shop", "-"));
    }

    #[test]
    fn a_proxy_that_gateways_share_is_of_their_class() {
        let mut shared = pod("a", "n1");
        let annotation = (names::CLASS_ANNOTATION.to_owned(), "edge".to_owned());
        shared.metadata.annotations = Some([annotation].into());
        let events = ProxyIndex::default().apply_pod(watcher::Event::Apply(shared));
        let [Event::Applied(Object::Proxy(proxy))] = &*events else { panic!("{events:?}") };
        let TargetRef { group, kind, name } = &proxy.spec.target_ref;
        let of = [group, kind, name].map(String::as_str);
        assert_eq!(of, ["gateway.networking.k8s.io", "GatewayClass", "edge"]);
    }

    #[test]
    fn a_pod_of_somebody_else_is_no_proxy() {
        let mut other = pod("a", "n1");
        other.metadata.annotations = None;
        assert_eq!(
            names_and_zones(&ProxyIndex::default().apply_pod(watcher::Event::Apply(other))),
            []
        );
    }
}
