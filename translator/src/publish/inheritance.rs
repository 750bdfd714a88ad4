use heliograph_snapshot::{Internal, Snapshot};
use heliograph_views::LeftOut;

/// The parts of objects that an earlier term left out of a fleet, because proxies reject them. They are left out again
/// before the fleet is published.
#[derive(Debug, Default)]
pub(super) enum Inheritance {
    #[default]
    Unknown,
    /// It has yet to be left out of the wanted content. It is passed on once.
    Found(Vec<LeftOut>),
    Settled,
}

impl Inheritance {
    pub(super) fn settled() -> Self {
        Self::Settled
    }

    /// Whether what is wanted is to wait. `held` is what an earlier term published.
    pub(super) fn is_awaited(&mut self, held: &Snapshot, wanted: &Snapshot) -> bool {
        if let Self::Unknown = self {
            let is_known = |left_out: &LeftOut| {
                let entry = left_out.resource();
                let known = wanted.internal(Internal::Quarantine).get(&entry.name);
                known.is_some_and(|known| known.version == entry.version)
            };
            let found: Vec<_> = LeftOut::all(held).filter(|it| !is_known(it)).collect();
            *self = if found.is_empty() { Self::Settled } else { Self::Found(found) };
        }
        matches!(self, Self::Found(_))
    }

    /// The entries that are not passed on yet.
    pub(super) fn take(&mut self) -> Vec<LeftOut> {
        match self {
            Self::Found(found) => std::mem::take(found),
            Self::Unknown | Self::Settled => Vec::new(),
        }
    }
}
