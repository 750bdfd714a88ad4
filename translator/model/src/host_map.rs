use super::Hostname;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Values by hostname, in an order in which each wildcard is followed by all that it covers. So what a hostname covers, and
/// what covers it, is found among the hostnames that are here: a name has as many wider ones as it has labels, and nearly
/// none of those is anywhere.
#[derive(Debug)]
pub struct HostMap<V>(BTreeMap<Backwards, V>);

/// A hostname that is compared from its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Backwards(Hostname);

impl<V> HostMap<V> {
    pub fn get(&self, host: &Hostname) -> Option<&V> {
        self.0.get(&Backwards(host.clone()))
    }

    pub fn get_mut(&mut self, host: &Hostname) -> Option<&mut V> {
        self.0.get_mut(&Backwards(host.clone()))
    }

    pub fn get_or_default(&mut self, host: &Hostname) -> &mut V
    where
        V: Default,
    {
        self.0.entry(Backwards(host.clone())).or_default()
    }

    pub fn insert(&mut self, host: Hostname, value: V) {
        self.0.insert(Backwards(host), value);
    }

    pub fn remove(&mut self, host: &Hostname) -> Option<V> {
        self.0.remove(&Backwards(host.clone()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Hostname, &V)> {
        self.0.iter().map(|(host, value)| (&host.0, value))
    }

    /// Those that cover a hostname, from itself, if it is here, to the widest.
    pub fn covering(&self, host: &Hostname) -> impl Iterator<Item = (&Hostname, &V)> + use<'_, V> {
        let host = host.clone();
        let mut end = Bound::Included(Backwards(host.clone()));
        std::iter::from_fn(move || {
            loop {
                let (last, value) = self.0.range((Bound::Unbounded, end.clone())).next_back()?;
                if last.0.covers(&host) {
                    end = Bound::Excluded(last.clone());
                    return Some((&last.0, value));
                }
                // Whatever is before the last one and covers the host covers the last one as well.
                end = Bound::Included(Backwards(last.0.narrowest_above(&host)));
            }
        })
    }

    /// Those that a hostname covers, itself included, if it is here.
    pub fn covered<'a>(
        &'a self,
        host: &'a Hostname,
    ) -> impl Iterator<Item = (&'a Hostname, &'a V)> {
        let from = self.0.range(Backwards(host.clone())..);
        let all = from.map(|(it, value)| (&it.0, value));
        all.take_while(|(it, _)| host.covers(it))
    }
}

impl<V> Default for HostMap<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl Ord for Backwards {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.backwards().cmp(other.0.backwards())
    }
}

impl PartialOrd for Backwards {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn hostname() -> impl Strategy<Value = Hostname> {
        let label = prop::sample::select(&["a", "b", "a-b", "ab", "ba"][..]);
        let labels = prop::collection::vec(label, 1..5);
        let named = (any::<bool>(), labels).prop_map(|(is_wide, labels)| {
            let name = labels.join(".");
            if is_wide { format!("*.{name}") } else { name }.parse().unwrap()
        });
        prop_oneof![1 => Just(Hostname::Any), 20 => named]
    }

    proptest! {
        #[test]
        fn what_covers_a_hostname_and_what_it_covers_is_found(
            names in prop::collection::btree_set(hostname(), 0..30),
            host in hostname(),
        ) {
            let mut map = HostMap::default();
            names.iter().for_each(|name| map.insert(name.clone(), ()));
            let covered: BTreeSet<_> = map.covered(&host).map(|(it, ())| it).collect();
            let expected: BTreeSet<_> = names.iter().filter(|it| host.covers(it)).collect();
            prop_assert_eq!(covered, expected);
            let covering: Vec<_> = map.covering(&host).map(|(it, ())| it).collect();
            let mut expected: Vec<_> = names.iter().filter(|it| it.covers(&host)).collect();
            expected.sort_by(|one, other| Hostname::by_specificity(other, one));
            prop_assert_eq!(covering, expected);
        }
    }
}
