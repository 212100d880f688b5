//! Commands: encoding, decoding, and the two wire profiles.

mod common;

use common::{check, commands, keys, store_options};
use nvme_kv_command_set::{
    Command, DecodeError, Key, Opcode, PassthroughCommand, PassthroughCommand64, PhysicalKey,
    Status, StoreOptions, Wire, WireProfile, admin, cns,
};
use proptest::prelude::*;

const KEY: PhysicalKey = PhysicalKey([
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
]);

fn spec() -> Wire {
    Wire { profile: WireProfile::Spec, ..Wire::default() }
}

fn wires() -> impl Strategy<Value = Wire> {
    (
        prop_oneof![Just(WireProfile::Mooncake), Just(WireProfile::Spec)],
        any::<u32>(),
        prop_oneof![Just(0u32), Just(1), Just(4096), any::<u32>()],
        prop_oneof![Just(0u32), Just(1), Just(512), any::<u32>()],
        any::<u32>(),
    )
        .prop_map(|(profile, nsid, transfer_alignment, value_block_unit, timeout_ms)| Wire {
            profile,
            nsid,
            transfer_alignment,
            value_block_unit,
            timeout_ms,
        })
}

#[test]
fn every_command_survives_encoding_and_decoding() {
    check((commands(), any::<u32>(), any::<u32>()), |(command, nsid, timeout_ms)| {
        let sent = PassthroughCommand::new(&command, nsid, timeout_ms);
        let seen = PassthroughCommand::from_bytes(&sent.to_bytes());
        assert_eq!(seen, sent);
        assert_eq!(seen.decode(), Ok(command));
        assert_eq!((seen.nsid, seen.timeout_ms), (nsid, timeout_ms));
        assert_eq!(Opcode::try_from(seen.opcode), Ok(command.opcode()));
    });
}

#[test]
fn every_request_of_every_profile_decodes_to_what_was_asked_for() {
    let requests = (wires(), any::<[u8; 16]>(), any::<u32>(), store_options(), any::<u64>());
    check((requests, keys()), |((wire, key, len, options, addr), start)| {
        let key = PhysicalKey(key);
        let device_key = wire.device_key(&key);
        let wire_len = match wire.profile {
            WireProfile::Mooncake => wire.transfer_len(len),
            WireProfile::Spec => len,
        };
        let through_bytes =
            |command: PassthroughCommand| PassthroughCommand::from_bytes(&command.to_bytes());

        let store = through_bytes(wire.store(&key, len, options, addr));
        let value_len = wire_len;
        assert_eq!(store.decode(), Ok(Command::Store { key: device_key, value_len, options }));
        let retrieve = through_bytes(wire.retrieve(&key, len, addr));
        let buffer_len = wire_len;
        assert_eq!(
            retrieve.decode(),
            Ok(Command::Retrieve { key: device_key, buffer_len, raw: false })
        );
        for command in [store, retrieve] {
            assert_eq!((command.addr, command.data_len), (addr, wire.transfer_len(len)));
        }

        let list = through_bytes(wire.list(Some(&start), len, addr));
        assert_eq!(list.decode(), Ok(Command::List { start: Some(start), buffer_len: len }));
        assert_eq!((list.addr, list.data_len), (addr, len));
        let first = wire.list(None, len, addr);
        assert_eq!(first.decode(), Ok(Command::List { start: None, buffer_len: len }));

        assert_eq!(wire.delete(&key).decode(), Ok(Command::Delete { key: device_key }));
        assert_eq!(wire.exist(&key).decode(), Ok(Command::Exist { key: device_key }));
        for command in [store, retrieve, list, first, wire.delete(&key), wire.exist(&key)] {
            assert_eq!((command.nsid, command.timeout_ms), (wire.nsid, wire.timeout_ms));
        }
    });
}

#[test]
fn a_transfer_is_the_least_aligned_length_that_holds_the_value() {
    check((wires(), any::<u32>()), |(wire, logical)| {
        let transfer = wire.transfer_len(logical);
        let alignment = match wire.profile {
            WireProfile::Mooncake => wire.transfer_alignment.max(1),
            WireProfile::Spec => 4,
        };
        assert!(transfer >= logical);
        if transfer < u32::MAX {
            assert_eq!(transfer % alignment, 0);
            assert!(transfer - logical < alignment);
        } else {
            assert!(u64::from(logical) + u64::from(alignment) > u64::from(u32::MAX));
        }
    });
}

