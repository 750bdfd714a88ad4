use heliograph_gateway::objects::Kind;
use kube::runtime::watcher;
use std::error::Error as _;

/// Why a kind cannot be listed or watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiFailure {
    pub(super) reason: FailureReason,
    /// The text of the refusal.
    pub(super) cause: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureReason {
    /// The API does not serve the kind: its CRD is not installed. Only discovery can tell for sure.
    Absent,
    Forbidden,
    /// The API serves the kind, but not in the version that is read here. Of kinds that protect nothing it is not asked for.
    OtherVersion,
    /// The API does not know who asks.
    Unauthorised,
    /// The watch began too long ago: list again.
    Expired,
    /// The API answers, but not with objects of this kind.
    Failed,
    /// The API does not answer.
    Unavailable,
}

/// While not all of a protecting kind is known.
const WAITS: &str = "what is published stays in force, new and changed routes and listeners wait, and a translator that \
                     starts publishes nothing";

impl FailureReason {
    pub(super) const ALL: [Self; 7] = [
        Self::Absent,
        Self::Forbidden,
        Self::OtherVersion,
        Self::Unauthorised,
        Self::Expired,
        Self::Failed,
        Self::Unavailable,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Forbidden => "forbidden",
            Self::OtherVersion => "other_version",
            Self::Unauthorised => "unauthorised",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Unavailable => "unavailable",
        }
    }

    /// Whether it is said of the API, and so of every kind.
    pub(super) fn is_of_all(self) -> bool {
        matches!(self, Self::Unauthorised | Self::Unavailable)
    }
}

impl ApiFailure {
    pub(super) fn of_watch(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Self::of(error),
            watcher::Error::WatchError(status) => Self::of_answer(status.code, &status.message),
            watcher::Error::NoResourceVersion => Self::unavailable("it has no resourceVersion"),
        }
    }

    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_answer(status.code, &status.message),
            other => {
                // The innermost error says what happened, the others where.
                let mut innermost = other.source();
                while let Some(next) = innermost.and_then(|error| error.source()) {
                    innermost = Some(next);
                }
                Self::unavailable(&innermost.map_or(other.to_string(), ToString::to_string))
            }
        }
    }

    /// The API has the kind, and does not find it.
    pub(super) fn failed(cause: &str) -> Self {
        Self { reason: FailureReason::Failed, cause: first_line(cause) }
    }

    /// The API has the kind in these versions.
    pub(super) fn other_versions(versions: &[String]) -> Self {
        Self { reason: FailureReason::OtherVersion, cause: versions.join(", ") }
    }

    pub(super) fn unavailable(cause: &str) -> Self {
        Self { reason: FailureReason::Unavailable, cause: first_line(cause) }
    }

    /// One line that says what to do.
    pub(super) fn in_words(&self, kind: Kind, plural: &str) -> String {
        let cause = &self.cause;
        let group = kind.group();
        let served = match (group, kind.api_version().unwrap_or_default()) {
            ("", version) => version.to_owned(),
            (group, version) => format!("{group}/{version}"),
        };
        let meanwhile = match kind.is_protecting() {
            true => WAITS,
            false => "nothing new is published",
        };
        match self.reason {
            FailureReason::Absent => format!(
                "the API server does not serve {kind} of {served}: install its CRD; until then there are none",
                kind = kind.as_str()
            ),
            FailureReason::Forbidden => format!(
                "there is no permission to read {plural}: grant this account list and watch on {plural} in the API group {group:?}, or set \
                 --ignore-kind {kind}; until then {meanwhile} ({cause})",
                kind = kind.as_str()
            ),
            FailureReason::OtherVersion => format!(
                "the API server serves {kind} only as {cause}, and not as {served}, which the translator reads: install a CRD that has this version, or set --ignore-kind {kind} to do without what such objects protect; until then {meanwhile}",
                kind = kind.as_str()
            ),
            FailureReason::Unauthorised => format!(
                "the API server rejects the translator's credentials: renew those in the kubeconfig, or the token of the ServiceAccount ({cause})"
            ),
            FailureReason::Expired => format!("{plural} must be listed again ({cause})"),
            FailureReason::Failed if kind.is_protecting() => format!(
                "{plural} cannot be listed or watched, and the translator retries; until then {meanwhile} ({cause})"
            ),
            FailureReason::Failed => format!(
                "{plural} cannot be listed or watched; known objects stay in force, and the translator retries ({cause})"
            ),
            FailureReason::Unavailable => {
                format!(
                    "the API server cannot be reached; known objects stay in force, and the translator retries ({cause})"
                )
            }
        }
    }

    fn of_answer(code: u16, message: &str) -> Self {
        let reason = match code {
            401 => FailureReason::Unauthorised,
            403 => FailureReason::Forbidden,
            404 => FailureReason::Absent,
            410 => FailureReason::Expired,
            _ => FailureReason::Failed,
        };
        let cause = match (reason, message) {
            (_, "") => format!("status {code}"),
            (FailureReason::Failed, message) => format!("status {code}: {}", first_line(message)),
            (_, message) => first_line(message),
        };
        Self { reason, cause }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn of(code: u16) -> ApiFailure {
        let status = Status::failure("in its words\nand more", "Reason").with_code(code);
        ApiFailure::of(&kube::Error::Api(status.boxed()))
    }

    #[test]
    fn an_answer_is_told_by_its_code_and_in_one_line() {
        let reasons = [401, 403, 404, 410, 500].map(|code| of(code).reason.as_str());
        assert_eq!(reasons, ["unauthorised", "forbidden", "absent", "expired", "failed"]);
        for code in [401, 403, 404, 410, 500] {
            let words = of(code).in_words(Kind::HTTPRoute, "httproutes");
            assert_eq!(words.lines().count(), 1, "{words}");
        }
        let words = of(403).in_words(Kind::HTTPRoute, "httproutes");
        for expected in ["httproutes", "gateway.networking.k8s.io", "in its words"] {
            assert!(words.contains(expected), "{expected} is not in {words}");
        }
    }

    #[test]
    fn of_a_protecting_kind_it_says_what_waits() {
        let failures = [of(403), of(500), ApiFailure::other_versions(&["v1alpha3".to_owned()])];
        for failure in failures {
            let words = failure.in_words(Kind::BackendTLSPolicy, "backendtlspolicies");
            assert!(words.contains("new and changed routes and listeners wait"), "{words}");
        }
    }

    /// An API that fails to list one kind is not unreachable.
    #[test]
    fn an_answer_is_about_its_kind() {
        let failed = of(503);
        assert!(!failed.reason.is_of_all());
        let words = failed.in_words(Kind::ViewPolicy, "viewpolicies");
        for expected in ["viewpolicies", "status 503", "in its words"] {
            assert!(words.contains(expected), "{expected} is not in {words}");
        }
        assert!(ApiFailure::unavailable("no route").reason.is_of_all());
    }

    #[test]
    fn of_an_error_the_innermost_is_told() {
        let io = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let failure = ApiFailure::of(&kube::Error::Service(Box::new(io)));
        assert_eq!(failure, ApiFailure::unavailable("connection refused"));
    }
}
