use super::conduct::Conduct;
use super::place::Place;
use heliograph_envoy::envoy::config::core::v3::Node;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// A member as its task and the crowd share it.
pub(super) struct Seat<F> {
    pub(super) name: Arc<str>,
    pub(super) node: Arc<Node>,
    orders: Mutex<Orders>,
    place: Mutex<Arc<Place<F>>>,
    changed: Notify,
}

/// What a member was told last.
#[derive(Clone)]
pub(super) struct Orders {
    pub(super) conduct: Conduct,
    pub(super) server: usize,
    /// The list of servers that it was chosen from.
    pub(super) servers: u64,
    /// How often it was told to reconnect.
    pub(super) reconnects: u64,
    pub(super) leaves: bool,
}

impl<F> Seat<F> {
    pub(super) fn new(
        name: Arc<str>,
        node: Arc<Node>,
        orders: Orders,
        place: Arc<Place<F>>,
    ) -> Self {
        Self {
            name,
            node,
            orders: Mutex::new(orders),
            place: Mutex::new(place),
            changed: Notify::new(),
        }
    }

    pub(super) fn orders(&self) -> Orders {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// For the member itself, which need not hear of it.
    pub(super) fn choose(&self, server: usize, servers: u64) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        (orders.server, orders.servers) = (server, servers);
    }

    /// Until there was an order that the member has not heard of.
    pub(super) async fn ordered(&self) {
        self.changed.notified().await;
    }

    pub(super) fn place(&self) -> Arc<Place<F>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn stand(&self, place: Arc<Place<F>>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }
}