#[test]
fn the_spec_profile_sends_the_whole_key_and_the_exact_size() {
    let store = spec().store(&KEY, 5, StoreOptions::NONE, 0x0102_0304_0506_0708);
    let mut expected = [0; 72];
    expected[0] = 0x01;
    expected[4] = 1;
    expected[8..16].copy_from_slice(&KEY.0[..8]);
    expected[24..32].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    expected[36] = 8; // the buffer is a multiple of 4 bytes
    expected[40] = 5; // the value is not
    expected[44] = 16;
    expected[56..64].copy_from_slice(&KEY.0[8..]);
    expected[64..68].copy_from_slice(&30_000u32.to_le_bytes());
    assert_eq!(store.to_bytes(), expected);
}

#[test]
fn a_list_is_bare_in_both_profiles() {
    let start = Key::new(b"start").unwrap();
    for wire in [Wire::default(), spec()] {
        let list = wire.list(Some(&start), 4098, 0x1000);
        let mut expected = [0; 72];
        expected[0] = 0x06;
        expected[4] = 1;
        expected[8..13].copy_from_slice(b"start");
        expected[25] = 0x10;
        expected[36..38].copy_from_slice(&[0x02, 0x10]);
        expected[40..42].copy_from_slice(&[0x02, 0x10]);
        expected[44] = 5;
        expected[64..68].copy_from_slice(&30_000u32.to_le_bytes());
        assert_eq!(list.to_bytes(), expected);
    }
}

#[test]
fn delete_and_exist_carry_a_key_and_no_data() {
    for (opcode, command) in [(0x10, spec().delete(&KEY)), (0x14, spec().exist(&KEY))] {
        let mut expected = [0; 72];
        expected[0] = opcode;
        expected[4] = 1;
        expected[8..16].copy_from_slice(&KEY.0[..8]);
        expected[44] = 16;
        expected[56..64].copy_from_slice(&KEY.0[8..]);
        expected[64..68].copy_from_slice(&30_000u32.to_le_bytes());
        assert_eq!(command.to_bytes(), expected);
    }
}

#[test]
fn store_options_are_bits_8_to_10_and_raw_is_bit_8_of_cdw11() {
    let key = Key::from(KEY);
    for (options, cdw11) in [
        (StoreOptions { must_exist: true, ..StoreOptions::NONE }, 0x110),
        (StoreOptions::IF_ABSENT, 0x210),
        (StoreOptions { no_compress: true, ..StoreOptions::NONE }, 0x410),
    ] {
        let store = Command::Store { key, value_len: 0, options };
        assert_eq!(PassthroughCommand::new(&store, 1, 0).cdw11, cdw11);
    }
    let retrieve = Command::Retrieve { key, buffer_len: 0, raw: true };
    assert_eq!(PassthroughCommand::new(&retrieve, 1, 0).cdw11, 0x110);
}

#[test]
fn a_listed_key_is_ours_whatever_stands_in_byte_11_only_under_the_mooncake_profile() {
    let mut listed = KEY.0;
    listed[11] ^= 0xff;
    let listed = Key::new(&listed).unwrap();
    assert!(Wire::default().same_key(&KEY, &listed));
    assert!(!spec().same_key(&KEY, &listed));
    for wire in [Wire::default(), spec()] {
        assert!(wire.same_key(&KEY, &KEY.into()));
        assert!(wire.same_key(&KEY, &wire.device_key(&KEY)));
        assert!(!wire.same_key(&KEY, &Key::new(&KEY.0[..15]).unwrap()));
        for byte in (0..16).filter(|byte| *byte != 11) {
            let mut other = KEY.0;
            other[byte] ^= 1;
            assert!(!wire.same_key(&KEY, &Key::new(&other).unwrap()), "byte {byte}");
        }
    }
}

