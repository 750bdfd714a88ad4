use super::*;
use heliograph_gateway::objects::Kind;
use heliograph_model::FleetOwner;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

/// A small API of Services, what was asked of it, and what the provider has seen.
#[derive(Clone, Default)]
struct Scene(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    services: BTreeMap<String, Value>,
    requests: Vec<String>,
    is_failing: bool,
}

impl Scene {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A Service has this version, and our labels or none.
    fn put(&self, name: &str, version: &str, is_ours: bool) {
        let labels = if is_ours { labels() } else { BTreeMap::new() };
        let metadata = json!({
            "name": name, "namespace": "shop", "resourceVersion": version, "labels": labels,
        });
        self.state().services.insert(name.to_owned(), json!({ "metadata": metadata }));
    }

    /// What was asked since the last time.
    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }

    fn client(&self) -> Client {
        let scene = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = scene.answer(request.uri().path(), request.uri().query());
            async move { Ok::<_, Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    fn answer(&self, path: &str, query: Option<&str>) -> Response<Body> {
        let mut state = self.state();
        let name = path.rsplit('/').next().unwrap().to_owned();
        assert!(!query.is_some_and(|query| query.contains("watch=true")), "nothing is watched");
        state.requests.push(name.clone());
        let (status, answer) = if state.is_failing {
            (StatusCode::INTERNAL_SERVER_ERROR, failure(500, "InternalError"))
        } else if name == "services" {
            let is_ours = |service: &&Value| service["metadata"]["labels"] != json!({});
            let items: Vec<&Value> = state.services.values().filter(is_ours).collect();
            (StatusCode::OK, json!({ "metadata": {}, "items": items }))
        } else {
            match state.services.get(&name) {
                Some(service) => (StatusCode::OK, service.clone()),
                None => (StatusCode::NOT_FOUND, failure(404, "NotFound")),
            }
        };
        Response::builder()
            .status(status)
            .body(Body::from(answer.to_string().into_bytes()))
            .unwrap()
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "code": code, "reason": reason, "message": "it fails" })
}

fn labels() -> BTreeMap<String, String> {
    names::labels(&FleetOwner::Gateway(ObjectName::new("shop", "web")))
}

fn reader(scene: &Scene) -> (Reader, DeployedPart) {
    let deployed = Deployed::of([Kind::Service]);
    let services = deployed.of_part(Part::Service).unwrap().clone();
    services.begin_list();
    services.complete_list();
    (Reader::new(scene.client(), Part::Service, &services), services)
}

fn record(services: &DeployedPart, name: &str, version: &str) {
    services.record(&ObjectName::new("shop", name), version, Some(&labels()));
}

/// The next event in words.
async fn next(reader: &mut Reader) -> String {
    let name = |object: &DynamicObject| object.metadata.name.clone().unwrap();
    match reader.next().await {
        Ok(Event::Init) => "list".to_owned(),
        Ok(Event::InitApply(object)) => format!("listed {}", name(&object)),
        Ok(Event::InitDone) => "complete".to_owned(),
        Ok(Event::Apply(object)) => format!("applied {}", name(&object)),
        Ok(Event::Delete(object)) => format!("gone {}", name(&object)),
        Err(_) => "failed".to_owned(),
    }
}

async fn expect(reader: &mut Reader, expected: &[&str]) {
    for expected in expected {
        assert_eq!(next(reader).await, *expected);
    }
}

#[tokio::test]
async fn objects_are_listed_once_and_read_when_another_version_was_seen() {
    let scene = Scene::default();
    scene.put("a", "1", true);
    scene.put("b", "1", true);
    scene.put("theirs", "1", false);
    let (mut reader, services) = reader(&scene);
    expect(&mut reader, &["list", "listed a", "listed b", "complete"]).await;
    assert_eq!(scene.requests(), ["services"]);

    // The version that is known is not read again.
    record(&services, "a", "1");
    scene.put("b", "2", true);
    record(&services, "b", "2");
    expect(&mut reader, &["applied b"]).await;
    assert_eq!(scene.requests(), ["b"]);

    services.remove(&ObjectName::new("shop", "a"));
    scene.put("c", "1", true);
    record(&services, "c", "1");
    expect(&mut reader, &["gone a", "applied c"]).await;
    assert_eq!(scene.requests(), ["c"]);

    // What the provider has seen is there no more, or not ours.
    record(&services, "d", "1");
    expect(&mut reader, &["gone d"]).await;
    scene.put("c", "3", false);
    record(&services, "c", "2");
    expect(&mut reader, &["gone c"]).await;
    assert_eq!(scene.requests(), ["d", "c"]);
}

#[tokio::test]
async fn where_much_may_have_changed_all_is_listed() {
    let scene = Scene::default();
    let (mut reader, services) = reader(&scene);
    expect(&mut reader, &["list", "complete"]).await;
    for number in 0..=MOST_READS {
        record(&services, &format!("s{number}"), "1");
    }
    scene.put("a", "1", true);
    expect(&mut reader, &["list", "listed a", "complete"]).await;
    // The provider has listed again: something may have come and gone without its notice.
    services.begin_list();
    services.complete_list();
    expect(&mut reader, &["list", "listed a", "complete"]).await;
    assert_eq!(scene.requests(), ["services"; 3]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again() {
    let scene = Scene::default();
    scene.put("a", "1", true);
    scene.state().is_failing = true;
    let (mut reader, services) = reader(&scene);
    expect(&mut reader, &["failed", "failed"]).await;
    scene.state().is_failing = false;
    expect(&mut reader, &["list", "listed a", "complete"]).await;
    scene.put("a", "2", true);
    scene.state().is_failing = true;
    record(&services, "a", "2");
    expect(&mut reader, &["failed"]).await;
    scene.state().is_failing = false;
    expect(&mut reader, &["applied a"]).await;
}
