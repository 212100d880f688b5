//! One connection: bytes of a socket to PDUs and back.

use std::{
    io::{self, ErrorKind},
    net::{Shutdown, TcpStream},
    os::linux::net::TcpStreamExt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::target::{
    buffer::ReceiveBuffer,
    connections::OpenConnection,
    pdu::{
        self, COMMON_LEN, Fatal, FatalStatus, Header, HostData, INITIALIZE_LEN, SHORT_LEN, kind,
    },
    queue::Queue,
    wait::{Interest, wait},
};

/// How long a connection that ends may take to send what is left.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// How long a host may take to read why its connection ends.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Serves a connection until the host closes it, breaks the protocol or falls
/// silent, or until the socket is shut down from inside: for reading, to send
/// what is left; for both, to end now.
pub(super) fn serve(open: &OpenConnection) -> io::Result<()> {
    let socket = &open.socket;
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let mut connection = Connection {
        socket,
        received: ReceiveBuffer::new(),
        data: None,
        queue: Queue::new(&open.shared, socket),
        initialized: false,
        heard: Instant::now(),
        input_ended: None,
    };
    match connection.run() {
        Err(End::Socket(error)) => Err(error),
        Err(End::Host) => Ok(()),
        Ok(()) => {
            open.finish(DRAIN_TIME);
            Ok(())
        }
        Err(End::Fatal(fatal)) => connection.terminate(fatal),
    }
}

struct Connection<'a> {
    socket: &'a Arc<TcpStream>,
    received: ReceiveBuffer,
    data: Option<IncomingData>,
    queue: Queue<'a>,
    initialized: bool,
    /// When the last PDU came.
    heard: Instant,
    /// Since when there is nothing more to receive.
    input_ended: Option<Instant>,
}

/// A data PDU whose payload is not complete.
struct IncomingData {
    tag: u16,
    missing: usize,
}

enum End {
    /// The host said that it ends the connection.
    Host,
    Fatal(Fatal),
    Socket(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<Fatal> for End {
    fn from(fatal: Fatal) -> Self {
        Self::Fatal(fatal)
    }
}

/// Why no more PDUs were processed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopped {
    /// The next one is not complete.
    Input,
    /// Too many answers wait to be sent.
    Room,
}

impl Connection<'_> {
    fn run(&mut self) -> Result<(), End> {
        loop {
            let stopped = self.process()?;
            if self.queue.request_data() {
                // At once, because it is the host that waits now.
                self.queue.flush()?;
            }
            if stopped == Stopped::Input && self.input_ended.is_none() && self.receive()? {
                continue;
            }
            // Nothing to process: time to send, all answers together.
            self.queue.release();
            self.queue.flush()?;
            if stopped == Stopped::Room && self.queue.has_room() {
                continue;
            }
            if self.input_ended.is_some() && stopped == Stopped::Input && !self.queue.is_busy() {
                return Ok(());
            }
            self.wait(stopped)?;
        }
    }

    /// Processes what was received.
    fn process(&mut self) -> Result<Stopped, End> {
        loop {
            if let Some(data) = &mut self.data {
                let unread = self.received.unread();
                let len = unread.len().min(data.missing);
                self.queue.data_destination(data.tag, len).copy_from_slice(&unread[..len]);
                self.received.consume(len);
                self.queue.data_received(data.tag, len);
                data.missing -= len;
                if data.missing > 0 {
                    return Ok(Stopped::Input);
                }
                self.queue.end_data(data.tag);
                self.data = None;
            }
            if !self.queue.has_room() {
                return Ok(Stopped::Room);
            }
            let unread = self.received.unread();
            let Some(common) = unread.first_chunk::<COMMON_LEN>() else {
                return Ok(Stopped::Input);
            };
            let header = Header::parse(*common)?;
            if self.initialized == (header.kind == kind::ICREQ) {
                return Err(Fatal::new(FatalStatus::Sequence, 0).into());
            }
            // The payload of H2CData is received straight into the command's
            // buffer. Everything else fits into the receive buffer.
            let needed = match header.kind {
                kind::H2C_DATA => header.data_offset,
                _ => header.len,
            };
            let Some(pdu) = unread.get(..needed) else { return Ok(Stopped::Input) };
            self.heard = Instant::now();
            match header.kind {
                kind::COMMAND => {
                    if let Some((entry, _)) = pdu[COMMON_LEN..].split_first_chunk::<64>() {
                        self.queue.command(entry, &pdu[header.data_offset..])?;
                    }
                }
                kind::H2C_DATA => {
                    if let Some(fields) = pdu.first_chunk::<SHORT_LEN>() {
                        let data = HostData::parse(fields);
                        if data.len != header.data_len() {
                            return Err(Fatal::new(FatalStatus::InvalidHeader, 16).into());
                        }
                        self.queue.check_data(data)?;
                        self.data = Some(IncomingData { tag: data.tag, missing: data.len });
                    }
                }
                kind::ICREQ => {
                    if let Some(request) = pdu.first_chunk::<INITIALIZE_LEN>() {
                        self.queue.align_data(initialize(request)?);
                        self.queue.output.push(&pdu::initialize_response());
                        self.initialized = true;
                    }
                }
                _ => return Err(End::Host),
            }
            self.received.consume(needed);
        }
    }

