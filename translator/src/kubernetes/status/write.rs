//! One write, and the API server's answer to it.

use super::plan::{self, Method, ObjectEvent, Write};
use crate::kubernetes::ObservedObject;
use heliograph_gateway::objects::{Kind, ObjectKey, Scope};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// As which writer the API server knows us. Every replica is the same one.
const FIELD_MANAGER: &str = "heliograph-status";

/// The time limit of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a write.
#[derive(Debug)]
pub(super) struct WriteResult {
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    pub(super) events: Vec<ObjectEvent>,
    /// Whether nothing of ours was to be left.
    pub(super) removes_all: bool,
    pub(super) outcome: WriteOutcome,
}

#[derive(Debug)]
pub(super) enum WriteOutcome {
    /// The object as it is now.
    Written(ObservedObject),
    /// The object is another one than the write was made for; as it is now, if that could be read.
    Conflict(Option<ObservedObject>),
    /// There is no such object any more.
    Gone,
    /// No object of the kind may be written.
    Forbidden(String),
    Failed(String),
}

/// How to reach the objects of a kind whose status we write.
pub(super) fn resource(kind: Kind) -> Option<ApiResource> {
    let is_applied =
        matches!(kind, Kind::GatewayClass | Kind::Gateway | Kind::ListenerSet | Kind::ViewPolicy);
    let version = kind.api_version().filter(|_| is_applied || plan::is_signed(kind))?;
    Some(ApiResource::from_gvk(&GroupVersionKind::gvk(kind.group(), version, kind.as_str())))
}

pub(super) async fn write(
    client: Client,
    key: ObjectKey,
    uid: String,
    write: Write,
) -> WriteResult {
    let Write { method, body, is_minor: _, removes_all, events } = write;
    let outcome = match resource(key.kind) {
        Some(resource) => send(&api(client, &key, &resource), &key.name.name, method, body).await,
        None => WriteOutcome::Gone,
    };
    WriteResult { key, uid, events, removes_all, outcome }
}

async fn send(api: &Api<DynamicObject>, name: &str, method: Method, body: Value) -> WriteOutcome {
    let (params, patch) = match method {
        // These conditions are ours, whichever manager wrote them first.
        Method::Apply => (PatchParams::apply(FIELD_MANAGER).force(), Patch::Apply(body)),
        Method::Merge => {
            let field_manager = Some(FIELD_MANAGER.to_owned());
            (PatchParams { field_manager, ..PatchParams::default() }, Patch::Merge(body))
        }
    };
    let Ok(answer) = timeout(WRITE_TIMEOUT, api.patch_status(name, &params, &patch)).await else {
        return WriteOutcome::Failed("the API server does not answer".to_owned());
    };
    match answer {
        Ok(object) => WriteOutcome::Written(seen(&object)),
        Err(Error::Api(status)) if status.code == 404 => WriteOutcome::Gone,
        Err(Error::Api(status)) if status.code == 409 => {
            match timeout(WRITE_TIMEOUT, api.get(name)).await {
                Ok(Ok(object)) => WriteOutcome::Conflict(Some(seen(&object))),
                Ok(Err(Error::Api(status))) if status.code == 404 => WriteOutcome::Gone,
                Ok(Err(_)) | Err(_) => WriteOutcome::Conflict(None),
            }
        }
        // A webhook that does not let one object through answers with 403, too.
        Err(Error::Api(status))
            if status.code == 403 && status.message.contains("cannot patch resource") =>
        {
            WriteOutcome::Forbidden(format!(
                "{}; grant patch on the subresource status",
                status.message
            ))
        }
        Err(Error::Api(status)) => WriteOutcome::Failed(status.message.clone()),
        Err(error) => WriteOutcome::Failed(error.to_string()),
    }
}

fn api(client: Client, key: &ObjectKey, resource: &ApiResource) -> Api<DynamicObject> {
    match key.kind.scope() {
        Scope::Cluster => Api::all_with(client, resource),
        Scope::Namespaced => Api::namespaced_with(client, &key.name.namespace, resource),
    }
}

fn seen(object: &DynamicObject) -> ObservedObject {
    let metadata = &object.metadata;
    ObservedObject {
        generation: metadata.generation.unwrap_or_default(),
        resource_version: metadata.resource_version.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        unreadable: None,
        status: Arc::new(object.data.get("status").cloned().unwrap_or_default()),
    }
}
