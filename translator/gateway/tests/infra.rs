//! What runs for Gateways, case by case: objects, then what is made for them. `UPDATE_GOLDEN=1` rewrites the second part.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_gateway::infra::{
    DEFAULT_IMAGE, Part, ProxyIdentity, ProxySettings, Rendered, RunAs, names, render,
};
use heliograph_gateway::objects::{Document, parse};
use heliograph_gateway::{Event, World};
use std::fs;
use std::path::{Path, PathBuf};

const MARK: &str = "#! everything below is made from what is above: UPDATE_GOLDEN=1 rewrites it\n";

struct Case {
    path: PathBuf,
    input: String,
    expected: String,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/infra");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are no cases");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let (input, expected) = text.split_once(MARK).unwrap_or((&text, ""));
        Case { input: input.to_owned(), expected: expected.to_owned(), path }
    };
    paths.into_iter().map(read).collect()
}

impl Case {
    fn rendered(&self) -> Vec<Rendered> {
        let mut world = World::new();
        for document in parse(&self.input) {
            match document {
                Document::Object(object) => world.apply(Event::Applied(object)),
                other => panic!("{}: {other:?}", self.path.display()),
            }
        }
        world.settle();
        let settings = self.settings();
        let all = world.infra().map(|infra| render(infra, &settings).unwrap().unwrap_or_default());
        all.flatten().collect()
    }

    /// The name of the case says how proxies show who they are, and whether the cluster says as whom they run.
    fn settings(&self) -> ProxySettings {
        let name = self.path.file_stem().unwrap().to_string_lossy();
        let identity = if name.starts_with("certificate") {
            ProxyIdentity::Certificate { secret: "envoy-certificate".to_owned() }
        } else {
            ProxyIdentity::Token { audience: "heliograph".to_owned() }
        };
        let owner = if name.starts_with("any-user") { RunAs(None) } else { RunAs::default() };
        ProxySettings {
            image: DEFAULT_IMAGE.to_owned(),
            host: "distributor.heliograph.svc".to_owned(),
            port: 18000,
            ca_bundle: Some("the authorities, in PEM\n".to_owned()),
            ca_file: None,
            identity,
            user: owner,
            group: owner,
        }
    }
}

#[test]
fn every_case_gives_what_its_file_says() {
    let mut wrong = Vec::new();
    for case in cases() {
        let text = |rendered: &Rendered| serde_saphyr::to_string(&rendered.object).unwrap();
        let all: Vec<String> =
            case.rendered().iter().map(|rendered| format!("---\n{}", text(rendered))).collect();
        let actual = all.concat();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&case.path, format!("{}{MARK}{actual}", case.input)).unwrap();
        } else if actual != case.expected {
            let lines = case.expected.lines().zip(actual.lines());
            let first = lines.into_iter().find(|(expected, actual)| expected != actual);
            wrong.push(format!("{}: {first:?}", case.path.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nIf the new output is right, rewrite the files with `make golden` and read the diff.",
        wrong.join("\n")
    );
}

#[test]
fn everything_is_labelled_owned_and_in_the_namespace_of_its_gateway() {
    for case in cases() {
        for Rendered { part, namespace, name, object } in case.rendered() {
            let of = format!("{}: {} {namespace}/{name}", case.path.display(), part.kind());
            let metadata = &object["metadata"];
            assert_eq!(metadata["namespace"], *namespace, "{of}");
            let longest = if part == Part::ServiceAccount { 253 } else { 63 };
            assert!(name.len() <= longest, "{of}");
            let (managed_by, us) = names::MANAGED_BY;
            assert_eq!(metadata["labels"][managed_by], us, "{of}");
            assert_eq!(metadata["labels"][names::FLEET_NAMESPACE_LABEL], *namespace, "{of}");
            let annotations = &metadata["annotations"];
            if case.path.ends_with("merged.yaml") {
                assert!(metadata["ownerReferences"].is_null(), "{of}");
                assert_eq!(annotations[names::CLASS_ANNOTATION], "edge.example.org", "{of}");
                assert!(annotations[names::GATEWAY_ANNOTATION].is_null(), "{of}");
            } else {
                let owner = &metadata["ownerReferences"][0];
                assert_eq!(owner["kind"], "Gateway", "{of}");
                assert_eq!(owner["name"], annotations[names::GATEWAY_ANNOTATION], "{of}");
            }
            let labels: Vec<&str> = case
                .input
                .lines()
                .filter_map(|line| line.trim().strip_prefix("labels: {team: ")?.strip_suffix('}'))
                .collect();
            for team in labels {
                assert_eq!(metadata["labels"]["team"], team, "{of}");
            }
        }
    }
}

/// Components of the cluster act on what pods and their accounts are annotated with.
#[test]
fn annotations_with_a_prefix_are_for_the_service_alone_unless_allowed() {
    let case = cases().into_iter().find(|case| case.path.ends_with("tuned.yaml")).unwrap();
    let has = |annotations: &serde_json::Value| {
        ["note", "example.org/contact", "k8s.v1.cni.cncf.io/networks"]
            .map(|name| annotations.get(name).is_some())
    };
    for Rendered { part, object, .. } in case.rendered() {
        let is_service = part == Part::Service;
        assert_eq!(has(&object["metadata"]["annotations"]), [true, true, is_service], "{part:?}");
        if let Some(template) = object.pointer("/spec/template/metadata/annotations") {
            assert_eq!(has(template), [true, true, false], "the pods of a {part:?}");
        }
    }
}
