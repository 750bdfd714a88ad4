//! The charts, as helm renders them: what they say, what a real API server thinks of it, and what their Job does there.
//! `HELM` and `OPERATOR_CRDS` are what `scripts/tools helm` and `scripts/tools operator-crds` print.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod helm;
#[path = "../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;
mod objects;
mod rights;
mod secrets;
mod values;
