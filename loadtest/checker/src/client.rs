use crate::event::{Content, Order, ResourceId, Response, Sent};
use crate::publishes::{Publish, Publishes};
use crate::violation::Violation;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A proxy, and what it holds as far as its responses and answers tell.
#[derive(Debug)]
pub(crate) struct Client {
    name: Arc<str>,
    fleet: FleetName,
    held: BTreeMap<ResourceId, Held>,
    /// What it rejected is not expected of it.
    rejected: BTreeSet<ResourceId>,
    /// From which snapshot it was last sent something. By type: endpoints run ahead of what they belong to.
    places: BTreeMap<ResourceType, Head>,
    /// The types of which this stream has had no whole list yet, while the proxy holds some from before.
    unknown: BTreeSet<ResourceType>,
}

#[derive(Debug)]
struct Held {
    version: Version,
    references: Vec<ResourceId>,
}

impl Client {
    pub(crate) fn new(name: Arc<str>, fleet: FleetName) -> Self {
        Self {
            name,
            fleet,
            held: BTreeMap::new(),
            rejected: BTreeSet::new(),
            places: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }

    pub(crate) fn reconnect(&mut self) {
        self.unknown = ResourceType::ALL.into_iter().collect();
    }

    pub(crate) fn take(
        &mut self,
        response: &Response,
        publishes: &Publishes,
        violations: &mut Vec<Violation>,
    ) {
        let head = match self.place(response, publishes) {
            Ok((head, content)) => {
                violations.extend(self.differences(response, head, content, publishes));
                self.step(response.kind, head, violations);
                head
            }
            Err(violation) => {
                violations.push(*violation);
                self.places.get(&response.kind).copied().unwrap_or_default()
            }
        };
        // In state of the world only the proxy knows what it holds from before, so the first list of a stream cannot
        // have in it what awaits its removal.
        let unknown = response.whole && self.unknown.remove(&response.kind);
        if response.accepted {
            let removed = self.apply(response);
            self.find_dangling(response, head, violations);
            if !unknown {
                self.find_broken(removed, head, violations);
            }
        } else {
            let sent = response.resources.iter();
            self.rejected
                .extend(sent.map(|sent| ResourceId::new(response.kind, sent.name.clone())));
        }
    }

    /// It has all of the newest snapshot that it asks for: all clusters and listeners, and what these need.
    pub(crate) fn end(&self, publishes: &Publishes, violations: &mut Vec<Violation>) {
        let Some(newest) = publishes.newest(&self.fleet) else { return };
        let mut first = None;
        for (_, publish) in publishes.standing(&self.fleet, newest) {
            // The proxies of a fleet that is no more keep what they have.
            let Some(content) = &publish.content else { return };
            match self.difference(content) {
                None => return self.find_missing(newest, violations),
                Some(difference) => first = first.or(Some(difference)),
            }
        }
        violations.push(Violation::Behind {
            who: self.name.clone(),
            fleet: self.fleet.clone(),
            at: self.places.values().max().copied(),
            newest,
            difference: first,
        });
    }

    /// From which snapshot a response is.
    fn place<'a>(
        &self,
        response: &Response,
        publishes: &'a Publishes,
    ) -> Result<(Head, &'a Content), Box<Violation>> {
        let (who, fleet) = (self.name.clone(), self.fleet.clone());
        let head = match response.order {
            Order::Nonce(head) => head,
            Order::PublishLog => return self.search(response, publishes),
        };
        Err(Box::new(match publishes.get(&self.fleet, head) {
            None => Violation::Unheard { who, fleet, head },
            Some(publish) if publish.is_refused() => Violation::Refused { who, fleet, head },
            Some(publish) => match &publish.content {
                Some(content) => return Ok((head, content)),
                None => Violation::NotLive { who, fleet, head },
            },
        }))
    }

