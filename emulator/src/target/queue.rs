//! One queue: commands in, completions out. No socket is touched here.

use std::{
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use nvme_kv_command_set::Status;

use crate::{
    data::{Data, Outcome},
    namespace::Namespace,
    personality::CompletionOrder,
    target::{
        Shared,
        admin::{self, AdminQueue},
        buffer::Pool,
        completions::{Completion, Completions},
        entry::{self, COMMAND_SEQUENCE_ERROR, Entry, FABRICS, Movement},
        fabrics::{self, Connect, Refusal},
        output::Output,
        pdu::{self, Fatal, FatalStatus, HostData, MAX_IN_CAPSULE, SHORT_LEN},
        transfer::Transfers,
    },
};

/// Commands that a connection may have before it is a queue.
const UNCONNECTED_ENTRIES: u16 = 32;
/// Bytes of answers that wait for the socket before no more commands are
/// executed.
const OUTPUT_LIMIT: usize = 256 * 1024;
/// The same for bytes that wait for their time to come.
const DELAYED_LIMIT: usize = 64 * 1024 * 1024;
/// Generic status 04h: a scripted errno, which a device cannot answer.
const HOST_REFUSED: Status = Status::DATA_TRANSFER_ERROR;

pub(super) struct Queue<'a> {
    shared: &'a Shared,
    socket: &'a Arc<TcpStream>,
    role: Role,
    entries: u16,
    head: u16,
    max_transfer: usize,
    data_offset: u8,
    transfers: Transfers,
    completions: Completions,
    pub(super) output: Output,
    pool: Pool,
}

enum Role {
    Unconnected,
    Admin(AdminQueue),
    Io { controller: u16, queue_id: u16 },
}

impl<'a> Queue<'a> {
    /// A queue that is not connected.
    pub(super) fn new(shared: &'a Shared, socket: &'a Arc<TcpStream>) -> Self {
        Self {
            shared,
            socket,
            role: Role::Unconnected,
            entries: UNCONNECTED_ENTRIES,
            head: 0,
            max_transfer: MAX_IN_CAPSULE,
            data_offset: SHORT_LEN as u8,
            transfers: Transfers::default(),
            completions: Completions::default(),
            output: Output::default(),
            pool: Pool::default(),
        }
    }

    /// Sets what the data of C2HData PDUs is aligned to: 4 to 128 bytes.
    pub(super) fn align_data(&mut self, alignment: u8) {
        self.data_offset = (SHORT_LEN as u8).next_multiple_of(alignment);
    }

    /// Whether more commands may be executed.
    pub(super) fn has_room(&self) -> bool {
        self.can_send() && self.completions.bytes() < DELAYED_LIMIT
    }

    /// Whether more completions may be queued for sending.
    fn can_send(&self) -> bool {
        self.output.len() < OUTPUT_LIMIT
    }

    /// Whether something has still to be sent.
    pub(super) fn is_busy(&self) -> bool {
        !self.output.is_empty() || self.completions.count() > 0
    }

