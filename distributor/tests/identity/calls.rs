//! Calls of any method, without a client that knows xDS.

use crate::site::Site;
use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use heliograph_envoy::Message;
use http::Request;
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;

pub(crate) const METHODS: [&str; 5] = [
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/no.such.Service/Method",
];

/// A call that was made and not answered.
pub(crate) struct Call {
    answer: ResponseFuture,
    body: SendStream<Bytes>,
}

/// What a call with these headers is answered, before it has sent anything else.
pub(crate) async fn call(
    site: &Site,
    tls: ClientConfig,
    path: &str,
    authorization: &[&str],
) -> Code {
    let mut call = Call::open(site, tls, path, authorization).await;
    call.body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let (head, mut body) = call.answer.await.unwrap().into_parts();
    let mut status = head.headers.get("grpc-status").cloned();
    if status.is_none() {
        while body.data().await.is_some() {}
        status = body.trailers().await.unwrap().unwrap().get("grpc-status").cloned();
    }
    Code::from_bytes(status.unwrap().as_bytes())
}

impl Call {
    pub(crate) async fn open(
        site: &Site,
        mut tls: ClientConfig,
        path: &str,
        authorization: &[&str],
    ) -> Self {
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(&site.address).await.unwrap();
        let name = "127.0.0.1".try_into().unwrap();
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.unwrap();
        let (mut opener, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post(format!("https://{}{path}", site.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for value in authorization {
            request = request.header("authorization", *value);
        }
        let (answer, body) = opener.send_request(request.body(()).unwrap(), false).unwrap();
        Self { answer, body }
    }

    /// Says this, and waits for the first words of an answer, or for how the stream ends without.
    pub(crate) async fn say(mut self, message: &impl Message) -> Result<(), Code> {
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.body.send_data([&[0], &length[..], &message].concat().into(), false).unwrap();
        let mut body = self.answer.await.unwrap().into_body();
        match body.data().await {
            Some(data) => data.map(drop).map_err(|_| Code::Unknown),
            None => {
                let trailers = body.trailers().await.unwrap().unwrap();
                Err(Code::from_bytes(trailers.get("grpc-status").unwrap().as_bytes()))
            }
        }
    }
}
