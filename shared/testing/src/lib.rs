//! What tests that run programs need of the machine: ports that nobody else takes, the programs of the project as they were
//! built last, and what tests and `scripts/stress` tell each other.

mod port;
mod program;
pub mod stress;

pub use port::Port;
pub use program::program;
pub use stress::Stopwatch;
