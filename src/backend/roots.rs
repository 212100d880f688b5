//! Finding and judging the roots of one key.

use std::sync::atomic::Ordering;

use super::core::{Core, Object};
use super::lane::Lane;
use crate::device::{Buffer, Completion, Direction, Operation};
use crate::error::{Error, Result};
use crate::layout::{
    HEADER_LEN, Header, LayoutError, Manifest, ObjectKind, PhysicalKey, RootPrefix, Slot,
    carried_key, parse_root_prefix, root_prefix_len,
};

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotSet(u64);

impl SlotSet {
    pub(super) fn insert(&mut self, slot: Slot) {
        self.0 |= 1 << slot.get();
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        self.0 &= !(1 << slot.get());
    }

    pub(super) fn union(self, other: SlotSet) -> SlotSet {
        SlotSet(self.0 | other.0)
    }

    pub(super) fn contains(self, slot: Slot) -> bool {
        self.0 & (1 << slot.get()) != 0
    }

    /// Some slot lower than `slot` is in the set.
    pub(super) fn any_below(self, slot: Slot) -> bool {
        self.0 & ((1 << slot.get()) - 1) != 0
    }
}

/// A valid root of the key that was asked for: header, identity and placement agree. Its payload
/// is checked by [`StoredRoot::payload`].
#[derive(Debug)]
pub(super) struct StoredRoot {
    pub(super) slot: Slot,
    pub(super) header: Header,
    payload_offset: usize,
    /// Whole value, bytes.
    pub(super) value_len: u64,
    /// As many of the value's bytes as were fetched.
    fetched: usize,
    buffer: Buffer,
}

impl StoredRoot {
    /// The whole value was fetched.
    pub(super) fn is_whole(&self) -> bool {
        self.fetched as u64 >= self.value_len
    }

    /// The verified payload: an inline object's bytes, or a manifest's.
    pub(super) fn payload(&self) -> std::result::Result<&[u8], LayoutError> {
        let bytes = &self.buffer[..self.fetched];
        parse_root_prefix(bytes)?.payload(bytes)
    }

    /// The object's size, and the chunk size if it has chunks; `None` if the payload was not
    /// fetched or is damaged.
    pub(super) fn shape(&self) -> Option<(u32, Option<u32>)> {
        match self.header.kind {
            ObjectKind::Inline => Some((self.header.payload_size, None)),
            ObjectKind::Manifest => {
                let manifest = Manifest::parse(self.payload().ok()?).ok()?;
                Some((manifest.logical_size, Some(manifest.chunk_size())))
            }
        }
    }

    /// How many chunks the root's manifest lists, from the header alone; 0 for an inline object.
    pub(super) fn chunk_count(&self) -> u32 {
        match self.header.kind {
            ObjectKind::Inline => 0,
            ObjectKind::Manifest => Manifest::count_in(self.header.payload_size),
        }
    }

    /// Header and identity as they are stored.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.buffer[..self.payload_offset]
    }
}

/// What a value is, by its beginning and the key under which it is stored.
pub(super) enum Peeked {
    /// A root at its own place, and its logical key.
    Root(Vec<u8>, StoredRoot),
    /// A root that is damaged.
    Damaged(LayoutError),
    /// No root, or the image of one that belongs elsewhere.
    Other,
}

/// How much of a root is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Header and identity.
    Prefix,
    /// All of it.
    Whole,
}

/// The first question about a slot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    /// Whether there is a value at all; only then its prefix.
    Exist,
    /// The root, expected to be at most `guess` bytes long.
    Root {
        /// Bytes to ask for first; more are asked for when the header says so.
        guess: u32,
        /// How much is needed.
        want: Want,
    },
}

/// What a search found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Roots of the key, lowest slot first.
    pub(super) roots: Vec<StoredRoot>,
    /// Slots that were asked about and hold some value under their root key.
    pub(super) occupied: SlotSet,
    /// A value that is no root at all, in the lowest such slot.
    pub(super) unreadable: Option<(Slot, LayoutError)>,
}

