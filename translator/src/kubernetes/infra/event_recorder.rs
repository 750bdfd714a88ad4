use heliograph_gateway::CONTROLLER_NAME;
use heliograph_gateway::infra::{Proxies, names};
use heliograph_gateway::status::reasons::EventReason;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::time::Duration;
use tokio::time::timeout;

/// Records events of a Gateway or its class that say why its Envoys do not run as they should.
#[derive(Clone)]
pub(super) struct GatewayEvents(Recorder);

/// The time limit of one event. Nothing depends on it.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest note that the API allows.
const LONGEST_NOTE: usize = 1024;

impl GatewayEvents {
    pub(super) fn new(client: Client) -> Self {
        let reporter = Reporter { controller: CONTROLLER_NAME.to_owned(), instance: None };
        Self(Recorder::new(client, reporter))
    }

    pub(super) async fn send(&self, about: &ObjectReference, why: &str) {
        let note = format!("The objects that run its Envoys cannot be set up: {why}");
        let event = Event {
            type_: EventType::Warning,
            reason: EventReason::InfrastructureFailed.as_str().to_owned(),
            note: Some(note[..note.floor_char_boundary(LONGEST_NOTE)].to_owned()),
            action: "Run".to_owned(),
            secondary: None,
        };
        if let Ok(Err(error)) = timeout(EVENT_TIMEOUT, self.0.publish(&event, about)).await {
            tracing::debug!("an event was not taken: {error}");
        }
    }
}

/// The Gateway, or the class whose Gateways share their proxies.
pub(super) fn about(proxies: &Proxies) -> ObjectReference {
    let Proxies { owner, .. } = proxies;
    ObjectReference {
        api_version: Some("gateway.networking.k8s.io/v1".to_owned()),
        kind: Some(names::kind(owner).as_str().to_owned()),
        name: Some(owner.name().name.to_string()),
        // A class has none.
        namespace: (!owner.is_class()).then(|| owner.name().namespace.to_string()),
        uid: Some(proxies.uid.clone()),
        ..ObjectReference::default()
    }
}
