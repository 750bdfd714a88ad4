//! Which resource of a rejected reply is to blame, and what becomes of the others.

use crate::stream::*;
use heliograph_distributor_protocol::{Event, Protocol, Reply};
use heliograph_snapshot::ResourceType;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Takes a reply whole or not at all, and never says why.
struct Mute {
    stream: Stream,
    held: BTreeMap<String, String>,
    inbox: VecDeque<Reply>,
    /// What it rejected alone, and so must not be sent again.
    blamed: BTreeSet<String>,
    rejections: usize,
}

fn is_bad(body: &str) -> bool {
    body.starts_with("bad")
}

impl Mute {
    fn new(protocol: Protocol, resources: &[(ResourceType, &str, &str)]) -> Self {
        let stream = Stream::new(protocol, view(1, resources));
        let (held, inbox, blamed) = (BTreeMap::new(), VecDeque::new(), BTreeSet::new());
        Self { stream, held, inbox, blamed, rejections: 0 }
    }

    /// Answers until nothing comes.
    fn answer(&mut self, replies: Vec<Reply>) {
        self.inbox.extend(replies);
        while let Some(reply) = self.inbox.pop_front() {
            let content: BTreeMap<_, _> = content(&reply).into_iter().collect();
            let new: Vec<_> = content
                .iter()
                .filter(|(name, body)| self.held.get(**name).is_none_or(|held| held != **body))
                .collect();
            for (name, body) in &new {
                assert!(!self.blamed.contains(&format!("{name} {body}")), "{name} comes again");
            }
            let replies = if new.iter().any(|(_, body)| is_bad(body)) {
                self.rejections += 1;
                if let [(name, body)] = &new[..] {
                    self.blamed.insert(format!("{name} {body}"));
                }
                self.stream.nack(&reply, "it cannot be read")
            } else {
                let whole = self.stream.protocol == StateOfTheWorld
                    && matches!(reply.kind, Cluster | Listener);
                assert!(!whole || self.held.keys().all(|name| content.contains_key(&**name)));
                self.held.extend(content.iter().map(|(n, b)| (n.to_string(), b.to_string())));
                self.stream.ack(&reply)
            };
            self.inbox.extend(replies);
        }
    }

    fn rejections(&self) -> Vec<String> {
        let client_state = self.stream.session.client_state();
        client_state.rejections().iter().map(|(_, resource)| resource.name.to_string()).collect()
    }
}

/// `n` resources, of which some are bad.
fn resources<'a>(
    kind: ResourceType,
    names: &'a [String],
    bodies: &'a [String],
) -> Vec<(ResourceType, &'a str, &'a str)> {
    names.iter().zip(bodies).map(|(name, body)| (kind, name.as_str(), body.as_str())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn row_5_culprits_without_a_name_are_found_and_the_others_flow(
        whole in any::<bool>(),
        by_name in any::<bool>(),
        count in 2..60usize,
        bad in prop::collection::btree_set(0..60usize, 1..4),
        had_before in any::<bool>(),
    ) {
        let protocol = if whole { StateOfTheWorld } else { Delta };
        let kind = if by_name { Endpoints } else { Cluster };
        let names: Vec<_> = (0..count).map(|n| format!("r{n:02}")).collect();
        let old = vec!["old".to_owned(); count];
        let bodies: Vec<_> =
            (0..count).map(|n| if bad.contains(&n) { "bad" } else { "good" }.to_owned()).collect();
        let culprits: Vec<_> = (0..count).filter(|n| bad.contains(n)).map(|n| names[n].clone()).collect();
        let asked: Vec<_> = names.iter().map(String::as_str).filter(|_| by_name).collect();
        let new = resources(kind, &names, &bodies);

        let before = if had_before { resources(kind, &names, &old) } else { new.clone() };
        let mut client = Mute::new(protocol, &before);
        let first = client.stream.ask(kind, &asked);
        client.answer(first);
        if had_before {
            let replies = client.stream.view(&view(2, &new));
            client.answer(replies);
        }
        prop_assert_eq!(client.rejections(), culprits.clone());
        for (name, body) in names.iter().zip(&bodies) {
            let kept = had_before.then_some("old");
            let expected = if is_bad(body) { kept } else { Some("good") };
            prop_assert_eq!(client.held.get(name).map(String::as_str), expected);
        }
        // Each culprit takes its way down the halves.
        let depth = count.ilog2() as usize + 2;
        prop_assert!(client.rejections <= depth * culprits.len().max(1), "{}", client.rejections);

        // All is well again with the next version.
        let mended: Vec<_> = bodies.iter().map(|body| body.replace("bad", "mended")).collect();
        let replies = client.stream.view(&view(3, &resources(kind, &names, &mended)));
        client.answer(replies);
        prop_assert_eq!(client.rejections(), Vec::<String>::new());
        prop_assert_eq!(client.stream.session.acknowledged(), Some(view(3, &[]).head()));
    }
}

#[test]
fn who_rejects_everything_is_not_asked_for_ever() {
    let names: Vec<_> = (0..1000).map(|n| format!("r{n:04}")).collect();
    let bodies = vec!["bad".to_owned(); names.len()];
    for protocol in BOTH {
        let mut client = Mute::new(protocol, &resources(Cluster, &names, &bodies));
        let first = client.stream.ask(Cluster, &[]);
        client.answer(first);
        // So many parts, what was alone in them, and what was left.
        assert!(client.rejections < 2 * 64 + 10, "{}", client.rejections);
        assert!(client.held.is_empty());
        assert_eq!(client.stream.wait(std::time::Duration::from_secs(60)), none());
        let Some(Event::Rejected(rejection)) = client.stream.events.last() else { panic!() };
        assert!(!rejection.attributed);
    }
}

#[test]
fn news_does_not_wait_for_a_search() {
    let known: Vec<_> = (0..8).map(|n| format!("r{n}")).collect();
    let mut bodies = vec!["good".to_owned(); 8];
    bodies[7] = "bad".to_owned();
    for protocol in BOTH {
        let asked: Vec<_> = known.iter().map(String::as_str).collect();
        let mut stream = Stream::new(protocol, view(1, &resources(Endpoints, &known, &bodies)));
        let all = one(stream.ask(Endpoints, &asked));
        let half = one(stream.nack(&all, "no"));
        assert_eq!(half.resources.len(), 4);
        let mut newer = resources(Endpoints, &known, &bodies);
        newer[0].2 = "newer";
        // One of the half that is under way has changed: it is no suspect any more.
        assert_eq!(stream.view(&view(2, &newer)), none());
        let next = one(stream.ack(&half));
        assert_eq!(content(&next), [("r0", "newer")]);
        let rest = one(stream.ack(&next));
        assert_eq!(names(&rest), ["r4", "r5", "r6", "r7"]);
    }
}

#[test]
fn names_are_whole_words() {
    for protocol in BOTH {
        let all = [(Cluster, "web", "1"), (Cluster, "web:80", "1"), (Cluster, "default/web", "1")];
        let mut stream = Stream::new(protocol, view(1, &all));
        let reply = one(stream.ask(Cluster, &[]));
        let rest = one(stream.nack(&reply, "Error adding/updating cluster(s) web:80: no"));
        assert_eq!(names(&rest), ["default/web", "web"]);
        let client_state = stream.session.client_state();
        let blamed: Vec<_> = client_state.rejections().iter().map(|(_, it)| &*it.name).collect();
        assert_eq!(blamed, ["web:80"]);
    }
}