impl Found {
    fn note_unreadable(&mut self, slot: Slot, error: LayoutError) {
        if self.unreadable.as_ref().is_none_or(|(lowest, _)| slot < *lowest) {
            self.unreadable = Some((slot, error));
        }
    }
}

/// A fetch asks for at least this many bytes, so that a small root comes whole.
const LEAST_FETCH: u32 = 4096;

/// Ids of Exist commands carry this bit beside their slot.
const EXIST: u64 = 1 << 32;

impl Core {
    /// Asks every slot but `first` whether it exists, and `first` for its root, all in one batch.
    pub(super) fn ask_all(&self, first: Slot, guess: u32) -> Vec<(Slot, Ask)> {
        let mut asks = vec![(first, Ask::Root { guess, want: Want::Prefix })];
        asks.extend(self.ask_others(first));
        asks
    }

    /// Asks every slot but `first` whether it exists.
    pub(super) fn ask_others(&self, first: Slot) -> impl Iterator<Item = (Slot, Ask)> + use<> {
        Slot::all().filter(move |slot| *slot != first).map(|slot| (slot, Ask::Exist))
    }

    /// Looks for roots of `object` in the slots asked about. Everything is in flight together; a
    /// slot that exists is fetched as soon as that is known, and a second time if it was no root.
    ///
    /// # Errors
    /// The first device failure other than "not found".
    pub(super) async fn search<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        asks: impl IntoIterator<Item = (Slot, Ask)>,
    ) -> Result<Found> {
        let limit = self.executor.capabilities().max_retrieve_size;
        let prefix = u32::try_from(root_prefix_len(object.key.len())).unwrap_or(u32::MAX);
        let prefix = prefix.max(LEAST_FETCH).min(limit);
        let mut found = Found::default();
        let mut failure: Option<Error> = None;
        // Per slot: bytes asked for, and how much is wanted.
        let mut asked = [(0u32, Want::Prefix); 64];
        // Slots whose value was no root; each is read a second time.
        let mut doubted = SlotSet::default();
        let mut commands = lane.commands();
        let fetch = |slot: Slot, len: u32| {
            let capabilities = self.executor.capabilities();
            let transfer = capabilities.transfer_len(len);
            let buffer = cleared(self.executor.buffers().get(transfer as usize));
            Operation::Retrieve { key: object.keys.root(slot), buffer, len }
        };
        let no_exist = self.no_exist.load(Ordering::Relaxed);
        for (slot, ask) in asks {
            match ask {
                Ask::Exist if !no_exist => commands.submit(
                    u64::from(slot.get()) | EXIST,
                    Operation::Exist { key: object.keys.root(slot) },
                ),
                Ask::Exist => {
                    asked[slot.get() as usize] = (prefix, Want::Prefix);
                    commands.submit(u64::from(slot.get()), fetch(slot, prefix));
                }
                Ask::Root { guess, want } => {
                    let len = guess.clamp(prefix, limit);
                    asked[slot.get() as usize] = (len, want);
                    commands.submit(u64::from(slot.get()), fetch(slot, len));
                }
            }
        }
        while let Some((id, completion)) = commands.next().await {
            let Some(slot) = Slot::new((id & !EXIST) as u32) else { continue };
            let place = &mut asked[slot.get() as usize];
            if id & EXIST != 0 {
                let exists = match completion.result {
                    Ok(_) => true,
                    Err(error) if error.is_not_found() => false,
                    Err(error) if error.is_unsupported() => {
                        self.no_exist.store(true, Ordering::Relaxed);
                        true
                    }
                    Err(error) => {
                        failure.get_or_insert_with(|| {
                            error.into_error(
                                Direction::Read,
                                format_args!("{object}: Exist of slot {}", slot.get()),
                            )
                        });
                        false
                    }
                };
                if exists {
                    *place = (prefix, Want::Prefix);
                    commands.submit(u64::from(slot.get()), fetch(slot, prefix));
                }
                continue;
            }
            let (len, want) = *place;
            let mut judged = judge(object, slot, len, want, completion);
            let too_long = match judged {
                Ok(Judged::Longer(need)) => Some(need).filter(|need| *need > u64::from(limit)),
                Ok(Judged::LongerThanBuffer) => Some(u64::from(limit) + 1).filter(|_| len == limit),
                _ => None,
            };
            if let Some(need) = too_long {
                let got = u64::from(limit);
                judged = Ok(Judged::Unreadable(LayoutError::Truncated { need, got }));
            }
            match judged {
                Ok(Judged::Missing) => {}
                Ok(Judged::Ours(root)) => {
                    found.occupied.insert(slot);
                    found.roots.push(root);
                }
                Ok(Judged::Foreign) => found.occupied.insert(slot),
                // A root that was damaged on the way must not pass for a value that is nobody's:
                // a write would leave it below the new one, a removal would leave it.
                Ok(Judged::Unreadable(_)) if !doubted.contains(slot) => {
                    doubted.insert(slot);
                    commands.submit(u64::from(slot.get()), fetch(slot, len));
                }
                Ok(Judged::Unreadable(error)) => {
                    found.occupied.insert(slot);
                    found.note_unreadable(slot, error);
                }
                Ok(Judged::Longer(need)) => {
                    let need = (need as u32).max(len + 1);
                    *place = (need, want);
                    commands.submit(u64::from(slot.get()), fetch(slot, need));
                }
                Ok(Judged::LongerThanBuffer) => {
                    *place = (limit, want);
                    commands.submit(u64::from(slot.get()), fetch(slot, limit));
                }
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        found.roots.sort_by_key(|root| root.slot);
        match failure {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }

    /// Reads the beginning of the value under `key`, as it was derived or as the device lists it, as
    /// far as a root's header and identity go. What resembles a root of this place and is none is
    /// fetched twice: it may have been garbled on the way. `None`: there is no value.
    pub(super) async fn peek(&self, lane: &Lane<'_>, key: PhysicalKey) -> Result<Option<Peeked>> {
        let capabilities = self.executor.capabilities();
        let limit = capabilities.max_retrieve_size;
        let mut len = LEAST_FETCH.min(limit);
        let mut asked_again = false;
        loop {
            let buffer = self.executor.buffers().get(capabilities.transfer_len(len) as usize);
            let completion =
                lane.run(Operation::Retrieve { key, buffer: cleared(buffer), len }).await;
            let reported = match completion.result {
                Ok(reply) => reply.value_len.unwrap_or(u32::MAX),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) if error.is_short_buffer() && len < limit => {
                    len = limit;
                    continue;
                }
                Err(error) => {
                    let what = format_args!("Retrieve of a value, {key:?}");
                    return Err(error.into_error(Direction::Read, what));
                }
            };
            let Some(buffer) = completion.buffer else { return Ok(None) };
            let fetched = len.min(reported) as usize;
            let bytes = &buffer[..fetched];
            let error = match self.root_under(key, bytes) {
                Ok(prefix) => {
                    let logical_key = prefix.logical_key.to_vec();
                    let (slot, header) = (prefix.slot, prefix.header);
                    let (payload_offset, value_len) = (prefix.payload_offset, prefix.value_len());
                    let root =
                        StoredRoot { slot, header, payload_offset, value_len, fetched, buffer };
                    return Ok(Some(Peeked::Root(logical_key, root)));
                }
                Err(LayoutError::Truncated { need, .. })
                    if need > u64::from(len)
                        && need <= u64::from(reported)
                        && need <= u64::from(limit) =>
                {
                    len = need as u32;
                    continue;
                }
                Err(error) => error,
            };
            // Most values are chunks, whose bytes look like nothing.
            let carries_key =
                carried_key(bytes).is_some_and(|carried| self.same_key(&carried, &key));
            if !asked_again && (carries_key || !matches!(error, LayoutError::BadMagic { .. })) {
                asked_again = true;
                continue;
            }
            return Ok(Some(match error {
                LayoutError::BadMagic { .. }
                | LayoutError::Truncated { .. }
                | LayoutError::IdentityMismatch
                    if !carries_key =>
                {
                    Peeked::Other
                }
                error => Peeked::Damaged(error),
            }));
        }
    }

    /// The beginning of the root that `bytes` are, if they belong under `key`.
    fn root_under<'b>(
        &self,
        key: PhysicalKey,
        bytes: &'b [u8],
    ) -> std::result::Result<RootPrefix<'b>, LayoutError> {
        let prefix = parse_root_prefix(bytes)?;
        let object = self.object(prefix.logical_key);
        let at_home = prefix.belongs_to(&object.keys, prefix.slot, prefix.logical_key)
            && self.same_key(&object.keys.root(prefix.slot), &key);
        at_home.then_some(prefix).ok_or(LayoutError::IdentityMismatch)
    }

    /// The whole of `root`, fetched again if only its beginning is here. `None`: it is gone.
    pub(super) async fn whole<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        root: StoredRoot,
    ) -> Result<Option<StoredRoot>> {
        if root.is_whole() {
            return Ok(Some(root));
        }
        self.fetch_again(lane, object, &root).await
    }

    /// The whole of `root`, fetched again. `None`: it is gone.
    pub(super) async fn fetch_again<'a>(
        &self,
        lane: &Lane<'a>,
        object: &Object<'_>,
        root: &StoredRoot,
    ) -> Result<Option<StoredRoot>> {
        let guess = u32::try_from(root.value_len).unwrap_or(u32::MAX);
        let ask = (root.slot, Ask::Root { guess, want: Want::Whole });
        Ok(self.search(lane, object, [ask]).await?.roots.pop())
    }
}

