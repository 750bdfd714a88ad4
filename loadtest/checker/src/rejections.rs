use crate::event::{ResourceId, Response, Sent};
use heliograph_snapshot::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The last version that a proxy rejected of each name. The proxy need not have it, and it must not be sent again on the
/// same stream.
///
/// A rejection does not say which resource of a response was the bad one. A server may send parts of it again, to find
/// out or because it knows: only a server that sends all of it again breaks the rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections(Arc<BTreeMap<ResourceId, Rejection>>);

#[derive(Clone, Debug)]
struct Rejection {
    version: Version,
    together: Arc<Together>,
    /// On this stream, and the proxy had no reason since to ask for it again.
    is_final: bool,
}

/// All that was in a response.
#[derive(Debug)]
struct Together {
    members: BTreeSet<(Arc<str>, Version)>,
    digest: u64,
}

impl Rejections {
    pub(crate) fn contains(&self, id: &ResourceId) -> bool {
        self.0.contains_key(id)
    }

    /// A proxy asks anew on a new stream.
    pub(crate) fn begin_stream(&mut self) {
        if !self.0.is_empty() {
            let all = Arc::make_mut(&mut self.0).values_mut();
            all.for_each(|rejection| rejection.is_final = false);
        }
    }

    pub(crate) fn add(&mut self, response: &Response) {
        let together = Arc::new(Together::of(response));
        let all = Arc::make_mut(&mut self.0);
        for Sent { name, version, .. } in &response.resources {
            let id = ResourceId::new(response.kind, name.clone());
            let together = Arc::clone(&together);
            all.insert(id, Rejection { version: *version, together, is_final: true });
        }
    }

    /// It was accepted in the end.
    pub(crate) fn forget(&mut self, id: &ResourceId) {
        if self.contains(id) {
            Arc::make_mut(&mut self.0).remove(id);
        }
    }

    /// Something refers to these and is new, so they are due again.
    pub(crate) fn allow(&mut self, references: &[ResourceId]) {
        for id in references {
            if self.contains(id)
                && let Some(rejection) = Arc::make_mut(&mut self.0).get_mut(id)
            {
                rejection.is_final = false;
            }
        }
    }

    /// The rejected resource of a response, if the response is sent again as it was.
    pub(crate) fn resent(&self, response: &Response) -> Option<(ResourceId, Version)> {
        if self.0.is_empty() {
            return None;
        }
        let sent = members(response);
        let mut passed: Option<&Arc<Together>> = None;
        for (name, version) in &sent {
            let id = ResourceId::new(response.kind, name.clone());
            let Some(rejection) = self.0.get(&id) else { continue };
            let together = &rejection.together;
            // What was rejected together is compared once.
            let is_known = passed.is_some_and(|passed| Arc::ptr_eq(passed, together));
            if rejection.version != *version || !rejection.is_final || is_known {
                continue;
            }
            if together.members.is_subset(&sent) {
                return Some((id, *version));
            }
            passed = Some(together);
        }
        None
    }

    pub(crate) fn digest(&self, hasher: &mut impl Hasher) {
        for (id, Rejection { version, together, is_final }) in &*self.0 {
            (id, version, together.digest, is_final).hash(hasher);
        }
    }
}

impl Together {
    fn of(response: &Response) -> Self {
        let members = members(response);
        // Once, and not for each member whenever a proxy is compared.
        let mut hasher = DefaultHasher::new();
        members.hash(&mut hasher);
        Self { members, digest: hasher.finish() }
    }
}

fn members(response: &Response) -> BTreeSet<(Arc<str>, Version)> {
    response.resources.iter().map(|sent| (sent.name.clone(), sent.version)).collect()
}
