//! Deleting values, and versions of one key: roots before chunks, highest slot first.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::{Core, Object};
use super::key_table::{Exclusive, Ghost, Quarantine};
use super::lane::Lane;
use crate::device::{CommandError, Direction, Operation};
use crate::error::Result;
use crate::layout::{ChunkIndex, PhysicalKey, Slot};
use crate::log;

/// A version of a key: where it is, and how many chunks it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) slot: Slot,
    pub(super) chunk_count: u32,
}

/// How deleting ended.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    pub(super) error: Option<CommandError>,
    /// A Delete may be executed late.
    pub(super) ghost: bool,
}

/// Ids of second tries carry this bit beside a chunk index.
const AGAIN: u64 = 1 << 32;

impl Core {
    /// Marks a slot that a command of unknown outcome may still change.
    pub(super) fn quarantine(
        &self,
        hold: &Exclusive<'_>,
        object: &Object<'_>,
        slot: Slot,
        ghost: Ghost,
    ) {
        let until = self.haunted();
        hold.quarantine(Quarantine { slot, ghost, until });
        self.index.expect_hidden(&object.fingerprint);
    }

    /// A command without an answer was given up now: until when it may be executed.
    pub(super) fn haunted(&self) -> Duration {
        let until = (self.clock)() + self.settle;
        let micros = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.haunted_until.fetch_max(micros.saturating_add(1), Ordering::AcqRel);
        until
    }

    /// Deletes one value. "Not found" is what was wanted. Without an answer it is tried once more.
    pub(super) async fn delete(&self, lane: &Lane<'_>, key: PhysicalKey) -> Deleted {
        let mut ghost = false;
        loop {
            match lane.run(Operation::Delete { key }).await.result {
                Ok(_) => return Deleted { error: None, ghost },
                Err(error) if error.is_not_found() => return Deleted { error: None, ghost },
                Err(error) if error.outcome_unknown() && !ghost => ghost = true,
                Err(error) => {
                    ghost |= error.outcome_unknown();
                    return Deleted { error: Some(error), ghost };
                }
            }
        }
    }

    /// Deletes chunks of one slot, all in flight together.
    pub(super) async fn delete_chunks(
        &self,
        lane: &Lane<'_>,
        object: &Object<'_>,
        slot: Slot,
        indexes: impl IntoIterator<Item = u32>,
    ) -> Deleted {
        let mut all = Deleted::default();
        let mut commands = lane.commands();
        let delete = |index: u64| Operation::Delete {
            key: object.keys.chunk(slot, ChunkIndex(index as u32)),
        };
        for index in indexes {
            commands.submit(u64::from(index), delete(u64::from(index)));
            lane.yield_now().await;
        }
        while let Some((id, completion)) = commands.next().await {
            match completion.result {
                Err(error) if error.is_not_found() => {}
                Err(error) if error.outcome_unknown() && id & AGAIN == 0 => {
                    all.ghost = true;
                    commands.submit(id | AGAIN, delete(id));
                }
                Err(error) => {
                    all.ghost |= error.outcome_unknown();
                    all.error.get_or_insert(error);
                }
                Ok(_) => {}
            }
        }
        all
    }

    /// Deletes the root of a version. After an error it may or may not be there.
    pub(super) async fn delete_root(
        &self,
        lane: &Lane<'_>,
        hold: &Exclusive<'_>,
        object: &Object<'_>,
        slot: Slot,
    ) -> Result<()> {
        let deleted = self.delete(lane, object.keys.root(slot)).await;
        if deleted.ghost {
            self.quarantine(hold, object, slot, Ghost::Delete);
        }
        let Some(error) = deleted.error else { return Ok(()) };
        self.index.distrust(object.fingerprint);
        let what = format_args!("{object}: Delete of the root in slot {}", slot.get());
        Err(error.into_error(Direction::Write, what))
    }

    /// Deletes the chunks of a version whose root is gone, once no reader can be at them. What
    /// cannot be deleted stays as an orphan.
    pub(super) async fn delete_version_chunks(
        &self,
        lane: &Lane<'_>,
        hold: &Exclusive<'_>,
        object: &Object<'_>,
        version: Version,
    ) {
        if version.chunk_count == 0 {
            return;
        }
        hold.old_readers_gone().await;
        let slot = version.slot;
        let deleted = self.delete_chunks(lane, object, slot, 0..version.chunk_count).await;
        if deleted.ghost {
            self.quarantine(hold, object, slot, Ghost::Delete);
        }
        if let Some(error) = deleted.error {
            log::warning!(
                "{object}: chunks in slot {} stay as orphans, no root refers to them: {error}",
                slot.get()
            );
        }
    }
}
