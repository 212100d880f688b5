//! An NVMe/TCP target: puts a [`Namespace`] on the network, so that a stock
//! Linux kernel attaches it as `/dev/ngXnY`.
//!
//! Sources: NVMe Base Specification 2.0 (Fabrics, admin commands) and NVMe TCP
//! Transport Specification 1.0. One thread serves one connection, which is one
//! queue, and executes its commands in order; the queues of a host run in
//! parallel. There are no digests, no TLS and no authentication.

mod admin;
mod buffer;
mod completions;
mod connection;
mod connections;
mod controllers;
mod entry;
mod fabrics;
mod output;
mod pdu;
mod queue;
#[cfg(test)]
mod tests;
mod transfer;
mod wait;

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use crate::{
    namespace::Namespace,
    target::{
        connections::{Connections, OpenConnection},
        controllers::Controllers,
    },
};

const THREAD_NAME: &str = "nvme-tcp queue";

/// How a namespace is presented to hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// NVMe Qualified Name of the subsystem: `nqn.` and more, at most 223 bytes.
    pub nqn: String,
}

/// An NVMe/TCP target that listens on one address.
///
/// [`run`](Self::run) serves; the other methods may be called from any thread
/// meanwhile.
#[derive(Debug)]
pub struct Target {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    namespace: Arc<Namespace>,
    nqn: String,
    controllers: Controllers,
    connections: Connections,
}

impl Target {
    /// Listens on an address; port 0 takes a free one. Hosts can connect from
    /// now on and are served as soon as [`run`](Self::run) is called.
    ///
    /// # Errors
    /// What the operating system says, and `InvalidInput` for an NQN that is
    /// none.
    pub fn bind(
        address: SocketAddr,
        namespace: Arc<Namespace>,
        options: Options,
    ) -> io::Result<Self> {
        let nqn = options.nqn;
        if !nqn.starts_with("nqn.") || nqn.len() > 223 || nqn.contains('\0') {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("\"{nqn}\" is not an NVMe Qualified Name: give nqn.yyyy-mm.DOMAIN:NAME"),
            ));
        }
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (controllers, connections) = (Controllers::default(), Connections::default());
        let shared = Arc::new(Shared { namespace, nqn, controllers, connections });
        Ok(Self { listener, address, shared })
    }

    /// The address that hosts connect to.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until [`shutdown`](Self::shutdown), and returns when the last
    /// connection has ended.
    ///
    /// # Errors
    /// Why no more connections can be accepted; those that were open have
    /// ended.
    pub fn run(&self) -> io::Result<()> {
        let mut threads: Vec<thread::JoinHandle<()>> = Vec::new();
        let result = loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if is_passing(&error) => continue,
                Err(_) if self.shared.connections.are_stopping() => break Ok(()),
                Err(error) => break Err(error),
            };
            threads.retain(|thread| !thread.is_finished());
            let Some(open) = OpenConnection::new(&self.shared, socket) else { continue };
            let serve = move || {
                // However a connection ends, its host has seen the reason or
                // is gone.
                let _ = connection::serve(&open);
            };
            // Without a thread the connection is closed.
            if let Ok(thread) = thread::Builder::new().name(THREAD_NAME.into()).spawn(serve) {
                threads.push(thread);
            }
        };
        self.shutdown();
        for thread in threads {
            // A thread that panicked took only its connection with it.
            let _ = thread.join();
        }
        result
    }

    /// Stops: no new connections; every open one executes what it has
    /// received, sends the answers and closes. Does not wait for that.
    pub fn shutdown(&self) {
        self.shared.connections.stop();
        wait::stop_listening(&self.listener);
    }

    /// Cuts every open connection, in the middle of what it does. Hosts may
    /// connect again at once.
    pub fn drop_connections(&self) {
        self.shared.connections.cut();
    }
}

/// Whether the next `accept` may succeed all the same.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}