    /// The first snapshot, not older than the one before, that has all this. Taking the first leaves most room for what
    /// comes later, so an honest server is never accused.
    fn search<'a>(
        &self,
        response: &Response,
        publishes: &'a Publishes,
    ) -> Result<(Head, &'a Content), Box<Violation>> {
        let at = self.places.get(&response.kind).copied();
        let fits = |head: Head| {
            move |(found, publish): (Head, &'a Publish)| {
                let content = publish.content.as_deref().filter(|_| found >= head)?;
                self.differences(response, found, content, publishes)
                    .is_empty()
                    .then_some((found, content))
            }
        };
        let all = || publishes.standing(&self.fleet, Head::default());
        if let Some(found) = all().find_map(fits(at.unwrap_or_default())) {
            return Ok(found);
        }
        let (who, fleet, kind) = (self.name.clone(), self.fleet.clone(), response.kind);
        Err(Box::new(match (at, all().rev().find_map(fits(Head::default()))) {
            (Some(from), Some((to, _))) => {
                Violation::WentBack { who, fleet, what: kind.to_string(), from, to }
            }
            _ => Violation::Mixed { who, fleet, kind, at },
        }))
    }

    fn step(&mut self, kind: ResourceType, head: Head, violations: &mut Vec<Violation>) {
        let before = self.places.insert(kind, head);
        if let Some(from) = before.filter(|before| head < *before) {
            let (who, fleet) = (self.name.clone(), self.fleet.clone());
            let what = kind.to_string();
            violations.push(Violation::WentBack { who, fleet, what, from, to: head });
        }
    }

    /// Where a response is not what the snapshot says.
    fn differences(
        &self,
        response: &Response,
        head: Head,
        content: &Content,
        publishes: &Publishes,
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        let (who, fleet, kind) = (&self.name, &self.fleet, response.kind);
        for Sent { name, version, .. } in &response.resources {
            let resource = ResourceId::new(kind, name.clone());
            let published = content.0.get(&resource).copied();
            // A whole list also has what awaits its removal, and what was rejected since as it was before.
            let kept = response.whole
                && self.held.get(&resource).is_some_and(|held| held.version == *version);
            let outlives =
                || published.is_none() && self.outlives(&resource, *version, head, publishes);
            if published != Some(*version) && !kept && !outlives() {
                let (who, fleet, version) = (who.clone(), fleet.clone(), *version);
                found.push(Violation::Foreign { who, fleet, head, resource, version, published });
            }
        }
        let half = |resource: &ResourceId| {
            let (who, fleet, resource) = (who.clone(), fleet.clone(), resource.clone());
            Violation::Half { who, fleet, head, resource }
        };
        let removed = response.removed.iter().map(|name| ResourceId::new(kind, name.clone()));
        found.extend(removed.filter(|id| content.0.contains_key(id)).map(|id| half(&id)));
        if response.whole {
            let listed: BTreeSet<_> = response.resources.iter().map(|sent| &*sent.name).collect();
            let missing = content
                .of_kind(kind)
                .map(|(id, _)| id)
                .filter(|id| !listed.contains(&*id.name) && !self.rejected.contains(*id));
            found.extend(missing.map(half));
        }
        found
    }

    /// Whether something is gone from the snapshot, and the proxy needs it as it was before, for what it still has.
    fn outlives(
        &self,
        resource: &ResourceId,
        version: Version,
        head: Head,
        publishes: &Publishes,
    ) -> bool {
        let earlier = || publishes.standing(&self.fleet, Head::default());
        let had = |(at, publish): (Head, &Publish)| {
            let content = publish.content.as_deref().filter(|_| at < head);
            content.is_some_and(|content| content.0.get(resource) == Some(&version))
        };
        self.needed().contains(resource) && earlier().any(had)
    }

    /// Holds what an accepted response says from now on. Returns what is gone.
    fn apply(&mut self, response: &Response) -> Vec<ResourceId> {
        let kind = response.kind;
        let mut gone: Vec<_> =
            response.removed.iter().map(|name| ResourceId::new(kind, name.clone())).collect();
        if response.whole {
            let listed: BTreeSet<_> = response.resources.iter().map(|sent| &*sent.name).collect();
            let held = self.held.keys().filter(|id| id.kind == kind);
            gone.extend(held.filter(|id| !listed.contains(&*id.name)).cloned());
        }
        for Sent { name, version, references } in &response.resources {
            let held = Held { version: *version, references: references.clone() };
            let id = ResourceId::new(kind, name.clone());
            self.rejected.remove(&id);
            self.held.insert(id, held);
        }
        gone.retain(|id| self.held.remove(id).is_some());
        // What no cluster and no listener needs any more, a proxy drops by itself.
        let needed = self.needed();
        self.held.retain(|id, _| is_wildcard(id.kind) || needed.contains(id));
        gone
    }

    /// What a proxy has to have before it is sent something that refers to it. All else it asks for when it has the
    /// referrer.
    fn find_dangling(&self, response: &Response, head: Head, violations: &mut Vec<Violation>) {
        for sent in &response.resources {
            let clusters = sent.references.iter().filter(|id| id.kind == ResourceType::Cluster);
            let missing = clusters.filter(|id| self.lacks(id));
            let resource = ResourceId::new(response.kind, sent.name.clone());
            violations.extend(missing.map(|missing| self.dangling(head, &resource, missing)));
        }
    }

    fn find_broken(&self, removed: Vec<ResourceId>, head: Head, violations: &mut Vec<Violation>) {
        for removed in removed {
            let referrer = self.held.iter().find(|(_, held)| held.references.contains(&removed));
            if let Some((referrer, _)) = referrer {
                let (who, fleet, referrer) =
                    (self.name.clone(), self.fleet.clone(), referrer.clone());
                violations.push(Violation::Broken { who, fleet, head, removed, referrer });
            }
        }
    }

    /// At the end it has all that it needs.
    fn find_missing(&self, head: Head, violations: &mut Vec<Violation>) {
        for (resource, held) in &self.held {
            let missing = held.references.iter().filter(|id| self.lacks(id));
            violations.extend(missing.map(|missing| self.dangling(head, resource, missing)));
        }
    }

    /// Something that a proxy at this snapshot would hold, and this one does not, or the other way round.
    fn difference(&self, content: &Content) -> Option<ResourceId> {
        let needed = self.needed();
        let wanted = content.0.keys().filter(|id| is_wildcard(id.kind) || needed.contains(*id));
        let mut ids = wanted.chain(self.held.keys());
        let differs = |id: &&ResourceId| {
            let held = self.held.get(*id).map(|held| held.version);
            held != content.0.get(*id).copied() && !self.rejected.contains(*id)
        };
        ids.find(differs).cloned()
    }

    /// What the clusters and listeners that it holds ask for.
    fn needed(&self) -> BTreeSet<ResourceId> {
        let roots = self.held.iter().filter(|(id, _)| is_wildcard(id.kind));
        roots.flat_map(|(_, held)| held.references.iter().cloned()).collect()
    }

    fn dangling(&self, head: Head, resource: &ResourceId, missing: &ResourceId) -> Violation {
        Violation::Dangling {
            who: self.name.clone(),
            fleet: self.fleet.clone(),
            head,
            resource: resource.clone(),
            missing: missing.clone(),
        }
    }

    fn lacks(&self, id: &ResourceId) -> bool {
        !self.held.contains_key(id) && !self.rejected.contains(id)
    }
}

/// Whether a proxy asks for all resources of a type, and not by name.
fn is_wildcard(kind: ResourceType) -> bool {
    matches!(kind, ResourceType::Cluster | ResourceType::Listener)
}
