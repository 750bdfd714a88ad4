use heliograph_gateway::objects::ObjectKey;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// The fields of objects with a status that the API server last returned and that the world does not keep, because
/// translation does not depend on them. The provider records them, and the writer of statuses compares with them. A copy
/// costs a pointer.
#[derive(Clone, Debug, Default)]
pub struct Observed(Arc<Shared>);

/// One object as it was last seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedObject {
    pub generation: i64,
    pub resource_version: String,
    pub uid: String,
    /// Why this version of it is not understood, if it is not.
    pub unreadable: Option<Arc<str>>,
    /// Null if there is none.
    pub status: Arc<Value>,
}

#[derive(Debug, Default)]
struct Shared {
    objects: Mutex<Objects>,
    changed_notify: Notify,
}

#[derive(Debug, Default)]
struct Objects {
    seen: BTreeMap<ObjectKey, ObservedObject>,
    /// Which of them changed since the last read.
    changed: BTreeSet<ObjectKey>,
}

impl Observed {
    /// Records an object as a watch shows it.
    pub fn record(&self, key: &ObjectKey, seen: ObservedObject) {
        let is_first = self.objects().record(key, seen);
        if is_first {
            self.0.changed_notify.notify_one();
        }
    }

    /// Records an object as the answer to a write shows it, unless a watch has shown a newer version meanwhile: nothing else would
    /// correct that. Whether it can be read depends on its generation, and the watch has recorded it.
    pub(crate) fn record_write(&self, key: &ObjectKey, mut seen: ObservedObject) {
        let mut objects = self.objects();
        if let Some(before) = objects.seen.get(key) {
            if before.is_newer_than(&seen) {
                return;
            }
            if before.generation == seen.generation {
                seen.unreadable = before.unreadable.clone();
            }
        }
        let is_first = objects.record(key, seen);
        drop(objects);
        if is_first {
            self.0.changed_notify.notify_one();
        }
    }

    /// Records that an object is gone.
    pub fn forget(&self, key: &ObjectKey) {
        let mut objects = self.objects();
        objects.seen.remove(key);
        objects.changed.remove(key);
    }

    pub fn get(&self, key: &ObjectKey) -> Option<ObservedObject> {
        self.objects().seen.get(key).cloned()
    }

    /// All objects that are known. For a reader that begins; later it reads [`changed`](Self::changed).
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.objects().seen.keys().cloned().collect()
    }

    /// Waits until objects have changed, and returns which, each once however often it was. For one reader.
    pub(crate) async fn changed(&self) -> BTreeSet<ObjectKey> {
        loop {
            let changed = std::mem::take(&mut self.objects().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.0.changed_notify.notified().await;
        }
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.0.objects.lock()
    }
}

impl Objects {
    /// Whether it is the first that has changed.
    fn record(&mut self, key: &ObjectKey, seen: ObservedObject) -> bool {
        if self.seen.get(key) == Some(&seen) {
            return false;
        }
        self.seen.insert(key.clone(), seen);
        let is_first = self.changed.is_empty();
        self.changed.insert(key.clone());
        is_first
    }
}

impl ObservedObject {
    /// Versions of an object are numbers that grow.
    fn is_newer_than(&self, other: &Self) -> bool {
        let number = |seen: &Self| seen.resource_version.parse::<u128>().ok();
        self.uid == other.uid && number(self) > number(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use heliograph_gateway::objects::{Kind, ObjectName};
    use serde_json::json;

    fn key(name: &str) -> ObjectKey {
        ObjectName::new("shop", name).of(Kind::HTTPRoute)
    }

    fn seen(generation: i64) -> ObservedObject {
        let status = Arc::new(json!({"parents": []}));
        ObservedObject {
            generation,
            resource_version: "7".to_owned(),
            status,
            ..ObservedObject::default()
        }
    }

    #[tokio::test]
    async fn each_change_is_told_once_and_what_is_gone_is_not() {
        let observed = Observed::default();
        let provider = observed.clone();
        for (name, generation) in [("cart", 1), ("cart", 2), ("gone", 1), ("checkout", 1)] {
            provider.record(&key(name), seen(generation));
        }
        provider.forget(&key("gone"));
        assert_eq!(observed.changed().await, BTreeSet::from([key("cart"), key("checkout")]));
        assert_eq!(observed.get(&key("cart")), Some(seen(2)));
        assert_eq!(observed.get(&key("gone")), None);
        assert_eq!(observed.keys(), vec![key("cart"), key("checkout")]);

        provider.record(&key("cart"), seen(2));
        assert_eq!(observed.changed().now_or_never(), None, "it says what is known");
        let waiting = tokio::spawn({
            let observed = observed.clone();
            async move { observed.changed().await }
        });
        provider.record(&key("cart"), seen(3));
        assert_eq!(waiting.await.unwrap(), BTreeSet::from([key("cart")]));
    }

    /// It may have been under way while the object changed again.
    #[test]
    fn an_answer_that_comes_late_is_not_taken_for_what_is_there() {
        let at = |generation, version: &str| {
            let resource_version = version.to_owned();
            ObservedObject { resource_version, uid: "one".to_owned(), ..seen(generation) }
        };
        let observed = Observed::default();
        observed.record(&key("cart"), at(2, "10"));
        observed.record_write(&key("cart"), at(1, "9"));
        assert_eq!(observed.get(&key("cart")), Some(at(2, "10")));
        observed.record_write(&key("cart"), at(2, "11"));
        assert_eq!(observed.get(&key("cart")), Some(at(2, "11")));
        // A watch is right also after a store was restored.
        observed.record(&key("cart"), at(2, "8"));
        assert_eq!(observed.get(&key("cart")), Some(at(2, "8")));
        // Another object with its name.
        observed.record_write(&key("cart"), ObservedObject { uid: "two".to_owned(), ..at(1, "7") });
        assert_eq!(observed.get(&key("cart")).unwrap().uid, "two");
    }
}
