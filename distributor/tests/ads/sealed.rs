//! Secrets that this replica cannot open.

use crate::faulty::{Faults, Faulty};
use crate::world::*;
use heliograph_client::State;
use heliograph_snapshot::ResourceType::{Listener, Secret};

#[tokio::test]
async fn what_can_be_opened_later_reaches_the_streams_at_the_same_head() {
    for protocol in BOTH {
        let keyless = Faults { keyless: true, ..Faults::default() };
        let mut world = World::over(Faulty::with(keyless)).await;
        let head = world.publish(&[secure_listener("https", "tls"), secret("tls")]).await;
        let client = world.client(protocol);
        // Everything else is served.
        let listening = |state: &State| state.names(Listener) == ["https"];
        let state = client.until("listener", DEADLINE, listening).await.unwrap();
        assert!(state.names(Secret).is_empty());
        let unopened = "heliograph_distributor_fleets{state=\"unopened\"}";
        assert!(comes_true(|| world.metric(unopened) == 1).await);
        world.store.set(Faults::default());
        let opened = |state: &State| state.names(Secret) == ["tls"];
        let state = client.until("secret", DEADLINE, opened).await.unwrap();
        assert!(
            state.received.iter().all(|received| received.nonce.starts_with(&head.to_string()))
        );
        world.acknowledged(1).await;
        assert!(comes_true(|| world.metric(unopened) == 0).await);
    }
}
