//! Any order of what watches tell and fetches answer.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Step {
    /// With so many bytes.
    PutSecret(usize, usize),
    DeleteSecret(usize),
    /// One that names the Secrets of a bit mask.
    PutGateway(usize, u8),
    DeleteGateway(usize),
    /// What a watch has to tell, so much of it at once.
    HearOfSecrets(usize),
    HearOfGateways(usize),
    /// Asks whether all is known.
    Ask,
    BeginFetch,
    /// The API reads what one of the open fetches asks for, and answers later.
    Read(usize),
    Respond(usize),
    Fail(usize),
    Wait,
}

const SECRETS: [&str; 4] = ["a", "b", "c", "d"];
const GATEWAYS: [&str; 3] = ["x", "y", "far"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..SECRETS.len(), 1..8usize).prop_map(|(secret, bytes)| Step::PutSecret(secret, bytes)),
        2 => (0..SECRETS.len()).prop_map(Step::DeleteSecret),
        3 => (0..GATEWAYS.len(), 0..16u8).prop_map(|(gateway, names)| Step::PutGateway(gateway, names)),
        1 => (0..GATEWAYS.len()).prop_map(Step::DeleteGateway),
        4 => (1..4usize).prop_map(Step::HearOfSecrets),
        4 => (1..4usize).prop_map(Step::HearOfGateways),
        1 => Just(Step::Ask),
        4 => Just(Step::BeginFetch),
        3 => (0..8usize).prop_map(Step::Read),
        4 => (0..8usize).prop_map(Step::Respond),
        1 => (0..8usize).prop_map(Step::Fail),
        1 => Just(Step::Wait),
    ];
    proptest::collection::vec(step, 1..120)
}

#[derive(Clone, Copy)]
struct Secret {
    created: u64,
    version: u64,
    bytes: usize,
}

