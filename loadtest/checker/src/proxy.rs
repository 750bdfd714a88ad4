use crate::event::{Order, ResourceId, Response};
use crate::held_resources::HeldResources;
use crate::history::FleetHistory;
use crate::publishes::Publishes;
use crate::rejections::Rejections;
use crate::violation::Violation;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A proxy, and what it holds as far as its responses and answers tell. A copy is cheap, so that a crowd can work out once
/// what happens to all that hold the same and are sent the same.
#[derive(Clone, Debug)]
pub struct Proxy {
    fleet: FleetName,
    held: HeldResources,
    rejected: Rejections,
    /// From which snapshot it was last sent something. By type: endpoints run ahead of what they belong to.
    heads: BTreeMap<ResourceType, Head>,
    /// The types of which this stream has had no whole list yet, while the proxy holds some from before.
    unknown: BTreeSet<ResourceType>,
}

/// A response with its context, for reporting violations.
struct Case<'a> {
    who: &'a Arc<str>,
    proxy: &'a Proxy,
    response: &'a Response,
}

impl Proxy {
    /// One that holds nothing yet.
    pub fn new(fleet: FleetName) -> Self {
        Self {
            fleet,
            held: HeldResources::default(),
            rejected: Rejections::default(),
            heads: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }

    /// It opens another stream, with all that it holds.
    pub fn reconnect(&mut self) {
        self.unknown = ResourceType::ALL.into_iter().collect();
        self.rejected.begin_stream();
    }

    /// It was sent a response, and has answered it. `who` is how it is called in what is found.
    pub fn receive(
        &mut self,
        who: &Arc<str>,
        response: &Response,
        publishes: &Publishes,
        violations: &mut Vec<Violation>,
    ) {
        let kind = response.kind;
        let case = Case { who, proxy: self, response };
        violations.extend(case.resent());
        let head = match case.find_head(publishes, violations) {
            Ok(found) => {
                violations.extend(found.and_then(|to| case.went_back(to)));
                found
            }
            Err(violation) => {
                violations.push(*violation);
                None
            }
        };
        self.heads.extend(head.map(|head| (kind, head)));
        let head = self.heads.get(&kind).copied();
        // In state of the world only the proxy knows what it holds from before, so the first list of a stream cannot
        // have in it what awaits its removal.
        let unknown = self.unknown.remove(&kind) && response.whole;
        if !response.accepted {
            return self.rejected.add(response);
        }
        let removed = self.apply(response);
        self.find_dangling(who, response, head, violations);
        if !unknown {
            self.find_broken(who, removed, head, violations);
        }
    }

    /// It has all of the newest snapshot that it asks for: all clusters and listeners, and what these need.
    pub fn end(&self, who: &Arc<str>, publishes: &Publishes, violations: &mut Vec<Violation>) {
        let history = publishes.get(&self.fleet);
        let Some((history, newest)) = history.and_then(|it| Some((it, it.newest()?))) else {
            return self.find_missing(who, None, violations);
        };
        let head = history.head(newest);
        let mut first = None;
        for at in newest..history.len() {
            // The proxies of a fleet that is no more keep what they have.
            if !history.is_live(at) {
                return;
            }
            match self.difference(history, at) {
                None => return self.find_missing(who, Some(head), violations),
                Some(difference) => first = first.or(Some(difference)),
            }
        }
        violations.push(Violation::Behind {
            who: who.clone(),
            fleet: self.fleet.clone(),
            at: self.heads.values().max().copied(),
            newest: head,
            difference: first,
        });
    }

    /// Proxies that hold the same have the same digest.
    pub fn digest(&self, hasher: &mut impl Hasher) {
        let Self { fleet, held, rejected, heads, unknown } = self;
        (fleet, heads, unknown).hash(hasher);
        rejected.digest(hasher);
        held.digest(hasher);
    }

    /// Holds what an accepted response says from now on. Returns what is gone.
    fn apply(&mut self, response: &Response) -> Vec<ResourceId> {
        let kind = response.kind;
        let id = |name: &Arc<str>| ResourceId::new(kind, name.clone());
        let mut gone: Vec<_> = response.removed.iter().map(id).collect();
        if response.whole {
            let listed = names(response);
            let held = self.held.of_kind(kind).map(|(name, _)| name);
            gone.extend(held.filter(|name| !listed.contains(&***name)).map(id));
        }
        for sent in &response.resources {
            self.rejected.forget(&id(&sent.name));
            self.rejected.allow(&sent.references);
            self.held.set(kind, sent);
        }
        gone.retain(|id| self.held.remove(id));
        gone
    }

    /// Finds references to resources that a proxy must have before the referrer. It asks for all others after it has the
    /// referrer.
    fn find_dangling(
        &self,
        who: &Arc<str>,
        response: &Response,
        head: Option<Head>,
        violations: &mut Vec<Violation>,
    ) {
        for sent in &response.resources {
            let clusters = sent.references.iter().filter(|id| id.kind == ResourceType::Cluster);
            let missing = clusters.filter(|id| self.lacks(id));
            let resource = ResourceId::new(response.kind, sent.name.clone());
            violations.extend(missing.map(|missing| self.dangling(who, head, &resource, missing)));
        }
    }

    fn find_broken(
        &self,
        who: &Arc<str>,
        removed: Vec<ResourceId>,
        head: Option<Head>,
        violations: &mut Vec<Violation>,
    ) {
        for removed in removed.into_iter().filter(|id| self.held.is_referred_to(id)) {
            let Some(referrer) = self.held.referrer(&removed) else { continue };
            let (who, fleet) = (who.clone(), self.fleet.clone());
            violations.push(Violation::Broken { who, fleet, head, removed, referrer });
        }
    }

    /// At the end it has all that it needs.
    fn find_missing(&self, who: &Arc<str>, head: Option<Head>, violations: &mut Vec<Violation>) {
        let pairs = self.held.iter().flat_map(|(resource, held)| {
            let missing = held.references.iter().filter(|id| self.lacks(id));
            missing.map(move |missing| (resource.clone(), missing))
        });
        let missing: BTreeSet<_> = pairs.collect();
        let missing = missing.into_iter();
        violations.extend(
            missing.map(|(resource, missing)| self.dangling(who, head, &resource, missing)),
        );
    }

    /// Something that a proxy at this snapshot would hold, and this one does not, or the other way round.
    fn difference(&self, history: &FleetHistory, at: usize) -> Option<ResourceId> {
        ResourceType::ALL.into_iter().find_map(|kind| {
            let id = |name: &Arc<str>| ResourceId::new(kind, name.clone());
            let published = history.resources(kind, at).map(|(name, _)| id(name));
            let wanted =
                published.filter(|id| kind.is_asked_whole() || self.held.is_referred_to(id));
            let ids = wanted.chain(self.held.of_kind(kind).map(|(name, _)| id(name)));
            let differs = |id: &ResourceId| {
                let held = self.held.get(id).map(|held| held.version);
                held != history.version(kind, &id.name, at) && !self.rejected.contains(id)
            };
            ids.filter(differs).min()
        })
    }

    fn dangling(
        &self,
        who: &Arc<str>,
        head: Option<Head>,
        resource: &ResourceId,
        missing: &ResourceId,
    ) -> Violation {
        Violation::Dangling {
            who: who.clone(),
            fleet: self.fleet.clone(),
            head,
            resource: resource.clone(),
            missing: missing.clone(),
        }
    }

    fn lacks(&self, id: &ResourceId) -> bool {
        !self.held.contains(id) && !self.rejected.contains(id)
    }
}

impl Case<'_> {
    fn resent(&self) -> Option<Violation> {
        let (resource, version) = self.proxy.rejected.resent(self.response)?;
        let (who, fleet) = (self.who.clone(), self.proxy.fleet.clone());
        Some(Violation::Resent { who, fleet, resource, version })
    }

