//! A port for a server that has to be told of it, or at which nobody is to be.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// A port at which nobody listens, and which the system gives to nobody else while this lives. A server that is told of
/// it can listen there, end, and listen again: it sets `SO_REUSEADDR`, as servers do.
#[derive(Debug)]
pub struct FreePort(TcpSocket);

impl FreePort {
    /// One of loopback.
    pub fn new() -> io::Result<Self> {
        Self::at(Ipv4Addr::LOCALHOST.into())
    }

    /// One of another address of this machine.
    pub fn at(address: IpAddr) -> io::Result<Self> {
        let socket = match address {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Two that set this may have one port, as long as one of them does not listen; and a port that anybody has is
        // not chosen for who asks for any.
        socket.set_reuseaddr(true)?;
        socket.bind((address, 0).into())?;
        Ok(Self(socket))
    }

    /// Where it is.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// An address of loopback at which nobody listens as long as this process lives.
    pub fn nobody() -> io::Result<SocketAddr> {
        let port = Self::new()?;
        let address = port.address()?;
        std::mem::forget(port);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_server_that_is_told_of_the_port_listens_there_as_often_as_it_likes() {
        let port = FreePort::new().unwrap();
        let address = port.address().unwrap();
        for _ in 0..2 {
            let nobody = TcpStream::connect(address).unwrap_err();
            assert_eq!(nobody.kind(), io::ErrorKind::ConnectionRefused);
            let server = TcpListener::bind(address).unwrap();
            TcpStream::connect(address).unwrap();
            drop(server);
        }
    }
}
