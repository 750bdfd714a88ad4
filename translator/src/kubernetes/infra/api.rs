use super::REQUEST_TIMEOUT;
use heliograph_gateway::infra::{Part, Rendered, Step, names, obstacle};
use heliograph_gateway::objects::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    Preconditions,
};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;

/// The field manager of what we apply.
const FIELD_MANAGER: &str = "heliograph-infra";

const PAGE: u32 = 500;

/// The field manager of the number of replicas once it is left to others, until an autoscaler sets it.
const UNTIL_SCALED: &str = "heliograph-until-scaled";

pub(super) fn all(client: &Client, part: Part) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(part))
}

/// All objects of a part that have our labels, as new as the API can tell.
pub(super) async fn list(client: &Client, part: Part) -> Result<Vec<DynamicObject>, String> {
    let api = all(client, part);
    let mut params = ListParams::default().labels(&names::selector()).limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let list = bounded(api.list(&params)).await?;
        objects.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// One object, as new as the API can tell. None if it is not there.
pub(super) async fn read(
    client: &Client,
    part: Part,
    name: &ObjectName,
) -> Result<Option<DynamicObject>, String> {
    let api = Api::namespaced_with(client.clone(), &name.namespace, &resource(part));
    bounded(api.get_opt(&name.name)).await
}

/// Executes the steps, one after the other, until one fails. Returns how many they were.
pub(super) async fn execute(client: &Client, steps: Vec<Step>) -> Result<usize, String> {
    let count = steps.len();
    for step in steps {
        match step {
            Step::Apply(rendered) => apply(client, &rendered).await?,
            Step::Delete { part, namespace, name, uid } => {
                delete(client, part, &namespace, &name, uid).await?;
            }
        }
    }
    Ok(count)
}

async fn apply(client: &Client, rendered: &Rendered) -> Result<(), String> {
    let Rendered { part, namespace, name, object } = rendered;
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource(*part));
    let at = |error: String| format!("{} {namespace}/{name}: {error}", part.kind());
    let there = bounded(api.get_metadata_opt(name)).await.map_err(at)?;
    let obstacle = there.as_ref().and_then(|there| obstacle(rendered, &there.metadata));
    if let Some(why) = obstacle {
        return Err(at(why));
    }
    if there.is_some_and(|there| owns_replicas(&there.metadata))
        && object.pointer("/spec/replicas").is_none()
    {
        bounded(leave_replicas(&api, name)).await.map_err(at)?;
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    bounded(api.patch(name, &params, &Patch::Apply(object))).await.map_err(at)?;
    Ok(())
}

/// Whether the number of replicas is what we last applied.
fn owns_replicas(metadata: &ObjectMeta) -> bool {
    let ours = metadata.managed_fields.iter().flatten();
    let mut ours = ours.filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    ours.any(|entry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    })
}

/// An apply without a field deletes it, if it has no other manager. A Deployment would then have one replica until an
/// autoscaler sets the number; so the number stays, under another manager.
async fn leave_replicas(api: &Api<DynamicObject>, name: &str) -> kube::Result<()> {
    let there = api.get(name).await?;
    let kept = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": there.data.pointer("/spec/replicas") },
    });
    // Without force: if it has just been scaled, it has another manager already, and the next attempt sees that.
    api.patch(name, &PatchParams::apply(UNTIL_SCALED), &Patch::Apply(kept)).await?;
    Ok(())
}

async fn delete(
    client: &Client,
    part: Part,
    namespace: &str,
    name: &str,
    uid: String,
) -> Result<(), String> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource(part));
    let only = Preconditions { uid: Some(uid), resource_version: None };
    let params = DeleteParams::background().preconditions(only);
    let deletion = async {
        match api.delete(name, &params).await {
            // It is gone, and an object with its name is another one.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(())
            }
            other => other.map(|_| ()),
        }
    };
    bounded(deletion).await.map_err(|error| format!("{} {namespace}/{name}: {error}", part.kind()))
}

fn resource(part: Part) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(part.group(), part.version(), part.kind()))
}

/// In one line.
async fn bounded<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(REQUEST_TIMEOUT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(format!("{} ({})", status.message, status.reason)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("the API server does not answer within {REQUEST_TIMEOUT:?}")),
    }
}
