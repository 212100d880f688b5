//! The command set, the same on both stores.

mod common;

use common::*;
use nvme_kv_command_set::{Command, Key, PassthroughCommand, Status, StoreOptions};
use nvme_kv_emulator::{Data, NSID, Outcome, Usage};

#[test]
fn a_stored_value_is_retrieved_byte_for_byte() {
    on_both_stores("", |device| {
        let mut random = Random::new(1);
        for len in [0, 1, 3, 4095, 4096, 4097, 65_536, 524_288] {
            let value = random.bytes(len);
            let key = key(&format!("value {len}"));
            assert_eq!(store(device, key, &value), Status::SUCCESS);
            assert_eq!(retrieve(device, key, len), Ok((value.clone(), len as u32)));
            assert_eq!(device.peek(&key), Some(value));
        }
    });
}

#[test]
fn values_larger_than_the_default_limit_are_stored_when_the_personality_allows() {
    on_both_stores("max-value=4m", |device| {
        let value = Random::new(2).bytes((4 << 20) - 1);
        assert_eq!(store(device, key("large"), &value), Status::SUCCESS);
        assert_eq!(device.peek(&key("large")), Some(value));
    });
}

#[test]
fn the_device_stores_cdw10_bytes_of_a_longer_buffer() {
    on_both_stores("", |device| {
        let command = Command::Store { key: key("k"), value_len: 5, options: StoreOptions::NONE };
        for parts in [&[&b"abcdefgh"[..]][..], &[&b"ab"[..], b"", b"cdef", b"gh"]] {
            let outcome = device.execute(&bytes(command, 8), Data::ToDevice(parts));
            assert_eq!(completion(outcome), (Status::SUCCESS, 0));
            assert_eq!(device.peek(&key("k")).unwrap(), b"abcde");
        }
    });
}

#[test]
fn a_store_whose_buffer_is_shorter_than_cdw10_ends_with_data_length_invalid() {
    on_both_stores("", |device| {
        let command = Command::Store { key: key("k"), value_len: 9, options: StoreOptions::NONE };
        let outcome = device.execute(&bytes(command, 8), Data::ToDevice(&[b"abcdefgh"]));
        assert_eq!(status(outcome), Status::new(0, 0x0f));
        assert_eq!(device.usage(), Usage::default());
    });
}

#[test]
fn a_retrieve_leaves_the_buffer_behind_the_value_alone() {
    on_both_stores("", |device| {
        store(device, key("k"), b"abc");
        assert_eq!(retrieve(device, key("k"), 6), Ok((b"abc\xee\xee\xee".to_vec(), 3)));
    });
}

#[test]
fn a_retrieve_fills_no_more_than_cdw10_bytes_of_a_longer_buffer() {
    on_both_stores("", |device| {
        store(device, key("k"), b"abcdef");
        let mut buffer = [0xee; 8];
        let command = Command::Retrieve { key: key("k"), buffer_len: 2, raw: false };
        let outcome = device.execute(&bytes(command, 8), Data::FromDevice(&mut buffer));
        assert_eq!(completion(outcome), (Status::SUCCESS, 6));
        assert_eq!(&buffer, b"ab\xee\xee\xee\xee\xee\xee");
    });
}

#[test]
fn a_retrieve_without_buffer_tells_the_length() {
    on_both_stores("", |device| {
        store(device, key("k"), b"abcdef");
        let command = Command::Retrieve { key: key("k"), buffer_len: 0, raw: false };
        assert_eq!(
            completion(device.execute(&bytes(command, 0), Data::None)),
            (Status::SUCCESS, 6)
        );
    });
}

#[test]
fn a_retrieve_whose_buffer_is_shorter_than_cdw10_moves_nothing() {
    on_both_stores("", |device| {
        store(device, key("k"), b"abcdef");
        let mut buffer = [0xee; 4];
        let command = Command::Retrieve { key: key("k"), buffer_len: 6, raw: false };
        let outcome = device.execute(&bytes(command, 4), Data::FromDevice(&mut buffer));
        assert_eq!(status(outcome), Status::new(0, 0x0f));
        assert_eq!(buffer, [0xee; 4]);
    });
}

#[test]
fn retrieve_and_exist_of_a_missing_key_end_with_key_not_found() {
    on_both_stores("", |device| {
        assert_eq!(retrieve(device, key("k"), 8), Err(Status::KEY_NOT_FOUND));
        assert_eq!(status(submit_exist(device, key("k"))), Status::KEY_NOT_FOUND);
        store(device, key("k"), b"");
        assert_eq!(retrieve(device, key("k"), 0), Ok((vec![], 0)));
        assert_eq!(status(submit_exist(device, key("k"))), Status::SUCCESS);
    });
}

