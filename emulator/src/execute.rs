//! I/O commands: from bytes to a completion.

use std::time::Duration;

use nvme_kv_command_set::{
    Command, Key, ListPageBuilder, PassthroughCommand, Status, StoreOptions,
};

use crate::{
    data::{Data, Outcome, Payload, total},
    fault::Effect,
    late::LateCommand,
    namespace::{NSID, Namespace},
    personality::{DeleteMissing, ListSupport, Personality, RetrieveLength, ShortRetrieve},
    store::{Limits, PutError, WalkOrder},
};

/// The data buffer is shorter than the command says (generic status 0Fh, Data
/// SGL Length Invalid).
const DATA_LENGTH_INVALID: Status = Status::new(0, 0x0f);

/// What executing a command came to.
struct Done {
    status: Status,
    dw0: u32,
    /// Bytes moved to or from the host.
    moved: usize,
}

impl Done {
    fn status(status: Status) -> Self {
        Self { status, dw0: 0, moved: 0 }
    }
}

impl Namespace {
    /// Executes one I/O command: decodes its bytes, checks the namespace
    /// identifier, applies at most one scripted fault, and then executes the
    /// late commands that became due.
    ///
    /// Bytes that are not a command end with the status a device gives. A
    /// buffer whose length contradicts the command's data length is the host's
    /// mistake and ends with `EINVAL` or `EFAULT`, as in Linux.
    pub fn execute(&self, command: &[u8; 72], mut data: Data<'_>) -> Outcome {
        let raw = PassthroughCommand::from_bytes(command);
        let personality = self.personality();
        if let Err(errno) = check_buffer(&raw, &data) {
            return Outcome::Errno(errno);
        }
        let answer = |done: Done, extra: Duration| Outcome::Completed {
            status: done.status,
            dw0: done.dw0,
            latency: personality.latency.of(done.moved as u64).saturating_add(extra),
        };
        if raw.nsid != NSID {
            return answer(Done::status(Status::INVALID_NAMESPACE), Duration::ZERO);
        }
        let command = match raw.decode() {
            Ok(command) => command,
            Err(error) => return answer(Done::status(error.status()), Duration::ZERO),
        };
        self.counters.count(command.opcode());

        let mut late = None;
        let mut run = || self.perform(&personality, &command, &mut data);
        let outcome = match self.script.take(command.opcode(), command.key()) {
            None => answer(run(), Duration::ZERO),
            Some(Effect::Status(status)) => answer(Done::status(status), Duration::ZERO),
            Some(Effect::Errno(errno)) => Outcome::Errno(errno),
            Some(Effect::Delay(extra)) => answer(run(), extra),
            Some(Effect::NotExecutedNoAnswer) => Outcome::NoAnswer,
            Some(Effect::ExecutedNoAnswer) => {
                run();
                Outcome::NoAnswer
            }
            Some(Effect::LateNoAnswer { after }) => {
                late = Some(LateCommand { command, data: copy_to_device(&data), remaining: after });
                Outcome::NoAnswer
            }
            Some(Effect::WrongLength(length)) => {
                let mut done = run();
                if done.status.is_success() {
                    done.dw0 = length;
                }
                answer(done, Duration::ZERO)
            }
            Some(Effect::Damage { offset, xor }) => {
                let done = run();
                let offset = offset as usize;
                if let Data::FromDevice(buffer) = &mut data
                    && offset < done.moved
                {
                    buffer[offset] ^= xor;
                }
                answer(done, Duration::ZERO)
            }
        };
        self.execute_late(self.late.tick());
        match late {
            Some(command) if command.remaining == 0 => self.execute_late(vec![command]),
            Some(command) => self.late.push(command),
            None => {}
        }
        outcome
    }

    /// Executes commands nobody waits for. Those that only read have no effect.
    pub(crate) fn execute_late(&self, commands: Vec<LateCommand>) {
        for late in commands {
            let parts = [&late.data[..]];
            self.perform(&self.personality(), &late.command, &mut Data::ToDevice(&parts));
        }
    }

    fn perform(&self, personality: &Personality, command: &Command, data: &mut Data<'_>) -> Done {
        match *command {
            Command::Store { key, value_len, options } => {
                self.perform_store(personality, &key, value_len, options, data)
            }
            Command::Retrieve { key, buffer_len, .. } => match destination(data, buffer_len) {
                Some(buffer) => self.perform_retrieve(personality, &key, buffer),
                None => Done::status(DATA_LENGTH_INVALID),
            },
            Command::List { start, buffer_len } => match destination(data, buffer_len) {
                Some(buffer) => self.perform_list(personality, start.as_ref(), buffer),
                None => Done::status(DATA_LENGTH_INVALID),
            },
            Command::Delete { key } => Done::status(match self.store.remove(&key) {
                Ok(true) => Status::SUCCESS,
                Ok(false) => match personality.delete_missing {
                    DeleteMissing::Success => Status::SUCCESS,
                    DeleteMissing::KeyNotFound => Status::KEY_NOT_FOUND,
                },
                Err(_) => Status::INTERNAL,
            }),
            Command::Exist { .. } if !personality.exist => Done::status(Status::INVALID_OPCODE),
            Command::Exist { key } => Done::status(match self.store.contains(&key) {
                true => Status::SUCCESS,
                false => Status::KEY_NOT_FOUND,
            }),
        }
    }

