//! The layout produces and reads exactly the bytes of Mooncake's C++ NVMe KV backend.

use mooncake_nvme_kv::layout::{
    ChecksumKind, ChunkIndex, ChunkRecord, HEADER_LEN, Header, KeyCodec, Limits, MAX_SLOTS,
    Manifest, ObjectKind, Slot, WritePlan, XxhKeyCodec, canonical_identity, chunk_range,
    max_object_size, parse_identity, parse_root_prefix, read_plan, root_prefix, root_prefix_len,
    write_plan,
};
use mooncake_nvme_kv::{Error, ErrorCode};
use serde_json::Value;

#[test]
fn canonical_identities_are_encoded_and_parsed_as_mooncake_does() {
    for case in section("keys") {
        let key = bytes(&case["logical_key"]);
        let identity = bytes(&case["canonical_identity"]);
        assert_eq!(canonical_identity(&key), identity, "{}", case["name"]);
        assert_eq!(parse_identity(&identity), Ok(&key[..]), "{}", case["name"]);
    }
}

#[test]
fn physical_keys_and_verify_hashes_are_derived_as_mooncake_does() {
    for case in section("keys") {
        let keys = XxhKeyCodec.object_keys(&bytes(&case["logical_key"]));
        assert_eq!(keys.verify_hash()[..], bytes(&case["verify_hash"]), "{}", case["name"]);

        let roots = case["root"].as_object().expect("roots by slot");
        assert!(!roots.is_empty());
        for (slot, key) in roots {
            let slot = Slot::new(slot.parse().expect("a number")).expect("a slot");
            assert_eq!(keys.root(slot).0[..], bytes(key), "{} {slot:?}", case["name"]);
        }
        for chunk in list(&case["chunk"]) {
            let slot = Slot::new(number(&chunk["slot"])).expect("a slot");
            let index = ChunkIndex(number(&chunk["chunk"]));
            let expected = bytes(&chunk["key"]);
            assert_eq!(keys.chunk(slot, index).0[..], expected, "{} {chunk}", case["name"]);
        }
    }
}

#[test]
fn identity_metadata_is_stored_between_header_and_payload() {
    for case in section("keys") {
        let key = bytes(&case["logical_key"]);
        let keys = XxhKeyCodec.object_keys(&key);
        for (slot, field) in [(0, "stored_identity_slot0"), (63, "stored_identity_slot63")] {
            let slot = Slot::new(slot).expect("a slot");
            let checksum = ChecksumKind::Xxh32;
            let root = root_prefix(ObjectKind::Inline, checksum, &keys, slot, &key, 0, 0);
            assert_eq!(root[HEADER_LEN..], bytes(&case[field]), "{} {slot:?}", case["name"]);
        }
    }
}

#[test]
fn checksums_are_mooncakes() {
    for case in section("checksum") {
        let input = bytes(&case["hex"]);
        let expected: u32 = number(&case["checksum"]);
        assert_eq!(ChecksumKind::default().of_slice(&input), expected, "{case}");
        for split in 0..=input.len() {
            let (head, tail) = input.split_at(split);
            let segments = [head, &[], tail].into_iter();
            assert_eq!(ChecksumKind::Xxh32.of(segments), expected, "{case} split at {split}");
        }
    }
}