    /// When a completion has to be sent. None has to as long as the socket does
    /// not take those before it.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.can_send() { self.completions.due() } else { None }
    }

    /// Time without a command after which the connection is dead.
    pub(super) fn patience(&self) -> Option<Duration> {
        match &self.role {
            // Twice the timeout, because the host counts from when it sends.
            Role::Admin(admin) if !admin.keep_alive.is_zero() => Some(2 * admin.keep_alive),
            // Ends when its admin queue does.
            Role::Admin(_) | Role::Io { .. } => None,
            Role::Unconnected => Some(Duration::from_secs(30)),
        }
    }

    /// Takes a command with the data that its capsule has.
    pub(super) fn command(&mut self, entry: &[u8; 64], capsule: &[u8]) -> Result<(), Fatal> {
        if self.transfers.count() + self.completions.count() >= usize::from(self.entries) {
            return Err(Fatal::new(FatalStatus::Sequence, 0));
        }
        self.head = (self.head + 1) % self.entries;
        match Entry(entry).movement(capsule.len(), self.max_transfer) {
            Ok(Movement::None) => self.execute(Entry(entry), &[], 0),
            Ok(Movement::InCapsule(len)) => self.execute(Entry(entry), &capsule[..len], 0),
            Ok(Movement::ToHost(len)) => self.execute(Entry(entry), &[], len),
            Ok(Movement::OnRequest(len)) => self.transfers.begin(*entry, len),
            Err(status) => self.answer(Entry(entry), Err(Refusal::status(status))),
        }
        Ok(())
    }

    /// Asks for as much data as may be asked for; whether it asked.
    pub(super) fn request_data(&mut self) -> bool {
        let mut asked = false;
        while let Some(pdu) = self.transfers.request(&mut self.pool) {
            self.output.push(&pdu);
            asked = true;
        }
        asked
    }

    /// Whether data was asked for and has not come.
    pub(super) fn expects_data(&self) -> bool {
        self.transfers.outstanding() > 0
    }

    pub(super) fn check_data(&self, data: HostData) -> Result<(), Fatal> {
        self.transfers.check(data)
    }

    pub(super) fn data_destination(&mut self, tag: u16, len: usize) -> &mut [u8] {
        self.transfers.destination(tag, len)
    }

    pub(super) fn data_received(&mut self, tag: u16, len: usize) {
        self.transfers.received(tag, len);
    }

    /// Ends a data PDU, and executes its command if that was the last one.
    pub(super) fn end_data(&mut self, tag: u16) {
        if let Some(transfer) = self.transfers.end_pdu(tag) {
            self.execute(Entry(&transfer.entry), &transfer.buffer[..transfer.len], 0);
            self.pool.give(transfer.buffer);
        }
    }

    /// Queues the completions that are due for sending.
    pub(super) fn release(&mut self) {
        if self.completions.count() == 0 {
            return;
        }
        let now = Instant::now();
        while self.can_send()
            && let Some(completion) = self.completions.next(now)
        {
            self.send(completion);
        }
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush(self.socket, &mut self.pool)
    }

    fn execute(&mut self, entry: Entry<'_>, data: &[u8], to_host: usize) {
        if entry.opcode() == FABRICS {
            let answer = self.fabrics(entry, data);
            return self.answer(entry, answer);
        }
        let mut buffer = Vec::new();
        if to_host > 0 {
            buffer = self.pool.take(to_host);
            // What a device does not return is zero to the host, and not what
            // the buffer held for another command.
            buffer[..to_host].fill(0);
        }
        let memory = &mut buffer[..to_host];
        let done = match &mut self.role {
            Role::Admin(admin) => {
                let shared = self.shared;
                admin
                    .execute(&shared.namespace, &shared.nqn, entry, memory)
                    .map(|answer| (answer, Duration::ZERO))
            }
            Role::Io { .. } => execute_io(&self.shared.namespace, entry, data, memory),
            Role::Unconnected => Some((Err(COMMAND_SEQUENCE_ERROR), Duration::ZERO)),
        };
        let Some((answer, latency)) = done else { return self.pool.give(buffer) };
        let data = if answer.is_ok() && to_host > 0 {
            Some((buffer, to_host))
        } else {
            self.pool.give(buffer);
            None
        };
        let (status, result) = match answer {
            Ok(result) => (Status::SUCCESS, result),
            Err(status) => (status, 0),
        };
        let completion = Completion { command_id: entry.command_id(), status, result, data };
        let order = match &self.role {
            Role::Io { .. } => self.shared.namespace.personality().completion_order,
            Role::Admin(_) | Role::Unconnected => CompletionOrder::Fifo,
        };
        if let Some(completion) = self.completions.hold(completion, latency, order) {
            self.send(completion);
        }
    }

    fn fabrics(&mut self, entry: Entry<'_>, data: &[u8]) -> Result<u64, Refusal> {
        let controllers = &self.shared.controllers;
        match (entry.fabrics_type(), &self.role) {
            (fabrics::kind::CONNECT, Role::Unconnected) => return self.connect(entry, data),
            (fabrics::kind::CONNECT, _) => Err(COMMAND_SEQUENCE_ERROR),
            (fabrics::kind::PROPERTY_GET, Role::Admin(admin)) => {
                controllers.with_properties(admin.controller, |all| all.get(entry))
            }
            (fabrics::kind::PROPERTY_SET, Role::Admin(admin)) => {
                controllers.with_properties(admin.controller, |all| all.set(entry)).map(|()| 0)
            }
            _ => Err(Status::INVALID_OPCODE),
        }
        .map_err(Refusal::status)
    }

    /// Makes this connection an admin queue with a new controller, or an I/O
    /// queue of the controller that the host names.
    fn connect(&mut self, entry: Entry<'_>, data: &[u8]) -> Result<u64, Refusal> {
        let connect = Connect::parse(entry, data, &self.shared.nqn)?;
        let controller = if connect.queue_id == 0 {
            let id = self.shared.controllers.create(connect.host);
            let id = id.ok_or(Refusal::status(Status::INTERNAL))?;
            self.role = Role::Admin(AdminQueue::new(id, connect.keep_alive));
            id
        } else {
            self.shared.controllers.join(&connect, self.socket)?;
            let (controller, queue_id) = (connect.controller, connect.queue_id);
            self.role = Role::Io { controller, queue_id };
            controller
        };
        self.entries = connect.entries;
        self.head = 1;
        self.max_transfer = admin::max_transfer(&self.shared.namespace);
        Ok(controller.into())
    }

    fn answer(&mut self, entry: Entry<'_>, answer: Result<u64, Refusal>) {
        let (status, result) = match answer {
            Ok(result) => (Status::SUCCESS, result),
            Err(refusal) => (refusal.status, refusal.result),
        };
        self.send(Completion { command_id: entry.command_id(), status, result, data: None });
    }

    fn send(&mut self, completion: Completion) {
        let Completion { command_id, status, result, data } = completion;
        if let Some((buffer, len)) = data {
            self.output.push_data(command_id, self.data_offset, buffer, len);
        }
        let queue_id = match self.role {
            Role::Io { queue_id, .. } => queue_id,
            Role::Admin(_) | Role::Unconnected => 0,
        };
        let entry = entry::completion(command_id, status, result, self.head, queue_id);
        self.output.push(&pdu::response(&entry));
    }
}