/// An API, the events that its watches have not sent yet, and the open fetches.
struct Play {
    bench: Bench,
    version: u64,
    most: u64,
    secrets: BTreeMap<ObjectKey, Secret>,
    gateways: BTreeMap<ObjectKey, (u64, Vec<&'static str>)>,
    of_secrets: VecDeque<Event>,
    of_gateways: VecDeque<Event>,
    /// The Secrets that the watch has sent.
    known: BTreeSet<ObjectKey>,
    open: Vec<(Fetch, Option<Option<Secret>>)>,
    /// For each asking, what there was.
    asked: Vec<BTreeMap<ObjectKey, u64>>,
}

impl Play {
    fn new(most: u64) -> Self {
        Self {
            bench: Bench::with_budget(most),
            most,
            version: 0,
            secrets: BTreeMap::new(),
            gateways: BTreeMap::new(),
            of_secrets: VecDeque::new(),
            of_gateways: VecDeque::new(),
            known: BTreeSet::new(),
            open: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        self.version += 1;
        match step {
            Step::PutSecret(index, bytes) => {
                let (key, version) = (secret(SECRETS[index]), self.version);
                let created = self.secrets.get(&key).map_or(version, |before| before.created);
                self.secrets.insert(key.clone(), Secret { created, version, bytes });
                self.of_secrets.push_back(existing_since(&key, version, created));
            }
            Step::DeleteSecret(index) => {
                let key = secret(SECRETS[index]);
                if self.secrets.remove(&key).is_some() {
                    self.of_secrets.push_back(Event::Deleted(key));
                }
            }
            Step::PutGateway(index, mask) => {
                let names: Vec<&str> =
                    (0..4).filter(|bit| mask & (1 << bit) != 0).map(|bit| SECRETS[bit]).collect();
                let key = gateway(GATEWAYS[index]);
                self.of_gateways.push_back(naming(&key, self.version, &names));
                self.gateways.insert(key, (self.version, names));
            }
            Step::DeleteGateway(index) => {
                let key = gateway(GATEWAYS[index]);
                if self.gateways.remove(&key).is_some() {
                    for asked in &mut self.asked {
                        asked.remove(&key);
                    }
                    self.of_gateways.push_back(Event::Deleted(key));
                }
            }
            Step::HearOfSecrets(most) => {
                let most = most.min(self.of_secrets.len());
                let events: Vec<Event> = self.of_secrets.drain(..most).collect();
                for event in &events {
                    match event {
                        Event::Applied(object) => self.known.insert(object.key()),
                        Event::Deleted(key) => self.known.remove(key),
                    };
                }
                let log = self.bench.receive_batch(events);
                self.check(&log);
            }
            Step::HearOfGateways(most) => {
                let most = most.min(self.of_gateways.len());
                let events = self.of_gateways.drain(..most).collect();
                let log = self.bench.receive_batch(events);
                self.check(&log);
            }
            Step::Ask => {
                self.step(Step::HearOfSecrets(usize::MAX));
                self.step(Step::HearOfGateways(usize::MAX));
                let secrets = self.secrets.iter().map(|(key, it)| (key.clone(), it.version));
                let gateways =
                    self.gateways.iter().map(|(key, (version, _))| (key.clone(), *version));
                self.asked.push(secrets.chain(gateways).collect());
                let asking = self.asked.len().try_into().unwrap();
                let log = self.bench.receive(Input::Fresh(asking));
                self.check(&log);
            }
            Step::BeginFetch => {
                if let Some(fetch) = self.bench.contents.next_fetch(self.bench.now) {
                    self.open.push((fetch, None));
                }
            }
            Step::Read(index) => {
                if let Some((fetch, read)) = self.open.get_mut(index) {
                    read.get_or_insert(self.secrets.get(&fetch.key).copied());
                }
            }
            Step::Respond(index) if index < self.open.len() => {
                self.step(Step::Read(index));
                let (fetch, read) = self.open.remove(index);
                let log = match read.flatten() {
                    Some(Secret { version, bytes, .. }) => {
                        self.bench.answer_with(&fetch, version, bytes)
                    }
                    None => self.bench.fail(&fetch, false),
                };
                self.check(&log);
            }
            Step::Fail(index) if index < self.open.len() => {
                let (fetch, _) = self.open.remove(index);
                let log = self.bench.fail(&fetch, false);
                self.check(&log);
            }
            Step::Respond(_) | Step::Fail(_) => {}
            Step::Wait => self.bench.now += Duration::from_secs(2),
        }
    }

    /// What holds at every moment.
    fn check(&self, log: &[String]) {
        let told = &self.bench.downstream.objects;
        let bytes: u64 = self.bench.downstream.bytes.values().sum();
        assert!(bytes <= self.most, "{bytes} bytes are held, and {} may be", self.most);
        for line in log {
            let (name, version) = line.split_once(' ').unwrap();
            if GATEWAYS.contains(&name) {
                let (_, names) = &told[&gateway(name)];
                for name in names.iter().filter(|name| self.known.contains(name)) {
                    assert!(told.contains_key(name), "{line} was told without {name}");
                }
            }
            if name == "fresh" {
                self.check_fresh(version.parse().unwrap());
            }
        }
    }

    /// Everything is known that there was at an asking, unless it is gone since.
    fn check_fresh(&self, asking: usize) {
        let told = &self.bench.downstream.objects;
        let is_named = |key: &ObjectKey| told.values().any(|(_, names)| names.contains(key));
        for (key, version) in &self.asked[asking - 1] {
            let is_gateway = self.gateways.contains_key(key);
            let is_secret = self.secrets.contains_key(key) && self.known.contains(key);
            if is_gateway || (is_secret && is_named(key) && told.contains_key(key)) {
                assert!(told[key].0 >= *version, "{key} at asking {asking}");
            }
        }
    }

    /// Lets everything happen that is to.
    fn settle(&mut self) {
        self.step(Step::HearOfSecrets(usize::MAX));
        self.step(Step::HearOfGateways(usize::MAX));
        loop {
            self.step(Step::Wait);
            self.step(Step::BeginFetch);
            if self.open.is_empty() {
                return;
            }
            self.step(Step::Respond(0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// It ends as with watches of whole objects, but for Secrets that nothing names, and those that do not fit.
    #[test]
    fn any_order_of_events_and_answers_ends_in_the_same_state(
        steps in steps(),
        most in prop_oneof![Just(u64::MAX), 0..24u64],
    ) {
        let mut play = Play::new(most);
        steps.into_iter().for_each(|step| play.step(step));
        play.settle();
        let (mut expected, mut named) = (BTreeMap::new(), BTreeMap::new());
        for (key, (version, names)) in &play.gateways {
            let names: BTreeSet<ObjectKey> = names.iter().map(|name| secret(name)).collect();
            for name in &names {
                if let Some(it) = play.secrets.get(name) {
                    let is_foreign = named.entry(name.clone()).or_insert((true, it.created));
                    is_foreign.0 &= *key.name.namespace != *"shop";
                }
            }
            expected.insert(key.clone(), (*version, names));
        }
        // Those that Gateways of their own namespace name, then the oldest, as long as they fit.
        let mut named: Vec<_> = named.into_iter().map(|(key, rank)| (rank, key)).collect();
        named.sort();
        let (mut bytes, mut fitting) = (0, 0);
        for (_, key) in named {
            let Secret { version, bytes: own, .. } = play.secrets[&key];
            bytes += (own as u64).max(version.to_string().len() as u64);
            fitting += usize::from(bytes <= most);
            let version = if bytes <= most { version } else { WITHHELD };
            expected.insert(key, (version, BTreeSet::new()));
        }
        prop_assert_eq!(&play.bench.downstream.objects, &expected);
        prop_assert_eq!(play.bench.contents.awaited(), BTreeSet::new());
        let secrets = expected.keys().filter(|key| key.kind == Kind::Secret).count();
        let count = Count { loaded: fitting, withheld: secrets - fitting };
        prop_assert_eq!(play.bench.contents.counts(Kind::Secret), count);
        for key in play.gateways.keys() {
            play.of_gateways.push_back(Event::Deleted(key.clone()));
        }
        play.settle();
        let Contents { referrers, named, arrived, .. } = &play.bench.contents;
        prop_assert!(referrers.is_empty() && named.is_empty() && arrived.is_empty());
        prop_assert!(play.bench.downstream.objects.is_empty());
    }
}