#[test]
fn sizes_and_header_offsets_are_mooncakes() {
    let vectors = vectors();
    let sizes = &vectors["sizes"];
    assert_eq!(HEADER_LEN as u64, sizes["NvmeKvObjectHeader"]);
    assert_eq!(u64::from(MAX_SLOTS), sizes["max_slots"]);
    let canonical = canonical_identity(b"").len();
    assert_eq!(
        (root_prefix_len(0) - HEADER_LEN - canonical) as u64,
        sizes["NvmeKvStoredIdentityMetadata"]
    );
    let record = ChunkRecord { key: keys_of(b"k").root(Slot::FIRST), size: 1, checksum: 2 };
    let empty = Manifest { logical_size: 0, chunks: Vec::new() }.encode().len();
    assert_eq!(empty as u64, sizes["NvmeKvManifestMetadata"]);
    let one = Manifest { logical_size: 1, chunks: vec![record] }.encode().len();
    assert_eq!((one - empty) as u64, sizes["NvmeKvManifestChunkRecord"]);

    let header = Header {
        kind: ObjectKind::Manifest,
        checksum: ChecksumKind::Xxh32,
        payload_size: 0x1122_3344,
        verify_hash: std::array::from_fn(|i| 0xa0 + i as u8),
        payload_checksum: 0x5566_7788,
        identity_metadata_size: 0x99aa_bbcc,
    };
    let encoded = header.encode();
    let mut unsigned = encoded;
    let checksum_at = header_offset(&vectors, "header_checksum");
    unsigned[checksum_at..checksum_at + 4].fill(0);
    let checksum = ChecksumKind::Xxh32.of_slice(&unsigned);
    for (field, expected) in [
        ("magic", &b"\x56\x4b\x56\x4e"[..]),
        ("object_type", &2u32.to_le_bytes()),
        ("payload_size", &header.payload_size.to_le_bytes()),
        ("verify_hash", &header.verify_hash),
        ("payload_checksum", &header.payload_checksum.to_le_bytes()),
        ("header_checksum", &checksum.to_le_bytes()),
        ("identity_metadata_size", &header.identity_metadata_size.to_le_bytes()),
    ] {
        let at = header_offset(&vectors, field);
        assert_eq!(&encoded[at..at + expected.len()], expected, "{field}");
    }
    assert_eq!(Header::parse(&encoded), Ok(header));
}

#[test]
fn objects_are_written_byte_for_byte_as_mooncake_does() {
    for case in section("objects") {
        let object = Object::of(&case);
        let plan = write_plan(object.key.len(), object.payload.len() as u64, object.limits)
            .expect("an object that fits");
        assert_eq!(plan == WritePlan::Inline, case["inline"] == true, "{case}");

        let root = object.root_value(plan);
        assert_eq!(root.len() as u64, case["root_blob_len"], "{case}");
        assert_eq!(ChecksumKind::Xxh32.of_slice(&root), number::<u32>(&case["root_blob_xxh32"]));
        if let Some(blob) = case.get("root_blob") {
            assert_eq!(root, bytes(blob), "{case}");
        }
        if let Some(start) = case.get("root_blob_prefix_256") {
            assert_eq!(root[..256], bytes(start), "{case}");
        }
        let read = read_plan(object.key.len(), object.payload.len() as u64, object.limits)
            .expect("an object that fits");
        assert_eq!((read.shape, read.root_value_len as usize), (plan, root.len()));
        assert_eq!(bytes(&case["root_key"]), keys_of(&object.key).root(object.slot).0);

        let chunks: Vec<Value> = object
            .records(plan)
            .iter()
            .map(|record| {
                let key: String = record.key.0.iter().map(|b| format!("{b:02x}")).collect();
                serde_json::json!({"key": key, "len": record.size, "checksum": record.checksum})
            })
            .collect();
        assert_eq!(&chunks, list(&case["chunks"]), "{case}");
    }
}

#[test]
fn roots_written_by_mooncake_are_read_back() {
    let mut read = 0;
    for case in section("objects") {
        let Some(blob) = case.get("root_blob") else { continue };
        let mut blob = bytes(blob);
        // A device may return the value padded to the transfer alignment.
        blob.resize(blob.len().next_multiple_of(4096), 0);

        let object = Object::of(&case);
        let keys = keys_of(&object.key);
        let root = parse_root_prefix(&blob).expect("a valid root");
        assert!(root.belongs_to(&keys, object.slot, &object.key), "{case}");
        assert_eq!(root.value_len(), case["root_blob_len"]);
        assert_eq!(root.header.checksum, ChecksumKind::Xxh32);
        let payload = root.payload(&blob).expect("an undamaged payload");
        match root.header.kind {
            ObjectKind::Inline => assert_eq!(payload, object.payload),
            ObjectKind::Manifest => {
                let manifest = Manifest::parse(payload).expect("a valid manifest");
                assert_eq!(manifest.logical_size as usize, object.payload.len());
                manifest.verify_placement(&keys, object.slot).expect("chunks at their keys");
                assert_eq!(manifest.chunks.len(), list(&case["chunks"]).len());
            }
        }
        read += 1;
    }
    assert!(read >= 20, "only {read} objects with a whole root value");
}