#[test]
fn store_options_decide_by_the_presence_of_the_key() {
    let only_if = StoreOptions { must_exist: true, ..StoreOptions::NONE };
    on_both_stores("", |device| {
        let run = |value: &[u8], options| status(submit_store(device, key("k"), value, options));
        assert_eq!(run(b"first", only_if), Status::KEY_NOT_FOUND);
        assert_eq!(device.peek(&key("k")), None);
        assert_eq!(run(b"second", StoreOptions::IF_ABSENT), Status::SUCCESS);
        assert_eq!(run(b"third", StoreOptions::IF_ABSENT), Status::KEY_EXISTS);
        assert_eq!(device.peek(&key("k")).unwrap(), b"second");
        assert_eq!(run(b"fourth", only_if), Status::SUCCESS);
        assert_eq!(device.peek(&key("k")).unwrap(), b"fourth");
        assert_eq!(run(b"5", StoreOptions::NONE), Status::SUCCESS);
        assert_eq!(device.peek(&key("k")).unwrap(), b"5");
        let no_compress = StoreOptions { no_compress: true, ..StoreOptions::NONE };
        assert_eq!(run(b"sixth", no_compress), Status::SUCCESS);
        assert_eq!(device.peek(&key("k")).unwrap(), b"sixth");
    });
}

#[test]
fn a_store_that_must_and_must_not_find_its_key_is_an_invalid_field() {
    let both = StoreOptions { must_exist: true, ..StoreOptions::IF_ABSENT };
    on_both_stores("", |device| {
        assert_eq!(status(submit_store(device, key("k"), b"v", both)), Status::INVALID_FIELD);
        assert_eq!(device.peek(&key("k")), None);
    });
}

#[test]
fn a_deleted_key_is_gone_and_may_be_stored_again() {
    on_both_stores("", |device| {
        store(device, key("k"), b"old");
        assert_eq!(status(submit_delete(device, key("k"))), Status::SUCCESS);
        assert_eq!(retrieve(device, key("k"), 8), Err(Status::KEY_NOT_FOUND));
        assert_eq!(store_if_absent(device, key("k"), b"new"), Status::SUCCESS);
        assert_eq!(device.peek(&key("k")).unwrap(), b"new");
    });
}

#[test]
fn keys_of_every_length_are_different_keys() {
    on_both_stores("", |device| {
        let all: Vec<Key> = (1..=16).map(|len| Key::new(&vec![0; len]).unwrap()).collect();
        for key in &all {
            assert_eq!(store_if_absent(device, *key, &[key.len() as u8]), Status::SUCCESS);
        }
        for key in &all {
            assert_eq!(device.peek(key).unwrap(), [key.len() as u8]);
        }
        assert_eq!(device.keys(), all);
    });
}

#[test]
fn usage_counts_keys_and_bytes_through_every_change() {
    on_both_stores("", |device| {
        store(device, key("a"), &[1; 100]);
        store(device, key("b"), &[2; 50]);
        assert_eq!(device.usage(), Usage { keys: 2, bytes: 150 });
        store(device, key("a"), &[3; 10]);
        assert_eq!(device.usage(), Usage { keys: 2, bytes: 60 });
        store_if_absent(device, key("a"), &[4; 1000]);
        assert_eq!(device.usage(), Usage { keys: 2, bytes: 60 });
        submit_delete(device, key("b"));
        submit_delete(device, key("b"));
        assert_eq!(device.usage(), Usage { keys: 1, bytes: 10 });
    });
}

#[test]
fn poke_and_erase_change_values_without_commands_or_limits() {
    on_both_stores("max-value=1,capacity=1,max-keys=1", |device| {
        device.poke(&key("a"), b"more than a byte");
        device.poke(&key("b"), b"more than a key");
        assert_eq!(retrieve(device, key("a"), 16).unwrap().0, b"more than a byte");
        assert!(device.erase(&key("a")));
        assert!(!device.erase(&key("a")));
        assert_eq!(device.keys(), [key("b")]);
        assert_eq!(device.counts().store, 0);
        assert_eq!(device.counts().delete, 0);
    });
}

