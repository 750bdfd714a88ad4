use super::{Scenario, Span, Step};
use std::time::Duration;

const CLIENTS: usize = 24;
const CLUSTERS: usize = 24;
const FLEETS: usize = 4;
const COUNT: u32 = 8;
const PAUSE: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_millis(50);

impl Scenario {
    /// The same in seconds: every step is taken, by few clients and for a moment.
    #[must_use]
    pub fn brief(mut self) -> Self {
        self.clients = self.clients.min(CLIENTS);
        self.fleets = self.fleets.min(FLEETS);
        self.repeat = self.repeat.min(2);
        self.connect.rate = None;
        self.balance.drain_time = self.balance.drain_time.min(Span(PAUSE));
        let resources = &mut self.resources;
        resources.clusters = resources.clusters.min(CLUSTERS);
        resources.listeners = resources.listeners.min(2);
        resources.routes = resources.routes.min(CLUSTERS);
        for step in &mut self.steps {
            match step {
                Step::Idle(idle) => *idle = PAUSE.min(*idle),
                Step::Change { every, count, .. } => {
                    (*every, *count) = (EVERY.min(*every), COUNT.min(*count));
                }
                Step::Reconnect { over, .. } => *over = PAUSE.min(*over),
                Step::Restart { pause, .. } => *pause = PAUSE.min(*pause),
                Step::AddServers(_) | Step::Scale { .. } | Step::Behave { .. } => {}
            }
        }
        for group in &mut self.population {
            group.conduct.hasten(Span(PAUSE));
        }
        self
    }
}
