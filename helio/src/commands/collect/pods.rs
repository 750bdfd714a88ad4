//! The pods, as the API server has them, and their logs.

use super::Args;
use super::bundle::{Bundle, as_path};
use crate::sources::{Pod, Silent, Sources};
use futures::future::join_all;
use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Of a log, the newest of it.
const LOG_BYTES: usize = 4 << 20;

/// What is read of a pod.
struct Logs<'a> {
    pod: &'a Pod,
    newest: Result<String, Silent>,
    /// Of the container before, if there was one.
    previous: Option<Result<String, Silent>>,
}

pub(super) async fn gather(
    sources: &Sources,
    args: &Args,
    bundle: &mut Bundle,
    silent: &mut Vec<Silent>,
) -> anyhow::Result<()> {
    let pods: Vec<&Pod> = sources.iter().filter_map(|it| it.pod()).chain(sources.ended()).collect();
    if pods.is_empty() {
        return Ok(());
    }
    let facts: Vec<_> = pods.iter().map(|pod| facts(&pod.object)).collect();
    bundle.add_json("pods.json".to_owned(), &facts)?;
    if args.log_lines == 0 {
        return Ok(());
    }
    let limit = args.sources.timeout();
    let logs = pods.into_iter().map(|pod| logs(pod, args.log_lines.into(), limit));
    for Logs { pod, newest, previous } in join_all(logs).await {
        let folder = if pod.has_ended() { "logs/ended" } else { "logs" };
        let logs = [("", Some(newest)), ("-before", previous)];
        for (suffix, log) in logs.into_iter().filter_map(|(suffix, log)| Some((suffix, log?))) {
            let text = match log {
                Ok(text) => newest_of(text),
                // Its node may have forgotten it, or be gone. That is no reason to complain.
                Err(failure) if pod.has_ended() => format!("it cannot be read: {}\n", failure.why),
                Err(failure) => {
                    silent.push(failure);
                    continue;
                }
            };
            bundle.add(format!("{folder}/{}{suffix}.txt", as_path(pod.name())), text);
        }
    }
    Ok(())
}

async fn logs(pod: &Pod, lines: i64, limit: Duration) -> Logs<'_> {
    let had_another = containers(&pod.object)
        .any(|status| status.restart_count > 0 || terminated(status.last_state.as_ref()).is_some());
    let newest = within(limit, pod, "log", pod.log(lines, false));
    let previous = async {
        match had_another {
            true => Some(within(limit, pod, "log before", pod.log(lines, true)).await),
            false => None,
        }
    };
    let (newest, previous) = tokio::join!(newest, previous);
    Logs { pod, newest, previous }
}

async fn within(
    limit: Duration,
    pod: &Pod,
    what: &str,
    asked: impl Future<Output = anyhow::Result<String>>,
) -> Result<String, Silent> {
    let failed =
        |why: String| Silent { name: pod.name().to_owned(), why: format!("{what}: {why}") };
    match timeout(limit, asked).await {
        Ok(answer) => answer.map_err(|error| failed(format!("{error:#}"))),
        Err(_) => Err(failed(format!("no answer within {limit:?}"))),
    }
}

fn newest_of(mut log: String) -> String {
    let excess = log.len().saturating_sub(LOG_BYTES);
    if excess > 0 {
        let line = log.as_bytes()[excess..].iter().position(|byte| *byte == b'\n');
        let start = line.map_or(excess, |at| excess + at + 1);
        // Where there is no end of a line, there may be one of a character a little later.
        log.drain(..log.ceil_char_boundary(start));
    }
    log
}

/// Not the whole object: what others put into annotations and variables is not ours to pass on.
fn facts(pod: &core::Pod) -> Value {
    let exit = |state: Option<&core::ContainerState>| {
        terminated(state).map(|it| json!({"code": it.exit_code, "reason": it.reason}))
    };
    let containers: Vec<_> = containers(pod)
        .map(|status| {
            json!({
                "name": status.name,
                "image": status.image,
                "ready": status.ready,
                "restarts": status.restart_count,
                "exit": exit(status.state.as_ref()),
                "lastExit": exit(status.last_state.as_ref()),
            })
        })
        .collect();
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    json!({
        "name": pod.metadata.name,
        "node": spec.and_then(|spec| spec.node_name.as_ref()),
        "phase": status.and_then(|status| status.phase.as_ref()),
        "ended": Pod::is_over(pod),
        "reason": status.and_then(|status| status.reason.as_ref()),
        "message": status.and_then(|status| status.message.as_ref()),
        "started": status.and_then(|status| status.start_time.as_ref()),
        "containers": containers,
    })
}

fn containers(pod: &core::Pod) -> impl Iterator<Item = &core::ContainerStatus> {
    pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten())
}

fn terminated(state: Option<&core::ContainerState>) -> Option<&core::ContainerStateTerminated> {
    state.and_then(|state| state.terminated.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_whole_lines_are_kept() {
        assert_eq!(newest_of("a\nb\n".to_owned()), "a\nb\n");
        let line = format!("{}\n", "é".repeat(99));
        let log = newest_of(line.repeat(2 * LOG_BYTES / line.len()));
        assert!(log.len() <= LOG_BYTES && log.starts_with(&line) && log.ends_with(&line));
        let log = newest_of("é".repeat(LOG_BYTES) + "a");
        assert!(log.len() <= LOG_BYTES && log.starts_with('é'));
    }
}
