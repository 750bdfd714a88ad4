//! A real Prometheus that scrapes the given targets, with the chart's rules.

use crate::charts::{Question, chart};
use crate::kubernetes::{Running, until};
use crate::site::{Target, get};
use heliograph_testing::Port;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) struct Prometheus {
    port: u16,
    _running: Running,
}

/// A program that comes with Prometheus.
pub(crate) fn beside(name: &str) -> PathBuf {
    let path = std::env::var("PROMETHEUS")
        .expect("PROMETHEUS is to name the program whose path `scripts/tools prometheus` prints");
    Path::new(&path).with_file_name(name)
}

impl Prometheus {
    pub(crate) fn start(targets: &[Target], folder: &Path) -> Self {
        let scraped = targets.iter().map(|target| {
            let labels = json!({ "namespace": "heliograph-system", "pod": target.name });
            json!({ "targets": [format!("127.0.0.1:{}", target.port)], "labels": labels })
        });
        let config = json!({
            "global": { "scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s" },
            "rule_files": [chart("rules/*.yaml")],
            "scrape_configs": [
                { "job_name": "test", "static_configs": scraped.collect::<Vec<_>>() },
            ],
        });
        let file = folder.join("prometheus.yaml");
        fs::write(&file, config.to_string()).unwrap();
        let port = Port::reserve().unwrap().number();
        let log = File::create(folder.join("prometheus.log")).unwrap();
        let mut command = Command::new(beside("prometheus"));
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--log.level=warn");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { port, _running: Running::start(command) }
    }

    /// Waits until all targets have been scraped more than once, so that what happens from now on is an increase.
    pub(crate) async fn until_scraped(&self, targets: usize) {
        let scraped = async || {
            let result = self.ask("count(count_over_time(up[1m]) > 1 and on (pod) up == 1)").await;
            let count = result.as_ref().and_then(|result| result.pointer("/0/value/1"));
            count.is_some_and(|count| *count == json!(targets.to_string()))
        };
        until("all targets are scraped", scraped).await;
    }

    /// Whether there is a value that is a number.
    pub(crate) async fn has_data(&self, question: &Question) -> bool {
        let result = self.ask(&question.expression).await;
        let result = result.unwrap_or_else(|| panic!("{}: it is not answered", question.of));
        let numbers = result.as_array().into_iter().flatten();
        numbers.filter_map(|it| it["value"][1].as_str()).any(|value| value != "NaN")
    }

    pub(crate) async fn until_rules_are_well(&self) {
        until("all rules are evaluated without an error", async || {
            let answer = self.get("/api/v1/rules").await.unwrap();
            let groups = answer["data"]["groups"].as_array().unwrap();
            let mut rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
            !groups.is_empty() && rules.all(|rule| rule["health"] == "ok")
        })
        .await;
    }

    /// `None` while it does not listen.
    async fn ask(&self, expression: &str) -> Option<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}")).await?;
        assert_eq!(answer["status"], "success", "{expression}: {}", answer["error"]);
        Some(answer["data"]["result"].clone())
    }

    async fn get(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&get(self.port, path).await?).ok()
    }
}
