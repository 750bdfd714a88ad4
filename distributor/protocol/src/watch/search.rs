//! Which resource of a rejected reply is to blame?
//!
//! Envoy usually names the culprits in its error text, but it cannot name a resource that it cannot decode. Then all new
//! resources of the reply are suspected and sent again in halves, each by itself. An accepted half is no longer
//! suspected; a rejected one is halved again, until it is one resource.
//!
//! The session of every client that rejects searches. The client needs the innocent resources anyway, and since all
//! these sessions do the same, each step is computed once (see `transition_cache`).

use super::{Content, Exception, Watch};
use heliograph_snapshot::ResourceType;
use std::sync::Arc;

/// How far a search is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// How many replies were rejected without a culprit.
    rejections: u32,
    /// Whether the newest reply was a part of the suspects. News takes its turn with them, so that none waits for all of
    /// the other.
    probed: bool,
}

/// A resource that was in a rejected reply.
#[derive(Clone, Debug)]
pub(super) struct Suspicion {
    content: Content,
    /// Those that are sent together; the highest is next.
    group: u32,
}

/// The resources to send, suspects apart from the others.
#[derive(Default)]
pub(super) struct Candidates {
    news: Vec<(Arc<str>, Content)>,
    suspects: Vec<(Arc<str>, Content)>,
    group: Option<u32>,
    /// There are others.
    more: bool,
}

/// A client that rejects so many parts rejects all of it: enough for six culprits among a thousand.
const REJECTIONS_LIMIT: u32 = 64;

impl Watch {
    /// Whether the culprits among so many can be found by asking again. Not where the client holds something unknown: to
    /// leave a name out of a whole list would remove it.
    pub(super) fn may_search(&self, count: usize) -> bool {
        count > 1 && !self.unknown && self.search.rejections < REJECTIONS_LIMIT
    }

    /// Suspects all of a rejected reply, in two groups.
    pub(super) fn suspect(&mut self, sent: &[(Arc<str>, Content)]) {
        self.search.rejections += 1;
        for (name, _) in sent {
            if let Some(exception) = self.exceptions.get_mut(name) {
                exception.suspected = None;
            }
        }
        // What is left of others is searched later.
        let groups = self.exceptions.values().filter_map(|it| Some(it.suspected.as_ref()?.group));
        let second = groups.max().map_or(0, |group| group + 1);
        for (at, (name, content)) in sent.iter().enumerate() {
            let Some(exception) = self.exceptions.get_mut(name) else { continue };
            let group = if at < sent.len() / 2 { second + 1 } else { second };
            // Also a resource that it had before and that was to be sent once more.
            exception.resend |= content.is_some() && exception.sent.is_none();
            exception.suspected = Some(Suspicion { content: content.clone(), group });
        }
    }

    pub(super) fn is_searching(&self) -> bool {
        self.search != Search::default()
    }

    /// Ends the search once no resource is suspected.
    pub(super) fn end_search(&mut self) {
        let is_over = || self.exceptions.values().all(|exception| exception.suspected.is_none());
        if self.is_searching() && is_over() {
            self.search = Search::default();
        }
    }

    /// One kind of candidates, and whether that is all.
    pub(super) fn pick(&mut self, candidates: Candidates) -> (Vec<(Arc<str>, Content)>, bool) {
        let Candidates { news, suspects, more, .. } = candidates;
        let is_all = !more && (news.is_empty() || suspects.is_empty());
        self.search.probed = !suspects.is_empty() && (news.is_empty() || !self.search.probed);
        (if self.search.probed { suspects } else { news }, is_all)
    }
}

impl Candidates {
    /// Adds what is to be sent of a name. Whether there is room for more news.
    pub(super) fn add(
        &mut self,
        kind: ResourceType,
        name: &Arc<str>,
        exception: &Exception,
        content: Content,
    ) -> bool {
        if let Some(group) = exception.suspicion(&content) {
            if self.group < Some(group) {
                self.more |= self.group.is_some();
                self.group = Some(group);
                self.suspects.clear();
            }
            match self.group == Some(group) {
                true => self.suspects.push((name.clone(), content)),
                false => self.more = true,
            }
            return true;
        }
        if kind.properties().is_sent_alone {
            if matches!(self.news.last(), Some((_, Some(_)))) {
                self.more = true;
                return false;
            }
            if content.is_some() {
                self.more |= !self.news.is_empty();
                self.news.clear();
            }
        }
        self.news.push((name.clone(), content));
        true
    }
}

impl Suspicion {
    /// The culprit was not found, and this stays with it.
    pub(super) fn unsolved(content: &Content) -> Self {
        Self { content: content.clone(), group: 0 }
    }
}

impl Exception {
    /// The group in which this content is suspected.
    fn suspicion(&self, content: &Content) -> Option<u32> {
        let version = |content: &Content| content.as_ref().map(|resource| resource.version);
        let suspected = self.suspected.as_ref()?;
        (version(&suspected.content) == version(content)).then_some(suspected.group)
    }
}
