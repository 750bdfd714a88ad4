//! A simulated Envoy that speaks xDS to any server.
