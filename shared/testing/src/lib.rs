//! What tests that run programs need of the machine: ports that nobody else takes, and what they and `scripts/stress` tell
//! each other.

mod port;
pub mod stress;

pub use port::Port;
pub use stress::Stopwatch;
