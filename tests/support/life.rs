//! Objects of every interesting size and content, and everything that can be done with one.

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::device::Destination;

use super::places::Places;
use super::{Device, Rig, payload};

/// The first four bytes of every root value.
const ROOT_MAGIC: [u8; 4] = [0x56, 0x4b, 0x56, 0x4e];

/// Fills memory that nothing may write to.
const GUARD: u8 = 0xA5;

/// An object.
pub struct Object {
    pub key: Vec<u8>,
    pub payload: Vec<u8>,
}

/// A key with a NUL in it.
pub fn key_of(name: &str) -> Vec<u8> {
    format!("tenant\0{name}").into_bytes()
}

/// Sizes around the limits of a page, of an inline object and of whole chunks.
pub fn interesting_objects(rig: &Rig) -> Vec<Object> {
    let chunk = rig.max_value_size() as usize;
    let key_len = key_of("size 000000").len();
    let inline = rig.largest_inline(key_len);
    let sizes =
        [0, 1, 4095, 4096, 4097, inline, inline + 1, 2 * chunk, 3 * chunk + 1, 3 * chunk + 4095];
    let mut objects: Vec<Object> = sizes
        .into_iter()
        .map(|size| Object {
            key: key_of(&format!("size {size:06}")),
            payload: payload(size, size as u64),
        })
        .collect();
    objects.extend(lookalikes(rig));
    objects
}

/// Payloads that look like roots.
fn lookalikes(rig: &Rig) -> Vec<Object> {
    let chunk = rig.max_value_size() as usize;
    let with_magic = |name, size, every| {
        let mut bytes = payload(size, 77);
        bytes.chunks_mut(every).for_each(|piece| piece[..4].copy_from_slice(&ROOT_MAGIC));
        Object { key: key_of(name), payload: bytes }
    };
    let root_of = |key: &[u8]| {
        let inline = payload(rig.largest_inline(key.len()), 78);
        let root = Places::new(rig, key, 0).root(0, &inline);
        assert_eq!(root.len(), chunk);
        root
    };
    let chunk_of_root = |name, of: &[u8]| {
        let mut bytes = root_of(of);
        bytes.extend(payload(chunk + 100, 79));
        Object { key: key_of(name), payload: bytes }
    };
    vec![
        Object { key: key_of("only magic"), payload: ROOT_MAGIC.to_vec() },
        with_magic("inline magic", 3000, 3000),
        with_magic("magic in front", 2 * chunk + 9, 2 * chunk + 9),
        with_magic("magic in every chunk", 3 * chunk + 17, chunk),
        chunk_of_root("a root of another key", b"other key"),
        chunk_of_root("a root of this key", &key_of("a root of this key")),
    ]
}

/// Sizes around the limits of large values: the largest inline one and one more, several chunks.
pub fn large_objects(rig: &Rig) -> Vec<Object> {
    let chunk = rig.max_value_size() as usize;
    let inline = rig.largest_inline(key_of("large 000000").len());
    [inline, inline + 1, 3 * chunk + 4095]
        .into_iter()
        .map(|size| Object {
            key: key_of(&format!("large {size}")),
            payload: payload(size, size as u64),
        })
        .collect()
}

/// Loads in every way a caller may lay out its memory, and returns how many ways those are.
fn loads_everywhere(device: &Device, object: &Object) -> u64 {
    let Object { key, payload } = object;
    let len = payload.len();
    device.expect(key, payload);

    let mut memory = vec![GUARD; len + 2 * 4096 + 8];
    let page = memory.as_ptr().align_offset(4096);
    let unaligned = page + 1;
    device.get_into(key, &mut memory[unaligned..unaligned + len]).unwrap();
    assert!(memory[unaligned..unaligned + len] == payload[..], "unaligned");
    assert!(memory[..unaligned].iter().all(|byte| *byte == GUARD));
    assert!(memory[unaligned + len..].iter().all(|byte| *byte == GUARD), "written behind the end");

    let mut pieces = vec![GUARD; len];
    let (first, rest) = pieces.split_at_mut(len / 3);
    let (second, third) = rest.split_at_mut(rest.len() / 2);
    device.get_to(key, Destination::from_slices([first, &mut [], second, third])).unwrap();
    assert!(pieces == *payload, "several slices");

    let slack = len.next_multiple_of(4096) + 4096 - len;
    let mut memory = vec![GUARD; len + slack + 2 * 4096];
    let page = memory.as_ptr().align_offset(4096);
    let start = memory[page..].as_mut_ptr();
    // SAFETY: object, slack and a page behind them lie inside `memory`, which nobody else uses.
    let destination = unsafe { Destination::from_raw([(start, len)], slack) };
    device.get_to(key, destination).unwrap();
    assert!(memory[page..page + len] == payload[..], "with slack");
    assert!(memory[page + len + slack..].iter().all(|byte| *byte == GUARD), "behind the slack");
    4
}

fn refuses_other_sizes(device: &Device, object: &Object) {
    let len = object.payload.len();
    for other in [len + 1, len.saturating_sub(1), len + 100_000] {
        if other != len {
            let error = device.get(&object.key, other).unwrap_err();
            assert_eq!(error.code(), ErrorCode::FileReadFail, "{error}");
            assert!(error.message().contains(&format!("has {len} bytes")), "{error}");
        }
    }
}

/// Everything that can be done with one object. Returns how many loads were compared.
pub fn lives(rig: &Rig, device: &Device, object: &Object) -> u64 {
    let mut compared = 0;
    let Object { key, payload: first } = object;
    let others = rig.value_count();
    let values = |len: usize| others + rig.values_of(key, len);
    assert!(!device.backend.exists(key).unwrap());
    assert_eq!(device.get(key, first.len()).unwrap_err().code(), ErrorCode::ObjectNotFound);

    let stored = device.put(key, first).unwrap();
    assert!(!stored.already && stored.size == first.len() as u64);
    assert_eq!(rig.value_count(), values(first.len()));
    for reader in [device, &rig.open()] {
        assert!(reader.backend.exists(key).unwrap());
        compared += loads_everywhere(reader, object);
        refuses_other_sizes(reader, object);
        let (head, tail) = first.split_at(first.len() / 2);
        assert!(reader.put_slices(key, &[b"", head, b"", tail]).unwrap().already);
        assert_eq!(rig.value_count(), values(first.len()), "a re-offload stores nothing");
    }

    let len = first.len();
    let mut stored = first.clone();
    for (seed, size) in [(1, len / 2), (2, len / 2), (3, len), (4, len + 9000)] {
        let bytes = payload(size, 1000 + seed);
        let rewritten = rig.open().put(key, &bytes).unwrap();
        assert_eq!(rewritten.already, bytes == stored);
        assert_eq!(rig.value_count(), values(size), "rewritten to {size} bytes");
        rig.open().expect(key, &bytes);
        compared += 1;
        assert!(rig.open().put(key, &bytes).unwrap().already);
        stored = bytes;
    }
    let bytes = payload(len + 1, 2000);
    assert!(!device.put(key, &bytes).unwrap().already);
    assert_eq!(rig.value_count(), values(len + 1));
    device.expect(key, &bytes);
    rig.open().expect(key, &bytes);
    compared + 2
}