    fn went_back(&self, to: Head) -> Option<Violation> {
        let from = self.proxy.heads.get(&self.response.kind).copied();
        let from = from.filter(|from| to < *from)?;
        Some(self.back(from, to))
    }

    /// From which snapshot a response is, if that can be known. Where it is not what that says goes to `violations`.
    fn find_head(
        &self,
        publishes: &Publishes,
        violations: &mut Vec<Violation>,
    ) -> Result<Option<Head>, Box<Violation>> {
        let (who, fleet, kind) = (self.who.clone(), self.proxy.fleet.clone(), self.response.kind);
        let history = publishes.get(&fleet);
        match (self.response.order, history) {
            (Order::Observed(head), _) => Ok(head),
            (Order::Nonce(head), None) => {
                Err(Box::new(Violation::NeverPublished { who, fleet, head }))
            }
            (Order::Nonce(head), Some(history)) => match history.position(head) {
                Some(at) if history.is_live(at) => {
                    violations.extend(self.differences(history, at));
                    Ok(Some(history.head(history.turn(kind, at))))
                }
                Some(_) => Err(Box::new(Violation::NotLive { who, fleet, head })),
                None if history.is_refused(head) => {
                    Err(Box::new(Violation::Refused { who, fleet, head }))
                }
                None => Err(Box::new(Violation::NeverPublished { who, fleet, head })),
            },
            (Order::PublishLog, None) => Err(Box::new(self.mixed(None))),
            (Order::PublishLog, Some(history)) => self.search(history).map(Some),
        }
    }