/// The controller ends with its admin queue.
impl Drop for Queue<'_> {
    fn drop(&mut self) {
        match &self.role {
            Role::Admin(admin) => self.shared.controllers.remove(admin.controller),
            Role::Io { controller, queue_id } => {
                self.shared.controllers.leave(*controller, *queue_id, self.socket);
            }
            Role::Unconnected => {}
        }
    }
}

/// `None`: the command is not answered.
fn execute_io(
    namespace: &Namespace,
    entry: Entry<'_>,
    data: &[u8],
    memory: &mut [u8],
) -> Option<(Result<u64, Status>, Duration)> {
    let command = entry.passthrough(data.len() + memory.len()).to_bytes();
    let parts = [data];
    let data = match (data.is_empty(), memory.is_empty()) {
        (false, _) => Data::ToDevice(&parts),
        (true, false) => Data::FromDevice(memory),
        (true, true) => Data::None,
    };
    match namespace.execute(&command, data) {
        Outcome::Completed { status, dw0, latency } if status.is_success() => {
            Some((Ok(dw0.into()), latency))
        }
        Outcome::Completed { status, latency, .. } => Some((Err(status), latency)),
        Outcome::Errno(_) => Some((Err(HOST_REFUSED), Duration::ZERO)),
        Outcome::NoAnswer => None,
    }
}
