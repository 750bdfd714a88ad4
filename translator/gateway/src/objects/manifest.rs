//! Manifests: text with one or several YAML (or JSON) documents, each an object.

use super::{Kind, Object, ObjectKey, ObjectName, Scope};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_saphyr::MessageFormatter;
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
    let mut found = Vec::new();
    for (before, body) in documents(text) {
        // Blank lines and comments alone are no document.
        if let Some(first) = body.lines().position(|line| !is_blank(line)) {
            read(before, first + 1, body, &mut found);
        }
    }
    found
}

/// Decodes one manifest. Fields that the type does not have are refused, as `kubectl` does: what is not understood must
/// not be ignored.
pub(super) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, ManifestProblem> {
    decode_with(text, true)
}

/// Why a document could not be decoded.
pub(super) struct ManifestProblem {
    /// Counted from 1 in the document, where it is known.
    line: Option<usize>,
    reason: String,
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

/// The documents of a stream, each with the number of lines before it.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut start, mut before, mut at) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let content = line.trim_end_matches(['\n', '\r']);
        if content == "---" || content.starts_with("--- ") || content.starts_with("---\t") {
            found.push((before, &text[start..at]));
            (start, before) = (at + line.len(), number + 1);
        }
        at += line.len();
    }
    found.push((before, &text[start..]));
    found
}

fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#') || line.starts_with('%')
}

/// Reads the document that has `before` lines before it and begins in its own line `first`.
fn read(before: usize, first: usize, body: &str, found: &mut Vec<Document>) {
    let line = before + first;
    let fault = |key: Option<ObjectKey>, problem: ManifestProblem| {
        let line = problem.line.map_or(line, |line| before + line);
        Document::Fault(Fault { line, reason: problem.reason, key })
    };
    let incomplete = |what: &str| {
        let reason = format!("not a Kubernetes object: it has no {what}");
        Document::Fault(Fault { line, reason, key: None })
    };
    let header: Header = match decode_with(body, false) {
        Ok(header) => header,
        Err(problem) => return found.push(fault(None, problem)),
    };
    if header.kind.is_empty() || header.api_version.is_empty() {
        return found.push(incomplete("apiVersion and kind"));
    }
    if header.kind == "List" && header.api_version == "v1" {
        return match decode_with::<List>(body, false) {
            // Written out again, each item is a document; it stands where its list does.
            Ok(list) => {
                list.items.iter().for_each(|item| read(before, first, &item.to_string(), found))
            }
            Err(problem) => found.push(fault(None, problem)),
        };
    }
    let group = header.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let Some(kind) = Kind::find(group, &header.kind) else {
        let kind = format!("{} {}", header.api_version, header.kind);
        return found.push(Document::Unused { line, kind });
    };
    if header.metadata.name.is_empty() {
        return found.push(incomplete("metadata.name"));
    }
    let namespace = match kind.scope() {
        Scope::Cluster => None,
        Scope::Namespaced => {
            Some(header.metadata.namespace.unwrap_or_else(|| "default".to_owned()))
        }
    };
    found.push(match kind.decode(body) {
        Ok(mut object) => {
            object.metadata_mut().namespace = namespace;
            Document::Object(object)
        }
        Err(problem) => {
            let namespace = namespace.unwrap_or_default();
            let key = ObjectName::new(&namespace, &header.metadata.name).of(kind);
            fault(Some(key), problem)
        }
    });
}

fn decode_with<T: DeserializeOwned>(text: &str, strict: bool) -> Result<T, ManifestProblem> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // Only `true` and `false`: `on` and `yes` are strings to Kubernetes too.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_nodes: MOST_NODES,
            max_events: 4 * MOST_NODES,
        },
    };
    let mut place = serde_path_to_error::Track::new();
    let mut unknown = None;
    let decoded =
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            let deserializer = serde_path_to_error::Deserializer::new(deserializer, &mut place);
            serde_ignored::deserialize(deserializer, |path| {
                let path = path.to_string();
                // Read before, and no fields of the types.
                if path != "apiVersion" && path != "kind" {
                    unknown.get_or_insert(path);
                }
            })
        });
    match (decoded, unknown.filter(|_| strict)) {
        (Err(error), _) => Err(problem(&error, &place.path().to_string())),
        (Ok(_), Some(path)) => Err(unknown_field(text, &path)),
        (Ok(value), None) => Ok(value),
    }
}

/// More than a file of the size that providers read can hold.
const MOST_NODES: usize = 4_000_000;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<serde_json::Value>,
}

fn problem(error: &serde_saphyr::Error, path: &str) -> ManifestProblem {
    let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
    let text = serde_saphyr::UserMessageFormatter.format_message(error.without_snippet());
    // One line, without the parser's word for what it met.
    let text = text.lines().next().unwrap_or_default().trim_start_matches("unexpected event: ");
    // At the top there is no field to name.
    let reason = if path == "." { text.to_owned() } else { format!("{path}: {text}") };
    ManifestProblem { line: line.filter(|line| *line > 0), reason }
}

fn unknown_field(text: &str, path: &str) -> ManifestProblem {
    // Optional parents are shown as question marks.
    let path: Vec<&str> = path.split('.').filter(|part| *part != "?").collect();
    let name = path.last().copied().unwrap_or_default();
    let is_field = |line: &str| {
        let line = line.trim_start_matches([' ', '-', '{', '"']);
        line.strip_prefix(name).is_some_and(|rest| rest.trim_start_matches('"').starts_with(':'))
    };
    let line = text.lines().position(|line| is_field(line) || line.contains(&format!("{name}:")));
    ManifestProblem {
        line: line.map(|line| line + 1),
        reason: format!("unknown field {}", path.join(".")),
    }
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
        assert!(
            fault.reason.starts_with("spec.rules[0].matches[0].path.type: "),
            "{}",
            fault.reason
        );
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

    #[test]
    fn a_field_that_does_not_exist_is_refused_with_its_line() {
        let text = TWO.replace("  - matches:", "  - backendRef: []\n    matches:");
        let fault = &faults(&text)[0];
        assert_eq!(
            fault.to_string(),
            "line 13: HTTPRoute default/cart: unknown field spec.rules.0.backendRef"
        );
    }

    #[test]
    fn a_list_is_its_items() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n\
                    - apiVersion: v1\n  kind: Namespace\n  metadata: {name: b}\n";
        let keys: Vec<String> = parse(text)
            .into_iter()
            .map(|document| match document {
                Document::Object(object) => object.key().to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(keys, ["Namespace a", "Namespace b"]);
    }

    /// Once per document, whatever stands before it.
    #[test]
    fn many_documents_cost_no_more_than_their_text() {
        let text =
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n".repeat(20_000) + "a: [";
        let documents = parse(&text);
        assert_eq!(documents.len(), 20_001);
        assert!(matches!(&documents[20_000], Document::Fault(fault) if fault.line == 80_001));
    }
}
