//! A protecting object waits for the contents that it names only while an earlier version of it is in force, or for one
//! fetch.

use super::{Contents, Referrer};
use heliograph_gateway::objects::ObjectKey;
use std::collections::BTreeSet;

impl Contents {
    /// The protecting objects that are held back and of which no version was passed on.
    pub(in super::super) fn new_protecting(&self) -> BTreeSet<ObjectKey> {
        let new = self.referrers.iter().filter(|(key, referrer)| is_new_protecting(key, referrer));
        new.map(|(key, _)| key.clone()).collect()
    }

    /// A fetch has failed. While a protecting object is held back of which no version was passed on, what it protects is open,
    /// and without the content it is closed.
    pub(super) fn release_new_protecting(&mut self, name: &ObjectKey) {
        let by = self.named.get(name).map(|content| content.by.clone()).unwrap_or_default();
        for key in by {
            let Some(referrer) = self.referrers.get_mut(&key) else { continue };
            if is_new_protecting(&key, referrer)
                && let Some(blocked) = &mut referrer.blocked
                && blocked.missing.remove(name)
            {
                self.complete.insert(key);
            }
        }
        self.pass(Vec::new());
    }
}

fn is_new_protecting(key: &ObjectKey, referrer: &Referrer) -> bool {
    key.kind.is_protecting() && referrer.passed.is_none() && referrer.blocked.is_some()
}
