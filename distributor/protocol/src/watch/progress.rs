use super::{ClientCopy, Watch};
use crate::progress::Progress;
use heliograph_snapshot::Resource;
use std::sync::Arc;

impl Watch {
    /// The versions that the client rejected last, of names in the view, where they are known to be to blame and the
    /// client has not accepted another one since. The view may have a newer version: while it changes faster than
    /// clients answer, only older ones are ever rejected.
    pub(crate) fn rejections(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let blamed = self.exceptions.values().filter(|exception| exception.suspected.is_none());
        blamed.filter_map(|exception| {
            let rejected = exception.rejected.as_ref()?.as_ref()?;
            let viewed = self.viewed(&rejected.name)?;
            let is_back =
                matches!(&exception.held, ClientCopy::At(held) if held.version == viewed.version);
            // The view may hold it back, and serve what the client has in its place.
            let is_there = self.view.has(self.kind, &rejected.name, Some(rejected.version));
            (is_there || !is_back).then_some(rejected)
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        let (mut rejected, mut outstanding) = (0, 0);
        for (name, exception) in &self.exceptions {
            if exception.rejects(|| self.wanted(name)) {
                rejected += 1;
            } else if !self.agrees(name, exception) {
                outstanding += 1;
            }
        }
        // A reply without resources, which says that there are none, is to be acknowledged too.
        if outstanding == 0 && (self.is_in_flight() || self.answer_due) {
            outstanding = 1;
        }
        Progress {
            kind: self.kind,
            wildcard: self.subscription.wildcard(),
            names: self.subscription.names().iter().len(),
            acknowledged: self.acknowledged(),
            outstanding,
            rejected,
            silent: self.presumed.is_some(),
        }
    }
}
