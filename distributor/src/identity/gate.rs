use super::caller::{Caller, Credential};
use super::certificate::{self, NoOwner, Peer};
use super::jwt::{Expected, KeySet, TokenRefused};
use super::metrics::SecurityMetrics;
use super::review::{ReviewRefused, Reviewer};
use super::rules::{Denied, Grants, Rules};
use super::{Identity, Proven};
use crate::followed::Followed;
use crate::log_limit::LineLimit;
use crate::tls::{HandshakeError, Material};
use heliograph_snapshot::FleetName;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tonic::Status;
use zeroize::Zeroizing;

/// Asks everybody who calls who they are.
pub(crate) struct Gate {
    /// `None`: nobody is asked.
    ways: Option<Ways>,
    metrics: SecurityMetrics,
    /// Lines about those who were turned away. They come in storms, and their count is in the metrics.
    lines: Mutex<LineLimit>,
}

/// How a client can show who it is, at least one, and what follows from it.
pub(crate) struct Ways {
    pub(super) certificates: Option<Arc<Followed<Material>>>,
    pub(super) tokens: Option<Tokens>,
    pub(super) rules: Arc<Followed<Rules>>,
    /// How often who has a stream is looked at again.
    pub(super) recheck: Duration,
}

/// Who says whose a token is.
pub(crate) enum Tokens {
    Keys { keys: Arc<Followed<KeySet>>, expected: Expected },
    Kubernetes(Box<Reviewer>),
}

/// Why a call is refused, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    NoCredential,
    Certificate,
    Token,
    NotAllowed,
    /// Not refused for good: it cannot be told now.
    Unavailable,
}

