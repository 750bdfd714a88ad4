//! The view that a class of clients has of a snapshot.
//!
//! A translator writes rules into a snapshot, as data: sets of clients ([`Audience`]), the rules for a resource
//! ([`Treatment`]), and the inventory of proxies ([`Proxy`]). A distributor evaluates for each client only what the
//! rules mention ([`Rules::class`]), and derives one snapshot for all clients of a class ([`derive`]). Clients that no
//! rule distinguishes are of one class, and a resource without a rule is the same value in every view.
//!
//! Resources in quarantine travel in the same way ([`Quarantined`]), and are replaced before the rules apply: these
//! apply to the version that is [`served`] instead. So do the parts that a translator leaves out ([`LeftOut`]), which
//! only translators read.
//!
//! There is no IO here and no clock.

mod audience;
mod derive;
mod endpoints;
mod left_out;
mod message;
mod quarantine;
mod rules;
mod version;

pub use audience::{Client, Proxy};
pub use derive::{advance, derive};
pub use endpoints::{LABELS, REGION, SUBZONE, ZONE};
pub use left_out::{LeftOut, LeftOutRule, left_out_name};
pub use message::{
    Admission, Audience, Operator, Preference, Requirement, Treatment, Variant, audience_name,
    treatment_name,
};
pub use quarantine::{Quarantined, served};
pub use rules::{Class, Rules};
pub use version::{EnvoyVersion, InvalidEnvoyVersion};
