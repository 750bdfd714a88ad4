//! Random views and a random client that behaves as Envoy does, with the promises that must hold throughout.

use crate::plan::{Plan, SERVED, is_bad, kind_of, plan, refers};
use crate::stream::*;
use heliograph_distributor_protocol::{ANSWER_TIMEOUT, Protocol, Reply, View, WARMING_TIMEOUT};
use heliograph_snapshot::{Resource, ResourceType};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Act {
    Publish(Plan),
    /// The client answers the reply it has waited with longest.
    Answer,
    Reconnect,
    /// The client says nothing for long.
    KeepSilent,
    /// A request with a nonce of long ago.
    Stale(u8),
    AskAgain(u8),
}

struct Client {
    stream: Stream,
    /// As Envoy does with clusters and listeners: takes the good ones of a reply and names the others in its error.
    /// Or it takes all or nothing.
    names_culprits: bool,
    /// Whether it asked for listeners. Envoy does once its clusters have endpoints; others ask at once.
    listening: bool,
    reconnected: bool,
    /// Its silence was taken for consent on this stream, and nothing is promised about the order from then on.
    freed: bool,
    inbox: VecDeque<Reply>,
    held: BTreeMap<ResourceType, BTreeMap<String, Arc<Resource>>>,
    subscribed: BTreeMap<ResourceType, BTreeSet<String>>,
    /// What this client refused on this stream and at which view, until it takes something else of that name.
    rejected: BTreeMap<(ResourceType, String, String), u64>,
    /// All that it ever refused on this stream: a skipped view may have hidden that the name was gone meanwhile.
    refused: BTreeSet<(ResourceType, String, String)>,
    /// Clusters that were in a refused reply: routes to them may lead nowhere.
    doubtful: BTreeSet<String>,
    /// What it held when it came back, and the server had never heard of.
    strangers: BTreeSet<(ResourceType, String)>,
    views: BTreeMap<u64, Arc<View>>,
    plans: BTreeMap<u64, Plan>,
    newest: BTreeMap<ResourceType, u64>,
    /// After a reconnect in state of the world the server knows only a version. It cannot hold removals back, nor
    /// see that the client dropped a resource and asked for it again while a reply was under way.
    lenient: bool,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => plan().prop_map(Act::Publish),
        8 => Just(Act::Answer),
        1 => Just(Act::Reconnect),
        1 => Just(Act::KeepSilent),
        1 => (0..5u8).prop_map(Act::Stale),
        1 => (0..3u8).prop_map(Act::AskAgain),
    ]
}

fn key(kind: ResourceType, resource: &Resource) -> (ResourceType, String, String) {
    (kind, resource.name.to_string(), resource.version.to_string())
}

fn sequence(reply: &Reply) -> u64 {
    reply.nonce.split(['.', '-']).nth(2).unwrap().parse().unwrap()
}

