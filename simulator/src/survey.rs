//! What a device really holds, read behind the backend's back.

use std::collections::{BTreeMap, BTreeSet};

use mooncake_nvme_kv::layout::{
    ChunkIndex, Manifest, ObjectKeys, ObjectKind, Slot, parse_root_prefix,
};
use nvme_kv_command_set::{Key, Wire};
use nvme_kv_emulator::Namespace;

/// One root at its own place.
#[derive(Clone, Debug)]
pub(crate) struct SurveyedRoot {
    pub(crate) slot: Slot,
    /// Chunks it refers to, as the device knows them.
    chunks: Vec<Key>,
    place: Key,
}

/// Everything on a device.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// By logical key, lowest slot first.
    pub(crate) roots: BTreeMap<Vec<u8>, Vec<SurveyedRoot>>,
    /// Values that no root refers to.
    pub(crate) orphans: BTreeSet<Key>,
    bytes: BTreeMap<Key, u64>,
}

impl Survey {
    pub(crate) fn of(namespace: &Namespace, wire: &Wire) -> Survey {
        let mut survey = Survey::default();
        let mut others = BTreeSet::new();
        for place in namespace.keys() {
            let value = namespace.peek(&place).unwrap_or_default();
            survey.bytes.insert(place, value.len() as u64);
            match root_of(&place, &value, wire) {
                Some((key, root)) => survey.roots.entry(key).or_default().push(root),
                None => {
                    others.insert(place);
                }
            }
        }
        for roots in survey.roots.values_mut() {
            roots.sort_by_key(|root| root.slot);
        }
        let claimed: BTreeSet<Key> =
            survey.roots.values().flatten().flat_map(|root| root.chunks.iter().copied()).collect();
        survey.orphans = others.difference(&claimed).copied().collect();
        survey
    }

    /// Values and bytes of all visible objects that are whole.
    pub(crate) fn visible(&self) -> (u64, u64) {
        let visible = self.roots.values().filter_map(|roots| roots.first());
        let pieces = visible.flat_map(|root| root.chunks.iter().chain([&root.place]));
        pieces.fold((0, 0), |(values, bytes), place| {
            let held = self.bytes.get(place).copied();
            (values + u64::from(held.is_some()), bytes + held.unwrap_or(0))
        })
    }

    /// Payloads of the versions of `key` above the visible one, as far as they are whole.
    pub(crate) fn hidden(&self, namespace: &Namespace, wire: &Wire, key: &[u8]) -> Vec<Vec<u8>> {
        let roots = self.roots.get(key).map_or(&[][..], Vec::as_slice);
        let payload = |root: &SurveyedRoot| payload_of(namespace, wire, root);
        roots.iter().skip(1).filter_map(payload).collect()
    }

    /// Places of the visible version of `key`.
    pub(crate) fn pieces(&self, key: &[u8]) -> Vec<Key> {
        let root = self.roots.get(key).and_then(|roots| roots.first());
        root.map_or(Vec::new(), |root| root.chunks.iter().copied().chain([root.place]).collect())
    }
}

fn payload_of(namespace: &Namespace, wire: &Wire, root: &SurveyedRoot) -> Option<Vec<u8>> {
    let value = namespace.peek(&root.place)?;
    let prefix = parse_root_prefix(&value).ok()?;
    let payload = prefix.payload(&value).ok()?;
    if prefix.header.kind == ObjectKind::Inline {
        return Some(payload.to_vec());
    }
    let mut bytes = Vec::new();
    for chunk in Manifest::parse(payload).ok()?.chunks {
        let value = namespace.peek(&wire.device_key(&chunk.key))?;
        bytes.extend_from_slice(value.get(..chunk.size as usize)?);
    }
    Some(bytes)
}

fn root_of(place: &Key, value: &[u8], wire: &Wire) -> Option<(Vec<u8>, SurveyedRoot)> {
    let prefix = parse_root_prefix(value).ok()?;
    let keys = ObjectKeys::new(prefix.logical_key);
    let slot = prefix.slot;
    let at_home = prefix.belongs_to(&keys, slot, prefix.logical_key)
        && wire.device_key(&keys.root(slot)) == *place;
    if !at_home {
        return None;
    }
    let chunk = |index| wire.device_key(&keys.chunk(slot, ChunkIndex(index)));
    let count = match prefix.header.kind {
        ObjectKind::Inline => 0,
        ObjectKind::Manifest => Manifest::count_in(prefix.header.payload_size),
    };
    let root = SurveyedRoot { slot, chunks: (0..count).map(chunk).collect(), place: *place };
    Some((prefix.logical_key.to_vec(), root))
}
