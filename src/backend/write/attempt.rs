//! One attempt to store the new version in one slot: the chunks, then the root.

use super::Write;
use crate::backend::key_table::Ghost;
use crate::backend::roots::{Ask, Want};
use crate::device::{Direction, Operation, PayloadRange, Value};
use crate::error::{Error, Result};
use crate::layout::{
    ChunkIndex, ChunkRecord, Manifest, ObjectKind, Slot, WritePlan, root_prefix, root_prefix_len,
};
use crate::log;

/// Devices that report padded lengths report multiples of this many bytes.
const DEVICE_PADDING: u32 = 4096;

/// Ids carry these bits beside a chunk index: a second try, and a comparison with what is there.
const AGAIN: u64 = 1 << 32;
const COMPARE: u64 = 1 << 33;

/// How storing at one slot ended.
pub(super) enum At {
    Stored,
    /// Something else is stored there.
    Conflict,
    /// A root of this key is there that nobody knew of.
    UnknownRoot,
}

impl<'a> Write<'_, 'a> {
    /// Leaves nothing of a failed attempt behind, unless its root may still appear.
    pub(super) async fn store_at(&mut self, slot: Slot) -> Result<At> {
        if self.is_doomed_by_sweep(slot) {
            return Ok(At::Conflict);
        }
        let mut created = Vec::new();
        let stored = match self.plan {
            WritePlan::Inline => Ok(true),
            WritePlan::Chunked { chunk_size, .. } => {
                self.store_chunks(slot, chunk_size, &mut created).await
            }
        };
        let at = match stored {
            Ok(true) => self.store_root(slot).await,
            Ok(false) => Ok(At::Conflict),
            Err(error) => Err(Undone::Discard(error)),
        };
        match at {
            Ok(At::Stored) => Ok(At::Stored),
            Ok(other) => {
                self.discard(slot, &created).await;
                Ok(other)
            }
            Err(Undone::Discard(error)) => {
                self.discard(slot, &created).await;
                Err(error)
            }
            Err(Undone::Keep(error)) => Err(error),
        }
    }

    /// A Delete that a sweep has sent may yet take a value of the new version in `slot`.
    fn is_doomed_by_sweep(&self, slot: Slot) -> bool {
        let chunks = match self.plan {
            WritePlan::Inline => 0,
            WritePlan::Chunked { chunk_count, .. } => chunk_count,
        };
        let root = self.core.listed_key(self.object.keys.root(slot));
        let chunks = self.core.chunk_keys(self.object, slot, chunks);
        self.core.claims.is_any_doomed(std::iter::once(root).chain(chunks), (self.core.clock)())
    }

    /// Stores the chunks, hashing each while it is on its way. False: a chunk of other bytes is
    /// there. `created` gets the chunks that were not there before.
    async fn store_chunks(
        &mut self,
        slot: Slot,
        chunk_size: u32,
        created: &mut Vec<u32>,
    ) -> Result<bool> {
        let ranges: Vec<PayloadRange<'a>> = self.payload.chunks(chunk_size).collect();
        let count = ranges.len() as u32;
        self.core.claims.announce(self.core.chunk_keys(self.object, slot, count));
        let mut commands = self.lane.commands();
        let mut conflict = false;
        let mut failure: Option<Error> = None;
        let key = |index: usize| self.object.keys.chunk(slot, ChunkIndex(index as u32));
        let store = |index: usize| Operation::Store {
            key: key(index),
            value: Value { head: Vec::new(), body: ranges[index] },
        };
        let mut next = 0;
        loop {
            let arrived = if next < ranges.len() && !conflict && failure.is_none() {
                commands.submit(next as u64, store(next));
                self.sums.piece(next, &ranges[next]);
                next += 1;
                self.lane.yield_now().await;
                match commands.try_next() {
                    Some(arrived) => arrived,
                    None => continue,
                }
            } else {
                match commands.next().await {
                    Some(arrived) => arrived,
                    None => break,
                }
            };
            let (id, completion) = arrived;
            let index = (id & !(AGAIN | COMPARE)) as usize;
            let range = ranges[index];
            match completion.result {
                Ok(_) if id & COMPARE == 0 => created.push(index as u32),
                Ok(reply) => {
                    let stored = completion.buffer.as_deref().unwrap_or_default();
                    conflict |= !self.is_value(&range, stored, reply.value_len);
                }
                Err(error) if id & COMPARE != 0 && error.is_short_buffer() => conflict = true,
                Err(error) if id & COMPARE == 0 && error.is_exists() => {
                    let transfer = self.core.executor.capabilities().transfer_len(range.len());
                    let mut buffer = self.core.executor.buffers().get(transfer as usize);
                    spoil(&mut buffer, &range);
                    let compare = Operation::Retrieve { key: key(index), buffer, len: range.len() };
                    commands.submit(index as u64 | COMPARE, compare);
                }
                Err(error) if id & (AGAIN | COMPARE) == 0 && error.outcome_unknown() => {
                    // The same bytes again: whichever of the two is executed, it is right.
                    commands.submit(index as u64 | AGAIN, store(index));
                }
                Err(error) => {
                    self.full |= id & COMPARE == 0 && error.is_full();
                    let what =
                        format_args!("{}: chunk {index} in slot {}", self.object, slot.get());
                    failure.get_or_insert_with(|| error.into_error(Direction::Write, what));
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(!conflict),
        }
    }

    /// Whether a stored value, reported to have `reported` bytes, is `range`: exact or padded, by
    /// us or by the device.
    fn is_value(&self, range: &PayloadRange<'_>, stored: &[u8], reported: Option<u32>) -> bool {
        let len = range.len();
        let ours = self.core.executor.capabilities().transfer_len(len);
        let device = len.checked_next_multiple_of(DEVICE_PADDING).unwrap_or(u32::MAX);
        let plausible = reported.is_none_or(|reported| [len, ours, device].contains(&reported));
        plausible && stored.get(..len as usize).is_some_and(|bytes| range.equals(bytes))
    }

    /// Rule 5, the visibility mark.
    async fn store_root(&mut self, slot: Slot) -> std::result::Result<At, Undone> {
        let key = self.object.keys.root(slot);
        let mut ghost = false;
        loop {
            let head = self.root_head(slot);
            let body = match self.plan {
                WritePlan::Inline => self.whole,
                WritePlan::Chunked { .. } => PayloadRange::EMPTY,
            };
            let stored = self.lane.run(Operation::Store { key, value: Value { head, body } }).await;
            let at = match stored.result {
                Ok(_) => Ok(At::Stored),
                Err(error) if error.is_exists() => self.judge_root(slot).await,
                Err(error) if error.outcome_unknown() && !ghost => {
                    // The same root again: whichever of the two is executed, it is right.
                    ghost = true;
                    continue;
                }
                Err(error) => {
                    ghost |= error.outcome_unknown();
                    // With an earlier try under way, another attempt would hide what this one left.
                    self.full |= error.is_full() && !ghost;
                    let what = format_args!("{}: root in slot {}", self.object, slot.get());
                    Err(error.into_error(Direction::Write, what))
                }
            };
            if ghost {
                self.quarantine(slot, Ghost::RootStore);
            }
            if matches!((&at, ghost), (Ok(At::UnknownRoot), _) | (Err(_), true)) {
                // What is visible now, or soon, may not be what the index says.
                self.core.index.distrust(self.object.fingerprint);
            }
            return match at {
                Err(error) if ghost => Err(Undone::Keep(
                    error.context("either version may be stored, and the root may still appear"),
                )),
                Err(error) => Err(Undone::Discard(error)),
                Ok(at) => Ok(at),
            };
        }
    }

    /// Header, identity and, of a chunked object, the manifest.
    fn root_head(&mut self, slot: Slot) -> Vec<u8> {
        let (kind, manifest) = match self.plan {
            WritePlan::Inline => (ObjectKind::Inline, None),
            WritePlan::Chunked { .. } => {
                (ObjectKind::Manifest, Some(self.new_manifest(slot).encode()))
            }
        };
        let (len, sum) = match &manifest {
            Some(bytes) => (bytes.len() as u32, self.core.checksum.of_slice(bytes)),
            None => (self.whole.len(), self.sums.piece(0, &self.whole)),
        };
        let (keys, key) = (&self.object.keys, self.object.key);
        let mut head = root_prefix(kind, self.core.checksum, keys, slot, key, len, sum);
        head.extend_from_slice(&manifest.unwrap_or_default());
        head
    }

    pub(super) fn new_manifest(&mut self, slot: Slot) -> Manifest {
        let WritePlan::Chunked { chunk_size, .. } = self.plan else {
            return Manifest { logical_size: self.whole.len(), chunks: Vec::new() };
        };
        let chunks =
            self.payload.chunks(chunk_size).enumerate().map(|(index, range)| ChunkRecord {
                key: self.object.keys.chunk(slot, ChunkIndex(index as u32)),
                size: range.len(),
                checksum: self.sums.piece(index, &range),
            });
        Manifest { logical_size: self.whole.len(), chunks: chunks.collect() }
    }

    /// The root key of `slot` holds a value already: which?
    async fn judge_root(&mut self, slot: Slot) -> Result<At> {
        let expected = self.root_head(slot);
        let guess = self.root_value_len();
        let (prefix, manifest) = expected.split_at(root_prefix_len(self.object.key.len()));
        // Our own root that was garbled on the way must not pass for another one: it would lose its
        // chunks.
        for _ in 0..2 {
            let ask = (slot, Ask::Root { guess, want: Want::Whole });
            let found = self.core.search(self.lane, self.object, [ask]).await?;
            let Some(root) = found.roots.first() else {
                let gone = !found.occupied.contains(slot);
                return Ok(if gone { At::UnknownRoot } else { At::Conflict });
            };
            let same = root.prefix() == prefix
                && root.payload().is_ok_and(|payload| match self.plan {
                    WritePlan::Inline => self.whole.equals(payload),
                    WritePlan::Chunked { .. } => payload == manifest,
                });
            if same {
                return Ok(At::Stored);
            }
        }
        Ok(At::UnknownRoot)
    }

    /// Deletes what this attempt created in `slot`. What cannot be deleted stays as an orphan.
    async fn discard(&mut self, slot: Slot, created: &[u32]) {
        let created = created.iter().copied();
        let deleted = self.core.delete_chunks(self.lane, self.object, slot, created).await;
        if deleted.ghost {
            self.quarantine(slot, Ghost::Delete);
        }
        if let Some(error) = deleted.error {
            log::warning!(
                "{}: chunks of a failed write stay in slot {} as orphans: {error}",
                self.object,
                slot.get()
            );
        }
    }
}

/// How a root that was not stored leaves the chunks of its attempt.
enum Undone {
    /// Nothing refers to them.
    Discard(Error),
    /// The root may still appear.
    Keep(Error),
}

/// Makes what a buffer holds from before differ from `range`, so that a shorter value, on a device
/// that does not report lengths, is not taken for it.
fn spoil(buffer: &mut [u8], range: &PayloadRange<'_>) {
    let last = range.segments().filter_map(|segment| segment.last()).last();
    let place = (range.len() as usize).checked_sub(1).and_then(|end| buffer.get_mut(end));
    if let (Some(byte), Some(last)) = (place, last) {
        *byte = !*last;
    }
}