impl Client {
    fn new(protocol: Protocol, names_culprits: bool, listening: bool, first: Plan) -> Self {
        let view = first.view(1);
        let mut client = Self {
            stream: Stream::new(protocol, view.clone()),
            names_culprits,
            listening,
            reconnected: false,
            freed: false,
            inbox: VecDeque::new(),
            held: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            rejected: BTreeMap::new(),
            refused: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            strangers: BTreeSet::new(),
            views: [(1, view)].into(),
            plans: [(1, first)].into(),
            newest: BTreeMap::new(),
            lenient: false,
        };
        client.connect();
        client
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Publish(plan) => {
                let sequence = self.views.len() as u64 + 1;
                let view = plan.view(sequence);
                let replies = self.stream.view(&view);
                self.views.insert(sequence, view);
                self.plans.insert(sequence, plan.clone());
                self.receive(replies);
            }
            Act::Answer => self.answer(),
            Act::Reconnect => self.reconnect(),
            // Twice, and the server no longer knows what the first time left behind.
            Act::KeepSilent if self.freed => {}
            Act::KeepSilent => {
                self.freed = !self.inbox.is_empty();
                let replies = self.stream.wait(WARMING_TIMEOUT);
                self.receive(replies);
            }
            Act::Stale(kind) => {
                let kind = SERVED[usize::from(*kind)];
                if kind == Listener && !self.listening {
                    return;
                }
                let subscription_request = self.stream.subscription_request(kind, &[], &[]);
                let replies =
                    self.stream.request(kind, "0.1.0-0", Some("long ago"), subscription_request);
                self.receive(replies);
            }
            Act::AskAgain(n) => {
                let name = format!("c{n}");
                if self
                    .subscribed
                    .get(&Endpoints)
                    .is_some_and(|subscribed| subscribed.contains(&name))
                {
                    let replies = self.stream.ask(Endpoints, &[&name]);
                    self.receive(replies);
                }
            }
        }
    }

    fn connect(&mut self) {
        let replies = self.stream.ask(Cluster, &[]);
        self.receive(replies);
        if self.listening {
            self.listen();
        }
    }

    fn listen(&mut self) {
        self.listening = true;
        let replies = self.stream.ask(Listener, &[]);
        self.receive(replies);
    }

    fn reconnect(&mut self) {
        self.reconnected = true;
        self.freed = false;
        self.inbox.clear();
        self.rejected.clear();
        self.refused.clear();
        self.newest.clear();
        self.lenient |= self.stream.protocol == StateOfTheWorld;
        let view = self.views.values().next_back().unwrap().clone();
        for (kind, held) in &self.held {
            let held = held.iter().filter(|(name, it)| !view.has(*kind, name, Some(it.version)));
            self.strangers.extend(held.map(|(name, _)| (*kind, name.clone())));
        }
        let versions = self.stream.accepted_versions();
        self.stream = Stream::new(self.stream.protocol, view);
        for kind in SERVED {
            let subscribed: Vec<_> =
                self.subscribed.get(&kind).into_iter().flatten().map(String::as_str).collect();
            let held = self.held.get(&kind).into_iter().flatten();
            let held: Vec<_> =
                held.map(|(name, resource)| (name.as_str(), resource.version.as_str())).collect();
            let whole = kind == Cluster || (kind == Listener && self.listening);
            if whole || !subscribed.is_empty() {
                let version = versions.get(&kind).map_or("", String::as_str);
                let replies = self.stream.resume(kind, &subscribed, &held, version);
                self.receive(replies);
            }
        }
    }

    /// Promises about what is sent.
    fn receive(&mut self, replies: Vec<Reply>) {
        for reply in replies {
            let newest = self.newest.entry(reply.kind).or_default();
            assert!(sequence(&reply) >= *newest, "{reply:?} goes back behind {newest}");
            *newest = sequence(&reply);
            let names: BTreeSet<_> = names(&reply).into_iter().collect();
            assert_eq!(names.len(), reply.resources.len(), "a name twice in {reply:?}");
            let alone = matches!(reply.kind, Route | Secret);
            assert!(!alone || names.len() <= 1, "several in {reply:?}");
            for resource in &reply.resources {
                assert!(!self.is_rejected(&reply, resource), "{reply:?} was rejected");
                assert!(!self.goes_back(&reply, resource), "{reply:?} takes the newest away");
            }
            let alone = self.inbox.iter().all(|earlier| earlier.kind != reply.kind);
            assert!(alone || self.freed, "two in flight");
            self.inbox.push_back(reply);
        }
    }

    fn answer(&mut self) {
        let Some(reply) = self.inbox.pop_front() else { return };
        let culprits: Vec<_> =
            reply.resources.iter().filter(|resource| is_bad(resource)).cloned().collect();
        let before = self.held.get(&reply.kind).cloned().unwrap_or_default();
        // A whole list repeats what the client holds, which it does not reject.
        let whole =
            self.stream.protocol == StateOfTheWorld && matches!(reply.kind, Cluster | Listener);
        let is_new = |resource: &Resource| {
            !whole
                || before.get(&*resource.name).is_none_or(|held| held.version != resource.version)
        };
        let replies = if culprits.is_empty() {
            self.apply(&reply, |_| true);
            self.stream.ack(&reply)
        } else if self.names_culprits {
            self.apply(&reply, |resource| !is_bad(resource));
            self.reject(&reply, culprits.iter());
            self.refuse(&reply, culprits.iter());
            let names: Vec<_> = culprits.iter().map(|resource| &*resource.name).collect();
            self.stream.nack(&reply, &format!("Error adding/updating {}: no", names.join(", ")))
        } else {
            let new: Vec<_> =
                reply.resources.iter().filter(|resource| is_new(resource)).cloned().collect();
            let gone =
                before.keys().filter(|name| whole && !names(&reply).contains(&name.as_str()));
            // Among others, it is not known yet which one is to blame, and all may be sent again.
            let count = new.len() + reply.removed.len() + gone.count();
            // To a server that presumed something, more may have been in it.
            let alone = count == 1 && !self.freed;
            self.reject(&reply, new.iter().filter(|_| alone));
            if self.freed {
                self.rejected.retain(|(kind, name, _), _| {
                    *kind != reply.kind || new.iter().all(|it| *it.name != **name)
                });
            }
            // It may hold what the server does not know of, so that nothing can be left out to find the culprit; or a whole
            // list has what the server presumed that it holds.
            let unsolved = (self.lenient || self.freed) && whole;
            self.refuse(&reply, new.iter().filter(|resource| unsolved || is_bad(resource)));
            self.stream.nack(&reply, "something is wrong with it")
        };
        self.receive(replies);
        self.check(&reply, &before);
        self.follow();
    }

    /// They are not held at the end.
    fn refuse<'a>(&mut self, reply: &Reply, resources: impl Iterator<Item = &'a Arc<Resource>>) {
        for resource in resources {
            if reply.kind == Cluster {
                self.doubtful.insert(resource.name.to_string());
            }
            self.refused.insert(key(reply.kind, resource));
        }
    }

    /// They are not to come again.
    fn reject<'a>(&mut self, reply: &Reply, resources: impl Iterator<Item = &'a Arc<Resource>>) {
        for resource in resources {
            let refused = key(reply.kind, resource);
            // One rejection of a name is remembered: the last.
            self.rejected.retain(|(kind, name, _), _| (kind, name) != (&refused.0, &refused.1));
            self.rejected.insert(refused, sequence(reply));
        }
    }

    fn apply(&mut self, reply: &Reply, takes: impl Fn(&Resource) -> bool) {
        let held = self.held.entry(reply.kind).or_default();
        let whole = matches!(reply.kind, Cluster | Listener);
        if self.stream.protocol == StateOfTheWorld && whole {
            held.retain(|name, _| names(reply).contains(&name.as_str()));
        }
        // "The client will silently ignore any supplied resources that were not explicitly requested."
        let subscribed = self.subscribed.get(&reply.kind);
        let subscribed = |resource: &Resource| {
            whole || subscribed.is_some_and(|subscribed| subscribed.contains(&*resource.name))
        };
        for resource in
            reply.resources.iter().filter(|resource| takes(resource) && subscribed(resource))
        {
            held.insert(resource.name.to_string(), resource.clone());
            self.rejected
                .retain(|(kind, name, _), _| (*kind, &**name) != (reply.kind, &*resource.name));
        }
        for name in &reply.removed {
            held.remove(&**name);
        }
    }

    /// Asks for what the new clusters and listeners need, as Envoy does, and drops what no one needs.
    fn follow(&mut self) {
        let clusters =
            self.held.get(&Cluster).into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let listeners = self.held.get(&Listener).into_iter().flatten();
        let referred: BTreeSet<_> = listeners.flat_map(|(_, it)| refers(it)).collect();
        let (routes, extension_configs) =
            referred.into_iter().partition(|name| kind_of(name) == Route);
        for (kind, needed) in
            [(Endpoints, clusters), (ExtensionConfig, extension_configs), (Route, routes)]
        {
            let needed: BTreeSet<String> = needed;
            let subscribed = self.subscribed.insert(kind, needed.clone()).unwrap_or_default();
            let more: Vec<_> = needed.difference(&subscribed).map(String::as_str).collect();
            let fewer: Vec<_> = subscribed.difference(&needed).map(String::as_str).collect();
            if !fewer.is_empty() {
                let held = self.held.entry(kind).or_default();
                held.retain(|name, _| !fewer.contains(&name.as_str()));
                self.rejected
                    .retain(|(of, name, _), _| *of != kind || !fewer.contains(&name.as_str()));
                let replies = self.stream.unask(kind, &fewer);
                self.receive(replies);
            }
            if !more.is_empty() {
                self.rejected
                    .retain(|(of, name, _), _| *of != kind || !more.contains(&name.as_str()));
                let replies = self.stream.ask(kind, &more);
                self.receive(replies);
            }
        }
        let endpoints = self.held.get(&Endpoints);
        let warm = |cluster| endpoints.is_some_and(|held| held.contains_key(cluster));
        if !self.listening && self.subscribed.get(&Endpoints).into_iter().flatten().all(warm) {
            self.listen();
        }
    }

    /// Promises about what the client holds after a reply.
    fn check(&self, reply: &Reply, before: &BTreeMap<String, Arc<Resource>>) {
        if self.lenient || self.freed {
            return;
        }
        let holds =
            |kind, name: &str| self.held.get(&kind).is_some_and(|held| held.contains_key(name));
        let referrers = [ExtensionConfig, Route].map(|kind| self.held.get(&kind));
        for (name, referrer) in referrers.into_iter().flatten().flatten() {
            for cluster in refers(referrer) {
                assert!(
                    holds(Cluster, &cluster) || self.doubtful.contains(&cluster),
                    "{name} points at {cluster}, which is not there after {reply:?}"
                );
            }
        }
        if matches!(reply.kind, ExtensionConfig | Route) {
            // Endpoints that appear later than their cluster are another matter: nothing tells that a client which
            // did not ask for them yet is about to.
            let always_has_endpoints = |cluster: &str| {
                let mut plans = self.plans.range(..=&sequence(reply));
                plans.all(|(_, plan)| !plan.has(Cluster, cluster) || plan.has(Endpoints, cluster))
            };
            for cluster in reply.resources.iter().flat_map(|referrer| refers(referrer)) {
                assert!(
                    !always_has_endpoints(&cluster)
                        || holds(Endpoints, &cluster)
                        || self.doubtful.contains(&cluster),
                    "{reply:?} came before the endpoints of {cluster}"
                );
            }
        }
        // A name that it never held may be denied; one that it holds must not be taken while something needs it.
        for removed in reply.removed.iter().filter(|name| before.contains_key(&***name)) {
            for (name, listener) in self.held.get(&Listener).into_iter().flatten() {
                let broken = kind_of(removed) == reply.kind
                    && refers(listener).contains(&removed.to_string());
                assert!(!broken, "{name} points at {removed}, gone with {reply:?}");
            }
        }
    }

    /// Whether it was refused and has been there ever since. The session keeps no memory of a name that is gone.
    fn is_rejected(&self, reply: &Reply, resource: &Resource) -> bool {
        let key = (reply.kind, resource.name.to_string(), resource.version.to_string());
        let whole = matches!(reply.kind, Cluster | Listener);
        self.rejected.get(&key).is_some_and(|since| {
            if self.lenient && whole && sequence(reply) > *since {
                // There is news, and to leave this out of the list might remove what the client holds.
                return false;
            }
            let mut plans = self.plans.range(since..=&sequence(reply));
            plans.all(|(_, plan)| plan.has(reply.kind, &resource.name))
        })
    }

    /// Whether this is in the place of something newer that the client holds.
    fn goes_back(&self, reply: &Reply, resource: &Resource) -> bool {
        let held = self.held.get(&reply.kind).and_then(|held| held.get(&*resource.name));
        let is_known = !self.strangers.contains(&(reply.kind, resource.name.to_string()))
            && !self.lenient
            && !self.freed;
        let Some(held) = held.filter(|_| is_known) else { return false };
        self.is_held_back(&self.plans[&sequence(reply)], reply.kind, held)
            && held.version != resource.version
    }

    fn is_held_back(&self, plan: &Plan, kind: ResourceType, resource: &Resource) -> bool {
        plan.substitute().is_some_and(|it| {
            (it.kind, &it.rejected.name) == (kind, &resource.name)
                && it.rejected.version == resource.version
        })
    }

    /// Answers until nothing comes, then holds the client against the newest view.
    fn finish(&mut self) {
        for _ in 0..20 {
            while !self.inbox.is_empty() {
                self.answer();
            }
            // Envoy waits for endpoints that there are none of until its own clock runs out.
            if !self.listening {
                self.listen();
                continue;
            }
            // A client that answers everything is never made to wait for the clock.
            if !self.reconnected && self.refused.is_empty() {
                assert_eq!(self.stream.session.wake_at(), None);
            }
            let replies = self.stream.wait(ANSWER_TIMEOUT);
            self.receive(replies);
        }
        assert!(self.inbox.is_empty(), "there is no end");
        let plan = self.plans.values().next_back().unwrap();
        let wanted = plan.resources();
        // The version of a client that took parts of a rejected reply does not tell of them.
        let untold = self.lenient && self.names_culprits;
        for ((kind, name), resource) in &wanted {
            let whole = matches!(kind, Cluster | Listener);
            let subscribed =
                self.subscribed.get(kind).is_some_and(|subscribed| subscribed.contains(name));
            if untold || (!whole && (!subscribed || self.lenient)) {
                continue;
            }
            let refused = (*kind, name.clone(), resource.version.to_string());
            let held = self.held.get(kind).and_then(|held| held.get(name));
            assert!(
                held.map(|held| held.version) == Some(resource.version)
                    || held.is_some_and(|held| self.is_held_back(plan, *kind, held))
                    || self.refused.contains(&refused),
                "{kind} {name} is {held:?}, not {resource:?}"
            );
        }
        if self.refused.is_empty() && plan.substitute().is_none() {
            for kind in [Cluster, Listener].into_iter().filter(|_| !untold) {
                for name in self.held.get(&kind).into_iter().flatten().map(|(name, _)| name) {
                    assert!(
                        wanted.contains_key(&(kind, name.clone())),
                        "{kind} {name} was not removed"
                    );
                }
            }
            let head = self.views.values().next_back().unwrap().head();
            assert_eq!(self.stream.session.acknowledged(), Some(head));
        }
        assert_eq!(self.stream.session.wake_at(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_client_is_always_served_well(
        whole in any::<bool>(),
        names_culprits in any::<bool>(),
        listening in any::<bool>(),
        first in plan(),
        acts in prop::collection::vec(act(), 0..60),
    ) {
        let protocol = if whole { StateOfTheWorld } else { Delta };
        let mut client = Client::new(protocol, names_culprits, listening, first);
        for act in &acts {
            client.act(act);
        }
        client.finish();
    }
}
