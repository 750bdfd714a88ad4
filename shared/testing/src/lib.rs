//! What tests that run programs need of the machine: ports that nobody else takes.

mod port;

pub use port::Port;
