//! Where the values of one key are on a device, and how to put some there without a backend.

use std::collections::{BTreeSet, HashMap};

use mooncake_nvme_kv::layout::{
    ChecksumKind, ChunkIndex, ChunkRecord, Limits, Manifest, ObjectKeys, ObjectKind, Slot,
    WritePlan, root_prefix, write_plan,
};
use nvme_kv_command_set::{Key, Wire, WireProfile};

use super::Rig;

/// What a value of the key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// The root of a slot.
    Root(u32),
    /// A chunk: slot and index.
    Chunk(u32, u32),
}

impl Piece {
    pub fn slot(self) -> u32 {
        match self {
            Piece::Root(slot) | Piece::Chunk(slot, _) => slot,
        }
    }
}

/// The places of one key on one rig.
pub struct Places {
    logical: Vec<u8>,
    keys: ObjectKeys,
    /// How the rig's backends encode their commands.
    pub wire: Wire,
    limits: Limits,
    checksum: ChecksumKind,
    pieces: HashMap<Key, Piece>,
}

impl Places {
    /// Of `key`, whose objects have at most `chunks` chunks.
    pub fn new(rig: &Rig, key: &[u8], chunks: u32) -> Places {
        let connector = &rig.config.connector;
        let mut places = Places {
            logical: key.to_vec(),
            keys: rig.parts.codec.object_keys(key),
            wire: Wire {
                profile: connector.wire_profile,
                transfer_alignment: connector.transfer_alignment,
                ..Wire::default()
            },
            limits: Limits { max_value_size: rig.max_value_size() },
            checksum: ChecksumKind::Xxh32,
            pieces: HashMap::new(),
        };
        for slot in 0..64 {
            let pieces = (0..chunks).map(|index| Piece::Chunk(slot, index));
            for piece in pieces.chain([Piece::Root(slot)]) {
                places.pieces.insert(places.device_key(piece), piece);
            }
        }
        places
    }

    /// What is put from now on comes from a writer with another value size limit.
    pub fn with_limit(self, max_value_size: u32) -> Places {
        Places { limits: Limits { max_value_size }, ..self }
    }

    /// What is put from now on comes from a writer with that checksum.
    pub fn with_checksum(self, checksum: ChecksumKind) -> Places {
        Places { checksum, ..self }
    }

    /// The key under which a device knows `piece`.
    pub fn device_key(&self, piece: Piece) -> Key {
        let slot = Slot::new(piece.slot()).expect("a slot");
        self.wire.device_key(&match piece {
            Piece::Root(_) => self.keys.root(slot),
            Piece::Chunk(_, index) => self.keys.chunk(slot, ChunkIndex(index)),
        })
    }

    /// Which piece a device's key is, if it is one of this key.
    pub fn piece(&self, key: &Key) -> Option<Piece> {
        self.pieces.get(key).copied()
    }

    /// The pieces on the device, which must hold nothing else.
    #[track_caller]
    pub fn on_device(&self, rig: &Rig) -> BTreeSet<Piece> {
        let piece =
            |key: &Key| self.piece(key).expect("a value that no slot of the key accounts for");
        rig.namespace.keys().iter().map(piece).collect()
    }

    /// What an object of `len` bytes consists of in `slot`.
    pub fn object(&self, slot: u32, len: usize) -> BTreeSet<Piece> {
        let chunks = (0..self.chunk_count(len)).map(|index| Piece::Chunk(slot, index));
        chunks.chain([Piece::Root(slot)]).collect()
    }

    /// Chunks of an object of `len` bytes; 0 when it is inline.
    pub fn chunk_count(&self, len: usize) -> u32 {
        match write_plan(self.logical.len(), len as u64, self.limits).expect("a size that fits") {
            WritePlan::Inline => 0,
            WritePlan::Chunked { chunk_count, .. } => chunk_count,
        }
    }

    /// Puts a value on the device as a Store would, replacing what is there.
    pub fn put(&self, rig: &Rig, piece: Piece, value: &[u8]) {
        let len = match self.wire.profile {
            WireProfile::Mooncake => self.wire.transfer_len(value.len() as u32) as usize,
            WireProfile::Spec => value.len(),
        };
        let mut value = value.to_vec();
        value.resize(len, 0);
        rig.namespace.poke(&self.device_key(piece), &value);
    }

    /// Puts a whole object into `slot`, as the C++ original or a crash may have left it.
    pub fn put_object(&self, rig: &Rig, slot: u32, payload: &[u8]) {
        self.put_chunks(rig, slot, payload);
        self.put_root(rig, slot, payload);
    }

    /// Puts the chunks of an object into `slot`, and no root.
    pub fn put_chunks(&self, rig: &Rig, slot: u32, payload: &[u8]) {
        if self.chunk_count(payload.len()) > 0 {
            let chunks = payload.chunks(self.limits.max_value_size as usize);
            for (index, chunk) in (0..).zip(chunks) {
                self.put(rig, Piece::Chunk(slot, index), chunk);
            }
        }
    }

    /// Puts the root of an object into `slot`, and no chunks.
    pub fn put_root(&self, rig: &Rig, slot: u32, payload: &[u8]) {
        self.put(rig, Piece::Root(slot), &self.root(slot, payload));
    }

    /// The root value of an object in `slot`, not padded.
    pub fn root(&self, slot: u32, payload: &[u8]) -> Vec<u8> {
        if self.chunk_count(payload.len()) == 0 {
            self.root_of(slot, ObjectKind::Inline, payload)
        } else {
            let manifest = self.manifest(slot, payload).encode();
            self.root_of(slot, ObjectKind::Manifest, &manifest)
        }
    }

    /// The manifest of a chunked object in `slot`.
    pub fn manifest(&self, slot: u32, payload: &[u8]) -> Manifest {
        let at = Slot::new(slot).expect("a slot");
        let chunks = payload.chunks(self.limits.max_value_size as usize);
        let records = (0..).map(ChunkIndex).zip(chunks).map(|(index, chunk)| ChunkRecord {
            key: self.keys.chunk(at, index),
            size: chunk.len() as u32,
            checksum: self.checksum.of_slice(chunk),
        });
        Manifest { logical_size: payload.len() as u32, chunks: records.collect() }
    }

    /// The root value around `body`, whatever that is.
    pub fn root_of(&self, slot: u32, kind: ObjectKind, body: &[u8]) -> Vec<u8> {
        let at = Slot::new(slot).expect("a slot");
        let (sum, len) = (self.checksum.of_slice(body), body.len() as u32);
        let mut root = root_prefix(kind, self.checksum, &self.keys, at, &self.logical, len, sum);
        root.extend_from_slice(body);
        root
    }

    /// Flips one bit of what the device holds.
    pub fn damage(&self, rig: &Rig, piece: Piece, offset: usize) {
        let key = self.device_key(piece);
        let mut value = rig.namespace.peek(&key).expect("a value to damage");
        value[offset] ^= 0x10;
        rig.namespace.poke(&key, &value);
    }

    /// Takes a value off the device.
    pub fn lose(&self, rig: &Rig, piece: Piece) {
        assert!(rig.namespace.erase(&self.device_key(piece)), "a value to lose");
    }
}