#[test]
fn every_received_command_is_counted_once_by_kind() {
    on_both_stores("", |device| {
        store(device, key("a"), b"1");
        store_if_absent(device, key("a"), b"2");
        let _ = retrieve(device, key("a"), 1);
        let _ = retrieve(device, key("b"), 1);
        let _ = retrieve(device, key("c"), 1);
        let _ = list(device, None, 64);
        submit_delete(device, key("a"));
        submit_exist(device, key("a"));
        let counts = device.counts();
        assert_eq!((counts.store, counts.retrieve, counts.list), (2, 3, 1));
        assert_eq!((counts.delete, counts.exist, counts.identify), (1, 1, 0));
    });
}

#[test]
fn another_namespace_identifier_is_an_invalid_namespace() {
    on_both_stores("", |device| {
        for nsid in [0, 2, u32::MAX] {
            let command = PassthroughCommand::new(&Command::Exist { key: key("k") }, nsid, 0);
            let outcome = device.execute(&command.to_bytes(), Data::None);
            assert_eq!(status(outcome), Status::INVALID_NAMESPACE);
        }
        assert_eq!(device.counts().exist, 0);
    });
}

#[test]
fn bytes_that_are_no_command_end_with_the_status_of_their_mistake() {
    on_both_stores("", |device| {
        let run = |change: &dyn Fn(&mut PassthroughCommand)| {
            let mut command = PassthroughCommand::new(&Command::Exist { key: key("k") }, NSID, 0);
            change(&mut command);
            status(device.execute(&command.to_bytes(), Data::None))
        };
        assert_eq!(run(&|command| command.opcode = 0x7e), Status::INVALID_OPCODE);
        assert_eq!(run(&|command| command.cdw11 = 0), Status::INVALID_KEY_SIZE);
        assert_eq!(run(&|command| command.cdw11 = 17), Status::INVALID_KEY_SIZE);
        assert_eq!(run(&|command| command.flags = 1), Status::INVALID_FIELD);
    });
}

#[test]
fn a_buffer_that_contradicts_the_command_is_refused_by_the_host() {
    on_both_stores("", |device| {
        let store = Command::Store { key: key("k"), value_len: 4, options: StoreOptions::NONE };
        let retrieve = Command::Retrieve { key: key("k"), buffer_len: 4, raw: false };
        let mut four = [0; 4];
        let refused = [
            (device.execute(&bytes(store, 4), Data::None), libc::EFAULT),
            (device.execute(&bytes(store, 4), Data::ToDevice(&[b"abc"])), libc::EINVAL),
            (device.execute(&bytes(store, 4), Data::ToDevice(&[b"abc", b"de"])), libc::EINVAL),
            (device.execute(&bytes(store, 4), Data::FromDevice(&mut four)), libc::EINVAL),
            (device.execute(&bytes(retrieve, 4), Data::ToDevice(&[b"abcd"])), libc::EINVAL),
            (device.execute(&bytes(retrieve, 5), Data::FromDevice(&mut four)), libc::EFAULT),
        ];
        for (outcome, errno) in refused {
            assert_eq!(outcome, Outcome::Errno(errno));
        }
        assert_eq!(device.usage(), Usage::default());
    });
}

#[test]
fn random_command_bytes_get_an_answer_and_change_nothing_they_may_not() {
    let mut random = Random::for_test("random_command_bytes");
    on_both_stores("max-value=64,max-keys=50", |device| {
        for _ in 0..20_000 {
            let mut command: [u8; 72] = random.bytes(72).try_into().unwrap();
            // Mostly plausible headers, so that the fields behind them are reached.
            if random.below(8) > 0 {
                command[0] = [0x01, 0x02, 0x06, 0x10, 0x14][random.below(5) as usize];
                command[1] = 0;
                command[4..8].copy_from_slice(&NSID.to_le_bytes());
                command[36..40].copy_from_slice(&64u32.to_le_bytes());
                command[40..44].copy_from_slice(&(random.below(80) as u32).to_le_bytes());
                command[44..48].copy_from_slice(&(random.below(0x320) as u32).to_le_bytes());
            }
            let mut buffer = [0; 64];
            let data = match (random.below(16), command[0] & 1) {
                (0, _) => Data::None,
                (_, 1) => Data::ToDevice(&[&[7; 64]]),
                _ => Data::FromDevice(&mut buffer),
            };
            assert_ne!(device.execute(&command, data), Outcome::NoAnswer);
            let _ = device.execute_admin(&command, Data::FromDevice(&mut [0; 64]));
        }
        let keys = device.keys();
        assert_eq!(device.usage().keys, keys.len() as u64);
        assert!(keys.len() <= 50);
        let bytes: usize = keys.iter().map(|key| device.peek(key).unwrap().len()).sum();
        assert_eq!(device.usage().bytes, bytes as u64);
    });
}
