//! Every condition that is ever written: its object, type, status and reason; and for users, its meaning and the remedy.
//!
//! A [`Condition`](super::Condition) is one of these with a message, and code outside of this folder cannot make
//! another. So `docs/reference/conditions.md`, which is generated from [`ALL`], has all conditions.

mod event;
mod table;

pub use event::EventReason;
pub use table::*;

/// One row of the [`table`].
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    part: StatusPart,
    r#type: Type,
    is_true: bool,
    name: &'static str,
    means: &'static str,
    remedy: &'static str,
}

/// An object that has conditions, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusPart {
    GatewayClass,
    Gateway,
    /// Of a Gateway or a ListenerSet.
    Listener,
    ListenerSet,
    /// Of one parent of a route.
    Route,
    /// Of one Gateway that a BackendTLSPolicy concerns.
    BackendTlsPolicy,
    /// Of one Gateway or ListenerSet that a policy of Envoy Gateway's API concerns.
    Policy,
    ViewPolicy,
}

/// The types of conditions, in the order in which objects have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    Accepted,
    Conflicted,
    /// Of ours alone: an operator rolled the configuration back.
    Held,
    InsecureFrontendValidationMode,
    Programmed,
    ResolvedRefs,
}

impl Reason {
    pub const fn part(&self) -> StatusPart {
        self.part
    }

    pub const fn r#type(&self) -> Type {
        self.r#type
    }

    pub const fn is_true(&self) -> bool {
        self.is_true
    }

    /// As a condition has it.
    pub const fn as_str(&self) -> &'static str {
        self.name
    }

    pub const fn means(&self) -> &'static str {
        self.means
    }

    /// The remedy. Empty where none is needed.
    pub const fn remedy(&self) -> &'static str {
        self.remedy
    }

    /// `Conflicted` and `Held` are the conditions that want attention when they are true.
    pub fn is_problem(&self) -> bool {
        self.is_true == matches!(self.r#type, Type::Conflicted | Type::Held)
    }
}

impl Type {
    pub const ALL: &[Self] = &[
        Self::Accepted,
        Self::Conflicted,
        Self::Held,
        Self::InsecureFrontendValidationMode,
        Self::Programmed,
        Self::ResolvedRefs,
    ];

    /// As a condition has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Conflicted => "Conflicted",
            Self::Held => "heliograph.dev/Held",
            Self::InsecureFrontendValidationMode => "InsecureFrontendValidationMode",
            Self::Programmed => "Programmed",
            Self::ResolvedRefs => "ResolvedRefs",
        }
    }
}

/// The reason of a condition that was written, on whatever it was.
pub fn find(r#type: &str, is_true: bool, name: &str) -> Option<&'static Reason> {
    ALL.iter().copied().find(|reason| {
        reason.r#type.as_str() == r#type && reason.is_true == is_true && reason.name == name
    })
}
