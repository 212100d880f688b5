//! The open connections of a target, and how they end together.

use std::{
    collections::HashMap,
    net::{Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{sync::lock, target::Shared};

/// Connections at the same time; more are closed at once.
const MAX_CONNECTIONS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Connections {
    state: Mutex<State>,
    /// Signalled when a connection ends or has nothing left to send.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    last_id: u64,
    open: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    socket: Arc<TcpStream>,
    /// Nothing more comes, and everything is sent.
    finished: bool,
}

impl Connections {
    pub(super) fn are_stopping(&self) -> bool {
        lock(&self.state).stopping
    }

    /// Opens no more connections, and lets the open ones receive no more than
    /// they have.
    pub(super) fn stop(&self) {
        let mut state = lock(&self.state);
        state.stopping = true;
        for entry in state.open.values() {
            // An error says that the connection is gone already.
            let _ = entry.socket.shutdown(Shutdown::Read);
        }
    }

    /// Ends every open connection now.
    pub(super) fn cut(&self) {
        for entry in lock(&self.state).open.values() {
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
    }
}

/// An open connection. Dropped, it closes.
pub(super) struct OpenConnection {
    pub(super) shared: Arc<Shared>,
    pub(super) socket: Arc<TcpStream>,
    id: u64,
}

impl OpenConnection {
    /// `None` when the connection must not be served.
    pub(super) fn new(shared: &Arc<Shared>, socket: TcpStream) -> Option<Self> {
        let mut state = lock(&shared.connections.state);
        if state.stopping || state.open.len() >= MAX_CONNECTIONS {
            return None;
        }
        state.last_id += 1;
        let (id, socket) = (state.last_id, Arc::new(socket));
        state.open.insert(id, Entry { socket: Arc::clone(&socket), finished: false });
        Some(Self { shared: Arc::clone(shared), socket, id })
    }

    /// To be called when nothing is left to send. While the target stops, waits
    /// until all connections are that far, but not longer than `time`: when the
    /// first queue closes, a host gives up the commands of all its queues.
    pub(super) fn finish(&self, time: Duration) {
        let connections = &self.shared.connections;
        let mut state = lock(&connections.state);
        if !state.stopping {
            return;
        }
        if let Some(entry) = state.open.get_mut(&self.id) {
            entry.finished = true;
        }
        connections.changed.notify_all();
        let unfinished = |state: &mut State| state.open.values().any(|entry| !entry.finished);
        let waited = connections.changed.wait_timeout_while(state, time, unfinished);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        // Not by closing alone: a controller may hold the descriptor a moment.
        let _ = self.socket.shutdown(Shutdown::Both);
        lock(&self.shared.connections.state).open.remove(&self.id);
        self.shared.connections.changed.notify_all();
    }
}
