use super::caller::{Caller, Credential};
use super::certificate::{self, NoOwner, Peer};
use super::jwt::{Expected, KeySet, TokenRefused};
use super::metrics::SecurityMetrics;
use super::review::{ReviewRefused, Reviewer};
use super::rules::{Denied, Grants, Rules};
use super::{Identity, Proven};
use crate::log_limit::LineLimit;
use crate::tls::{HandshakeError, Material};
use crate::watched_files::WatchedFiles;
use heliograph_snapshot::FleetName;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tonic::Status;
use zeroize::Zeroizing;

/// Authenticates every caller.
pub(crate) struct Authenticator {
    /// `None`: callers are not authenticated.
    methods: Option<AuthenticationMethods>,
    metrics: SecurityMetrics,
    /// Limits the log lines about refused callers. They come in storms, and their count is in the metrics.
    lines: Mutex<LineLimit>,
}

/// The ways in which a client can authenticate, at least one, and the access rules.
pub(crate) struct AuthenticationMethods {
    pub(super) certificates: Option<Arc<WatchedFiles<Material>>>,
    pub(super) tokens: Option<Tokens>,
    pub(super) rules: Arc<WatchedFiles<Rules>>,
    /// How often the caller of an open stream is checked again.
    pub(super) recheck: Duration,
}

/// How tokens are verified.
pub(crate) enum Tokens {
    Keys { keys: Arc<WatchedFiles<KeySet>>, expected: Expected },
    Kubernetes(Box<Reviewer>),
}

/// Why a call is refused, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    NoCredential,
    Certificate,
    Token,
    NotAllowed,
    /// Cannot be decided now; the client may retry.
    Unavailable,
}

/// A caller whose credential is good.
struct Authenticated {
    proven: Proven,
    grants: Grants,
    valid_until: SystemTime,
}

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the client is not authenticated: {0}")]
    NoCredential(&'static str),
    #[error(transparent)]
    Owner(#[from] NoOwner),
    #[error("the client certificate is rejected: {0}")]
    Certificate(#[from] rustls::Error),
    #[error(transparent)]
    Token(#[from] TokenRefused),
    #[error(transparent)]
    Review(#[from] ReviewRefused),
    #[error("the token is valid, but access rules cannot name its subject")]
    Subject,
    #[error(transparent)]
    Denied(#[from] Denied),
}

const MAX_WORDS: usize = 1000;

impl Authenticator {
    pub(super) fn new(methods: Option<AuthenticationMethods>, metrics: SecurityMetrics) -> Self {
        Self { methods, metrics, lines: Mutex::default() }
    }

    /// Authenticates the caller at this address, by its certificate if it has one, else by its token.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        peer: Option<&Arc<Peer>>,
        headers: &HeaderMap,
        from: IpAddr,
    ) -> Result<Caller, Status> {
        let Some(methods) = &self.methods else {
            return Ok(Caller::new(
                self.clone(),
                Identity::Anybody.into(),
                Credential::Nothing,
                None,
            ));
        };
        let status = |refused: Refused| self.status(&refused, peer.map(|peer| &**peer));
        let credential = methods.credential(peer, headers, from).map_err(status)?;
        let authenticated = methods.authenticate(&credential, SystemTime::now()).await;
        let Authenticated { proven, grants: _, valid_until } = authenticated.map_err(status)?;
        let next = methods.next_check(valid_until, SystemTime::now());
        Ok(Caller::new(self.clone(), proven, credential, Some(next)))
    }

    /// Checks a caller again: is its credential still good, and may it still read what it reads? Says in how long
    /// to ask again.
    pub(super) async fn check_again(
        &self,
        credential: &Credential,
        fleet: Option<&FleetName>,
    ) -> Result<Option<Duration>, Status> {
        let Some(methods) = &self.methods else { return Ok(None) };
        let now = SystemTime::now();
        let checked = methods.authenticate(credential, now).await.and_then(|authenticated| {
            if let Some(fleet) = fleet {
                authenticated.grants.check(&authenticated.proven.identity, fleet)?;
            }
            Ok(methods.next_check(authenticated.valid_until, now))
        });
        let peer = match credential {
            Credential::Certificate(peer) => Some(&**peer),
            Credential::Nothing | Credential::Token(..) => None,
        };
        checked.map(Some).map_err(|refused| self.status(&refused, peer))
    }

    /// Whether this identity may read this fleet.
    pub(super) fn check(&self, identity: &Identity, fleet: &FleetName) -> Result<(), Status> {
        let Some(methods) = &self.methods else { return Ok(()) };
        let grants = methods.rules.current().grants(identity);
        let checked = grants.and_then(|grants| grants.check(identity, fleet));
        checked.map_err(|denied| self.status(&denied.into(), None))
    }

    /// Counts a handshake that failed.
    pub(crate) fn handshake_failed(&self, error: &HandshakeError) {
        self.metrics.handshake(error);
        if matches!(error, HandshakeError::Certificate(_)) {
            self.log_refusal(&error);
        } else {
            tracing::debug!(%error, "no TLS connection");
        }
    }

    fn status(&self, refused: &Refused, peer: Option<&Peer>) -> Status {
        let reason = refused.reason();
        self.metrics.refused(reason);
        // A certificate can have a thousand names, and a header cannot.
        let words: String = refused.to_string().chars().take(MAX_WORDS).collect();
        self.log_refusal(&words);
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

    fn log_refusal(&self, refused: &dyn fmt::Display) {
        let mut lines = self.lines.lock();
        let allowed = lines.allow(Instant::now());
        drop(lines);
        if let Some(suppressed) = allowed {
            tracing::warn!(reason = %refused, suppressed, "a client was rejected; further ones are only counted for a while");
        } else {
            tracing::debug!(reason = %refused, "a client was refused");
        }
    }
}

impl AuthenticationMethods {
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
            // Of two credentials, it is unclear which is meant.
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

    /// The same at the beginning of a call and while its stream lives, so that keys, CAs and rules that
    /// changed meanwhile count.
    async fn authenticate(
        &self,
        credential: &Credential,
        now: SystemTime,
    ) -> Result<Authenticated, Refused> {
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
            _ => return Err(Refused::NoCredential("this kind of credential is not enabled")),
        };
        let grants = self.rules.current().grants(&proven.identity)?;
        Ok(Authenticated { proven, grants, valid_until })
    }

    /// When the credential ends, or sooner. Spread, so that streams that began together are not checked together.
    fn next_check(&self, valid_until: SystemTime, now: SystemTime) -> Duration {
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

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.methods.is_some() {
            "Authenticator(guarded)"
        } else {
            "Authenticator(open)"
        })
    }
}

/// The token in `Bearer TOKEN`. The scheme has no case (RFC 9110).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}
