//! The configuration that an Envoy starts with: its node, and how to reach the control plane.

use heliograph_snapshot::FleetName;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An Envoy of a fleet, before it has received any configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap<'a> {
    pub fleet: &'a FleetName,
    /// `None` where the command line says it, as in a pod, whose name no file knows.
    pub node: Option<Node>,
    pub distributors: Distributors<'a>,
    pub own: OwnPorts,
    /// The most bytes that its heap may have, where that is known.
    pub memory: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub id: String,
    pub region: Option<String>,
    pub zone: Option<String>,
}

/// Where snapshots come from, and how to show them who asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Distributors<'a> {
    /// A name or an address.
    pub host: &'a str,
    pub port: u16,
    /// `None`: in the clear, which is for one machine.
    pub tls: Option<Tls<'a>>,
    /// The file of a token that is shown with every call, and read again when it is swapped.
    pub token: Option<&'a str>,
    /// Where the files are that [`Bootstrap::files`] gives besides the bootstrap.
    pub folder: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tls<'a> {
    /// The file of the CA bundle of the distributors.
    pub ca_file: &'a str,
    /// The files of a certificate and its key.
    pub certificate: Option<(&'a str, &'a str)>,
}

/// The ports that an Envoy listens on in addition to those of its fleet's listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPorts {
    /// The admin port only, on any port of loopback; Envoy starts without waiting for a distributor.
    Admin,
    /// All of them, at [`ADMIN`], [`READINESS`] and [`STATS`]; Envoy serves nothing before it has received its
    /// configuration.
    All,
}

/// The admin port, on loopback.
pub const ADMIN: u16 = 19000;
/// `/ready`: whether it serves, and is not about to end.
pub const READINESS: u16 = 19001;
/// `/stats/prometheus`, and nothing else of the admin port.
pub const STATS: u16 = 19002;
/// The ports that no listener of a Gateway may have.
pub const OWN_PORTS: [u16; 3] = [ADMIN, READINESS, STATS];

/// The largest regular expression that an Envoy accepts, as instructions of RE2. Its own default is 100, which an
/// ordinary expression exceeds; then it rejects the whole route table.
pub const REGEX_PROGRAM_SIZE: u32 = 32_768;

/// The name of the file with the bootstrap itself.
pub const BOOTSTRAP_FILE: &str = "envoy.json";

