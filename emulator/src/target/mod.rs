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
    collections::HashMap,
    io::{self, ErrorKind},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use crate::{namespace::Namespace, sync::lock, target::controllers::Controllers};

/// Connections at the same time; more are closed at once.
const MAX_CONNECTIONS: usize = 256;

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
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    stopping: bool,
    last_id: u64,
    open: HashMap<u64, Arc<TcpStream>>,
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
        let controllers = Controllers::default();
        let connections = Mutex::default();
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
                Ok((socket, _)) => Arc::new(socket),
                Err(error) if is_passing(&error) => continue,
                Err(_) if lock(&self.shared.connections).stopping => break Ok(()),
                Err(error) => break Err(error),
            };
            threads.retain(|thread| !thread.is_finished());
            let Some(open) = OpenConnection::new(&self.shared, &socket) else { continue };
            let serve = move || {
                // However a connection ends, its host has seen the reason or
                // is gone.
                let _ = connection::serve(&open.shared, &socket);
            };
            // Without a thread the connection is closed.
            if let Ok(thread) = thread::Builder::new().name("nvme-tcp queue".into()).spawn(serve) {
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
        let mut connections = lock(&self.shared.connections);
        connections.stopping = true;
        wait::stop_listening(&self.listener);
        for socket in connections.open.values() {
            // An error says that the connection is gone already.
            let _ = socket.shutdown(Shutdown::Read);
        }
    }

    /// Cuts every open connection, in the middle of what it does. Hosts may
    /// connect again at once.
    pub fn drop_connections(&self) {
        for socket in lock(&self.shared.connections).open.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// An entry of [`Connections::open`]. Dropped, it takes itself out and closes
/// the connection.
struct OpenConnection {
    shared: Arc<Shared>,
    id: u64,
}

impl OpenConnection {
    /// `None` when the connection must not be served.
    fn new(shared: &Arc<Shared>, socket: &Arc<TcpStream>) -> Option<Self> {
        let mut connections = lock(&shared.connections);
        if connections.stopping || connections.open.len() >= MAX_CONNECTIONS {
            return None;
        }
        connections.last_id += 1;
        let id = connections.last_id;
        connections.open.insert(id, Arc::clone(socket));
        Some(Self { shared: Arc::clone(shared), id })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let socket = lock(&self.shared.connections).open.remove(&self.id);
        if let Some(socket) = socket {
            // Not by closing alone: others may hold the descriptor a moment.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Whether the next `accept` may succeed all the same.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}
