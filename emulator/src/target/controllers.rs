//! The controllers of a subsystem: one for each admin queue that is connected.

use std::{
    collections::HashMap,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex},
};

use nvme_kv_command_set::Status;

use crate::{
    sync::lock,
    target::{
        entry::COMMAND_SEQUENCE_ERROR,
        fabrics::{Connect, Host, Properties, Refusal},
    },
};

/// I/O queues a controller has at most.
pub(super) const MAX_IO_QUEUES: u16 = 64;

/// Largest controller identifier that is not reserved.
const MAX_CONTROLLER_ID: u16 = 0xffef;

/// Connect: the queue is connected already (controller busy).
const CONTROLLER_BUSY: Status = Status::new(1, 0x81);

#[derive(Debug, Default)]
pub(super) struct Controllers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last_id: u16,
    controllers: HashMap<u16, Controller>,
}

#[derive(Debug)]
struct Controller {
    host: Host,
    properties: Properties,
    /// I/O queues by queue identifier.
    queues: HashMap<u16, Arc<TcpStream>>,
}

impl Controllers {
    /// A new controller for a host; `None` when all identifiers are in use.
    pub(super) fn create(&self, host: Host) -> Option<u16> {
        let mut state = lock(&self.0);
        let id = (1..=MAX_CONTROLLER_ID)
            .map(|step| {
                let next = u32::from(state.last_id) + u32::from(step) - 1;
                (next % u32::from(MAX_CONTROLLER_ID)) as u16 + 1
            })
            .find(|id| !state.controllers.contains_key(id))?;
        state.last_id = id;
        let controller =
            Controller { host, properties: Properties::default(), queues: HashMap::new() };
        state.controllers.insert(id, controller);
        Some(id)
    }

    /// Ends a controller and the connections of its I/O queues.
    pub(super) fn remove(&self, id: u16) {
        let removed = lock(&self.0).controllers.remove(&id);
        for queue in removed.iter().flat_map(|controller| controller.queues.values()) {
            // An error says that the connection is gone already.
            let _ = queue.shutdown(Shutdown::Both);
        }
    }

    /// Adds an I/O queue to the controller that the host names.
    pub(super) fn join(&self, connect: &Connect, socket: &Arc<TcpStream>) -> Result<(), Refusal> {
        let mut state = lock(&self.0);
        let controller = state
            .controllers
            .get_mut(&connect.controller)
            .filter(|controller| controller.host == connect.host)
            .ok_or(Refusal::data(Connect::CONTROLLER))?;
        if !(1..=MAX_IO_QUEUES).contains(&connect.queue_id) {
            return Err(Refusal::entry(Connect::QUEUE_ID));
        }
        if !controller.properties.is_ready() {
            return Err(Refusal::status(COMMAND_SEQUENCE_ERROR));
        }
        if controller.queues.contains_key(&connect.queue_id) {
            return Err(Refusal::status(CONTROLLER_BUSY));
        }
        controller.queues.insert(connect.queue_id, Arc::clone(socket));
        Ok(())
    }

    /// Takes an I/O queue out again, if it is still that connection's.
    pub(super) fn leave(&self, id: u16, queue_id: u16, socket: &Arc<TcpStream>) {
        let mut state = lock(&self.0);
        if let Some(controller) = state.controllers.get_mut(&id)
            && controller.queues.get(&queue_id).is_some_and(|queue| Arc::ptr_eq(queue, socket))
        {
            controller.queues.remove(&queue_id);
        }
    }

    /// Reads or changes the properties of a controller.
    pub(super) fn with_properties<T>(
        &self,
        id: u16,
        access: impl FnOnce(&mut Properties) -> Result<T, Status>,
    ) -> Result<T, Status> {
        match lock(&self.0).controllers.get_mut(&id) {
            Some(controller) => access(&mut controller.properties),
            None => Err(COMMAND_SEQUENCE_ERROR),
        }
    }
}
