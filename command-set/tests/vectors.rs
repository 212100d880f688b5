//! The bytes that Mooncake's C++ backend produces, and nothing else, for the same inputs.

use nvme_kv_command_set::{
    Command, PassthroughCommand, PhysicalKey, StoreOptions, Wire, WireProfile,
};
use serde_json::Value;

fn vectors(section: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/format_vectors.json");
    let text = std::fs::read_to_string(path).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    all[section].take()
}

fn cases(section: &str) -> Vec<Value> {
    let cases = vectors(section).as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn hex<const N: usize>(value: &Value) -> [u8; N] {
    let text = value.as_str().unwrap();
    assert_eq!(text.len(), 2 * N, "{text}");
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

fn number(value: &Value) -> u32 {
    value.as_u64().unwrap().try_into().unwrap()
}

#[test]
fn key_dwords_are_those_of_mooncake() {
    let wire = Wire::default();
    for case in cases("packed") {
        let key = PhysicalKey(hex(&case["physical_key"]));
        let command = wire.exist(&key);
        assert_eq!(
            [command.cdw2, command.cdw3, command.cdw14, command.cdw15],
            ["cdw2", "cdw3", "cdw14", "cdw15"].map(|name| number(&case[name])),
            "{key}"
        );
    }
}

#[test]
fn store_and_retrieve_structures_are_those_of_mooncake() {
    for case in cases("commands") {
        let wire = Wire { nsid: number(&case["nsid"]), ..Wire::default() };
        let key = PhysicalKey(hex(&case["key"]));
        let len = number(&case["transfer_bytes"]);
        let addr = case["addr"].as_str().unwrap().trim_start_matches("0x");
        let addr = u64::from_str_radix(addr, 16).unwrap();
        let device_key = wire.device_key(&key);
        let (command, meaning) = match case["op"].as_str().unwrap() {
            "store" => (
                wire.store(&key, len, StoreOptions::IF_ABSENT, addr),
                Command::Store {
                    key: device_key,
                    value_len: len,
                    options: StoreOptions::IF_ABSENT,
                },
            ),
            "retrieve" => (
                wire.retrieve(&key, len, addr),
                Command::Retrieve { key: device_key, buffer_len: len, raw: false },
            ),
            other => panic!("vector of an unknown operation {other}"),
        };
        // One structure serves both interfaces.
        for interface in ["nvme_passthru_cmd", "nvme_uring_cmd"] {
            let expected: [u8; 72] = hex(&case[interface]);
            assert_eq!(command.to_bytes(), expected, "{interface} {case}");
            assert_eq!(PassthroughCommand::from_bytes(&expected), command);
        }
        assert_eq!(command.decode(), Ok(meaning));
    }
}

#[test]
fn transfer_sizes_and_block_counts_are_those_of_mooncake() {
    let wire = Wire::default();
    assert_eq!(wire.profile, WireProfile::Mooncake);
    let key = PhysicalKey([7; 16]);
    for case in cases("transfer_sizes") {
        let logical = number(&case["logical_bytes"]);
        let transfer = number(&case["submission_bytes"]);
        assert_eq!(wire.transfer_len(logical), transfer, "{logical}");
        for command in
            [wire.store(&key, logical, StoreOptions::IF_ABSENT, 0), wire.retrieve(&key, logical, 0)]
        {
            assert_eq!(command.cdw10, transfer, "{logical}");
            assert_eq!(command.data_len, transfer, "{logical}");
            assert_eq!(command.cdw12, number(&case["cdw12"]), "{logical}");
        }
    }
}

#[test]
fn structure_sizes_are_those_of_the_kernel() {
    let sizes = vectors("sizes");
    for name in ["nvme_passthru_cmd", "nvme_uring_cmd"] {
        assert_eq!(size_of::<PassthroughCommand>(), number(&sizes[name]) as usize, "{name}");
    }
}
