use crate::audience::Client;
use crate::message::{About, Audience, Treatment};
use heliograph_snapshot::{Resource, ResourceType, Tree};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// All that the rules of a snapshot ask of a client, so that nothing else has to be known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    audiences: BTreeMap<Arc<str>, Audience>,
    /// The labels that endpoints are preferred by, and in how many preferences.
    labels: BTreeMap<Arc<str>, usize>,
    /// How many resources of a type are treated.
    treated: BTreeMap<ResourceType, usize>,
}

/// The results of the rules for a client. Clients of one class see the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// The audiences that it is of.
    audiences: BTreeSet<Arc<str>>,
    /// The labels that endpoints are preferred by, as far as it has them.
    labels: BTreeMap<Arc<str>, Arc<str>>,
}

impl Rules {
    pub fn of(tree: &Tree) -> Self {
        let mut rules = Self::default();
        rules.advance(&Tree::new(), tree);
        rules
    }

    /// Goes from the rules `before` to those `after`, at the cost of what differs. Whether anything is asked otherwise now.
    pub fn advance(&mut self, before: &Tree, after: &Tree) -> bool {
        let mut changed = false;
        for difference in after.differences(before) {
            if let Some(old) = difference.before {
                changed |= self.forget(old);
            }
            if let Some(new) = difference.after {
                changed |= self.learn(new);
            }
        }
        changed
    }

    pub fn is_empty(&self) -> bool {
        self.treated.is_empty()
    }

    /// Whether any resource of a type may be another for some.
    pub fn treats(&self, kind: ResourceType) -> bool {
        self.treated.contains_key(&kind)
    }

    pub fn class(&self, client: &Client) -> Class {
        let fitting = self.audiences.iter().filter(|(_, audience)| audience.includes(client));
        let labels = self.labels.keys().filter_map(|key| {
            let value = client.proxy.labels.get(&**key)?;
            Some((key.clone(), Arc::from(value.as_str())))
        });
        Class { audiences: fitting.map(|(id, _)| id.clone()).collect(), labels: labels.collect() }
    }

    /// Whether clients have to be asked again.
    fn learn(&mut self, rule: &Resource) -> bool {
        match About::of(&rule.name) {
            Some(About::Audience(id)) => {
                // An audience that cannot be decoded contains no client, so it is left out.
                let Ok(audience) = Audience::decode(rule.body.clone()) else { return false };
                self.audiences.insert(id.into(), audience);
                true
            }
            Some(About::Treatment(kind, _)) => {
                *self.treated.entry(kind).or_default() += 1;
                let mut changed = false;
                for label in labels(rule) {
                    let uses = self.labels.entry(label.into()).or_default();
                    *uses += 1;
                    changed |= *uses == 1;
                }
                changed
            }
            None => false,
        }
    }

    fn forget(&mut self, rule: &Resource) -> bool {
        match About::of(&rule.name) {
            Some(About::Audience(id)) => self.audiences.remove(id).is_some(),
            Some(About::Treatment(kind, _)) => {
                fewer(&mut self.treated, &kind);
                let mut changed = false;
                for label in labels(rule) {
                    changed |= fewer(&mut self.labels, &Arc::from(label.as_str()));
                }
                changed
            }
            None => false,
        }
    }
}

impl Class {
    pub(crate) fn is_of(&self, audience: &str) -> bool {
        self.audiences.contains(audience)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|value| &**value)
    }
}

/// `shop/canaries, topology.kubernetes.io/zone=a`.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let audiences = self.audiences.iter().map(ToString::to_string);
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        f.write_str(&audiences.chain(labels).collect::<Vec<_>>().join(", "))
    }
}

/// Every label once that a treatment prefers endpoints by.
fn labels(rule: &Resource) -> BTreeSet<String> {
    let treatment = Treatment::decode(rule.body.clone()).unwrap_or_default();
    treatment.preferences.into_iter().flat_map(|preference| preference.labels).collect()
}

/// Counts one less. Whether it was the last.
fn fewer<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count = count.saturating_sub(1);
    if *count > 0 {
        return false;
    }
    counts.remove(key);
    true
}
