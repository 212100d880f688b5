//! A small NVMe/TCP host: as much as the tests need, in blocking calls.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use nvme_kv_command_set::{PassthroughCommand, Status};

use crate::{
    Namespace, forget, open,
    target::{Options, Target},
};

pub(super) const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

/// A target on a free port, stopped and joined when it goes out of scope.
pub(super) struct Served {
    pub(super) target: Arc<Target>,
    pub(super) namespace: Arc<Namespace>,
    name: &'static str,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Served {
    /// `name` is the test's own, so that tests do not share a namespace.
    pub(super) fn start(name: &'static str) -> Self {
        let namespace = open(&format!("mem:{name}")).unwrap();
        let target = Target::bind(
            SocketAddr::from(([127, 0, 0, 1], 0)),
            Arc::clone(&namespace),
            Options { nqn: NQN.into() },
        );
        let target = Arc::new(target.unwrap());
        let running = Arc::clone(&target);
        let thread = Some(thread::spawn(move || running.run()));
        Self { target, namespace, name, thread }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.target.local_addr()
    }

    /// An admin queue and, on the same controller, I/O queue 1.
    pub(super) fn attach(&self) -> (Host, Host) {
        let mut admin = Host::open(self.address());
        let controller = admin.connect_admin(0);
        let io = self.io_queue(controller, 1);
        (admin, io)
    }

    pub(super) fn io_queue(&self, controller: u16, queue_id: u16) -> Host {
        let mut io = Host::open(self.address());
        assert_eq!(io.connect(queue_id, controller, NQN, 0).status, Status::SUCCESS);
        io
    }

    /// Stops and returns what `run` returned.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.target.shutdown();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop().unwrap();
        }
        forget(self.name);
    }
}

/// One queue, that is, one connection.
pub(super) struct Host {
    pub(super) stream: TcpStream,
    next_id: u16,
}

#[derive(Debug)]
pub(super) struct Pdu {
    pub(super) header: Vec<u8>,
    pub(super) data: Vec<u8>,
}

impl Pdu {
    pub(super) fn kind(&self) -> u8 {
        self.header[0]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.header[at..at + 2].try_into().unwrap())
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.header[at..at + 4].try_into().unwrap())
    }
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) command_id: u16,
    pub(super) status: Status,
    pub(super) dnr: bool,
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
}

impl Host {
    /// A TCP connection and nothing else. A target that says nothing fails the
    /// test instead of hanging it.
    pub(super) fn raw(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, next_id: 0 }
    }

    /// A connection that is initialised.
    pub(super) fn open(address: SocketAddr) -> Self {
        let mut host = Self::raw(address);
        host.send(&initialize(0, 0, 0));
        let answer = host.receive().unwrap();
        assert_eq!((answer.kind(), answer.header.len()), (0x1, 128));
        host
    }

    /// Connects as an admin queue and enables the controller as Linux does.
    pub(super) fn connect_admin(&mut self, keep_alive_ms: u32) -> u16 {
        let done = self.connect(0, 0xffff, NQN, keep_alive_ms);
        assert_eq!(done.status, Status::SUCCESS);
        for configuration in [0x0046_0060, 0x0046_0061] {
            assert_eq!(self.set_property(0x14, configuration).status, Status::SUCCESS);
        }
        done.result as u16
    }

    pub(super) fn connect(
        &mut self,
        queue_id: u16,
        controller: u16,
        nqn: &str,
        keep_alive_ms: u32,
    ) -> Done {
        let (entry, data) = connect(queue_id, controller, nqn, keep_alive_ms);
        self.execute(entry, &data, 0)
    }

    pub(super) fn set_property(&mut self, offset: u32, value: u64) -> Done {
        let mut entry = [0; 64];
        entry[0] = 0x7f;
        entry[44..48].copy_from_slice(&offset.to_le_bytes());
        entry[48..56].copy_from_slice(&value.to_le_bytes());
        self.execute(entry, &[], 0)
    }

    pub(super) fn property(&mut self, offset: u32, wide: bool) -> Done {
        let mut entry = [0; 64];
        (entry[0], entry[4]) = (0x7f, 0x04);
        entry[40] = wide.into();
        entry[44..48].copy_from_slice(&offset.to_le_bytes());
        self.execute(entry, &[], 0)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a command; returns its identifier. Data of up to 8 KiB goes into
    /// the capsule.
    pub(super) fn submit(&mut self, entry: [u8; 64], data: &[u8], to_host: usize) -> u16 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&capsule(id, entry, data, to_host));
        id
    }

    /// One command from submission to completion.
    pub(super) fn execute(&mut self, entry: [u8; 64], data: &[u8], to_host: usize) -> Done {
        let id = self.submit(entry, data, to_host);
        let done = self.complete(&mut |_| data);
        assert_eq!(done.command_id, id);
        done
    }

    /// Answers R2Ts until a completion comes. `data_of` has the data of a command.
    pub(super) fn complete<'d>(&mut self, data_of: &mut dyn FnMut(u16) -> &'d [u8]) -> Done {
        let mut received = Vec::new();
        loop {
            let pdu = self.receive().unwrap();
            match pdu.kind() {
                0x5 => {
                    let field = pdu.u16(22) >> 1;
                    return Done {
                        command_id: pdu.u16(20),
                        status: Status::from_cqe(field),
                        dnr: Status::from_cqe(field).dnr(),
                        result: u64::from(pdu.u32(8)) | u64::from(pdu.u32(12)) << 32,
                        data: received,
                    };
                }
                0x7 => {
                    assert_eq!(pdu.header[1], 1 << 2, "LAST, and never SUCCESS");
                    assert_eq!(pdu.u32(16) as usize, pdu.data.len());
                    received = pdu.data;
                }
                0x9 => {
                    let data = data_of(pdu.u16(8));
                    self.send_data(&pdu, data);
                }
                kind => panic!("PDU of type {kind}: {pdu:?}"),
            }
        }
    }

    /// Sends what an R2T asks for.
    pub(super) fn send_data(&mut self, request: &Pdu, data: &[u8]) {
        let (offset, len) = (request.u32(12) as usize, request.u32(16) as usize);
        self.send(&host_data(request.u16(8), request.u16(10), offset, &data[offset..offset + len]));
    }

    /// The next PDU; an error when the connection has ended.
    pub(super) fn receive(&mut self) -> io::Result<Pdu> {
        let mut header = vec![0; 8];
        self.stream.read_exact(&mut header)?;
        let len = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        header.resize(header[2].into(), 0);
        self.stream.read_exact(&mut header[8..])?;
        let mut data = vec![0; len - header.len()];
        self.stream.read_exact(&mut data)?;
        Ok(Pdu { header, data })
    }

    /// Whether the target closed the connection without another word.
    pub(super) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

