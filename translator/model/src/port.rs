use crate::{Fleet, FleetOwner, HttpSettings, InfraPort, Listener, TableKey};
use bytes::Bytes;

/// What the proxies of a fleet bind for one port, with all that is needed to serve it.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    pub port: InfraPort,
    /// In the order of their owners; never empty.
    pub listeners: Vec<ServedListener>,
    pub http: HttpSettings,
    /// Whether several Gateways may have listeners here, each of which may come or go.
    pub is_shared: bool,
}

/// A listener of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedListener {
    pub listener: Listener,
    pub table: TableKey,
    /// Whose certificates its clients have to show, in PEM, where they have to show one.
    pub client_authorities: Option<Bytes>,
}

impl Port {
    /// `None`: the fleet has no listener there.
    pub fn of(
        fleet: &Fleet,
        port: u16,
        client_authorities: impl Fn(&Listener) -> Option<Bytes>,
    ) -> Option<Self> {
        let listeners = fleet.listeners.iter().filter(|listener| listener.port == port);
        let served = |listener: &Listener| ServedListener {
            table: TableKey::of(&fleet.name, listener),
            client_authorities: client_authorities(listener),
            listener: listener.clone(),
        };
        let listeners: Vec<ServedListener> = listeners.map(served).collect();
        (!listeners.is_empty()).then(|| Self {
            port: InfraPort::new(port),
            listeners,
            http: fleet.http.clone(),
            is_shared: FleetOwner::is_shared(&fleet.name),
        })
    }
}
