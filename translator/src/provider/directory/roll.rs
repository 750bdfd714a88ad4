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

/// The pods and nodes that are known, and what was told of them.
#[derive(Default)]
pub(super) struct Roll {
    pods: BTreeMap<ObjectName, Listed>,
    on_node: BTreeMap<String, BTreeSet<ObjectName>>,
    /// Their labels that say where they are.
    nodes: BTreeMap<String, Labels>,
    /// What a list that is under way has not named yet.
    unseen_pods: BTreeSet<ObjectName>,
    unseen_nodes: BTreeSet<String>,
}

type Labels = BTreeMap<String, String>;

/// What is known of a pod.
#[derive(Clone, PartialEq)]
struct Listed {
    owner: FleetOwner,
    labels: Labels,
    node: String,
    /// The object that it was told as.
    told: Option<Object>,
}

/// Where a node is.
const PLACES: [&str; 3] =
    ["kubernetes.io/hostname", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

impl Roll {
    pub(super) fn hear_of_pod(&mut self, event: watcher::Event<Pod>) -> Vec<Event> {
        match event {
            watcher::Event::Init => {
                self.unseen_pods = self.pods.keys().cloned().collect();
                Vec::new()
            }
            watcher::Event::InitApply(pod) => {
                self.unseen_pods.remove(&name_of(&pod.metadata));
                self.list(pod)
            }
            watcher::Event::InitDone => {
                let gone = std::mem::take(&mut self.unseen_pods);
                gone.iter().filter_map(|name| self.strike(name)).collect()
            }
            watcher::Event::Apply(pod) => self.list(pod),
            watcher::Event::Delete(pod) => {
                self.strike(&name_of(&pod.metadata)).into_iter().collect()
            }
        }
    }

    pub(super) fn hear_of_node(
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
                self.place(name, places(&node.metadata))
            }
            watcher::Event::InitDone => {
                let gone = std::mem::take(&mut self.unseen_nodes);
                gone.into_iter().flat_map(|name| self.place(name, Labels::new())).collect()
            }
            watcher::Event::Apply(node) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                self.place(name, places(&node.metadata))
            }
            watcher::Event::Delete(node) => {
                self.place(node.metadata.name.unwrap_or_default(), Labels::new())
            }
        }
    }

    fn list(&mut self, pod: Pod) -> Vec<Event> {
        let name = name_of(&pod.metadata);
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let Some(owner) = names::annotated_owner(&name.namespace, &annotations) else {
            return Vec::new();
        };
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        let before = self.pods.get(&name);
        if let Some(before) = before.filter(|before| before.node != node) {
            let old = before.node.clone();
            self.leave(&old, &name);
        }
        let told = self.pods.get(&name).and_then(|before| before.told.clone());
        let labels = pod.metadata.labels.unwrap_or_default();
        self.on_node.entry(node.clone()).or_default().insert(name.clone());
        let listed = Listed { owner, labels, node, told };
        self.pods.insert(name.clone(), listed);
        self.tell(&name).into_iter().collect()
    }

    fn strike(&mut self, name: &ObjectName) -> Option<Event> {
        let listed = self.pods.remove(name)?;
        self.leave(&listed.node, name);
        listed.told.map(|told| Event::Deleted(told.key()))
    }

    fn place(&mut self, node: String, places: Labels) -> Vec<Event> {
        let before = if places.is_empty() {
            self.nodes.remove(&node)
        } else {
            self.nodes.insert(node.clone(), places.clone())
        };
        if before.unwrap_or_default() == places {
            return Vec::new();
        }
        let pods = self.on_node.get(&node).cloned().unwrap_or_default();
        pods.iter().filter_map(|name| self.tell(name)).collect()
    }

    fn leave(&mut self, node: &str, name: &ObjectName) {
        if let Some(pods) = self.on_node.get_mut(node) {
            pods.remove(name);
            if pods.is_empty() {
                self.on_node.remove(node);
            }
        }
    }

    /// What is to be told of a pod, if it was not.
    fn tell(&mut self, name: &ObjectName) -> Option<Event> {
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
        if listed.told.as_ref() == Some(&object) {
            return None;
        }
        listed.told = Some(object.clone());
        Some(Event::Applied(object))
    }
}

fn name_of(metadata: &ObjectMeta) -> ObjectName {
    ObjectName::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

fn places(metadata: &ObjectMeta) -> Labels {
    let labels = metadata.labels.iter().flatten();
    labels
        .filter(|(name, _)| PLACES.contains(&name.as_str()))
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
    fn told(events: &[Event]) -> Vec<(String, String)> {
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

    fn said(name: &str, zone: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), zone.to_owned())]
    }

    #[test]
    fn a_proxy_is_its_pod_in_the_zone_of_its_node() {
        let mut roll = Roll::default();
        let events = roll.hear_of_pod(watcher::Event::Apply(pod("a", "n1")));
        assert_eq!(told(&events), said("a.shop", ""));
        let events = roll.hear_of_node(watcher::Event::Apply(node("n1", "north")));
        assert_eq!(told(&events), said("a.shop", "north"));
        let events = roll.hear_of_node(watcher::Event::Apply(node("n2", "south")));
        assert_eq!(told(&events), [], "nobody is there");
        let events = roll.hear_of_pod(watcher::Event::Apply(pod("a", "n1")));
        assert_eq!(told(&events), [], "nothing is new");
        let events = roll.hear_of_pod(watcher::Event::Delete(pod("a", "n1")));
        assert_eq!(told(&events), said("a.shop", "-"));
        assert!(roll.pods.is_empty() && roll.on_node.is_empty());
    }

    #[test]
    fn who_is_not_in_a_new_list_is_gone() {
        let mut roll = Roll::default();
        roll.hear_of_pod(watcher::Event::Apply(pod("a", "n1")));
        roll.hear_of_pod(watcher::Event::Apply(pod("b", "n1")));
        roll.hear_of_pod(watcher::Event::Init);
        roll.hear_of_pod(watcher::Event::InitApply(pod("b", "n1")));
        let events = roll.hear_of_pod(watcher::Event::InitDone);
        assert_eq!(told(&events), said("a.shop", "-"));
    }

    #[test]
    fn a_proxy_that_gateways_share_is_of_their_class() {
        let mut shared = pod("a", "n1");
        let annotation = (names::CLASS_ANNOTATION.to_owned(), "edge".to_owned());
        shared.metadata.annotations = Some([annotation].into());
        let events = Roll::default().hear_of_pod(watcher::Event::Apply(shared));
        let [Event::Applied(Object::Proxy(proxy))] = &*events else { panic!("{events:?}") };
        let TargetRef { group, kind, name } = &proxy.spec.target_ref;
        let of = [group, kind, name].map(String::as_str);
        assert_eq!(of, ["gateway.networking.k8s.io", "GatewayClass", "edge"]);
    }

    #[test]
    fn a_pod_of_somebody_else_is_no_proxy() {
        let mut other = pod("a", "n1");
        other.metadata.annotations = None;
        assert_eq!(told(&Roll::default().hear_of_pod(watcher::Event::Apply(other))), []);
    }
}
