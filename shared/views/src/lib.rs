//! What a class of clients sees of a snapshot.
//!
//! A translator writes rules into a snapshot, as data: who is meant ([`Audience`]), what is done to a resource
//! ([`Treatment`]), and what is known of each proxy ([`Proxy`]). A distributor asks of each client only what the rules ask
//! ([`Rules::class`]) and derives one snapshot for all clients that answer alike ([`derive`]). Clients that no rule tells
//! apart are of one class, and what no rule touches is the same value in every view.
//!
//! What proxies rejected travels in the same way ([`Quarantined`]), and comes before the rules: they apply to what is
//! [`served`] in its place. So does what a translator leaves out because of that ([`LeftOut`]), which only translators read.
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
