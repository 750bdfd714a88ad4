//! What runs for a Gateway, as Kubernetes objects.

pub mod names;
