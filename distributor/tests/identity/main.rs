//! Who may read what, over real TLS: certificates, tokens, rules, and what happens when they change under way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod accounts;
mod calls;
mod certificates;
mod envoy;
mod flags;
mod floods;
#[path = "../../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;
mod pki;
mod reviews;
mod rotation;
mod shares;
mod site;
mod tokens;
mod votes;
