use std::io;
use std::sync::Arc;
use tonic::Code;

/// Why a client is without a stream, in one line for a person.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Ended {
    #[error("nothing listens at {0}")]
    Refused(Arc<str>),
    #[error("{address} is not a name that can be looked up: {reason}")]
    NotFound { address: Arc<str>, reason: String },
    #[error("{address} cannot be reached: {reason}")]
    Unreachable { address: Arc<str>, reason: String },
    #[error("the certificate of {address} is not the right one: {reason}")]
    Certificate { address: Arc<str>, reason: String },
    #[error("{address} and the client do not agree on TLS: {reason}")]
    Tls { address: Arc<str>, reason: String },
    #[error("{address} does not speak HTTP/2, so it is no xDS server: {reason}")]
    NotHttp2 { address: Arc<str>, reason: String },
    #[error("{address} does not speak gRPC: it answered with HTTP status {status} and {content}")]
    NotGrpc { address: Arc<str>, status: u16, content: String },
    #[error("{}", status_line(*code, message))]
    Status { code: Code, message: String },
    #[error("the connection was lost: {0}")]
    Closed(String),
    #[error("the server did not send a discovery response: {0}")]
    Unreadable(String),
    #[error("the client was told to")]
    Requested,
}

impl Ended {
    pub(crate) fn of_connecting(address: &Arc<str>, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused(address.clone()),
            _ => Self::Unreachable { address: address.clone(), reason: error.to_string() },
        }
    }

    pub(crate) fn of_handshake(address: &Arc<str>, error: &io::Error) -> Self {
        let address = address.clone();
        let tls = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(reason)) => {
                Self::Certificate { address, reason: reason.to_string() }
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                Self::Tls { address, reason: "what it answers is not TLS".to_owned() }
            }
            Some(reason) => Self::Tls { address, reason: reason.to_string() },
            None => Self::Tls { address, reason: error.to_string() },
        }
    }
}

fn status_line(code: Code, message: &str) -> String {
    let advice = match code {
        Code::Ok => return "the server ended the stream".to_owned(),
        Code::Unimplemented => "the server does not serve ADS in this protocol",
        Code::Unauthenticated => "the server does not know who the client is",
        Code::PermissionDenied => "the server does not let the client have this",
        _ => "the server ended the stream",
    };
    format!("{advice}: {code:?}: {}", message.escape_debug())
}