    fn perform_store(
        &self,
        personality: &Personality,
        key: &Key,
        value_len: u32,
        options: StoreOptions,
        data: &Data<'_>,
    ) -> Done {
        if options.must_exist && options.must_not_exist {
            return Done::status(Status::INVALID_FIELD);
        }
        if value_len > personality.max_value_size {
            return Done::status(Status::INVALID_VALUE_SIZE);
        }
        let parts = match data {
            Data::ToDevice(parts) => parts,
            Data::None | Data::FromDevice(_) => &[][..],
        };
        let Some(payload) = Payload::new(parts, value_len as usize) else {
            return Done::status(DATA_LENGTH_INVALID);
        };
        let limits = Limits { keys: personality.max_keys, bytes: personality.capacity_bytes };
        match self.store.put(key, payload, options, limits) {
            Ok(()) => Done { status: Status::SUCCESS, dw0: 0, moved: payload.len() },
            Err(PutError::KeyExists) => Done::status(Status::KEY_EXISTS),
            Err(PutError::KeyNotFound) => Done::status(Status::KEY_NOT_FOUND),
            Err(PutError::CapacityExceeded) => Done::status(Status::CAPACITY_EXCEEDED),
            Err(PutError::Failure(_)) => Done::status(Status::INTERNAL),
        }
    }

    fn perform_retrieve(&self, personality: &Personality, key: &Key, buffer: &mut [u8]) -> Done {
        let value = match self.store.get(key) {
            Ok(Some(value)) => value,
            Ok(None) => return Done::status(Status::KEY_NOT_FOUND),
            Err(_) => return Done::status(Status::INTERNAL),
        };
        let short = buffer.len() < value.len();
        if short && personality.short_retrieve == ShortRetrieve::InvalidValueSize {
            return Done::status(Status::INVALID_VALUE_SIZE);
        }
        let moved = buffer.len().min(value.len());
        buffer[..moved].copy_from_slice(&value[..moved]);
        // Stored values have at most u32::MAX bytes: CDW10 gave their size.
        let size = value.len() as u32;
        let dw0 = match personality.retrieve_length {
            RetrieveLength::Exact => size,
            RetrieveLength::Padded => size
                .checked_next_multiple_of(personality.value_granularity.max(1))
                .unwrap_or(u32::MAX),
            RetrieveLength::Zero => 0,
        };
        Done { status: Status::SUCCESS, dw0, moved }
    }

    fn perform_list(
        &self,
        personality: &Personality,
        start: Option<&Key>,
        buffer: &mut [u8],
    ) -> Done {
        let order = match personality.list {
            ListSupport::Ordered => WalkOrder::Sorted,
            ListSupport::Unordered => WalkOrder::Sharded,
            ListSupport::Wrapping => WalkOrder::SortedWrapping,
            ListSupport::Absent => return Done::status(Status::INVALID_OPCODE),
        };
        let mut page = ListPageBuilder::new(buffer.len());
        self.store.walk(order, start, &mut |key| page.push(key));
        let page = page.finish();
        buffer[..page.len()].copy_from_slice(&page);
        Done { status: Status::SUCCESS, dw0: 0, moved: page.len() }
    }
}

/// The first `len` bytes of the host's buffer.
fn destination<'a>(data: &'a mut Data<'_>, len: u32) -> Option<&'a mut [u8]> {
    match data {
        Data::FromDevice(buffer) => buffer.get_mut(..len as usize),
        Data::None | Data::ToDevice(_) => (len == 0).then_some(&mut []),
    }
}

fn copy_to_device(data: &Data<'_>) -> Vec<u8> {
    match data {
        Data::ToDevice(parts) => parts.concat(),
        Data::None | Data::FromDevice(_) => Vec::new(),
    }
}

/// What Linux does before a command reaches the device: the buffer must have
/// the length the command gives, and the direction of opcode bit 0.
pub(crate) fn check_buffer(raw: &PassthroughCommand, data: &Data<'_>) -> Result<(), i32> {
    let wanted = raw.data_len as usize;
    let to_device = raw.opcode & 1 == 1;
    match data {
        Data::None if wanted == 0 => Ok(()),
        Data::None => Err(libc::EFAULT),
        Data::ToDevice(parts) if to_device && total(parts) == wanted => Ok(()),
        Data::ToDevice(_) => Err(libc::EINVAL),
        Data::FromDevice(_) if to_device => Err(libc::EINVAL),
        Data::FromDevice(buffer) if buffer.len() < wanted => Err(libc::EFAULT),
        Data::FromDevice(_) => Ok(()),
    }
}
