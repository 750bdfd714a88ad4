use heliograph_gateway::CONTROLLER_NAME;
use heliograph_gateway::infra::{Proxies, names};
use heliograph_gateway::status::reasons::EventReason;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::time::Duration;
use tokio::time::timeout;

/// Tells users, on their Gateway or its class, why what is to run for it does not.
#[derive(Clone)]
pub(super) struct Notices(Recorder);

/// How long the API server may take for one. Nothing depends on it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the API allows for a note.
const NOTE: usize = 1024;

impl Notices {
    pub(super) fn new(client: Client) -> Self {
        let reporter = Reporter { controller: CONTROLLER_NAME.to_owned(), instance: None };
        Self(Recorder::new(client, reporter))
    }

    pub(super) async fn tell(&self, about: &ObjectReference, why: &str) {
        let note = format!("What runs for it is not as it should be: {why}");
        let event = Event {
            type_: EventType::Warning,
            reason: EventReason::InfrastructureFailed.as_str().to_owned(),
            note: Some(note[..note.floor_char_boundary(NOTE)].to_owned()),
            action: "Run".to_owned(),
            secondary: None,
        };
        if let Ok(Err(error)) = timeout(PATIENCE, self.0.publish(&event, about)).await {
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