/// Somebody whose credential is good.
struct Known {
    proven: Proven,
    grants: Grants,
    valid_until: SystemTime,
}

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("who are you? {0}")]
    NoCredential(&'static str),
    #[error(transparent)]
    Owner(#[from] NoOwner),
    #[error("the client certificate is refused: {0}")]
    Certificate(#[from] rustls::Error),
    #[error(transparent)]
    Token(#[from] TokenRefused),
    #[error(transparent)]
    Review(#[from] ReviewRefused),
    #[error("the token is good, but its subject is nobody that rules can name")]
    Subject,
    #[error(transparent)]
    Denied(#[from] Denied),
}

const LONGEST_WORDS: usize = 1000;

impl Gate {
    pub(super) fn new(ways: Option<Ways>, metrics: SecurityMetrics) -> Self {
        Self { ways, metrics, lines: Mutex::default() }
    }

    /// Who calls from there, by its certificate if it has one, else by its token.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        peer: Option<&Arc<Peer>>,
        headers: &HeaderMap,
        from: IpAddr,
    ) -> Result<Caller, Status> {
        let Some(ways) = &self.ways else {
            return Ok(Caller::new(
                self.clone(),
                Identity::Anybody.into(),
                Credential::Nothing,
                None,
            ));
        };
        let status = |refused: Refused| self.status(&refused, peer.map(|peer| &**peer));
        let credential = ways.credential(peer, headers, from).map_err(status)?;
        let known = ways.know(&credential, SystemTime::now()).await;
        let Known { proven, grants: _, valid_until } = known.map_err(status)?;
        let next = ways.next_look(valid_until, SystemTime::now());
        Ok(Caller::new(self.clone(), proven, credential, Some(next)))
    }

    /// Looks at a caller again: is what it showed still good, and may it still read what it reads? Says in how long
    /// to ask again.
    pub(super) async fn look_again(
        &self,
        credential: &Credential,
        fleet: Option<&FleetName>,
    ) -> Result<Option<Duration>, Status> {
        let Some(ways) = &self.ways else { return Ok(None) };
        let now = SystemTime::now();
        let looked = ways.know(credential, now).await.and_then(|known| {
            if let Some(fleet) = fleet {
                known.grants.check(&known.proven.identity, fleet)?;
            }
            Ok(ways.next_look(known.valid_until, now))
        });
        let peer = match credential {
            Credential::Certificate(peer) => Some(&**peer),
            Credential::Nothing | Credential::Token(..) => None,
        };
        looked.map(Some).map_err(|refused| self.status(&refused, peer))
    }

    /// Whether somebody who is known may read this fleet.
    pub(super) fn check(&self, identity: &Identity, fleet: &FleetName) -> Result<(), Status> {
        let Some(ways) = &self.ways else { return Ok(()) };
        let grants = ways.rules.current().grants(identity);
        let checked = grants.and_then(|grants| grants.check(identity, fleet));
        checked.map_err(|denied| self.status(&denied.into(), None))
    }

    /// Counts a handshake that failed.
    pub(crate) fn no_connection(&self, error: &HandshakeError) {
        self.metrics.handshake(error);
        if matches!(error, HandshakeError::Certificate(_)) {
            self.tell(&error);
        } else {
            tracing::debug!(%error, "no TLS connection");
        }
    }

    fn status(&self, refused: &Refused, peer: Option<&Peer>) -> Status {
        let reason = refused.reason();
        self.metrics.refused(reason);
        // A certificate can have a thousand names, and a header cannot.
        let words: String = refused.to_string().chars().take(LONGEST_WORDS).collect();
        self.tell(&words);
        match (reason, peer) {
            (Reason::NotAllowed, _) => Status::permission_denied(words),
            (Reason::Unavailable, _) => Status::unavailable(words),
            (_, peer) => {
                if let Some(peer) = peer {
                    peer.leave();
                }
                Status::unauthenticated(words)
            }
        }
    }

    fn tell(&self, refused: &dyn fmt::Display) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let allowed = lines.allow(Instant::now());
        drop(lines);
        if let Some(suppressed) = allowed {
            tracing::warn!(reason = %refused, suppressed, "a client was refused; more of them are only counted for a while");
        } else {
            tracing::debug!(reason = %refused, "a client was refused");
        }
    }
}

impl Ways {
    fn credential(
        &self,
        peer: Option<&Arc<Peer>>,
        headers: &HeaderMap,
        from: IpAddr,
    ) -> Result<Credential, Refused> {
        if let Some(peer) = peer {
            return Ok(Credential::Certificate(peer.clone()));
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let token = match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok().and_then(bearer),
            // Of two, nobody knows which is meant.
            _ => None,
        };
        match token {
            Some(token) if self.tokens.is_some() => {
                Ok(Credential::Token(Arc::new(Zeroizing::new(token.to_owned())), from))
            }
            _ => Err(Refused::NoCredential(match (&self.certificates, &self.tokens) {
                (Some(_), Some(_)) => {
                    "show a client certificate, or a token in `authorization: Bearer TOKEN`"
                }
                (Some(_), None) => "show a client certificate",
                (None, _) => "show a token in `authorization: Bearer TOKEN`",
            })),
        }
    }

    /// The same at the beginning of a call and while its stream lives, so that keys, authorities and rules that
    /// changed meanwhile count.
    async fn know(&self, credential: &Credential, now: SystemTime) -> Result<Known, Refused> {
        let (proven, valid_until) = match (credential, &self.certificates, &self.tokens) {
            (Credential::Certificate(peer), Some(certificates), _) => {
                certificates.current().verify(peer.chain(), now)?;
                let owner = certificate::owner(peer.own())?;
                (owner.identity.into(), owner.valid_until)
            }
            (Credential::Token(token, _), _, Some(Tokens::Keys { keys, expected })) => {
                let claims = keys.current().verify(token, expected, now)?;
                let identity = Identity::of_subject(&claims.subject).ok_or(Refused::Subject)?;
                (Proven { identity, pod: claims.pod }, claims.expires)
            }
            (Credential::Token(token, from), _, Some(Tokens::Kubernetes(reviewer))) => {
                let reviewed = reviewer.review(token, *from).await?;
                (reviewed.proven, reviewed.valid_until)
            }
            _ => return Err(Refused::NoCredential("this way is not open")),
        };
        let grants = self.rules.current().grants(&proven.identity)?;
        Ok(Known { proven, grants, valid_until })
    }

    /// When the credential ends, or sooner. Spread, so that streams that began together are not looked at together.
    fn next_look(&self, valid_until: SystemTime, now: SystemTime) -> Duration {
        let left = valid_until.duration_since(now).unwrap_or_default();
        let recheck = self.recheck.mul_f64(0.75 + 0.5 * fastrand::f64());
        // Certificates end at the end of a second.
        left.min(recheck).max(Duration::from_secs(1))
    }
}

impl Reason {
    pub(super) const ALL: [Self; 5] =
        [Self::NoCredential, Self::Certificate, Self::Token, Self::NotAllowed, Self::Unavailable];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NoCredential => "no-credential",
            Self::Certificate => "certificate",
            Self::Token => "token",
            Self::NotAllowed => "not-allowed",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Refused {
    fn reason(&self) -> Reason {
        match self {
            Self::NoCredential(_) => Reason::NoCredential,
            Self::Owner(_) | Self::Certificate(_) => Reason::Certificate,
            Self::Review(ReviewRefused::Away(_)) => Reason::Unavailable,
            Self::Token(_) | Self::Subject | Self::Review(_) => Reason::Token,
            Self::Denied(_) => Reason::NotAllowed,
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.ways.is_some() { "Gate(guarded)" } else { "Gate(open)" })
    }
}

/// The token in `Bearer TOKEN`. The scheme has no case (RFC 9110).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}
