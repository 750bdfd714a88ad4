use crate::cache::ResourceCache;
use heliograph_snapshot::ResourceType;
use std::sync::Arc;
use std::time::Duration;

/// How a member of a crowd behaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Conduct {
    /// As Envoy does.
    #[default]
    Well,
    /// Takes nothing from its socket any more, from so long after it is connected.
    StopsReading { after: Duration },
    /// Rejects what is of this type and has this in its name, whichever is said; all if none is.
    Rejects { kind: Option<ResourceType>, name: Option<String> },
    /// Drops its connection, and comes back at once.
    Reconnects { every: Duration },
    /// Acknowledges the same over and over.
    Floods { per_second: u32 },
    /// Sends bytes that are not a request.
    Garbage,
}

/// The resources that [`Conduct::Rejects`] rejects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rejection {
    kind: Option<ResourceType>,
    name: Option<String>,
}

impl Conduct {
    pub(super) fn rejection(&self) -> Option<Arc<Rejection>> {
        match self {
            Self::Rejects { kind, name } => {
                Some(Arc::new(Rejection { kind: *kind, name: name.clone() }))
            }
            _ => None,
        }
    }

    /// When there is something to do of its own accord for the first time.
    pub(super) fn begins(&self) -> Option<Duration> {
        match self {
            Self::Well | Self::Rejects { .. } => None,
            Self::StopsReading { after } => Some(*after),
            // Not all at once, although all got the order at once.
            Self::Reconnects { every } => Some(every.mul_f64(fastrand::f64())),
            Self::Floods { .. } => Some(FLOOD_TICK),
            Self::Garbage => Some(GARBAGE_TICK),
        }
    }

    /// How many requests a flood is at each tick. `due` carries what is less than one.
    pub(super) fn flood(&self, due: &mut f64) -> usize {
        let Self::Floods { per_second } = self else { return 0 };
        *due += f64::from(*per_second) * FLOOD_TICK.as_secs_f64();
        let now = due.floor();
        *due -= now;
        now as usize
    }
}

impl Rejection {
    pub(super) fn of(&self, kind: ResourceType, name: &str) -> Option<String> {
        let meant = self.kind.is_none_or(|rejected| rejected == kind)
            && self.name.as_deref().is_none_or(|part| name.contains(part));
        meant.then(|| format!("{kind} {name} is rejected by this client's conduct"))
    }
}

pub(super) const FLOOD_TICK: Duration = Duration::from_millis(10);
pub(super) const GARBAGE_TICK: Duration = Duration::from_secs(1);

/// A gRPC message, or what looks like the start of one, that no xDS server can make sense of.
pub(super) fn garbage(cache: &ResourceCache) -> Vec<u8> {
    let noise: Vec<u8> = (0..fastrand::usize(1..512)).map(|_| fastrand::u8(..)).collect();
    let framed = |length: u32, content: &[u8]| {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.extend(content);
        bytes
    };
    match fastrand::u8(..4) {
        0 => framed(noise.len() as u32, &noise),
        // A message that will never be complete.
        1 => framed(u32::MAX, &noise),
        // Compressed, by its first byte.
        2 => [vec![1], framed(noise.len() as u32, &noise).split_off(1)].concat(),
        // A request for an unknown type, without a node.
        _ => {
            let tag = match cache.protocol() {
                crate::Protocol::Delta => 2,
                crate::Protocol::StateOfTheWorld => 4,
            };
            let mut request = Vec::new();
            heliograph_envoy::append_message(
                &mut request,
                tag,
                b"type.googleapis.com/no.such.Type",
            );
            framed(request.len() as u32, &request)
        }
    }
}