    /// Reads once; whether something came.
    fn receive(&mut self) -> Result<bool, End> {
        let destination = match &self.data {
            Some(data) => self.queue.data_destination(data.tag, data.missing),
            None => &mut [],
        };
        match self.received.receive(self.socket, destination) {
            Ok((_, false)) => {
                self.input_ended = Some(Instant::now());
                Ok(true)
            }
            Ok((len, true)) => {
                if let Some(data) = &mut self.data {
                    data.missing -= len;
                    self.queue.data_received(data.tag, len);
                }
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the socket or for a completion to become due.
    fn wait(&self, stopped: Stopped) -> Result<(), End> {
        let now = Instant::now();
        let deadline = match self.input_ended {
            Some(since) => Some(since + DRAIN_TIME),
            None => self.queue.patience().and_then(|time| self.heard.checked_add(time)),
        };
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Err(End::Socket(ErrorKind::TimedOut.into()));
        }
        let until = [deadline, self.queue.due()].into_iter().flatten().min();
        if self.queue.expects_data() {
            // A delayed acknowledgement would stall a host whose send buffer is
            // smaller than what it was asked for.
            self.socket.set_quickack(true)?;
        }
        let interest = Interest {
            input: stopped == Stopped::Input && self.input_ended.is_none(),
            output: !self.queue.output.is_empty(),
        };
        let gone =
            wait(self.socket, interest, until.map(|until| until.saturating_duration_since(now)))?;
        if gone && self.input_ended.is_some() {
            return Err(End::Socket(ErrorKind::ConnectionReset.into()));
        }
        Ok(())
    }

    /// Says why the connection ends, and gives the host time to read it: to
    /// close with unread input would be a reset that overtakes the answer.
    fn terminate(&mut self, fatal: Fatal) -> io::Result<()> {
        self.queue.output.push(&pdu::terminate(fatal, self.received.unread()));
        let deadline = Instant::now() + LINGER_TIME;
        loop {
            self.queue.flush()?;
            if self.queue.output.is_empty() {
                self.socket.shutdown(Shutdown::Write)?;
            }
            loop {
                self.received.consume(self.received.unread().len());
                match self.received.receive(self.socket, &mut []) {
                    Ok((_, true)) => {}
                    Ok((_, false)) => return Ok(()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
                if Instant::now() >= deadline {
                    return Ok(());
                }
            }
            let now = Instant::now();
            let output = !self.queue.output.is_empty();
            let interest = Interest { input: true, output };
            if now >= deadline || wait(self.socket, interest, Some(deadline - now))? {
                return Ok(());
            }
        }
    }
}

/// Checks an ICReq; returns the alignment the host wants for data, in bytes.
///
/// Digests that it asks for are refused by an ICResp without them.
fn initialize(request: &[u8; INITIALIZE_LEN]) -> Result<u8, Fatal> {
    if pdu::u16_at(request, 8) != 0 {
        return Err(Fatal::new(FatalStatus::UnsupportedParameter, 8));
    }
    match request[10] {
        // Dwords, 0's based.
        alignment @ 0..=31 => Ok((alignment + 1) * 4),
        _ => Err(Fatal::new(FatalStatus::InvalidHeader, 10)),
    }
}
