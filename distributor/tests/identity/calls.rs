//! Calls of any method, without a client that knows xDS.

use crate::site::Site;
use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use heliograph_envoy::Message;
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpSocket;
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

/// A connection to make calls on.
pub(crate) struct Connection(SendRequest<Bytes>, String);

/// What a call with these headers is answered, before it has sent anything else.
pub(crate) async fn call(
    site: &Site,
    tls: ClientConfig,
    path: &str,
    authorization: &[&str],
) -> Code {
    Call::open(site, tls, path, authorization).await.answer().await.unwrap()
}

impl Connection {
    /// From that address of this machine.
    pub(crate) async fn from(address: IpAddr, site: &Site, mut tls: ClientConfig) -> Self {
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(address, 0)).unwrap();
        let tcp = socket.connect(site.address.parse().unwrap()).await.unwrap();
        let name = "127.0.0.1".try_into().unwrap();
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.unwrap();
        let (opener, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(opener, site.address.clone())
    }

    /// `None` if the server wants no more calls on this connection.
    pub(crate) async fn call(&mut self, path: &str, authorization: &[&str]) -> Option<Code> {
        let mut opener = self.0.clone().ready().await.ok()?;
        let request = request(&self.1, path, authorization);
        let (answer, body) = opener.send_request(request, false).ok()?;
        Call { answer, body }.answer().await.ok()
    }
}

fn request(address: &str, path: &str, authorization: &[&str]) -> Request<()> {
    let mut request = Request::post(format!("https://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for value in authorization {
        request = request.header("authorization", *value);
    }
    request.body(()).unwrap()
}

impl Call {
    pub(crate) async fn open(
        site: &Site,
        tls: ClientConfig,
        path: &str,
        authorization: &[&str],
    ) -> Self {
        let mut connection = Connection::from(Ipv4Addr::LOCALHOST.into(), site, tls).await;
        let request = request(&connection.1, path, authorization);
        let (answer, body) = connection.0.send_request(request, false).unwrap();
        Self { answer, body }
    }

    /// Sends these bytes of a request, and leaves it there.
    pub(crate) fn begin(mut self, bytes: &[u8]) -> Self {
        self.body.send_data(Bytes::copy_from_slice(bytes), false).unwrap();
        self
    }

    async fn answer(mut self) -> Result<Code, h2::Error> {
        // Whoever is refused may have been told so already.
        let _ = self.body.send_data(Bytes::from_static(&[0; 5]), true);
        let (head, mut body) = self.answer.await?.into_parts();
        let mut status = head.headers.get("grpc-status").cloned();
        if status.is_none() {
            while body.data().await.is_some() {}
            status = body.trailers().await?.unwrap().get("grpc-status").cloned();
        }
        Ok(Code::from_bytes(status.unwrap().as_bytes()))
    }

    /// Says this, and waits for the first words of an answer, or for how the stream ends without.
    pub(crate) async fn send(mut self, message: &impl Message) -> Result<(), Code> {
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.body.send_data([&[0], &length[..], &message].concat().into(), false).unwrap();
        let (head, mut body) = self.answer.await.unwrap().into_parts();
        let status = |headers: &HeaderMap| headers.get("grpc-status").cloned();
        let status = match status(&head.headers) {
            Some(status) => Some(status),
            None => match body.data().await {
                Some(data) => return data.map(drop).map_err(|_| Code::Unknown),
                None => status(&body.trailers().await.unwrap().unwrap()),
            },
        };
        Err(Code::from_bytes(status.unwrap().as_bytes()))
    }
}