impl Bootstrap<'_> {
    /// All files, by name: the bootstrap, and those that refer to certificates and tokens.
    ///
    /// Envoy reads a certificate again only if another file refers to it, which names the folder whose links are swapped
    /// when a mount changes.
    pub fn files(&self) -> BTreeMap<&'static str, Value> {
        let mut files = BTreeMap::from([(BOOTSTRAP_FILE, self.main())]);
        let Distributors { tls, token, .. } = &self.distributors;
        if let Some(Tls { ca_file, certificate }) = tls {
            let context = json!({
                "trusted_ca": { "filename": ca_file },
                "watched_directory": { "path": folder_of(ca_file) },
                "match_typed_subject_alt_names": [self.subject()],
            });
            files.insert("authorities.json", secret("authorities", "validation_context", context));
            if let Some((certificate, key)) = certificate {
                let pair = json!({
                    "certificate_chain": { "filename": certificate },
                    "private_key": { "filename": key },
                    "watched_directory": { "path": folder_of(certificate) },
                });
                files.insert("certificate.json", secret("certificate", "tls_certificate", pair));
            }
        }
        if let Some(token) = token {
            let content = json!({ "secret": {
                "filename": token,
                "watched_directory": { "path": folder_of(token) },
            } });
            files.insert("token.json", secret("token", "generic_secret", content));
        }
        files
    }

    fn main(&self) -> Value {
        let mut node = json!({ "cluster": self.fleet.as_str() });
        if let Some(Node { id, region, zone }) = &self.node {
            node["id"] = json!(id);
            if region.is_some() || zone.is_some() {
                node["locality"] = json!({
                    "region": region.as_deref().unwrap_or_default(),
                    "zone": zone.as_deref().unwrap_or_default(),
                });
            }
        }
        let mut source = json!({ "ads": {}, "resource_api_version": "V3" });
        if self.own == OwnPorts::All {
            // Without it, an Envoy that receives nothing for 15 seconds reports that it is ready, and serves nothing.
            source["initial_fetch_timeout"] = json!("0s");
        }
        let (admin, mut clusters, listeners) = match self.own {
            OwnPorts::Admin => (0, vec![], vec![]),
            OwnPorts::All => (ADMIN, vec![admin_cluster()], vec![readiness(), stats()]),
        };
        clusters.insert(0, self.cluster());
        let mut bootstrap = json!({
            "node": node,
            // It must answer also when there are more connections than there should be.
            "admin": { "address": address("127.0.0.1", admin), "ignore_global_conn_limit": true },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC",
                    "transport_api_version": "V3",
                    // Otherwise every ACK carries the node, which lists all of Envoy's extensions.
                    "set_node_on_first_message_only": true,
                    "grpc_services": [{ "envoy_grpc": {
                        "cluster_name": CLUSTER,
                        "retry_policy": { "retry_back_off": {
                            "base_interval": "0.5s", "max_interval": "15s",
                        } },
                    } }],
                },
                "cds_config": source.clone(),
                "lds_config": source,
            },
            "static_resources": { "clusters": clusters, "listeners": listeners },
            "layered_runtime": { "layers": [{
                "name": "heliograph",
                "static_layer": { "re2.max_program_size.error_level": REGEX_PROGRAM_SIZE },
            }] },
            "overload_manager": overload(self.memory),
        });
        if self.own == OwnPorts::All {
            // In place of a liveness probe: it knows of a thread that hangs, and a probe only of one that answers.
            let patience = json!({ "kill_timeout": "60s" });
            bootstrap["watchdogs"] =
                json!({ "main_thread_watchdog": patience, "worker_watchdog": patience });
        }
        bootstrap
    }

    fn cluster(&self) -> Value {
        let Distributors { host, port, tls, token, .. } = &self.distributors;
        let mut options = json!({
            "@type": format!("type.googleapis.com/{HTTP_OPTIONS}"),
            "explicit_http_config": { "http2_protocol_options": {
                // A stream that is silent for long is the normal case; this finds one whose other end is gone.
                "connection_keepalive": { "interval": "30s", "timeout": "10s" },
            } },
        });
        if token.is_some() {
            options["http_filters"] = json!([self.bearer(), {
                "name": "codec",
                "typed_config": { "@type": extension("filters.http.upstream_codec.v3.UpstreamCodec") },
            }]);
        }
        let is_address = host.parse::<IpAddr>().is_ok();
        let mut cluster = json!({
            "name": CLUSTER,
            "type": if is_address { "STATIC" } else { "STRICT_DNS" },
            "connect_timeout": "5s",
            "typed_extension_protocol_options": { HTTP_OPTIONS: options },
            "upstream_connection_options": {
                "tcp_keepalive": { "keepalive_probes": 3, "keepalive_time": 10, "keepalive_interval": 5 },
            },
            "load_assignment": {
                "cluster_name": CLUSTER,
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(host, *port) } }] }],
            },
        });
        if let Some(tls) = tls {
            let mut context = json!({
                "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" },
                "validation_context_sds_secret_config": self.in_file("authorities"),
            });
            if tls.certificate.is_some() {
                context["tls_certificate_sds_secret_configs"] =
                    json!([self.in_file("certificate")]);
            }
            let mut upstream = json!({
                "@type": extension("transport_sockets.tls.v3.UpstreamTlsContext"),
                "common_tls_context": context,
            });
            if !is_address {
                upstream["sni"] = json!(host);
            }
            cluster["transport_socket"] = json!({ "name": "tls", "typed_config": upstream });
        }
        cluster
    }

    /// Sends the token with every call. `initial_metadata` of a call cannot come from a file; this can, and is read
    /// again when the file is replaced.
    fn bearer(&self) -> Value {
        json!({
            "name": "token",
            "typed_config": {
                "@type": extension("filters.http.credential_injector.v3.CredentialInjector"),
                "overwrite": true,
                "credential": {
                    "name": "envoy.http.injected_credentials.generic",
                    "typed_config": {
                        "@type": extension("http.injected_credentials.generic.v3.Generic"),
                        "credential": self.in_file("token"),
                        "header": "authorization",
                        "header_value_prefix": "Bearer ",
                    },
                },
            },
        })
    }

    fn in_file(&self, name: &str) -> Value {
        let path = format!("{}/{name}.json", self.distributors.folder);
        json!({
            "name": name,
            "sds_config": { "resource_api_version": "V3", "path_config_source": { "path": path } },
        })
    }

    /// The name that the certificate of a distributor must have.
    fn subject(&self) -> Value {
        let host = self.distributors.host;
        let kind = if host.parse::<IpAddr>().is_ok() { "IP_ADDRESS" } else { "DNS" };
        json!({ "san_type": kind, "matcher": { "exact": host } })
    }
}

