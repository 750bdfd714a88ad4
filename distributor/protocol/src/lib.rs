//! The xDS protocol as a value without IO.
