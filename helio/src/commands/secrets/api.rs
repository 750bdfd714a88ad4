use anyhow::{Context, anyhow};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::fmt;

/// The Secrets of a namespace.
pub(super) struct Secrets {
    api: Api<Secret>,
    namespace: String,
}

/// A Secret that is there.
pub(super) struct Found {
    secret: Secret,
    namespace: String,
    name: String,
}

impl Secrets {
    pub(super) fn new(client: Client, namespace: Option<&str>) -> Self {
        let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
        Self { api: Api::namespaced(client, &namespace), namespace }
    }

    pub(super) async fn find(&self, name: &str) -> anyhow::Result<Option<Found>> {
        let found = self.api.get_opt(name).await.map_err(|error| self.failed("read", name, error));
        Ok(found?.map(|secret| self.found(name, secret)))
    }

    pub(super) async fn create<const N: usize>(
        &self,
        name: &str,
        kind: &str,
        data: [(&'static str, String); N],
    ) -> anyhow::Result<Found> {
        let mut secret = Secret { type_: Some(kind.to_owned()), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        // So that `kubectl get secrets -l app.kubernetes.io/name=heliograph` shows them.
        let label = ("app.kubernetes.io/name".to_owned(), "heliograph".to_owned());
        secret.metadata.labels = Some(BTreeMap::from([label]));
        set(&mut secret, data, []);
        let made = self.api.create(&PostParams::default(), &secret).await;
        let made = made.map_err(|error| self.failed("make", name, error))?;
        Ok(self.found(name, made))
    }

    /// Creates a Secret, or sets these entries of the one that was found, unless it has changed meanwhile. Its other
    /// entries stay.
    pub(super) async fn put<const N: usize, const M: usize>(
        &self,
        name: &str,
        found: Option<Found>,
        kind: &str,
        data: [(&'static str, String); N],
        annotations: [(&'static str, Option<String>); M],
    ) -> anyhow::Result<()> {
        let Found { mut secret, .. } = match found {
            Some(found) => found,
            None => self.create(name, kind, data.clone()).await?,
        };
        let before = secret.clone();
        set(&mut secret, data, annotations);
        if secret != before {
            let replaced = self.api.replace(name, &PostParams::default(), &secret).await;
            replaced.map_err(|error| self.failed("change", name, error))?;
        }
        Ok(())
    }

    fn found(&self, name: &str, secret: Secret) -> Found {
        Found { secret, namespace: self.namespace.clone(), name: name.to_owned() }
    }

    /// The API server's own words say what is missing, without the wrapping that the client has around them.
    fn failed(&self, what: &str, name: &str, error: kube::Error) -> anyhow::Error {
        let Self { namespace, .. } = self;
        let cause = match error {
            kube::Error::Api(status) if status.code == 409 => {
                anyhow!("it was changed at the same time: run this command again")
            }
            kube::Error::Api(status) => anyhow!(status.message.clone()),
            error => anyhow!(error),
        };
        cause.context(format!("cannot {what} the Secret {namespace}/{name}"))
    }
}

impl Found {
    /// What is under a key.
    pub(super) fn text(&self, key: &str) -> anyhow::Result<&str> {
        let data = self.secret.data.as_ref().and_then(|data| data.get(key));
        let ByteString(bytes) = data.with_context(|| format!("{self} has no {key}"))?;
        // Without the cause, which could quote what is in it.
        str::from_utf8(bytes).ok().with_context(|| format!("{self}: {key} is no text"))
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.secret.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret {}/{}", self.namespace, self.name)
    }
}

fn set<const N: usize, const M: usize>(
    secret: &mut Secret,
    data: [(&'static str, String); N],
    annotations: [(&'static str, Option<String>); M],
) {
    let into = secret.data.get_or_insert_default();
    for (key, text) in data {
        into.insert(key.to_owned(), ByteString(text.into_bytes()));
    }
    for (name, value) in annotations {
        let into = secret.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => into.insert(name.to_owned(), value),
            None => into.remove(name),
        };
    }
}
