//! What is not ours any more.

use super::*;

#[tokio::test]
async fn what_was_ours_is_taken_back_also_after_a_conflict() {
    let stage = Stage::new("taken-back").await;
    stage.send_all().await;
    stage.until_programmed("False", "No proxy is connected yet").await;
    let path = stage.path("Gateway", "web");
    stage.cluster.patch(&path, json!({"spec": {"gatewayClassName": "theirs"}})).await;
    // What is planned with is older than what there is.
    let stale = stage.get("Gateway", "web").await;
    stage.cluster.patch(&path, json!({"metadata": {"labels": {"a": "b"}}})).await;
    let event = stage.observed_event(Kind::Gateway, stale);
    stage.inputs.send(Input::Batch(vec![event])).await.unwrap();
    until("our conditions are gone", async || {
        let status = stage.get("Gateway", "web").await["status"].take();
        condition(&status["conditions"], "Programmed")["status"] != "False"
    })
    .await;
    assert!(stage.writes("Gateway", "conflict") > 0);
}
