use super::conduct::Conduct;
use super::shared_state::SharedState;
use heliograph_envoy::envoy::config::core::v3::Node;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

/// A member as its task and the crowd share it.
pub(super) struct MemberHandle<F> {
    pub(super) name: Arc<str>,
    pub(super) node: Arc<Node>,
    orders: Mutex<Orders>,
    state: Mutex<Arc<SharedState<F>>>,
    changed: Notify,
}

/// The last orders of a member.
#[derive(Clone)]
pub(super) struct Orders {
    pub(super) conduct: Conduct,
    pub(super) server: usize,
    /// The list of servers that it was chosen from.
    pub(super) servers: u64,
    /// How often it was ordered to reconnect.
    pub(super) reconnects: u64,
    pub(super) leaves: bool,
}

impl<F> MemberHandle<F> {
    pub(super) fn new(
        name: Arc<str>,
        node: Arc<Node>,
        orders: Orders,
        state: Arc<SharedState<F>>,
    ) -> Self {
        Self {
            name,
            node,
            orders: Mutex::new(orders),
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    pub(super) fn orders(&self) -> Orders {
        self.orders.lock().clone()
    }

    pub(super) fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock());
        self.changed.notify_one();
    }

    /// For the member itself, which is not notified.
    pub(super) fn choose(&self, server: usize, servers: u64) {
        let mut orders = self.orders.lock();
        (orders.server, orders.servers) = (server, servers);
    }

    /// Until there is an order that the member has not seen.
    pub(super) async fn ordered(&self) {
        self.changed.notified().await;
    }

    pub(super) fn state(&self) -> Arc<SharedState<F>> {
        self.state.lock().clone()
    }

    pub(super) fn set_state(&self, state: Arc<SharedState<F>>) {
        *self.state.lock() = state;
    }
}
