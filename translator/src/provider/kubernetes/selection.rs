use super::holdings::Holdings;
use heliograph_gateway::objects::{Kind, ObjectName, Scope};
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::watch;

/// Whose objects count: those of all namespaces, or of those whose labels a selector chooses. The API chooses, so what
/// the watch of namespaces holds is the choice. When it changes, every other kind is listed again: that is rare, and what
/// was passed over is not kept.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    selector: Option<Arc<str>>,
    /// None before the namespaces have been listed.
    chosen: watch::Sender<Option<Names>>,
    seen: watch::Receiver<Option<Names>>,
}

type Names = Arc<BTreeSet<Arc<str>>>;

impl Selection {
    pub(super) fn new(selector: Option<&str>) -> Self {
        let (chosen, seen) = watch::channel(None);
        Self { selector: selector.map(Arc::from), chosen, seen }
    }

    /// What the API is to choose by.
    pub(super) fn labels_of(&self, kind: Kind) -> Option<String> {
        self.selector.as_deref().filter(|_| kind == Kind::Namespace).map(str::to_owned)
    }

    pub(super) fn has(&self, kind: Kind, name: &ObjectName) -> bool {
        !self.is_for(kind)
            || self.seen.borrow().as_ref().is_some_and(|names| names.contains(&name.namespace))
    }

    /// Waits until it is known whose objects of a kind count.
    pub(super) async fn known(&mut self, kind: Kind) {
        if self.is_for(kind) {
            // The sender is our own, so the wait cannot end because it is gone.
            let _ = self.seen.wait_for(Option::is_some).await;
            self.seen.mark_unchanged();
        }
    }

    /// Waits until other objects of a kind count.
    pub(super) async fn changed(&mut self, kind: Kind) {
        if !self.is_for(kind) || self.seen.changed().await.is_err() {
            pending().await
        }
    }

    /// These are the namespaces.
    pub(super) fn choose(&self, namespaces: &Holdings) {
        if self.selector.is_none() {
            return;
        }
        let names: BTreeSet<Arc<str>> = namespaces.names().map(|name| name.name.clone()).collect();
        self.chosen.send_if_modified(|chosen| {
            let changed = chosen.as_deref() != Some(&names);
            if changed {
                *chosen = Some(Arc::new(names));
            }
            changed
        });
    }

    fn is_for(&self, kind: Kind) -> bool {
        self.selector.is_some() && kind.scope() == Scope::Namespaced
    }
}
