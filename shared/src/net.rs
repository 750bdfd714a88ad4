//! Listening, with errors that tell the operator what to do.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted: as many as the system allows. When all clients of a replica that is gone
/// connect here at once, those beyond are refused and retry later.
const BACKLOG: u32 = 65_535;

/// Why nothing listens on an address, in one line.
#[derive(Debug)]
pub struct BindError {
    what: String,
    flag: String,
    address: SocketAddr,
    cause: io::Error,
}

/// Listens on `address`. `what` names the address for people ("admin address"), `flag` is where it is set
/// ("--admin-address").
pub async fn bind(what: &str, flag: &str, address: SocketAddr) -> Result<TcpListener, BindError> {
    listen(address).map_err(|cause| BindError {
        what: what.to_owned(),
        flag: flag.to_owned(),
        address,
        cause,
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As std does: a program that starts again need not wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl std::error::Error for BindError {}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, flag, address, cause } = self;
        match cause.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "{what} {address} is in use: stop what listens there or choose another with {flag}"
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                "{what} {address} is not an address of this machine: choose another with {flag}"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "{what} {address} is not open to this user: choose a port above 1023 with {flag}"
            ),
            _ => write!(f, "{what} {address} cannot be used: {cause}: choose another with {flag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn an_address_in_use_is_one_clear_line() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let taken = bind("xDS address", "--xds-address", any).await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind("xDS address", "--xds-address", address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "xDS address {address} is in use: stop what listens there or choose another with \
                 --xds-address"
            )
        );
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_one_clear_line() {
        // 192.0.2.0/24 is for documentation and belongs to no machine.
        let elsewhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0));
        let error = bind("admin address", "--admin-address", elsewhere).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "admin address 192.0.2.1:0 is not an address of this machine: choose another with \
             --admin-address"
        );
    }
}