#[test]
fn an_object_beyond_what_one_manifest_can_list_is_invalid_params() {
    for case in section("manifest_limit") {
        let limits = Limits { max_value_size: number(&case["max_value_size"]) };
        let key_len: u32 = number(&case["key_len"]);
        let chunks: u32 = number(&case["chunks"]);
        let key_len = key_len as usize;
        // The last chunk full, or a single byte: the number of chunks decides.
        let full = u64::from(chunks) * u64::from(limits.max_value_size);
        for size in [full, full - u64::from(limits.max_value_size) + 1] {
            let plan = write_plan(key_len, size, limits);
            if case["result"] == "ok" {
                let chunk_size = limits.max_value_size;
                assert_eq!(plan, Ok(WritePlan::Chunked { chunk_size, chunk_count: chunks }));
                assert_eq!(max_object_size(key_len, limits), full);
            } else {
                let error = Error::from(plan.expect_err("too many chunks"));
                assert_eq!(error.code(), ErrorCode::InvalidParams, "{case}");
                assert_eq!(error.code().name(), case["result"]);
            }
        }
    }
}

/// One entry of the section `objects`, its payload generated.
struct Object {
    key: Vec<u8>,
    slot: Slot,
    limits: Limits,
    payload: Vec<u8>,
}

impl Object {
    fn of(case: &Value) -> Object {
        let len: u32 = number(&case["payload_len"]);
        assert_eq!(case["payload"], format!("Pattern({len})"));
        Object {
            key: bytes(&case["logical_key"]),
            slot: Slot::new(number(&case["slot"])).expect("a slot"),
            limits: Limits { max_value_size: number(&case["max_value_size"]) },
            payload: pattern(len),
        }
    }

    fn records(&self, plan: WritePlan) -> Vec<ChunkRecord> {
        let WritePlan::Chunked { chunk_size, chunk_count } = plan else { return Vec::new() };
        let keys = keys_of(&self.key);
        (0..chunk_count)
            .map(ChunkIndex)
            .map(|index| {
                let range = chunk_range(chunk_size, self.payload.len() as u64, index);
                let chunk = &self.payload[range.start as usize..range.end as usize];
                ChunkRecord {
                    key: keys.chunk(self.slot, index),
                    size: chunk.len() as u32,
                    checksum: ChecksumKind::Xxh32.of_slice(chunk),
                }
            })
            .collect()
    }

    fn root_value(&self, plan: WritePlan) -> Vec<u8> {
        let (kind, payload) = match plan {
            WritePlan::Inline => (ObjectKind::Inline, self.payload.clone()),
            WritePlan::Chunked { .. } => {
                let logical_size = self.payload.len() as u32;
                let manifest = Manifest { logical_size, chunks: self.records(plan) };
                (ObjectKind::Manifest, manifest.encode())
            }
        };
        let mut root = root_prefix(
            kind,
            ChecksumKind::Xxh32,
            &keys_of(&self.key),
            self.slot,
            &self.key,
            payload.len() as u32,
            ChecksumKind::Xxh32.of_slice(&payload),
        );
        root.extend_from_slice(&payload);
        root
    }
}

fn keys_of(logical_key: &[u8]) -> mooncake_nvme_kv::layout::ObjectKeys {
    XxhKeyCodec.object_keys(logical_key)
}

fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i * 131 + 7 + (i >> 8)) as u8).collect()
}

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/format_vectors.json");
    let text = std::fs::read_to_string(path).expect("the vectors are test data");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

fn section(name: &str) -> Vec<Value> {
    let cases = list(&vectors()[name]).clone();
    assert!(!cases.is_empty(), "section {name} is empty");
    cases
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    value.as_u64().and_then(|n| n.try_into().ok()).expect("a number in range")
}

fn header_offset(vectors: &Value, field: &str) -> usize {
    number(&vectors["offsets"]["header"][field])
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("a hex string");
    assert!(hex.len().is_multiple_of(2), "odd number of hex digits");
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex digits"))
        .collect()
}
