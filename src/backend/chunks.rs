//! Reading the chunks of one object into its destination.

use std::cell::Cell;

use super::core::{Core, Object};
use super::lane::Lane;
use crate::device::{CommandError, Completion, Destination, Direction, Operation};
use crate::error::{Error, ErrorCode};
use crate::layout::{ChecksumKind, ChunkIndex, Slot, chunk_range};

/// Where an object's chunks are, and how it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) slot: Slot,
    /// Of every chunk but the last; not 0.
    pub(super) chunk_size: u32,
    /// Bytes of the object.
    pub(super) size: u32,
}

/// Why a chunk was not read.
#[derive(Debug)]
pub(super) enum ChunkFailure {
    /// It is not there, or shorter than it should be.
    Lost(Error),
    /// The device failed; this says nothing about the chunk.
    Device(Error),
}

impl Core {
    /// Reads every chunk and computes its checksum; until `stop` is set, and then no further:
    /// chunks that were not asked for count as lost. All are in flight together.
    ///
    /// A chunk goes straight into the destination where a device can put it there; otherwise
    /// through a pooled buffer.
    pub(super) async fn read_chunks<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        destination: &mut Destination<'a>,
        shape: Shape,
        kind: ChecksumKind,
        stop: &Cell<bool>,
    ) -> Vec<Result<u32, ChunkFailure>> {
        let count = shape.size.div_ceil(shape.chunk_size);
        let mut sums = Vec::with_capacity(count as usize);
        let mut reader = Reader { core: self, object, destination, shape, kind };
        let mut commands = lane.commands();
        for index in 0..count {
            if stop.get() {
                break;
            }
            sums.push(Err(reader.lost(index, "was not read")));
            commands.submit(u64::from(index), reader.retrieve(index));
            lane.yield_now().await;
            while let Some((id, completion)) = commands.try_next() {
                if let Some(again) = reader.arrived(id, completion, &mut sums) {
                    commands.submit(id | BOUNCED, again);
                }
            }
        }
        while let Some((id, completion)) = commands.next().await {
            if let Some(again) = reader.arrived(id, completion, &mut sums) {
                commands.submit(id | BOUNCED, again);
            }
        }
        for index in sums.len() as u32..count {
            sums.push(Err(reader.lost(index, "was not read")));
        }
        sums
    }
}

/// Ids of second tries, through the largest buffer there is, carry this bit.
const BOUNCED: u64 = 1 << 32;

struct Reader<'r, 'a> {
    core: &'r Core,
    object: &'r Object<'r>,
    destination: &'r mut Destination<'a>,
    shape: Shape,
    kind: ChecksumKind,
}

impl<'a> Reader<'_, 'a> {
    fn range(&self, index: u32) -> (u64, u32) {
        let size = u64::from(self.shape.size);
        let range = chunk_range(self.shape.chunk_size, size, ChunkIndex(index));
        (range.start, (range.end - range.start) as u32)
    }

    fn lost(&self, index: u32, what: impl std::fmt::Display) -> ChunkFailure {
        let slot = self.shape.slot.get();
        ChunkFailure::Lost(Error::new(
            ErrorCode::FileReadFail,
            format!("{}: chunk {index} in slot {slot} {what}", self.object),
        ))
    }

    fn retrieve(&self, index: u32) -> Operation<'a> {
        let capabilities = self.core.executor.capabilities();
        let key = self.object.keys.chunk(self.shape.slot, ChunkIndex(index));
        let (offset, len) = self.range(index);
        let transfer = capabilities.transfer_len(len);
        let alignment = capabilities.destination_alignment;
        match self.destination.target(offset, len, transfer, alignment) {
            Some(target) => Operation::RetrieveInto { key, target, len },
            None => {
                let buffer = self.core.executor.buffers().get(transfer as usize);
                Operation::Retrieve { key, buffer, len }
            }
        }
    }

    /// Takes a completion. A device that refuses buffers shorter than the value is asked again
    /// with the largest one.
    fn arrived(
        &mut self,
        id: u64,
        completion: Completion,
        sums: &mut [Result<u32, ChunkFailure>],
    ) -> Option<Operation<'a>> {
        let index = (id & !BOUNCED) as u32;
        let (offset, len) = self.range(index);
        sums[index as usize] = match completion.result {
            Ok(reply) => match reply.value_len {
                Some(reported) if reported < len => {
                    Err(self.lost(index, format_args!("has {reported} bytes instead of {len}")))
                }
                _ => Ok(self.take(offset, len, &completion)),
            },
            Err(error) if error.is_not_found() => Err(self.lost(index, "is missing")),
            Err(error) if error.is_short_buffer() && id & BOUNCED == 0 => {
                return Some(self.bounce(index));
            }
            Err(error) if error.is_short_buffer() => {
                Err(self.lost(index, "is longer than any value"))
            }
            Err(error) => Err(self.failed(index, error)),
        };
        None
    }

    fn failed(&self, index: u32, error: CommandError) -> ChunkFailure {
        let slot = self.shape.slot.get();
        let what = format_args!("{}: Retrieve of chunk {index} in slot {slot}", self.object);
        ChunkFailure::Device(error.into_error(Direction::Read, what))
    }

    fn bounce(&self, index: u32) -> Operation<'a> {
        let capabilities = self.core.executor.capabilities();
        let len = capabilities.max_retrieve_size;
        let buffer = self.core.executor.buffers().get(capabilities.transfer_len(len) as usize);
        let key = self.object.keys.chunk(self.shape.slot, ChunkIndex(index));
        Operation::Retrieve { key, buffer, len }
    }

    /// Puts the bytes where they belong, if they are not there already, and returns their
    /// checksum.
    fn take(&mut self, offset: u64, len: u32, completion: &Completion) -> u32 {
        let len = len as usize;
        match &completion.buffer {
            Some(buffer) => {
                let bytes = &buffer[..len];
                self.destination.write(offset, bytes);
                self.kind.of_slice(bytes)
            }
            None => {
                let mut hasher = self.kind.hasher();
                self.destination.read(offset, len, |piece| hasher.update(piece));
                hasher.finish()
            }
        }
    }
}
