//! Manifests: text with one or several YAML (or JSON) documents, each an object.

use super::{Kind, Object, ObjectKey, ObjectName, Scope};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// What one document of a manifest holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    Object(Object),
    /// Something well-formed that translation has no use for, such as a Deployment.
    Unused {
        line: usize,
        kind: String,
    },
    Fault(Fault),
}

/// Why a document is not an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Counted from 1, in the whole text.
    pub line: usize,
    pub reason: String,
    /// The object that the document meant to be, where that much can be told.
    pub key: Option<ObjectKey>,
}

/// Reads every document. One that is broken harms no other.
pub fn parse(text: &str) -> Vec<Document> {
    documents(text)
        .into_iter()
        .filter(|(_, body)| body.lines().any(|line| !is_blank(line)))
        .map(|(line, body)| read(line, &body))
        .collect()
}

/// Fails with the position of what could not be understood.
pub(super) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // Only `true` and `false`: `on` and `yes` are strings to Kubernetes too.
        strict_booleans: true,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// `line 7: unknown variant ...`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.reason)
    }
}

#[derive(Deserialize)]
struct Header {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: HeaderMetadata,
}

#[derive(Default, Deserialize)]
struct HeaderMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

/// The documents of a stream, each with the number of its first line. Lines that are not its own are left blank in
/// front, so that positions in errors count from the top of the text.
fn documents(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut body = String::new();
    for (index, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") || line.starts_with("---\t") {
            found.push(std::mem::replace(&mut body, "\n".repeat(index + 1)));
        } else {
            body.push_str(line);
            body.push('\n');
        }
    }
    found.push(body);
    found
        .into_iter()
        .map(|body| {
            let first = body.lines().position(|line| !is_blank(line)).unwrap_or_default();
            (first + 1, body)
        })
        .collect()
}

fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#') || line.starts_with('%')
}

fn read(line: usize, body: &str) -> Document {
    let header: Header = match decode(body) {
        Ok(header) => header,
        Err(error) => return Document::Fault(fault(line, None, &error)),
    };
    let incomplete = |what: &str| {
        let reason = format!("not a Kubernetes object: it has no {what}");
        Document::Fault(Fault { line, reason, key: None })
    };
    if header.kind.is_empty() || header.api_version.is_empty() {
        return incomplete("apiVersion and kind");
    }
    let group = header.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let Some(kind) = Kind::find(group, &header.kind) else {
        return Document::Unused { line, kind: format!("{} {}", header.api_version, header.kind) };
    };
    if header.metadata.name.is_empty() {
        return incomplete("metadata.name");
    }
    let namespace = match kind.scope() {
        Scope::Cluster => None,
        Scope::Namespaced => {
            Some(header.metadata.namespace.unwrap_or_else(|| "default".to_owned()))
        }
    };
    match kind.decode(body) {
        Ok(mut object) => {
            object.metadata_mut().namespace = namespace;
            Document::Object(object)
        }
        Err(error) => {
            let namespace = namespace.unwrap_or_default();
            let key = ObjectName::new(&namespace, &header.metadata.name).of(kind);
            Document::Fault(fault(line, Some(key), &error))
        }
    }
}

fn fault(line: usize, key: Option<ObjectKey>, error: &serde_saphyr::Error) -> Fault {
    let line = error
        .location()
        .and_then(|location| usize::try_from(location.line()).ok())
        .filter(|line| *line > 0)
        .unwrap_or(line);
    // The position is told by `line`, and the message is one line.
    let text = error.render_with_formatter(&serde_saphyr::DefaultMessageFormatter);
    let mut reason = text.lines().next().unwrap_or_default().to_owned();
    if let Some(at) = reason.rfind(" at line ") {
        reason.truncate(at);
    }
    Fault { line, reason, key }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "\
# a comment
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: cart
spec:
  rules:
  - matches:
    - path: {type: PathPrefix, value: /}
---
";

    fn faults(text: &str) -> Vec<Fault> {
        parse(text)
            .into_iter()
            .filter_map(|document| match document {
                Document::Fault(fault) => Some(fault),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn every_document_is_an_object_of_its_kind() {
        let keys: Vec<String> = parse(TWO)
            .into_iter()
            .map(|document| match document {
                Document::Object(object) => object.key().to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(keys, ["Namespace shop", "HTTPRoute default/cart"]);
    }

    #[test]
    fn a_broken_document_says_where_and_harms_no_other() {
        let text = TWO.replace("PathPrefix", "Sideways");
        let documents = parse(&text);
        assert!(matches!(&documents[0], Document::Object(Object::Namespace(_))));
        let fault = &faults(&text)[0];
        assert_eq!(fault.line, 14);
        assert_eq!(
            fault.key.as_ref().map(ToString::to_string).as_deref(),
            Some("HTTPRoute default/cart")
        );
        assert!(fault.reason.contains("Sideways"), "{}", fault.reason);
        assert_eq!(fault.reason.lines().count(), 1);
    }

    #[test]
    fn a_syntax_error_has_its_line() {
        let fault = &faults("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: [a\n")[0];
        assert!((4..=5).contains(&fault.line), "{fault}");
        assert_eq!(fault.key, None);
    }

    #[test]
    fn what_is_not_an_object_says_so() {
        assert!(faults("just text")[0].reason.len() > 1);
        assert!(faults("a: b")[0].reason.contains("no apiVersion and kind"));
        assert!(
            faults("apiVersion: v1\nkind: Secret\nmetadata: {}")[0]
                .reason
                .contains("metadata.name")
        );
    }

    #[test]
    fn other_kinds_are_told_apart_from_faults() {
        let documents = parse("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n");
        assert_eq!(
            documents,
            [Document::Unused { line: 1, kind: "apps/v1 Deployment".to_owned() }]
        );
    }

    #[test]
    fn json_is_yaml() {
        let documents =
            parse(r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}"#);
        assert!(matches!(&documents[..], [Document::Object(Object::Namespace(_))]));
    }
}