/// ICReq.
pub(super) fn initialize(format: u16, alignment: u8, digests: u8) -> Vec<u8> {
    let mut pdu = vec![0; 128];
    pdu[2] = 128;
    pdu[4] = 128;
    pdu[8..10].copy_from_slice(&format.to_le_bytes());
    (pdu[10], pdu[11]) = (alignment, digests);
    pdu
}

/// Connect: the submission entry and its data.
pub(super) fn connect(
    queue_id: u16,
    controller: u16,
    nqn: &str,
    keep_alive_ms: u32,
) -> ([u8; 64], Vec<u8>) {
    let mut entry = [0; 64];
    (entry[0], entry[4]) = (0x7f, 0x01);
    entry[42..44].copy_from_slice(&queue_id.to_le_bytes());
    entry[44..46].copy_from_slice(&127u16.to_le_bytes());
    entry[48..52].copy_from_slice(&keep_alive_ms.to_le_bytes());
    let mut data = vec![0; 1024];
    data[..16].fill(0x5a);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..523].copy_from_slice(b"nqn.of.host");
    (entry, data)
}

/// Command capsule with its SGL descriptor.
pub(super) fn capsule(id: u16, mut entry: [u8; 64], data: &[u8], to_host: usize) -> Vec<u8> {
    let inline = !data.is_empty() && data.len() <= 8192;
    entry[1] = 0x40;
    entry[2..4].copy_from_slice(&id.to_le_bytes());
    entry[32..36].copy_from_slice(&((data.len() + to_host) as u32).to_le_bytes());
    entry[39] = if inline { 0x01 } else { 0x5a };
    let len = 72 + if inline { data.len() } else { 0 };
    let mut pdu = vec![0x4, 0, 72, if inline { 72 } else { 0 }];
    pdu.extend((len as u32).to_le_bytes());
    pdu.extend(entry);
    if inline {
        pdu.extend(data);
    }
    pdu
}

/// H2CData, the last one of its R2T.
pub(super) fn host_data(id: u16, tag: u16, offset: usize, data: &[u8]) -> Vec<u8> {
    let mut pdu = vec![0x6, 1 << 2, 24, 24];
    pdu.extend((24 + data.len() as u32).to_le_bytes());
    pdu.extend(id.to_le_bytes());
    pdu.extend(tag.to_le_bytes());
    pdu.extend((offset as u32).to_le_bytes());
    pdu.extend((data.len() as u32).to_le_bytes());
    pdu.extend([0; 4]);
    pdu.extend(data);
    pdu
}

/// The submission entry of a command that Linux takes by ioctl.
pub(super) fn entry(command: &PassthroughCommand) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = command.opcode;
    for (dword, value) in [
        (1, command.nsid),
        (2, command.cdw2),
        (3, command.cdw3),
        (10, command.cdw10),
        (11, command.cdw11),
        (12, command.cdw12),
        (13, command.cdw13),
        (14, command.cdw14),
        (15, command.cdw15),
    ] {
        entry[dword * 4..dword * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }
    entry
}
