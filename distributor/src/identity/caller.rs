use super::certificate::Peer;
use super::expiring_body::ExpiringBody;
use super::voter::voter;
use super::{Authenticator, Identity, Proven};
use bytes::Bytes;
use heliograph_snapshot::FleetName;
use heliograph_store::Voter;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;
use zeroize::Zeroizing;

/// The one who made a call. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    authenticator: Arc<Authenticator>,
    proven: Proven,
    credential: Credential,
    /// In how long the credential is to be checked again; `None` without authentication.
    next_check: Option<Duration>,
    /// What it reads, once it has named it and may.
    fleet: OnceLock<FleetName>,
}

/// The credential of a client, kept so that it can be checked again while its stream is open.
#[derive(Clone)]
pub(super) enum Credential {
    /// Nothing was asked for.
    Nothing,
    Certificate(Arc<Peer>),
    /// And where it came from.
    Token(Arc<Zeroizing<String>>, IpAddr),
}

impl Caller {
    pub(super) fn new(
        authenticator: Arc<Authenticator>,
        proven: Proven,
        credential: Credential,
        next_check: Option<Duration>,
    ) -> Self {
        let fleet = OnceLock::new();
        Self(Arc::new(Inner { authenticator, proven, credential, next_check, fleet }))
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.0.proven.identity
    }

    /// The voter that it counts as, with the node id that it sent.
    pub(crate) fn voter(&self, address: IpAddr, node: &str) -> Voter {
        let Proven { identity, pod } = &self.0.proven;
        voter(pod.as_deref(), identity, address, node)
    }

    /// Whether it may read this fleet, which it named, by the rules of now: they may have changed since it called.
    pub(crate) fn admit(&self, fleet: &FleetName) -> Result<(), Status> {
        self.0.authenticator.check(self.identity(), fleet)?;
        // A stream names one fleet, and a caller is of one stream.
        let _ = self.0.fleet.set(fleet.clone());
        Ok(())
    }

    /// The body of a stream, which ends when its caller may no longer read it.
    pub(crate) fn limit_body<B>(self, body: B) -> Body
    where
        B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        match self.0.next_check {
            None => Body::new(body),
            Some(_) => Body::new(ExpiringBody::new(body, self)),
        }
    }

    /// Why this caller may no longer read, when that comes.
    pub(super) async fn lapse(self) -> Status {
        let Inner { authenticator, credential, next_check, fleet, .. } = &*self.0;
        let mut next_check = *next_check;
        loop {
            let Some(wait) = next_check else { return std::future::pending().await };
            sleep(wait).await;
            match authenticator.check_again(credential, fleet.get()).await {
                Ok(next) => next_check = next,
                Err(status) => return status,
            }
        }
    }
}

/// The token stays where it is.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Certificate(_) => "Certificate",
            Self::Token(..) => "Token",
        })
    }
}
