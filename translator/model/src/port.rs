use crate::{
    Fleet, FleetOwner, HttpSettings, InfraPort, Listener, TableKey, TcpRoute, TransportPort,
};
use bytes::Bytes;

/// One port that the proxies of a fleet bind, with everything that is needed to serve it.
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
    pub traffic: Traffic,
    /// Whose certificates its clients have to show, in PEM, where they have to show one.
    pub client_ca_bundle: Option<Bytes>,
}

/// How the traffic of a listener is routed.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// About each request, a route of this table.
    Requests(TableKey),
    /// About each connection, this route. Without one, connections are closed.
    Connections(Option<TcpRoute>),
}

impl Port {
    /// `None`: the fleet has no listener there. The route of a listener is only asked for where it decides about connections.
    pub fn of(
        fleet: &Fleet,
        port: TransportPort,
        client_ca_bundle: impl Fn(&Listener) -> Option<Bytes>,
        route: impl Fn(&Listener) -> Option<TcpRoute>,
    ) -> Option<Self> {
        let listeners = fleet.listeners.iter().filter(|listener| listener.port == port);
        let served = |listener: &Listener| ServedListener {
            traffic: match TableKey::of(&fleet.name, listener) {
                Some(table) => Traffic::Requests(table),
                None => Traffic::Connections(route(listener)),
            },
            client_ca_bundle: client_ca_bundle(listener),
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
