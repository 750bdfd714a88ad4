//! Names that the view does not have: limits of their number and their memory.

use super::Watch;
use crate::absent::{Absent, Allocation, EXCEPTION};
use crate::request::{ABSENT_NAMES_LIMIT, RequestError};

impl Watch {
    /// The memory for names that the view does not have, but for what is in hand.
    pub(crate) fn absent_memory(&self) -> Option<(Allocation, usize)> {
        let size = self.absent.size();
        let names = || Allocation::Names(self.subscription.names().address());
        (size > 0).then(|| (names(), size))
    }

    /// The same for what is in hand. To tell for each exception would take a search of the view, so it is an upper bound.
    pub(crate) fn pending_memory(&self) -> usize {
        let all = self.exceptions.len();
        let beyond = all.saturating_sub(self.view.tree(self.kind).len());
        EXCEPTION * beyond.max(all.min(self.absent.count + self.resumed))
    }

    /// To be called when the subscription has changed. `more`: there may be names among the new ones that the view does not have.
    /// Where there were none and are none nothing is counted, and that is the rule.
    pub(super) fn count_absent(&mut self, more: bool) -> Result<(), RequestError> {
        if !more && self.absent == Absent::default() {
            return Ok(());
        }
        let before = self.absent.count;
        let names = self.subscription.names().iter().map(|name| &**name);
        self.absent = Absent::of(names, &self.view, self.kind);
        // Who asks for fewer is let: it may be that the view lost them.
        if self.absent.count > before { self.check_absent(self.absent.count) } else { Ok(()) }
    }

    pub(super) fn check_absent(&self, count: usize) -> Result<(), RequestError> {
        let existing = self.view.tree(self.kind).len();
        if count > existing + ABSENT_NAMES_LIMIT {
            let type_url = self.kind.type_url().to_owned();
            return Err(RequestError::TooManyAbsent { type_url, count, existing });
        }
        Ok(())
    }
}
