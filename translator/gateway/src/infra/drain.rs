use super::bootstrap::ADMIN;

/// The least time for which an Envoy that is to end goes on to accept connections: until all load balancers have removed
/// it.
const LEAST: i64 = 5;

/// The script that `bash` runs in the container before Envoy receives SIGTERM: it fails Envoy's health check, so that
/// Envoy asks clients on every connection to close it, and waits until none is left or `longest` seconds are over.
///
/// Envoy's images have no HTTP client, and its admin port wants a POST from within the pod, which no hook of
/// Kubernetes' own sends; so `bash` speaks HTTP itself.
pub fn script(longest: i64) -> String {
    let least = LEAST.min(longest);
    format!(
        r#"ask() {{
  exec 3<>/dev/tcp/127.0.0.1/{ADMIN} || return
  printf '%s %s HTTP/1.1\r\nhost: envoy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n' "$1" "$2" >&3
  while IFS= read -r line <&3; do printf '%s\n' "$line"; done
  exec 3>&-
}}
ask POST /healthcheck/fail
while (( SECONDS < {longest} )); do
  if (( SECONDS >= {least} )); then
    connections=$(ask GET '/stats?filter=^server.total_connections$')
    [[ $connections == *'server.total_connections: 0'* ]] && break
  fi
  sleep 1
done
"#
    )
}
