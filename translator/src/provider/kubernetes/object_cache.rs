use heliograph_gateway::Event;
use heliograph_gateway::objects::{Kind, Object, ObjectName, Unreadable};
use std::collections::{BTreeMap, BTreeSet};

/// The objects of one kind that were sent to the translator, and in which version. It does no IO.
///
/// A list is taken whole: what it lacks is deleted when it is complete, and not before. A list that breaks off changes
/// nothing.
#[derive(Debug)]
pub(super) struct ObjectCache {
    kind: Kind,
    objects: BTreeMap<ObjectName, CachedObject>,
    /// How many of them cannot be read.
    unreadable: usize,
    listing: Option<Listing>,
}

/// The change that one object of the API causes.
#[derive(Debug, Default)]
pub(super) struct ObjectChange {
    pub(super) event: Option<Event>,
    /// Whether the object can be read now, if that has changed.
    pub(super) read_failure: Option<Option<ReadFailure>>,
}

/// That an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadFailure {
    pub(super) reason: Unreadable,
    /// Whether what was read of it before goes on to count.
    pub(super) is_kept: bool,
}

#[derive(Clone, Debug)]
struct CachedObject {
    version: Box<str>,
    /// Why this version of it does not count.
    unreadable: Option<Unreadable>,
    /// The version that was sent, and counts; the receiver shares it.
    sent: Option<Object>,
}

#[derive(Debug, Default)]
struct Listing {
    found: BTreeMap<ObjectName, CachedObject>,
    events: Vec<Event>,
}

