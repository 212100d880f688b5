//! Bytes that nobody wrote: parsers answer, never panic, and allocate no more than they were given.

mod layout_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;

use mooncake_nvme_kv::layout::{
    ChecksumKind, ChunkIndex, ChunkRecord, Header, LayoutError, Manifest, ObjectKeys, ObjectKind,
    Slot, canonical_identity, parse_identity, parse_root_prefix, root_prefix,
};

const ROUNDS: u32 = 60_000;

#[test]
fn mutated_headers_are_refused_or_decoded_to_the_same_bytes() {
    let mut random = Random(layout_support::seed());
    let mut outcomes = Outcomes::default();
    for _ in 0..ROUNDS {
        let mut bytes = valid_root(&mut random);
        bytes.truncate(56 + random.below(40));
        mutate(&mut bytes, &mut random);
        if random.below(2) == 0 {
            sign_header(&mut bytes);
        }
        let parsed = allocating_at_most(0, || Header::parse(&bytes));
        outcomes.count(parsed.as_ref().err());
        if let Ok(header) = parsed {
            assert_eq!(header.encode(), bytes[..56]);
        }
    }
    outcomes.assert_seen(&["Ok", "Truncated", "BadMagic", "UnknownType", "ChecksumMismatch"]);
}

#[test]
fn mutated_roots_are_refused_or_decoded_to_the_same_bytes() {
    let mut random = Random(layout_support::seed());
    let mut outcomes = Outcomes::default();
    for _ in 0..ROUNDS {
        let mut bytes = valid_root(&mut random);
        mutate(&mut bytes, &mut random);
        if random.below(4) != 0 {
            sign_header(&mut bytes);
        }
        let parsed = allocating_at_most(0, || {
            let root = parse_root_prefix(&bytes)?;
            Ok((root, root.payload(&bytes)))
        });
        outcomes.count(parsed.as_ref().err());
        let Ok((root, payload)) = parsed else { continue };

        let mut prefix = root.header.encode().to_vec();
        prefix.extend_from_slice(&root.physical_key.0);
        prefix.extend_from_slice(&root.slot.get().to_le_bytes());
        prefix.extend_from_slice(&canonical_identity(root.logical_key));
        assert_eq!(prefix, bytes[..root.payload_offset]);
        assert_eq!(
            root.value_len(),
            root.payload_offset as u64 + u64::from(root.header.payload_size)
        );
        match payload {
            Ok(payload) => {
                assert_eq!(payload.len(), root.header.payload_size as usize);
                let checksum = root.header.checksum.of_slice(payload);
                assert_eq!(checksum, root.header.payload_checksum);
            }
            Err(LayoutError::Truncated { need, got }) => {
                assert_eq!((need, got), (root.value_len(), bytes.len() as u64));
                assert!(need > got);
            }
            Err(LayoutError::ChecksumMismatch { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    outcomes.assert_seen(&[
        "Ok",
        "Truncated",
        "BadMagic",
        "UnknownType",
        "ChecksumMismatch",
        "IdentitySize",
        "SlotOutOfRange",
        "IdentityVersion",
        "IdentityLength",
    ]);
}

#[test]
fn mutated_identities_are_refused_or_decoded_to_the_same_bytes() {
    let mut random = Random(layout_support::seed());
    let mut outcomes = Outcomes::default();
    for _ in 0..ROUNDS {
        let len = random.below(40);
        let mut bytes = canonical_identity(&random.bytes(len));
        mutate(&mut bytes, &mut random);
        let parsed = allocating_at_most(0, || parse_identity(&bytes));
        outcomes.count(parsed.as_ref().err());
        if let Ok(key) = parsed {
            assert_eq!(canonical_identity(key), bytes);
        }
    }
    outcomes.assert_seen(&["Ok", "Truncated", "IdentityVersion", "IdentityLength"]);
}

#[test]
fn mutated_manifests_are_refused_or_decoded_to_the_same_bytes() {
    let mut random = Random(layout_support::seed());
    let mut outcomes = Outcomes::default();
    for _ in 0..ROUNDS {
        let mut bytes = match random.below(16) {
            0 => Manifest { logical_size: 0, chunks: Vec::new() }.encode(),
            _ => valid_manifest(&mut random),
        };
        mutate(&mut bytes, &mut random);
        let parsed = allocating_at_most(bytes.len(), || Manifest::parse(&bytes));
        outcomes.count(parsed.as_ref().err());
        let Ok(manifest) = parsed else { continue };

        assert_eq!(manifest.encode(), bytes);
        let sizes = || manifest.chunks.iter().map(|chunk| chunk.size);
        assert_eq!(sizes().map(u64::from).sum::<u64>(), u64::from(manifest.logical_size));
        assert!(sizes().all(|size| size > 0 && size <= manifest.chunk_size()));
    }
    outcomes.assert_seen(&[
        "Ok",
        "Truncated",
        "ManifestLength",
        "ManifestEmpty",
        "ChunkSize",
        "ManifestTotal",
    ]);
}

#[test]
fn random_bytes_are_no_object() {
    let mut random = Random(layout_support::seed());
    for _ in 0..ROUNDS {
        let len = random.below(200);
        let bytes = random.bytes(len);
        assert!(allocating_at_most(0, || Header::parse(&bytes)).is_err());
        assert!(allocating_at_most(0, || parse_root_prefix(&bytes)).is_err());
        // Anything may come of these two; they must only come back.
        let _ = allocating_at_most(0, || parse_identity(&bytes));
        let _ = allocating_at_most(bytes.len(), || Manifest::parse(&bytes));
    }
}

#[test]
fn a_manifest_that_promises_four_billion_chunks_allocates_nothing() {
    let mut bytes = vec![0xff; 8];
    bytes.extend_from_slice(&[1; 48]);
    let error = allocating_at_most(0, || Manifest::parse(&bytes)).expect_err("a lie");
    assert!(matches!(error, LayoutError::ManifestLength { .. }), "{error}");
}

fn valid_root(random: &mut Random) -> Vec<u8> {
    let checksum = random.pick(&[ChecksumKind::Xxh32, ChecksumKind::Crc32]);
    let kind = random.pick(&[ObjectKind::Inline, ObjectKind::Manifest]);
    let payload = match kind {
        ObjectKind::Inline => {
            let len = random.below(64);
            random.bytes(len)
        }
        ObjectKind::Manifest => valid_manifest(random),
    };
    let key_len = random.below(24);
    let key = random.bytes(key_len);
    let slot = Slot::new(random.below(64) as u32).expect("below 64");
    let keys = ObjectKeys::new(&key);
    let sum = checksum.of_slice(&payload);
    let mut root = root_prefix(kind, checksum, &keys, slot, &key, payload.len() as u32, sum);
    root.extend_from_slice(&payload);
    root
}

fn valid_manifest(random: &mut Random) -> Vec<u8> {
    let keys = ObjectKeys::new(b"key");
    let count = random.below(4) as u32 + 1;
    let size = random.below(0x1_0000) as u32 + 2;
    let last = random.below(size as usize) as u32 + 1;
    let chunks = (0..count)
        .map(|i| ChunkRecord {
            key: keys.chunk(Slot::FIRST, ChunkIndex(i)),
            size: if i + 1 == count { last } else { size },
            checksum: random.next() as u32,
        })
        .collect();
    Manifest { logical_size: size * (count - 1) + last, chunks }.encode()
}

/// Makes the header checksum agree, as whoever forges a header would.
fn sign_header(bytes: &mut [u8]) {
    let Some(header) = bytes.first_chunk_mut::<56>() else { return };
    header[48..52].fill(0);
    let crc = header[5] == 1;
    let kind = if crc { ChecksumKind::Crc32 } else { ChecksumKind::Xxh32 };
    let checksum = kind.of_slice(header);
    header[48..52].copy_from_slice(&checksum.to_le_bytes());
}

/// Zero to three damages, each of a kind that a parser of fields and lengths may mishandle.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const EDGES: [u32; 12] =
        [0, 1, 2, 20, 24, 25, 63, 64, 0x7fff_ffff, 0x8000_0000, u32::MAX - 24, u32::MAX];
    for _ in 0..random.below(4) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        let at = random.below(len);
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                let extra = random.below(40);
                bytes.extend_from_slice(&random.bytes(extra));
            }
            4 => drop(bytes.drain(at..(at + 1 + random.below(24)).min(len))),
            5 | 6 => {
                let at = at & !3;
                let edge = random.pick(&EDGES);
                if let Some(field) = bytes.get_mut(at..at + 4) {
                    field.copy_from_slice(&edge.to_le_bytes());
                }
            }
            _ => unreachable!("below 7"),
        }
    }
}