/// Lays one configuration over another: of objects each field, lists one after the other, anything else replaced.
pub fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, over) in over {
                match base.get_mut(name) {
                    Some(base) => overlay(base, over),
                    None => drop(base.insert(name.clone(), over.clone())),
                }
            }
        }
        (Value::Array(base), Value::Array(over)) => base.extend(over.iter().cloned()),
        (base, over) => *base = over.clone(),
    }
}

const CLUSTER: &str = "heliograph";
const ADMIN_CLUSTER: &str = "heliograph-admin";
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// Far more than one Envoy serves well: what is beyond it is an attack, or better served by another.
const MOST_CONNECTIONS: u32 = 50_000;

fn extension(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

fn address(host: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": host, "port_value": port } })
}

fn folder_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => ".",
    }
}

fn secret(name: &str, kind: &str, content: Value) -> Value {
    let mut secret = Map::new();
    secret.insert("@type".to_owned(), json!(extension("transport_sockets.tls.v3.Secret")));
    secret.insert("name".to_owned(), json!(name));
    secret.insert(kind.to_owned(), content);
    json!({ "resources": [secret] })
}

fn admin_cluster() -> Value {
    json!({
        "name": ADMIN_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": ADMIN_CLUSTER,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address("127.0.0.1", ADMIN) } }] }],
        },
    })
}

/// 200 while it serves, 503 once its health check was failed by the drain script.
fn readiness() -> Value {
    let check = json!({
        "name": "health",
        "typed_config": {
            "@type": extension("filters.http.health_check.v3.HealthCheck"),
            "pass_through_mode": false,
            "headers": [{ "name": ":path", "string_match": { "exact": "/ready" } }],
        },
    });
    http_listener("readiness", READINESS, vec![check], &json!([]))
}

fn stats() -> Value {
    let route =
        json!({ "match": { "path": "/stats/prometheus" }, "route": { "cluster": ADMIN_CLUSTER } });
    http_listener("stats", STATS, vec![], &json!([route]))
}

fn http_listener(name: &str, port: u16, mut filters: Vec<Value>, routes: &Value) -> Value {
    filters.push(json!({
        "name": "router",
        "typed_config": { "@type": extension("filters.http.router.v3.Router") },
    }));
    let name = format!("heliograph-{name}");
    json!({
        "name": name,
        // It must answer also when there are more connections than there should be.
        "ignore_global_conn_limit": true,
        "address": address("0.0.0.0", port),
        "filter_chains": [{ "filters": [{
            "name": "http",
            "typed_config": {
                "@type": extension("filters.network.http_connection_manager.v3.HttpConnectionManager"),
                "stat_prefix": name,
                "route_config": { "name": name, "virtual_hosts": [
                    { "name": name, "domains": ["*"], "routes": routes },
                ] },
                "http_filters": filters,
            },
        }] }],
    })
}

fn overload(memory: Option<u64>) -> Value {
    let monitor = |name: &str, kind: &str, mut config: Value| {
        config["@type"] = json!(extension(&format!("resource_monitors.{kind}")));
        json!({ "name": format!("envoy.resource_monitors.{name}"), "typed_config": config })
    };
    let connections = monitor(
        "global_downstream_max_connections",
        "downstream_connections.v3.DownstreamConnectionsConfig",
        json!({ "max_active_downstream_connections": MOST_CONNECTIONS }),
    );
    let Some(memory) = memory else {
        return json!({ "resource_monitors": [connections] });
    };
    let heap = monitor(
        "fixed_heap",
        "fixed_heap.v3.FixedHeapConfig",
        json!({ "max_heap_size_bytes": memory }),
    );
    let action = |name: &str, at: f64| {
        json!({
            "name": format!("envoy.overload_actions.{name}"),
            "triggers": [{
                "name": "envoy.resource_monitors.fixed_heap",
                "threshold": { "value": at },
            }],
        })
    };
    json!({
        "refresh_interval": "0.25s",
        "resource_monitors": [connections, heap],
        // Better to refuse some than to be killed with all.
        "actions": [action("shrink_heap", 0.9), action("stop_accepting_requests", 0.95)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_appended_to_and_values_replaced() {
        let mut base = json!({ "a": { "list": [1], "kept": 1 }, "b": 1 });
        overlay(&mut base, &json!({ "a": { "list": [2], "new": 3 }, "b": 2 }));
        assert_eq!(base, json!({ "a": { "list": [1, 2], "kept": 1, "new": 3 }, "b": 2 }));
    }

    #[test]
    fn a_file_is_watched_through_its_folder() {
        assert_eq!(folder_of("/certs/tls.crt"), "/certs");
        assert_eq!(folder_of("/tls.crt"), "/");
        assert_eq!(folder_of("tls.crt"), ".");
    }
}
