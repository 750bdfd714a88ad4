use super::{Reason, Type};

/// The reason of an event: of a condition that is wrong, or one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventReason {
    Condition(&'static Reason),
    RejectedByProxies,
    InfrastructureFailed,
}

impl EventReason {
    /// Those that are no condition's.
    pub const OWN: &[Self] = &[Self::RejectedByProxies, Self::InfrastructureFailed];

    /// As an event has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Condition(reason) => reason.as_str(),
            Self::RejectedByProxies => "RejectedByProxies",
            Self::InfrastructureFailed => "InfrastructureFailed",
        }
    }

    pub const fn means(self) -> &'static str {
        match self {
            Self::Condition(reason) => reason.means(),
            Self::RejectedByProxies => {
                "Proxies reject the configuration that was generated from the object. The note has Envoy's error, and so has the condition `Programmed`."
            }
            Self::InfrastructureFailed => {
                "The translator cannot create or update the objects that run a Gateway's Envoys. The note has the reason, usually the API server's error."
            }
        }
    }

    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Condition(reason) => reason.remedy(),
            Self::RejectedByProxies => {
                "[Proxies reject something](../troubleshooting.md#proxies-reject-something)"
            }
            Self::InfrastructureFailed => {
                "[A Gateway has no Envoy](../troubleshooting.md#a-gateway-has-no-envoy)"
            }
        }
    }
}

impl Reason {
    /// The event when a condition first has this reason. Waiting for a proxy or an address is no fault, and has no
    /// event.
    pub fn event(&'static self) -> Option<EventReason> {
        match self.r#type {
            Type::Programmed => (self.is_problem() && self.name == super::INVALID)
                .then_some(EventReason::RejectedByProxies),
            _ => self.is_problem().then_some(EventReason::Condition(self)),
        }
    }
}