impl ObjectCache {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, objects: BTreeMap::new(), unreadable: 0, listing: None }
    }

    /// Whether a list has begun and is not complete.
    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Those that cannot be read now and could not before: there are such objects, and nothing is known of them.
    pub(super) fn never_read(&self) -> BTreeSet<ObjectName> {
        if self.unreadable == 0 {
            return BTreeSet::new();
        }
        let unread = self.objects.iter().filter(|(_, cached)| cached.sent.is_none());
        unread.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &ObjectName> {
        self.objects.keys()
    }

    /// Whether the object is known in this version, so that there is no need to decode it.
    pub(super) fn has(&self, name: &ObjectName, version: &str) -> bool {
        self.objects.get(name).is_some_and(|cached| &*cached.version == version)
    }

    /// A list begins. One that has begun before and is not complete is forgotten.
    pub(super) fn begin(&mut self) {
        self.listing = Some(Listing::default());
    }

    /// An object is in the list, in the version that is known.
    pub(super) fn listed_as_known(&mut self, name: ObjectName) {
        if let (Some(listing), Some(cached)) = (&mut self.listing, self.objects.get(&name)) {
            listing.found.insert(name, cached.clone());
        }
    }

    /// An object is in the list, in another version than is known.
    pub(super) fn listed(
        &mut self,
        name: ObjectName,
        version: &str,
        object: Result<Object, Unreadable>,
    ) -> ObjectChange {
        let before = self.objects.get(&name);
        let (cached, change) = self.compare(&name, before, version, object);
        let Some(listing) = &mut self.listing else { return ObjectChange::default() };
        listing.events.extend(change.event);
        listing.found.insert(name, cached);
        ObjectChange { event: None, read_failure: change.read_failure }
    }

    /// The list is complete. Returns what follows from it, and which objects are gone.
    pub(super) fn complete(&mut self) -> (Vec<Event>, Vec<ObjectName>) {
        let Some(Listing { found, mut events }) = self.listing.take() else {
            return Default::default();
        };
        let before = std::mem::replace(&mut self.objects, found);
        let mut gone = Vec::new();
        for (name, cached) in before {
            if !self.objects.contains_key(&name) {
                if cached.sent.is_some() {
                    events.push(Event::Deleted(name.clone().of(self.kind)));
                }
                gone.push(name);
            }
        }
        self.unreadable =
            self.objects.values().filter(|cached| cached.unreadable.is_some()).count();
        (events, gone)
    }

    /// An object is new, or has changed.
    pub(super) fn applied(
        &mut self,
        name: ObjectName,
        version: &str,
        object: Result<Object, Unreadable>,
    ) -> ObjectChange {
        let (cached, change) = self.compare(&name, self.objects.get(&name), version, object);
        self.unreadable += usize::from(cached.unreadable.is_some());
        if let Some(before) = self.objects.insert(name, cached) {
            self.unreadable -= usize::from(before.unreadable.is_some());
        }
        change
    }

    /// An object is no more.
    pub(super) fn deleted(&mut self, name: ObjectName) -> Option<Event> {
        let cached = self.objects.remove(&name)?;
        self.unreadable -= usize::from(cached.unreadable.is_some());
        cached.sent.map(|_| Event::Deleted(name.of(self.kind)))
    }

    /// An object that differs only in its status or its managed fields has not changed for the receiver.
    ///
    /// Of an object that cannot be decoded, the last decoded version stays in force: an edit that this version does not
    /// understand removes nothing. But a grant that cannot be decoded grants nothing.
    fn compare(
        &self,
        name: &ObjectName,
        before: Option<&CachedObject>,
        version: &str,
        object: Result<Object, Unreadable>,
    ) -> (CachedObject, ObjectChange) {
        let was_sent = before.and_then(|before| before.sent.clone());
        let (event, sent, unreadable) = match object {
            Ok(mut object) => {
                // Of objects that are read by reference only the version is sent.
                if !self.kind.is_read_by_reference() {
                    object.forget_bookkeeping();
                }
                if was_sent.as_ref() == Some(&object) {
                    (None, was_sent, None)
                } else {
                    (Some(Event::Applied(object.clone())), Some(object), None)
                }
            }
            Err(reason) if self.kind == Kind::ReferenceGrant => {
                let event = was_sent.map(|_| Event::Deleted(name.clone().of(self.kind)));
                (event, None, Some(reason))
            }
            Err(reason) => (None, was_sent, Some(reason)),
        };
        let is_new = before.and_then(|before| before.unreadable.as_ref()) != unreadable.as_ref();
        let read_failure = |reason: Unreadable| ReadFailure { reason, is_kept: sent.is_some() };
        let read_failure = is_new.then(|| unreadable.clone().map(read_failure));
        (
            CachedObject { version: version.into(), unreadable, sent },
            ObjectChange { event, read_failure },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("shop", name)
    }

    fn read(name: &str, from: &str) -> Result<Object, Unreadable> {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        };
        let grants = json!({ "spec": { "from": [], "to": from } });
        let mut value =
            if from.is_empty() { json!({ "spec": { "from": [], "to": [] } }) } else { grants };
        Kind::ReferenceGrant.read(metadata, &mut value)
    }

    fn good(name: &str) -> Result<Object, Unreadable> {
        read(name, "")
    }

    fn edited(name: &str) -> Result<Object, Unreadable> {
        let mut object = good(name)?;
        object.metadata_mut().generation = Some(2);
        Ok(object)
    }

    fn bad(name: &str) -> Result<Object, Unreadable> {
        read(name, "nonsense")
    }

    fn route(rules: serde_json::Value) -> Result<Object, Unreadable> {
        let metadata = ObjectMeta {
            name: Some("a".to_owned()),
            namespace: Some("shop".to_owned()),
            ..ObjectMeta::default()
        };
        Kind::HTTPRoute.read(metadata, &mut json!({ "spec": { "rules": rules } }))
    }

    fn words(events: impl IntoIterator<Item = Event>) -> Vec<String> {
        let words = |event| match event {
            Event::Applied(object) => format!("applied {}", object.key().name.name),
            Event::Deleted(key) => format!("deleted {}", key.name.name),
        };
        events.into_iter().map(words).collect()
    }

    fn holding(names: &[&str]) -> ObjectCache {
        let mut cache = ObjectCache::new(Kind::ReferenceGrant);
        cache.begin();
        for each in names {
            cache.listed(name(each), "1", good(each));
        }
        cache.complete();
        cache
    }

    #[test]
    fn a_list_is_told_when_it_is_complete() {
        let mut cache = ObjectCache::new(Kind::ReferenceGrant);
        cache.begin();
        assert!(cache.listed(name("a"), "1", good("a")).event.is_none());
        cache.listed(name("b"), "1", good("b"));
        assert!(cache.is_listing());
        let (events, gone) = cache.complete();
        assert_eq!(words(events), ["applied a", "applied b"]);
        assert_eq!(gone, []);
    }

    /// After 410: a second list, of which only the differences are sent, and deletions last.
    #[test]
    fn a_second_list_tells_the_difference_only() {
        let mut cache = holding(&["a", "b", "c"]);
        cache.begin();
        assert!(cache.has(&name("a"), "1"));
        cache.listed_as_known(name("a"));
        assert!(!cache.has(&name("b"), "2"));
        cache.listed(name("b"), "2", edited("b"));
        cache.listed(name("d"), "1", good("d"));
        let (events, gone) = cache.complete();
        assert_eq!(words(events), ["applied b", "applied d", "deleted c"]);
        assert_eq!(gone, [name("c")]);
    }

    #[test]
    fn a_list_that_breaks_off_deletes_nothing() {
        let mut cache = holding(&["a", "b"]);
        cache.begin();
        cache.listed_as_known(name("a"));
        cache.begin();
        cache.listed_as_known(name("a"));
        cache.listed_as_known(name("b"));
        let (events, _) = cache.complete();
        assert_eq!(words(events), Vec::<String>::new());
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn changes_are_told_at_once() {
        let mut cache = holding(&["a"]);
        assert_eq!(words(cache.applied(name("a"), "2", edited("a")).event), ["applied a"]);
        assert_eq!(words(cache.deleted(name("a"))), ["deleted a"]);
        assert_eq!(cache.deleted(name("a")), None, "it is told once");
    }

    /// Each status that is written comes back as a new version of its object.
    #[test]
    fn the_echo_of_a_status_is_not_told() {
        let mut cache = holding(&["a"]);
        let mut echo = good("a").unwrap();
        echo.metadata_mut().resource_version = Some("2".to_owned());
        assert_eq!(cache.applied(name("a"), "2", Ok(echo)).event, None);
        assert!(cache.has(&name("a"), "2"));
        cache.begin();
        cache.listed(name("a"), "3", good("a"));
        assert_eq!(cache.complete().0, []);
        assert_eq!(words(cache.deleted(name("a"))), ["deleted a"]);
    }

    #[test]
    fn of_a_secret_each_version_is_told() {
        let mut cache = ObjectCache::new(Kind::Secret);
        cache.begin();
        cache.complete();
        let version = |version: &str| {
            let metadata = ObjectMeta {
                name: Some("a".to_owned()),
                namespace: Some("shop".to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            };
            Kind::Secret.read(metadata, &mut json!({}))
        };
        for each in ["1", "2"] {
            assert_eq!(words(cache.applied(name("a"), each, version(each)).event), ["applied a"]);
        }
        assert!(cache.has(&name("a"), "2"));
        assert_eq!(words(cache.deleted(name("a"))), ["deleted a"]);
    }

    /// A replica that starts then knows nothing of the object, and must not take it for one that is gone.
    #[test]
    fn of_what_cannot_be_read_the_last_that_could_be_counts() {
        let mut cache = ObjectCache::new(Kind::HTTPRoute);
        cache.begin();
        cache.complete();
        let is_kept =
            |change: &ObjectChange| change.read_failure.clone().flatten().map(|it| it.is_kept);
        let change = cache.applied(name("a"), "1", route(json!("nonsense")));
        assert_eq!((words(change.event.clone()), is_kept(&change)), (vec![], Some(false)));
        assert_eq!(cache.never_read(), BTreeSet::from([name("a")]));
        assert_eq!(words(cache.applied(name("a"), "2", route(json!([]))).event), ["applied a"]);
        assert_eq!(cache.never_read(), BTreeSet::new());
        let change = cache.applied(name("a"), "3", route(json!("nonsense")));
        assert_eq!((words(change.event.clone()), is_kept(&change)), (vec![], Some(true)));
        assert_eq!((cache.unreadable(), cache.never_read().len()), (1, 0));
        cache.begin();
        cache.listed(name("a"), "4", route(json!("other nonsense")));
        assert_eq!(words(cache.complete().0), Vec::<String>::new());
        assert_eq!(words(cache.deleted(name("a"))), ["deleted a"]);
    }

    #[test]
    fn a_grant_that_cannot_be_read_is_absent_until_it_can() {
        let mut cache = holding(&["a"]);
        let change = cache.applied(name("a"), "2", bad("a"));
        assert_eq!(words(change.event), ["deleted a"]);
        assert!(change.read_failure.flatten().is_some());
        let change = cache.applied(name("a"), "3", bad("a"));
        assert!(change.event.is_none(), "it is absent already");
        assert_eq!(change.read_failure, None, "and that was said");
        assert_eq!(cache.unreadable(), 1);
        let change = cache.applied(name("a"), "4", good("a"));
        assert_eq!(words(change.event), ["applied a"]);
        assert_eq!(change.read_failure, Some(None), "it can be read again");
        cache.applied(name("a"), "5", bad("a"));
        assert_eq!(cache.unreadable(), 1);
        assert_eq!(cache.deleted(name("a")), None, "nobody was told of it");
        assert_eq!(cache.unreadable(), 0);
    }
}
