//! The Gateway API conditions of every object, as the Kubernetes provider would write them.

use crate::provider::file::{Remark, RemarkList};
use crate::provider::kubernetes::{ApiRemark, WatchHealth};
use crate::report::Report;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use heliograph_gateway::objects::ObjectKey;
use heliograph_gateway::status::Status;
use heliograph_shared::table::columns;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use tokio::sync::watch;

/// The status page of a directory and its objects.
#[derive(Debug, Serialize)]
pub struct StatusPage {
    objects: Vec<ObjectStatus>,
    /// What is wrong with the files themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<Remark>>,
    /// What is wrong with what the Kubernetes API serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<Vec<ApiRemark>>,
}

/// Remarks about the source of objects.
#[derive(Clone, Debug)]
pub enum Remarks {
    Files(watch::Receiver<RemarkList>),
    Api(WatchHealth),
}

#[derive(Debug, Serialize)]
struct ObjectStatus {
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: String,
    name: String,
    status: Value,
}

#[derive(Deserialize)]
struct PageQuery {
    format: Option<Format>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Json,
    Yaml,
    Text,
}

/// One line of the table.
struct Row<'a> {
    object: String,
    /// Of which part of the object: a listener, or a parent.
    part: String,
    condition: &'a Value,
}

impl StatusPage {
    pub fn new<'a>(
        statuses: impl IntoIterator<Item = (&'a ObjectKey, &'a Status)>,
        files: &[Remark],
    ) -> Result<Self, serde_json::Error> {
        let objects = statuses.into_iter().map(|(key, status)| {
            Ok(ObjectStatus {
                kind: key.kind.as_str(),
                namespace: key.name.namespace.to_string(),
                name: key.name.name.to_string(),
                status: serde_json::to_value(status)?,
            })
        });
        let objects = objects.collect::<Result<_, serde_json::Error>>()?;
        Ok(Self { objects, files: Some(files.to_vec()), api: None })
    }

    /// For people.
    pub fn table(&self) -> String {
        let conditions = self.objects.iter().flat_map(ObjectStatus::rows).map(
            |Row { object, part, condition }| {
                let [kind, status, reason, message] = ["type", "status", "reason", "message"]
                    .map(|field| condition[field].as_str().unwrap_or_default().to_owned());
                [object, part, kind, status, reason, message]
            },
        );
        let ignored = self.objects.iter().filter_map(|object| {
            let [part, status, reason] = Default::default();
            let why = object.status["ignored"].as_str()?.to_owned();
            Some([object.title(), part, "Ignored".to_owned(), status, reason, why])
        });
        let rows: Vec<[String; 6]> = conditions.chain(ignored).collect();
        let head =
            ["OBJECT", "PART", "CONDITION", "STATUS", "REASON", "MESSAGE"].map(str::to_owned);
        let mut text = columns(&[vec![head], rows].concat());
        for remark in self.files.iter().flatten() {
            let _ = writeln!(text, "{remark}");
        }
        for remark in self.api.iter().flatten() {
            let _ = writeln!(text, "{remark}");
        }
        text
    }

    fn answer(&self, format: Format) -> Response {
        let page = |kind, text: String| ([(header::CONTENT_TYPE, kind)], text).into_response();
        match format {
            Format::Json => match serde_json::to_string_pretty(self) {
                Ok(text) => page("application/json", text + "\n"),
                Err(error) => failure(&error),
            },
            Format::Yaml => match serde_saphyr::to_string(self) {
                Ok(text) => page("application/yaml", text),
                Err(error) => failure(&error),
            },
            Format::Text => page("text/plain; charset=utf-8", self.table()),
        }
    }
}

/// The page of the admin port.
pub(crate) fn page(report: watch::Receiver<Report>, remarks: Remarks) -> MethodRouter {
    get(async move |query: Result<Query<PageQuery>, QueryRejection>| {
        let Ok(Query(PageQuery { format })) = query else {
            let message = "format is not one of json, yaml, text\n";
            return (StatusCode::BAD_REQUEST, message).into_response();
        };
        let report = report.borrow().clone();
        let statuses = report.statuses.iter().map(|(key, status)| (key, &**status));
        match remarks.page(statuses) {
            Ok(page) => page.answer(format.unwrap_or(Format::Json)),
            Err(error) => failure(&error),
        }
    })
}

fn failure(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

impl Remarks {
    fn page<'a>(
        &self,
        statuses: impl IntoIterator<Item = (&'a ObjectKey, &'a Status)>,
    ) -> Result<StatusPage, serde_json::Error> {
        match self {
            Self::Files(remarks) => {
                let remarks: Vec<Remark> = remarks.borrow().iter().cloned().collect();
                StatusPage::new(statuses, &remarks)
            }
            Self::Api(health) => {
                let page = StatusPage::new(statuses, &[])?;
                Ok(StatusPage { files: None, api: Some(health.remarks()), ..page })
            }
        }
    }
}

impl ObjectStatus {
    fn rows(&self) -> Vec<Row<'_>> {
        let mut parts = vec![(String::new(), &self.status)];
        let items = |field: &str| self.status[field].as_array().into_iter().flatten();
        parts.extend(items("listeners").map(|listener| {
            (format!("listener {}", listener["name"].as_str().unwrap_or_default()), listener)
        }));
        parts.extend(items("parents").map(|parent| (self.parent(&parent["parentRef"]), parent)));
        let object = self.title();
        parts
            .into_iter()
            .flat_map(|(part, status)| {
                let conditions = status["conditions"].as_array().into_iter().flatten();
                let row = |condition| Row { object: object.clone(), part: part.clone(), condition };
                conditions.map(row).collect::<Vec<_>>()
            })
            .collect()
    }

    /// `HTTPRoute shop/cart`.
    fn title(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        }
    }

    /// `parent shop/edge/https`.
    fn parent(&self, reference: &Value) -> String {
        let namespace = reference["namespace"].as_str().unwrap_or(&self.namespace);
        let mut text =
            format!("parent {namespace}/{}", reference["name"].as_str().unwrap_or_default());
        if let Some(section) = reference["sectionName"].as_str() {
            text = format!("{text}/{section}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_has_a_line_for_each_condition_of_each_part() {
        let condition = |kind: &str, status: &str, message: &str| json!({"type": kind, "status": status, "reason": "Because", "message": message});
        let page = StatusPage {
            objects: vec![
                ObjectStatus {
                    kind: "Gateway",
                    namespace: "default".to_owned(),
                    name: "edge".to_owned(),
                    status: json!({
                        "conditions": [condition("Accepted", "True", "")],
                        "listeners": [{"name": "http", "conditions": [condition("Programmed", "False", "no port")]}],
                    }),
                },
                ObjectStatus {
                    kind: "HTTPRoute",
                    namespace: "shop".to_owned(),
                    name: "cart".to_owned(),
                    status: json!({"parents": [{
                        "parentRef": {"name": "edge", "namespace": "default", "sectionName": "http"},
                        "conditions": [condition("Accepted", "True", "fine")],
                    }]}),
                },
            ],
            files: Some(vec![]),
            api: None,
        };
        assert_eq!(
            page.table(),
            "\
OBJECT                PART                      CONDITION   STATUS  REASON   MESSAGE
Gateway default/edge                            Accepted    True    Because
Gateway default/edge  listener http             Programmed  False   Because  no port
HTTPRoute shop/cart   parent default/edge/http  Accepted    True    Because  fine
"
        );
    }
}
