use super::authenticator::Reason;
use crate::tls::{HandshakeError, Material};
use heliograph_shared::telemetry::from_zero;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use std::time::SystemTime;

/// How a question to Kubernetes about a token ends, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    Known,
    Refused,
    Failed,
    /// It was not asked, because others have their share.
    Withheld,
    /// It was not asked, because too many tokens from the same address were refused.
    Delayed,
    /// It was not asked, because the keys of the cluster refuse the token.
    Offline,
}

/// Counts callers that are authenticated and refused.
#[derive(Clone, Debug)]
pub(crate) struct SecurityMetrics {
    expiry: IntGaugeVec,
    bad_files: IntGaugeVec,
    handshakes: IntCounterVec,
    refused: IntCounterVec,
    reviews: IntCounterVec,
    cluster_keys: IntGauge,
}

/// Why a handshake fails, as a label.
const HANDSHAKES: [&str; 3] = ["timeout", "certificate", "other"];

impl SecurityMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name =
            |name: &str, help: &str| Opts::new(format!("heliograph_distributor_{name}"), help);
        let metrics = Self {
            expiry: IntGaugeVec::new(
                name(
                    "certificate_expiry_timestamp_seconds",
                    "When the certificate of the xDS port (server) or the first CA certificate for clients (client-ca) expires.",
                ),
                &["certificate"],
            )?,
            bad_files: IntGaugeVec::new(
                name(
                    "bad_security_files",
                    "1 while files (tls, jwks, kubernetes, access) cannot be used and their previous content stays in force.",
                ),
                &["files"],
            )?,
            handshakes: IntCounterVec::new(
                name(
                    "failed_handshakes_total",
                    "TLS handshakes that did not become a connection: timeout, certificate, other.",
                ),
                &["reason"],
            )?,
            refused: IntCounterVec::new(
                name(
                    "refused_calls_total",
                    "Calls and streams that were rejected by authentication or authorisation: no-credential, certificate, token, not-allowed; \
                     unavailable if the credential cannot be verified now.",
                ),
                &["reason"],
            )?,
            reviews: IntCounterVec::new(
                name(
                    "token_reviews_total",
                    "TokenReviews by outcome: known, refused, failed; and tokens that were not reviewed: withheld (the budget is used by others), \
                     delayed (too many refused tokens from the address), offline (the cluster's keys do not verify the token).",
                ),
                &["outcome"],
            )?,
            cluster_keys: IntGauge::with_opts(name(
                "cluster_token_keys",
                "Keys of the cluster that verify tokens before a TokenReview; 0 if there are none.",
            ))?,
        };
        registry.register(Box::new(metrics.expiry.clone()))?;
        registry.register(Box::new(metrics.bad_files.clone()))?;
        registry.register(Box::new(metrics.handshakes.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.reviews.clone()))?;
        registry.register(Box::new(metrics.cluster_keys.clone()))?;
        from_zero(&metrics.handshakes, HANDSHAKES.map(|reason| [reason]));
        from_zero(&metrics.refused, Reason::ALL.map(|reason| [reason.as_str()]));
        from_zero(&metrics.reviews, Review::ALL.map(|review| [review.as_str()]));
        Ok(metrics)
    }

    pub(crate) fn certificates(&self, material: &Material) {
        let set = |label: &str, at: SystemTime| {
            let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
            self.expiry.with_label_values(&[label]).set(seconds);
        };
        set("server", material.expires());
        if let Some(at) = material.ca_expires() {
            set("client-ca", at);
        }
    }

    /// `files` is one of a few names.
    pub(crate) fn files(&self, files: &'static str, bad: bool) {
        self.bad_files.with_label_values(&[files]).set(bad.into());
    }

    pub(crate) fn handshake(&self, error: &HandshakeError) {
        let [timeout, certificate, other] = HANDSHAKES;
        let reason = match error {
            HandshakeError::Timeout => timeout,
            HandshakeError::Certificate(_) => certificate,
            HandshakeError::Other(_) => other,
        };
        self.handshakes.with_label_values(&[reason]).inc();
    }

    pub(crate) fn reviewed(&self, review: Review) {
        self.reviews.with_label_values(&[review.as_str()]).inc();
    }

    pub(crate) fn cluster_keys(&self, count: usize) {
        self.cluster_keys.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn refused(&self, reason: Reason) {
        self.refused.with_label_values(&[reason.as_str()]).inc();
    }
}

impl Review {
    const ALL: [Self; 6] =
        [Self::Known, Self::Refused, Self::Failed, Self::Withheld, Self::Delayed, Self::Offline];

    fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Withheld => "withheld",
            Self::Delayed => "delayed",
            Self::Offline => "offline",
        }
    }
}
