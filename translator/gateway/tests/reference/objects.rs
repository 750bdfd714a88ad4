//! `docs/reference/objects.md`, from the schemas that the CRDs are made from.

use super::{check, row};
use heliograph_gateway::objects::Kind;
use heliograph_gateway::objects::heliograph::{ProxySpec, ViewPolicy};
use heliograph_gateway::objects::proxy_config::ProxyConfig;
use kube::CustomResourceExt;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::fmt::Write as _;

const HEAD: &str = "\
# Objects

`make golden` generates this page from the code, like the CRDs. It has every field of Heliograph's own kinds. `kubectl explain` shows
the same for the kinds that a cluster has.

An unknown field is rejected: in files by the programs, in a cluster by `kubectl`. `[]` in a path stands for each element of a list. A
default applies if the field is missing; it is not written into the object. For Kubernetes' own types, this page has the first
sentence of their description.
";

/// The fields of Kubernetes' own types. What is in them is described at length where they come from.
const OF_KUBERNETES: [&str; 4] =
    ["spec.resources", "spec.tolerations", "spec.clients.matchExpressions", "status.conditions"];

/// A kind of our own.
struct Described {
    kind: Kind,
    /// Where there is more to read.
    more: &'static str,
    schema: Value,
}

struct Field {
    path: String,
    schema: Value,
    is_required: bool,
}

#[test]
fn the_page_of_objects_is_up_to_date() {
    let mut page = HEAD.to_owned();
    for described in described() {
        let Described { kind, more, schema } = &described;
        let api = match kind.api_version() {
            Some(version) => format!("`apiVersion: {}/{version}`", kind.group()),
            None => "Only in files: an API server does not have it".to_owned(),
        };
        let words = words(schema);
        let _ = write!(page, "\n## {}\n\n{words} {more}\n\n{api}.\n\n", kind.as_str());
        page += &row(["field", "type", "default", "must", "what it is"]);
        page += &row(["---"; 5]);
        for field in described.fields() {
            page += &field.row();
        }
    }
    check("objects.md", &page);
}

#[test]
fn every_field_has_a_description() {
    let silent: Vec<String> = described()
        .iter()
        .flat_map(|described| {
            let fields = described.fields().into_iter();
            fields.map(|field| (described.kind, field))
        })
        .filter(|(_, field)| words(&field.schema).is_empty())
        .map(|(kind, field)| format!("{} {}", kind.as_str(), field.path))
        .collect();
    assert!(silent.is_empty(), "write a comment on the fields of these: {silent:#?}");
}

/// No kind of our own is left out.
#[test]
fn every_kind_of_ours_is_described() {
    let ours = Kind::ALL.iter().filter(|kind| kind.group() == Kind::ProxyConfig.group());
    let mut described: Vec<Kind> =
        described().into_iter().map(|described| described.kind).collect();
    described.sort();
    let mut ours: Vec<Kind> = ours.copied().collect();
    ours.sort();
    assert_eq!(described, ours);
}

fn described() -> [Described; 3] {
    let of_crd = |crd| {
        let crd = serde_json::to_value(crd).unwrap();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    };
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let proxy = json!({
        "description": "A running proxy, for rules that select proxies. The object's name is the proxy's node id, its labels are the proxy's labels.",
        "properties": {"spec": settings.into_generator().into_root_schema_for::<ProxySpec>()},
        "required": ["spec"],
    });
    [
        Described {
            kind: Kind::ProxyConfig,
            more: "See [The Envoys of a Gateway](../proxies.md#proxyconfig).",
            schema: of_crd(ProxyConfig::crd()),
        },
        Described {
            kind: Kind::ViewPolicy,
            more: "See [Views](../views.md).",
            schema: of_crd(ViewPolicy::crd()),
        },
        Described {
            kind: Kind::Proxy,
            more: "See [Which clients](../views.md#which-clients).",
            schema: proxy,
        },
    ]
}

impl Described {
    /// All of them, those within others behind them.
    fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        collect("", &self.schema, &mut fields);
        fields
    }
}

fn collect(path: &str, schema: &Value, fields: &mut Vec<Field>) {
    let required: Vec<&str> = list(&schema["required"]).filter_map(Value::as_str).collect();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let is_required = required.contains(&name.as_str());
        fields.push(Field { path: path.clone(), schema: schema.clone(), is_required });
        collect(&path, schema, fields);
        collect(&format!("{path}[]"), &schema["items"], fields);
        collect(&format!("{path}.*"), &schema["additionalProperties"], fields);
    }
}

impl Field {
    fn row(&self) -> String {
        let Self { path, schema, .. } = self;
        let default = &schema["default"];
        let default = match default {
            Value::Null | Value::Object(_) | Value::Array(_) => String::new(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let path = format!("`{path}`");
        row([&path, &type_of(schema), &default, &self.rules(), &self.words()])
    }

    fn words(&self) -> String {
        let words = words(&self.schema);
        let within = |whole: &str| self.path.starts_with(whole) && self.path != whole;
        match words.split_once(". ") {
            Some((sentence, _)) if OF_KUBERNETES.iter().any(|whole| within(whole)) => {
                format!("{sentence}.")
            }
            _ => words,
        }
    }

    /// What an API server holds it to.
    fn rules(&self) -> String {
        let schema = &self.schema;
        let mut rules = Vec::new();
        if self.is_required {
            rules.push("be there".to_owned());
        }
        let values: Vec<String> = list(&schema["enum"])
            .filter(|value| !value.is_null())
            .map(|value| format!("`{}`", value.as_str().map_or(value.to_string(), str::to_owned)))
            .collect();
        if !values.is_empty() {
            rules.push(format!("be one of {}", values.join(", ")));
        }
        for (field, rule) in [
            ("minimum", "be at least"),
            ("maximum", "be at most"),
            ("minLength", "have characters, at least"),
            ("maxLength", "have characters, at most"),
            ("minItems", "have elements, at least"),
            ("maxItems", "have elements, at most"),
            ("format", "be a"),
            ("pattern", "match"),
        ] {
            match &schema[field] {
                Value::Number(number) => rules.push(format!("{rule} {}", whole(number))),
                // The widths of numbers follow from their bounds, or are those of any machine.
                Value::String(text) if !text.starts_with("int") && !text.starts_with("uint") => {
                    rules.push(format!("{rule} `{text}`"));
                }
                _ => {}
            }
        }
        for rule in list(&schema["x-kubernetes-validations"]) {
            rules.push(format!("hold: `{}`", rule["rule"].as_str().unwrap()));
        }
        rules.join("; ")
    }
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return "integer or string".to_owned();
    }
    match schema["type"].as_str().unwrap_or("any") {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&schema["additionalProperties"]))
        }
        other => other.to_owned(),
    }
}

/// The first paragraph of a description, in one line.
fn words(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn whole(number: &serde_json::Number) -> String {
    let text = number.to_string();
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
