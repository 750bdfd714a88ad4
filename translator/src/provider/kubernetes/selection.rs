use super::object_cache::ObjectCache;
use heliograph_gateway::objects::{Kind, ObjectName, Scope};
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::watch;

/// The namespaces whose objects are read: all, or those that a label selector chooses. The API evaluates the selector,
/// so the watch of namespaces has the selection. When it changes, every other kind is listed again: that is rare, and
/// objects of other namespaces are not kept.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    selector: Option<Arc<str>>,
    /// None before the namespaces have been listed.
    chosen: watch::Sender<Option<Choice>>,
    seen: watch::Receiver<Option<Choice>>,
}

/// The namespaces that count.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// Choices are counted from 1.
    pub(super) number: u64,
    names: Arc<BTreeSet<Arc<str>>>,
}

impl Selection {
    pub(super) fn new(selector: Option<&str>) -> Self {
        let (chosen, seen) = watch::channel(None);
        Self { selector: selector.map(Arc::from), chosen, seen }
    }

    /// The label selector for the API.
    pub(super) fn labels_of(&self, kind: Kind) -> Option<String> {
        self.selector.as_deref().filter(|_| kind == Kind::Namespace).map(str::to_owned)
    }

    pub(super) fn has(&self, kind: Kind, name: &ObjectName) -> bool {
        !self.is_for(kind)
            || self.seen.borrow().as_ref().is_some_and(|it| it.names.contains(&name.namespace))
    }

    /// Waits until it is known whose objects of a kind count. Returns the number of that choice, if there is one.
    pub(super) async fn known(&mut self, kind: Kind) -> Option<u64> {
        if !self.is_for(kind) {
            return None;
        }
        // The sender is our own, so the wait cannot end because it is gone.
        let _ = self.seen.wait_for(Option::is_some).await;
        self.seen.borrow_and_update().as_ref().map(|choice| choice.number)
    }

    /// Waits until other objects of a kind count.
    pub(super) async fn changed(&mut self, kind: Kind) {
        if !self.is_for(kind) || self.seen.changed().await.is_err() {
            pending().await
        }
    }

    /// The choice of these namespaces, if it is another one. Nothing is chosen by it yet.
    pub(super) fn next(&self, namespaces: &ObjectCache) -> Option<Choice> {
        self.selector.as_ref()?;
        let names: BTreeSet<Arc<str>> = namespaces.names().map(|name| name.name.clone()).collect();
        let chosen = self.seen.borrow();
        let is_other = chosen.as_ref().is_none_or(|choice| *choice.names != names);
        let number = chosen.as_ref().map_or(0, |choice| choice.number) + 1;
        is_other.then(|| Choice { number, names: Arc::new(names) })
    }

    pub(super) fn choose(&self, choice: Choice) {
        self.chosen.send_replace(Some(choice));
    }

    fn is_for(&self, kind: Kind) -> bool {
        self.selector.is_some() && kind.scope() == Scope::Namespaced
    }
}