#[test]
fn a_device_answers_what_it_does_not_understand_with_the_status_of_the_specification() {
    let good = spec().store(&KEY, 1, StoreOptions::NONE, 0);
    let cases = [
        (
            PassthroughCommand { opcode: 0x03, ..good },
            DecodeError::UnknownOpcode(0x03),
            Status::INVALID_OPCODE,
        ),
        (
            PassthroughCommand { cdw11: 0, ..good },
            DecodeError::KeyLength(0),
            Status::INVALID_KEY_SIZE,
        ),
        (
            PassthroughCommand { cdw11: 17, ..good },
            DecodeError::KeyLength(17),
            Status::INVALID_KEY_SIZE,
        ),
        (
            PassthroughCommand { opcode: Opcode::List as u8, cdw11: 255, ..good },
            DecodeError::KeyLength(255),
            Status::INVALID_KEY_SIZE,
        ),
        (
            PassthroughCommand { cdw11: 0x0810, ..good },
            DecodeError::Field { name: "CDW11 options", value: 0x08 },
            Status::INVALID_FIELD,
        ),
        (
            PassthroughCommand { opcode: Opcode::Retrieve as u8, cdw11: 0x0210, ..good },
            DecodeError::Field { name: "CDW11 options", value: 0x02 },
            Status::INVALID_FIELD,
        ),
        (
            PassthroughCommand { flags: 0x01, ..good },
            DecodeError::Field { name: "CDW0 flags", value: 1 },
            Status::INVALID_FIELD,
        ),
    ];
    for (command, error, status) in cases {
        assert_eq!(command.decode(), Err(error));
        assert_eq!(error.status(), status, "{error}");
    }
}

#[test]
fn reserved_dwords_do_not_change_what_a_command_means() {
    let good = spec().store(&KEY, 1, StoreOptions::NONE, 0);
    let noisy = PassthroughCommand {
        cdw11: good.cdw11 | 0xffff_0000,
        cdw12: u32::MAX,
        cdw13: u32::MAX,
        ..good
    };
    assert_eq!(noisy.decode(), good.decode());
}

#[test]
fn key_bytes_past_the_key_length_do_not_belong_to_the_key() {
    let short = PassthroughCommand { cdw11: 3, ..spec().exist(&KEY) };
    assert_eq!(short.decode(), Ok(Command::Exist { key: Key::new(&KEY.0[..3]).unwrap() }));
}

#[test]
fn the_64_bit_structure_carries_the_same_command_without_a_result() {
    let command = PassthroughCommand { result: 9, ..spec().delete(&KEY) };
    let wide = PassthroughCommand64::from(&command);
    assert_eq!(wide.command, PassthroughCommand { result: 0, ..command });
    assert_eq!(wide.result, 0);
}

#[test]
fn identify_names_the_structure_in_cdw10_and_the_command_set_in_cdw11() {
    let identify = PassthroughCommand::identify(1, cns::CSI_NAMESPACE, 1, 0x2000, 5000);
    let expected = PassthroughCommand {
        opcode: admin::IDENTIFY,
        nsid: 1,
        addr: 0x2000,
        data_len: 4096,
        cdw10: 5,
        cdw11: 0x0100_0000,
        timeout_ms: 5000,
        ..PassthroughCommand::default()
    };
    assert_eq!(identify, expected);
}

#[test]
fn keys_are_1_to_16_bytes() {
    let bytes = [9; 17];
    for len in 0..=17 {
        let key = Key::new(&bytes[..len]);
        assert_eq!(key.is_some(), (1..=16).contains(&len), "{len}");
        if let Some(key) = key {
            assert_eq!((key.as_bytes(), key.len()), (&bytes[..len], len));
            assert_eq!(key.physical().is_some(), len == 16);
        }
    }
}

#[test]
fn keys_order_as_their_bytes_do() {
    check((keys(), keys()), |(a, b)| {
        assert_eq!(a.cmp(&b), a.as_bytes().cmp(b.as_bytes()));
        assert_eq!(a == b, a.as_bytes() == b.as_bytes());
    });
}

#[test]
fn keys_print_as_hex() {
    assert_eq!(format!("{KEY:?}"), "101112131415161718191a1b1c1d1e1f");
    assert_eq!(KEY.to_string(), format!("{KEY:?}"));
    assert_eq!(format!("{:?}", Key::new(&[0, 0xab]).unwrap()), "00ab");
}