    /// The first snapshot, not older than the one before, that has all this. Taking the first leaves most room for what
    /// comes later, so an honest server is never accused.
    fn search(&self, history: &FleetHistory) -> Result<Head, Box<Violation>> {
        let kind = self.response.kind;
        let last = self.proxy.heads.get(&kind).copied();
        let from = last.and_then(|head| history.position(head)).unwrap_or_default();
        if let Some(at) = self.first_fit(history, from) {
            return Ok(history.head(history.turn(kind, at)));
        }
        Err(Box::new(match (last, self.first_fit(history, 0)) {
            (Some(from), Some(to)) => self.back(from, history.head(to)),
            _ => self.mixed(last),
        }))
    }

    /// Each resource tells from where on it fits; the first position that all agree on is found by going on to the next of
    /// each in turn.
    fn first_fit(&self, history: &FleetHistory, from: usize) -> Option<usize> {
        let Response { kind, resources, removed, whole, .. } = self.response;
        let listed = if *whole { names(self.response) } else { BTreeSet::new() };
        let mut at = from;
        loop {
            let before = at;
            for sent in resources {
                let id = ResourceId::new(*kind, sent.name.clone());
                if self.is_kept(&id, sent.version) {
                    continue;
                }
                let timeline = history.timeline(*kind, &sent.name)?;
                let outlives = self.may_outlive(&id);
                at = timeline.next(at, |at, published| match published {
                    Some(version) => version == sent.version,
                    None => outlives && timeline.had(sent.version, at),
                })?;
            }
            let mut absent: Vec<_> =
                removed.iter().filter_map(|name| history.timeline(*kind, name)).collect();
            if *whole {
                let unlisted = history.timelines(*kind).filter(|(name, _)| {
                    let id = ResourceId::new(*kind, (*name).clone());
                    !listed.contains(&***name) && !self.proxy.rejected.contains(&id)
                });
                absent.extend(unlisted.map(|(_, timeline)| timeline));
            }
            for timeline in absent {
                at = timeline.next(at, |_, published| published.is_none())?;
            }
            while at < history.len() && !history.is_live(at) {
                at += 1;
            }
            if at >= history.len() {
                return None;
            }
            if at == before {
                return Some(at);
            }
        }
    }

    /// Where a response is not what the snapshot says.
    fn differences(&self, history: &FleetHistory, at: usize) -> Vec<Violation> {
        let Response { kind, resources, removed, whole, .. } = self.response;
        let (kind, head) = (*kind, history.head(at));
        let mut found = Vec::new();
        for sent in resources {
            let resource = ResourceId::new(kind, sent.name.clone());
            let timeline = history.timeline(kind, &sent.name);
            let published = timeline.and_then(|it| it.version(at));
            let outlives = || {
                let had = timeline.is_some_and(|it| it.had(sent.version, at));
                published.is_none() && had && self.may_outlive(&resource)
            };
            let is_kept = || self.is_kept(&resource, sent.version);
            if published != Some(sent.version) && !is_kept() && !outlives() {
                let (who, fleet) = (self.who.clone(), self.proxy.fleet.clone());
                let version = sent.version;
                found.push(Violation::Foreign { who, fleet, head, resource, version, published });
            }
        }
        let half = |resource: ResourceId| {
            let (who, fleet) = (self.who.clone(), self.proxy.fleet.clone());
            Violation::Half { who, fleet, head, resource }
        };
        let there = removed.iter().filter(|name| history.version(kind, name, at).is_some());
        found.extend(there.map(|name| half(ResourceId::new(kind, name.clone()))));
        if *whole {
            let listed = names(self.response);
            let unlisted = history.resources(kind, at).map(|(name, _)| name);
            let unlisted = unlisted
                .filter(|name| !listed.contains(&***name))
                .map(|name| ResourceId::new(kind, name.clone()));
            found.extend(unlisted.filter(|id| !self.proxy.rejected.contains(id)).map(half));
        }
        found
    }

    /// A whole list also has what awaits its removal, and what was rejected since as it was before.
    fn is_kept(&self, id: &ResourceId, version: Version) -> bool {
        let held = || self.proxy.held.get(id).is_some_and(|held| held.version == version);
        self.response.whole && held()
    }

    /// Whether the proxy needs something that it asked for by name, for what it still has, though the snapshot does not
    /// have it any more.
    fn may_outlive(&self, id: &ResourceId) -> bool {
        !id.kind.is_asked_whole() && self.proxy.held.is_referred_to(id)
    }

    fn back(&self, from: Head, to: Head) -> Violation {
        let (who, fleet) = (self.who.clone(), self.proxy.fleet.clone());
        Violation::WentBack { who, fleet, what: self.response.kind.to_string(), from, to }
    }

    fn mixed(&self, at: Option<Head>) -> Violation {
        let (who, fleet) = (self.who.clone(), self.proxy.fleet.clone());
        Violation::Mixed { who, fleet, kind: self.response.kind, at }
    }
}

fn names(response: &Response) -> BTreeSet<&str> {
    response.resources.iter().map(|sent| &*sent.name).collect()
}
