//! The clients, from a description: the same in every process.

mod conduct;
mod node;

pub use conduct::{Conduct, InvalidKind, Kind};
pub use node::NodeSize;

use crate::scenario::{Protocols, Share};
use heliograph_client::Protocol;
use heliograph_envoy::envoy::config::core::v3::Node;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Some of the clients, alike but for what is a list: they take the values of lists in turn, so that all combinations
/// occur.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Group {
    /// Of all clients, as those of the other groups are.
    pub share: Share,
    pub region: OneOrMore,
    pub zone: OneOrMore,
    pub labels: BTreeMap<String, OneOrMore>,
    /// Of Envoy.
    pub version: OneOrMore,
    pub node: NodeSize,
    pub conduct: Conduct,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    #[default]
    None,
    One(String),
    More(Vec<String>),
}

/// All clients, by number.
#[derive(Debug)]
pub struct Population {
    groups: Vec<Group>,
    protocols: Protocols,
    /// The cluster of each node: its fleet.
    fleets: Vec<String>,
    /// How many there are of each group so far.
    counts: Vec<usize>,
    next: usize,
    /// Clients of one kind share it: a real one is large.
    nodes: BTreeMap<Likeness, Arc<Node>>,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Person {
    pub name: Arc<str>,
    pub node: Arc<Node>,
    /// By position.
    pub fleet: usize,
    pub protocol: Protocol,
    pub conduct: Conduct,
}

/// The key of a node: group, turn, fleet.
type Likeness = (usize, usize, usize);

impl Default for Group {
    fn default() -> Self {
        Self {
            share: Share::ALL,
            region: OneOrMore::None,
            zone: OneOrMore::None,
            labels: BTreeMap::new(),
            version: OneOrMore::One("1.40.0".to_owned()),
            node: NodeSize::Bare,
            conduct: Conduct::Well,
        }
    }
}

impl OneOrMore {
    fn values(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::One(value) => std::slice::from_ref(value),
            Self::More(values) => values,
        }
    }

    /// The value in this turn. The rest of the turn decides the next list.
    fn pick(&self, turn: &mut usize) -> Option<&str> {
        let values = self.values();
        let count = values.len().max(1);
        let value = values.get(*turn % count);
        *turn /= count;
        value.map(String::as_str)
    }
}

impl Group {
    pub fn check(&self) -> Result<(), String> {
        let versions = self.version.values();
        let wrong = versions.iter().find(|version| node::build_version(version).is_none());
        match wrong {
            Some(version) => {
                Err(format!("population: version {version:?} is no version of Envoy, as in 1.40.0"))
            }
            None => Ok(()),
        }
    }

    /// In how many ways its clients can differ.
    fn combinations(&self) -> usize {
        let labels = self.labels.values();
        let lists = [&self.region, &self.zone, &self.version].into_iter().chain(labels);
        lists.fold(1, |product, list| product.saturating_mul(list.values().len().max(1)))
    }
}

impl Population {
    /// `fleets` are the names of those that clients belong to in turn.
    pub fn new(groups: Vec<Group>, protocols: Protocols, fleets: Vec<String>) -> Self {
        let groups = if groups.is_empty() { vec![Group::default()] } else { groups };
        let counts = vec![0; groups.len()];
        Self { groups, protocols, fleets, counts, next: 0, nodes: BTreeMap::new() }
    }

    /// The group that is furthest below its share: so every beginning of the population has all groups in it.
    fn choose(&self) -> usize {
        let all: f64 = self.groups.iter().map(|group| group.share.fraction()).sum();
        let lacking = |at: &usize| {
            let share = self.groups.get(*at).map_or(0.0, |group| group.share.fraction()) / all;
            let has = self.counts.get(*at).copied().unwrap_or(0) as f64;
            share * (self.next + 1) as f64 - has
        };
        let most =
            (0..self.groups.len()).max_by(|one, other| lacking(one).total_cmp(&lacking(other)));
        most.unwrap_or(0)
    }
}

/// Never ends.
impl Iterator for Population {
    type Item = Person;

    fn next(&mut self) -> Option<Person> {
        let at = self.choose();
        let group = self.groups.get(at)?;
        let turn = self.counts.get_mut(at)?;
        let number = self.next;
        let fleet = number % self.fleets.len().max(1);
        let name = self.fleets.get(fleet).map(String::as_str).unwrap_or_default();
        let combination = *turn % group.combinations();
        let node = self.nodes.entry((at, combination, fleet));
        let node = node.or_insert_with(|| Arc::new(node::build(group, combination, name))).clone();
        *turn += 1;
        self.next += 1;
        let protocol = match self.protocols {
            Protocols::Mixed if number % 2 == 1 => Protocol::StateOfTheWorld,
            Protocols::Sotw => Protocol::StateOfTheWorld,
            Protocols::Delta | Protocols::Mixed => Protocol::Delta,
        };
        let name = format!("client-{number:06}").into();
        Some(Person { name, node, fleet, protocol, conduct: group.conduct.clone() })
    }
}

#[cfg(test)]
mod tests;
