use super::{Views, Who};
use heliograph_distributor_protocol::View;
use heliograph_snapshot::{FleetName, Snapshot};
use heliograph_views::{Class, advance, derive};
use prometheus::IntCounter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The classes of a fleet's clients that are connected here.
#[derive(Debug)]
pub(crate) struct Classes {
    seats: Mutex<Seats>,
    eras: AtomicU64,
    /// Counts the clients for which there was no class left.
    unclassed: IntCounter,
}

/// A client's place in its class. The class is there as long as someone has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seat {
    era: u64,
    /// `None`: the rules treat nothing, and all see the snapshot as it is.
    class: Option<Arc<Seated>>,
}

#[derive(Debug, Default)]
struct Seats {
    classes: BTreeMap<Class, Weak<Seated>>,
    /// Whether it was said that there are too many: of those that clients claim, and of all.
    told: [bool; 2],
}

/// A class with clients.
#[derive(Debug)]
struct Seated {
    class: Class,
    /// Whether someone had a seat in it whom the directory lists. All others only claim to be of it.
    is_listed: AtomicBool,
    /// Held while the view is derived: whoever else needs it would have to derive the same.
    derived: Mutex<Option<Derived>>,
}

/// What a class sees, and of what.
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
pub(super) const MOST: usize = 256;
/// Classes that only clients are of whom the directory does not list. What these say of themselves must not keep anybody out
/// whom it lists.
pub(super) const MOST_CLAIMED: usize = MOST / 2;

impl Classes {
    pub(crate) fn new(unclassed: IntCounter) -> Self {
        Self { seats: Mutex::default(), eras: AtomicU64::default(), unclassed }
    }

    /// Never the same again, so that nobody keeps a seat of another time.
    pub(super) fn new_era(&self) -> u64 {
        self.eras.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.seats).living().count()
    }

    pub(super) fn views(&self) -> Vec<Arc<View>> {
        let living: Vec<_> = lock(&self.seats).living().collect();
        living.iter().filter_map(|it| Some(lock(&it.derived).as_ref()?.view.clone())).collect()
    }

    fn seat(&self, fleet: &FleetName, class: Class, is_listed: bool) -> Arc<Seated> {
        let mut seats = lock(&self.seats);
        if let Some(found) = seats.find(&class, is_listed) {
            return found;
        }
        seats.classes.retain(|_, seated| seated.strong_count() > 0);
        let is_full = seats.classes.len() >= MOST;
        let is_full_of_claims = !is_listed && seats.claimed() >= MOST_CLAIMED;
        if is_full || is_full_of_claims {
            self.unclassed.inc();
            if !std::mem::replace(&mut seats.told[usize::from(is_full)], true) {
                tell(fleet, is_full);
            }
        }
        let is_full = is_full || is_full_of_claims;
        // Of no audience and without labels: what only some may see, it does not see.
        let class = if is_full { Class::default() } else { class };
        if let Some(found) = seats.find(&class, is_listed) {
            return found;
        }
        let told = class.to_string();
        tracing::debug!(%fleet, class = ?told, "the first client of a class");
        let seated = Arc::new(Seated {
            class: class.clone(),
            is_listed: AtomicBool::new(is_listed),
            derived: Mutex::default(),
        });
        seats.classes.insert(class, Arc::downgrade(&seated));
        seated
    }
}

impl Seat {
    pub(crate) fn is(&self, other: &Self) -> bool {
        let place = |seat: &Self| seat.class.as_ref().map(Arc::as_ptr);
        self.era == other.era && place(self) == place(other)
    }

    /// What its class is told by; `None` if all see the same.
    pub(crate) fn class(&self) -> Option<String> {
        self.class.as_ref().map(|seated| seated.class.to_string())
    }
}

impl Views {
    /// The view of a client, which takes another seat if it is of another class now.
    pub(crate) fn of(&self, who: &Who, seat: &mut Seat) -> Arc<View> {
        if self.rules.is_empty() {
            *seat = Seat::default();
            return self.plain.clone();
        }
        let seated = match &seat.class {
            Some(seated) if seat.era == self.era => seated.clone(),
            _ => {
                let (client, is_listed) = who.client(&self.snapshot);
                let class = self.rules.class(&client);
                self.classes.seat(&self.snapshot.fleet, class, is_listed)
            }
        };
        let view = seated.view(self);
        *seat = Seat { era: self.era, class: Some(seated) };
        view
    }
}

impl Seated {
    fn view(&self, views: &Views) -> Arc<View> {
        let mut derived = lock(&self.derived);
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

impl Seats {
    fn living(&self) -> impl Iterator<Item = Arc<Seated>> {
        self.classes.values().filter_map(Weak::upgrade)
    }

    fn claimed(&self) -> usize {
        self.living().filter(|seated| !seated.is_listed.load(Ordering::Relaxed)).count()
    }

    /// A class that is there, for a client who is about to sit down.
    fn find(&self, class: &Class, is_listed: bool) -> Option<Arc<Seated>> {
        let found = self.classes.get(class).and_then(Weak::upgrade)?;
        if is_listed {
            found.is_listed.store(true, Ordering::Relaxed);
        }
        Some(found)
    }
}

fn tell(fleet: &FleetName, is_full: bool) {
    if is_full {
        tracing::error!(
            %fleet,
            "clients of more than {MOST} classes: the others see what a client sees that no ViewPolicy is for; \
             select by labels with fewer values"
        );
    } else {
        tracing::error!(
            %fleet,
            "clients that no Proxy object lists claim to be of more than {MOST_CLAIMED} classes: the others of them see what a client \
             sees that no ViewPolicy is for; list them, or select by labels with fewer values"
        );
    }
}

/// Nothing is left half done by a thread that panics with the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