/// How often each outcome was seen, so that a test of many inputs proves it reached them all.
#[derive(Default)]
struct Outcomes(BTreeMap<String, u32>);

impl Outcomes {
    fn count(&mut self, error: Option<&LayoutError>) {
        let name = match error {
            None => "Ok".to_owned(),
            Some(error) => {
                let text = format!("{error:?}");
                text.split([' ', '{']).next().unwrap_or_default().to_owned()
            }
        };
        *self.0.entry(name).or_default() += 1;
    }

    fn assert_seen(&self, names: &[&str]) {
        println!("{:?}", self.0);
        let mut expected: Vec<&str> = names.to_vec();
        expected.sort_unstable();
        let seen: Vec<&str> = self.0.keys().map(String::as_str).collect();
        assert_eq!(seen, expected);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Runs `work` and asserts that it allocated at most `limit` bytes in all.
fn allocating_at_most<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    ALLOCATED.set(0);
    let result = work();
    let allocated = ALLOCATED.get();
    assert!(allocated <= limit, "{allocated} bytes allocated, at most {limit} justified");
    result
}

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The system allocator, counting what each thread asks for.
struct Counting;

// SAFETY: every call goes unchanged to the system allocator, which upholds the contract; the count
// is a thread-local without destructor and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get().saturating_add(layout.size()));
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}
