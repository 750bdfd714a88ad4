use super::Watch;
use crate::progress::Progress;

impl Watch {
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
