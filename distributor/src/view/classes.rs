use super::{ClientInfo, Views};
use heliograph_distributor_protocol::View;
use heliograph_snapshot::{FleetName, Snapshot};
use heliograph_views::{Class, advance, derive};
use parking_lot::Mutex;
use prometheus::IntCounter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The classes of a fleet's clients that are connected here.
#[derive(Debug)]
pub(crate) struct Classes {
    table: Mutex<ClassTable>,
    eras: AtomicU64,
    /// Counts the clients for which there was no class left.
    class_limit_exceeded: IntCounter,
}

/// A client's handle to its class. The class lives as long as a client has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassHandle {
    era: u64,
    /// `None`: the rules treat nothing, and all see the snapshot as it is.
    class: Option<Arc<ActiveClass>>,
}

#[derive(Debug, Default)]
struct ClassTable {
    classes: BTreeMap<Class, Weak<ActiveClass>>,
    /// Whether it was logged that there are too many: of those that clients claim, and of all.
    logged: [bool; 2],
}

/// A class with clients.
#[derive(Debug)]
struct ActiveClass {
    class: Class,
    /// Whether a client was in it that the inventory lists. All others only claim to be of it.
    is_listed: AtomicBool,
    /// Locked while the view is derived: other streams of the class need the same view.
    derived: Mutex<Option<Derived>>,
}

/// The view of a class, and the snapshot that it is derived from.
#[derive(Clone, Debug)]
struct Derived {
    /// When a class of this name was for the same clients.
    era: u64,
    base: Arc<Snapshot>,
    snapshot: Arc<Snapshot>,
    view: Arc<View>,
}

/// A class costs what its rules change, in memory and in time at each change of the snapshot. A selector of labels that
/// differ from proxy to proxy would make one for each.
pub(super) const MAX_CLASSES: usize = 256;
/// Classes of clients that are not in the inventory. Their own claims must not use up the classes of proxies that are in
/// it.
pub(super) const MAX_CLAIMED_CLASSES: usize = MAX_CLASSES / 2;

impl Classes {
    pub(crate) fn new(class_limit_exceeded: IntCounter) -> Self {
        Self { table: Mutex::default(), eras: AtomicU64::default(), class_limit_exceeded }
    }

    /// Never the same again, so that no client keeps a handle of another era.
    pub(super) fn new_era(&self) -> u64 {
        self.eras.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().living().count()
    }

    pub(super) fn views(&self) -> Vec<Arc<View>> {
        let living: Vec<_> = self.table.lock().living().collect();
        living.iter().filter_map(|it| Some(it.derived.lock().as_ref()?.view.clone())).collect()
    }

    fn join(&self, fleet: &FleetName, class: Class, is_listed: bool) -> Arc<ActiveClass> {
        let mut table = self.table.lock();
        if let Some(found) = table.find(&class, is_listed) {
            return found;
        }
        table.classes.retain(|_, active| active.strong_count() > 0);
        let is_full = table.classes.len() >= MAX_CLASSES;
        let is_full_of_claims = !is_listed && table.claimed() >= MAX_CLAIMED_CLASSES;
        if is_full || is_full_of_claims {
            self.class_limit_exceeded.inc();
            if !std::mem::replace(&mut table.logged[usize::from(is_full)], true) {
                log_too_many(fleet, is_full);
            }
        }
        let is_full = is_full || is_full_of_claims;
        // Of no audience and without labels: what only some may see, it does not see.
        let class = if is_full { Class::default() } else { class };
        if let Some(found) = table.find(&class, is_listed) {
            return found;
        }
        let text = class.to_string();
        tracing::debug!(%fleet, class = ?text, "the first client of a class");
        let active = Arc::new(ActiveClass {
            class: class.clone(),
            is_listed: AtomicBool::new(is_listed),
            derived: Mutex::default(),
        });
        table.classes.insert(class, Arc::downgrade(&active));
        active
    }
}

impl ClassHandle {
    pub(crate) fn is(&self, other: &Self) -> bool {
        let address = |class_handle: &Self| class_handle.class.as_ref().map(Arc::as_ptr);
        self.era == other.era && address(self) == address(other)
    }

    /// The name of its class; `None` if all see the same.
    pub(crate) fn class(&self) -> Option<String> {
        self.class.as_ref().map(|active| active.class.to_string())
    }
}

impl Views {
    /// The view of a client. Replaces its handle if it is of another class now.
    pub(crate) fn of(&self, info: &ClientInfo, class_handle: &mut ClassHandle) -> Arc<View> {
        if self.rules.is_empty() {
            *class_handle = ClassHandle::default();
            return self.plain.clone();
        }
        let active = match &class_handle.class {
            Some(active) if class_handle.era == self.era => active.clone(),
            _ => {
                let (client, is_listed) = info.client(&self.snapshot);
                let class = self.rules.class(&client);
                self.classes.join(&self.snapshot.fleet, class, is_listed)
            }
        };
        let view = active.view(self);
        *class_handle = ClassHandle { era: self.era, class: Some(active) };
        view
    }
}

impl ActiveClass {
    fn view(&self, views: &Views) -> Arc<View> {
        let mut derived = self.derived.lock();
        let snapshot = match &*derived {
            // Another client of the class has seen a newer one, which is as good if the class is for the same clients
            // there.
            Some(known) if known.base.head > views.snapshot.head && known.era == views.era => {
                return known.view.clone();
            }
            Some(known) if known.base.head > views.snapshot.head => {
                let snapshot = derive(&views.snapshot, &views.rules, &self.class);
                return Arc::new(View::with(snapshot, views.substitutes.clone()));
            }
            Some(known) if Arc::ptr_eq(&known.base, &views.snapshot) => return known.view.clone(),
            Some(Derived { base, snapshot, .. }) => {
                advance(base, snapshot, &views.snapshot, &views.rules, &self.class)
            }
            None => derive(&views.snapshot, &views.rules, &self.class),
        };
        let view = Arc::new(View::with(snapshot.clone(), views.substitutes.clone()));
        let (era, base) = (views.era, views.snapshot.clone());
        *derived = Some(Derived { era, base, snapshot, view: view.clone() });
        view
    }
}

impl ClassTable {
    fn living(&self) -> impl Iterator<Item = Arc<ActiveClass>> {
        self.classes.values().filter_map(Weak::upgrade)
    }

    fn claimed(&self) -> usize {
        self.living().filter(|active| !active.is_listed.load(Ordering::Relaxed)).count()
    }

    /// A class that is there, for a client that joins it.
    fn find(&self, class: &Class, is_listed: bool) -> Option<Arc<ActiveClass>> {
        let found = self.classes.get(class).and_then(Weak::upgrade)?;
        if is_listed {
            found.is_listed.store(true, Ordering::Relaxed);
        }
        Some(found)
    }
}

fn log_too_many(fleet: &FleetName, is_full: bool) {
    if is_full {
        tracing::error!(
            %fleet,
            "the fleet has clients of more than {MAX_CLASSES} classes: the remaining clients get the view without any ViewPolicy; select by labels with fewer \
             values"
        );
    } else {
        tracing::error!(
            %fleet,
            "clients that are not in the inventory claim to be of more than {MAX_CLAIMED_CLASSES} classes: the remaining ones get the view without any \
             ViewPolicy; create Proxy objects for them, or select by labels with fewer values"
        );
    }
}