/// A device that returns nothing must not leave an older root to be read.
fn cleared(mut buffer: Buffer) -> Buffer {
    let header = buffer.len().min(HEADER_LEN);
    buffer[..header].fill(0);
    buffer
}

enum Judged {
    Missing,
    Ours(StoredRoot),
    /// A root of another key.
    Foreign,
    /// No root.
    Unreadable(LayoutError),
    /// More bytes are needed: this many in all.
    Longer(u64),
    /// More bytes are needed; the device does not say how many.
    LongerThanBuffer,
}

/// What the value fetched from `slot` is. `Err` is a device failure.
fn judge(
    object: &Object<'_>,
    slot: Slot,
    len: u32,
    want: Want,
    completion: Completion,
) -> Result<Judged> {
    let what = || format!("{object}: Retrieve of the root in slot {}", slot.get());
    let reply = match completion.result {
        Ok(reply) => reply,
        Err(error) if error.is_not_found() => return Ok(Judged::Missing),
        Err(error) if error.is_short_buffer() => return Ok(Judged::LongerThanBuffer),
        Err(error) => return Err(error.into_error(Direction::Read, what())),
    };
    let Some(buffer) = completion.buffer else {
        return Err(Error::new(
            crate::ErrorCode::InternalError,
            format!("{}: the executor kept the buffer", what()),
        ));
    };
    let reported = reply.value_len.unwrap_or(u32::MAX);
    let fetched = len.min(reported) as usize;
    let prefix = match parse_root_prefix(&buffer[..fetched]) {
        Ok(prefix) => prefix,
        Err(LayoutError::Truncated { need, .. })
            if need <= u64::from(reported) && need > u64::from(len) =>
        {
            return Ok(Judged::Longer(need));
        }
        Err(error) => return Ok(Judged::Unreadable(error)),
    };
    if !prefix.belongs_to(&object.keys, slot, object.key) {
        // The header is whole and names this key by 256 bits: what disagrees with it is damage,
        // which proves no absence.
        let ours = prefix.header.verify_hash == *object.keys.verify_hash();
        return Ok(if ours {
            Judged::Unreadable(LayoutError::IdentityMismatch)
        } else {
            Judged::Foreign
        });
    }
    let value_len = prefix.value_len();
    if value_len > u64::from(reported) {
        let error = LayoutError::Truncated { need: value_len, got: u64::from(reported) };
        return Ok(Judged::Unreadable(error));
    }
    if want == Want::Whole && value_len > fetched as u64 {
        return Ok(Judged::Longer(value_len));
    }
    let (header, payload_offset) = (prefix.header, prefix.payload_offset);
    Ok(Judged::Ours(StoredRoot { slot, header, payload_offset, value_len, fetched, buffer }))
}
