//! gRPC messages over HTTP/2, without layers that would cost memory for every client of a crowd.

mod assembly;
mod content;
mod ended;
mod frames;
mod server;
mod stream;

#[cfg(test)]
pub(crate) use assembly::MessageAssembly;
pub(crate) use content::Pool;
pub use ended::Ended;
pub(crate) use server::{Connection, Opener};
pub use server::{Server, ServerError};
pub(crate) use stream::{Message, Stream};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    Delta,
    StateOfTheWorld,
}

impl Protocol {
    fn path(self) -> &'static str {
        match self {
            Self::Delta => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
            }
            Self::StateOfTheWorld => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
            }
        }
    }
}
