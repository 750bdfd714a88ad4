use serde::Serialize;
use std::fmt;

/// A transport, which has ports of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
}

/// A port of a transport: TCP 53 and UDP 53 are two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct TransportPort {
    #[serde(rename = "port")]
    pub number: u16,
    /// Left out where it is TCP, as in text.
    #[serde(skip_serializing_if = "Transport::is_tcp")]
    pub transport: Transport,
}

impl Transport {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    pub(crate) fn is_tcp(&self) -> bool {
        *self == Self::Tcp
    }
}

impl TransportPort {
    pub const fn tcp(number: u16) -> Self {
        Self { number, transport: Transport::Tcp }
    }
}

/// `80`, and `53/udp`.
impl fmt::Display for TransportPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Tcp => self.number.fmt(f),
            Transport::Udp => write!(f, "{}/udp", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_port_for_each_transport() {
        let (tcp, udp) =
            (TransportPort::tcp(53), TransportPort { number: 53, transport: Transport::Udp });
        assert_ne!(tcp, udp);
        assert_eq!([tcp.to_string(), udp.to_string()], ["53", "53/udp"]);
    }
}
