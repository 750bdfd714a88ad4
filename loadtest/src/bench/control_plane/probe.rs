use super::objects::{App, Backend, GATEWAY, fleet};
use super::testbed::{CONTROL_PLANE_TIMEOUT, Testbed, World, quantile};
use crate::bench::{Bench, BenchError, Contender, Figure, Results};
use crate::http1::HttpConnection;
use crate::security::Security;
use crate::servers::{Program, Start, reserve_port};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// A route that is not there yet is asked for again after this.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// Of the first and of the last routes, to compare them.
const FEW: usize = 20;

/// Routes one by one, each asked for through an Envoy until it answers: 404 is too early, and anything but 200 is wrong.
pub(super) async fn measure(
    bench: &Bench,
    contender: Contender,
    routes: usize,
    results: &mut Results,
) -> Result<(), BenchError> {
    let (address, backend_port) = answer().await?;
    let port = reserve_port("envoy")?;
    let backend = Backend::Real(address, backend_port);
    let world = World { apps: 1, spare: routes, backend, port };
    let mut testbed = Testbed::start(bench, contender, world).await?;
    let mut envoy = start_envoy(bench, &testbed).await?;
    // The first route was there before.
    let answers = async || {
        let mut requests = Requests { port, connection: None };
        matches!(requests.ask(&App(0).host()).await, Ok(StatusCode::OK))
    };
    envoy.is("it answers", answers).await?;
    let (mut requests, mut wrong) = (Requests { port, connection: None }, Vec::new());
    testbed.until_quiet(Duration::from_secs(3)).await?;
    let mut times = Vec::new();
    for _ in 0..routes {
        let app = testbed.next_app();
        let (path, route) = app.route(GATEWAY, app);
        let begun = Instant::now();
        testbed.kubernetes.create(&path, &route).await?;
        requests.until_it_answers(app, &mut wrong).await?;
        times.push(begun.elapsed().as_secs_f64());
    }
    if let Some(first) = wrong.first() {
        let name = contender.name();
        results.add_note(format!("the first wrong answer through the Envoy of {name}: {first}"));
    }
    results.add_note(format!("row 9 had {routes} routes"));
    let few = FEW.min(times.len() / 2);
    let median = |times: &[f64]| {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        quantile(&times, 0.5)
    };
    let first = median(times.get(..few).unwrap_or_default());
    let last = median(times.get(times.len() - few..).unwrap_or_default());
    times.sort_by(f64::total_cmp);
    results.add(
        contender,
        vec![
            (Figure::ProbeMedian, quantile(&times, 0.5)),
            (Figure::ProbeLate, quantile(&times, 0.99)),
            (Figure::ProbeWrong, wrong.len() as f64),
            (Figure::ProbeGrowth, last / first),
        ],
    );
    Ok(())
}

/// Answers every request, at an address that may be that of an endpoint: loopback may not.
async fn answer() -> Result<(Ipv4Addr, u16), BenchError> {
    let failed = |why: String| BenchError::Proxy(format!("no address for a backend: {why}"));
    // Nothing is sent: the system only says from where it would be.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
    let local = socket.and_then(|socket| {
        socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9))?;
        socket.local_addr()
    });
    let local = local.map_err(|error| failed(error.to_string()))?;
    let IpAddr::V4(address) = local.ip() else { return Err(failed("there is no IPv4".to_owned())) };
    let listener = TcpListener::bind((address, 0)).await;
    let listener = listener.map_err(|error| failed(error.to_string()))?;
    let port = listener.local_addr().map_err(|error| failed(error.to_string()))?.port();
    let answers = axum::Router::new().fallback(async || "here");
    tokio::spawn(async move { axum::serve(listener, answers).await });
    Ok((address, port))
}

/// One connection that is kept, as browsers and other proxies do.
struct Requests {
    port: u16,
    connection: Option<HttpConnection>,
}

impl Requests {
    async fn until_it_answers(
        &mut self,
        app: App,
        wrong: &mut Vec<String>,
    ) -> Result<(), BenchError> {
        let begun = Instant::now();
        loop {
            match self.ask(&app.host()).await {
                Ok(StatusCode::OK) => return Ok(()),
                Ok(StatusCode::NOT_FOUND) => {}
                Ok(status) => wrong.push(status.to_string()),
                Err(error) => {
                    self.connection = None;
                    wrong.push(error);
                }
            }
            if begun.elapsed() > CONTROL_PLANE_TIMEOUT {
                return Err(BenchError::Proxy(format!("{} never answers", app.host())));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn ask(&mut self, host: &str) -> Result<StatusCode, String> {
        let request = Request::get("/").header("host", host).body(Full::default());
        let request = request.map_err(|error| error.to_string())?;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let opened = HttpConnection::open((Ipv4Addr::LOCALHOST, self.port)).await;
                none.insert(opened.map_err(|error| error.to_string())?)
            }
        };
        let answer = connection.exchange(request).await.map_err(|error| error.to_string())?;
        Ok(answer.0)
    }
}

async fn start_envoy(bench: &Bench, testbed: &Testbed) -> Result<Program, BenchError> {
    let advice = "`scripts/tools envoy` downloads it and prints where it is";
    let path = bench.programs.find("envoy", "ENVOY", advice)?;
    let bootstrap = bootstrap(&testbed.plane.address(), &testbed.plane.security()).to_string();
    let arguments = [
        "--config-yaml",
        &bootstrap,
        "--concurrency",
        "1",
        "--log-level",
        "warn",
        // Another one may run on the machine.
        "--use-dynamic-base-id",
    ];
    let arguments = arguments.map(OsStr::new).to_vec();
    let cpu = bench.clients_cpu;
    let start = Start { name: "envoy", program: &path, arguments, cpu };
    Ok(Program::start(&bench.programs, start)?)
}

fn bootstrap(address: &str, security: &Security) -> Value {
    let (host, port) = address
        .trim_start_matches("https://")
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)))
        .unwrap_or_default();
    let file = |path: &Option<std::path::PathBuf>| json!({ "filename": path.as_deref().map(Path::display).map(|path| path.to_string()) });
    let tls = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            // Without saying so it is 1.2 at most.
            "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" },
            "alpn_protocols": ["h2"],
            "tls_certificates": [{
                "certificate_chain": file(&security.tls_certificate),
                "private_key": file(&security.tls_key),
            }],
            "validation_context": { "trusted_ca": file(&security.tls_ca) },
        },
    });
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": {} },
    });
    let socket =
        json!({ "address": { "socket_address": { "address": host, "port_value": port } } });
    json!({
        "node": { "id": "envoy", "cluster": fleet(GATEWAY) },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC", "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "control-plane" } }],
            },
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
            "lds_config": { "ads": {}, "resource_api_version": "V3" },
        },
        "static_resources": { "clusters": [{
            "name": "control-plane", "type": "STATIC", "connect_timeout": "5s",
            "load_assignment": { "cluster_name": "control-plane", "endpoints": [{
                "lb_endpoints": [{ "endpoint": socket }],
            }] },
            "transport_socket": { "name": "tls", "typed_config": tls },
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
            },
        }] },
    })
}
