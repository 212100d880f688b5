//! Each personality, the same on both stores, and personalities as text.

mod common;

use std::time::Duration;

use common::*;
use nvme_kv_command_set::{Key, Status};
use nvme_kv_emulator::{
    CompletionOrder, DeleteMissing, Latency, ListSupport, Outcome, Personality, PersonalityError,
    RetrieveLength, ShortRetrieve, Usage,
};

#[test]
fn dw0_is_the_stored_size_the_padded_size_or_zero() {
    let expected = [
        ("dw0=exact", [0, 1, 4095, 4096, 4097]),
        ("dw0=padded", [0, 4096, 4096, 4096, 8192]),
        ("dw0=zero", [0; 5]),
        ("dw0=padded,granularity=512", [0, 512, 4096, 4096, 4608]),
    ];
    for (personality, lengths) in expected {
        on_both_stores(personality, |device| {
            for (len, reported) in [0, 1, 4095, 4096, 4097].into_iter().zip(lengths) {
                let value = vec![7; len];
                store(device, key("k"), &value);
                assert_eq!(retrieve(device, key("k"), len), Ok((value, reported)));
            }
        });
    }
}

#[test]
fn a_padded_length_that_does_not_fit_dw0_is_its_largest_value() {
    on_both_stores("dw0=padded,granularity=4294967295", |device| {
        store(device, key("k"), b"abc");
        assert_eq!(retrieve(device, key("k"), 3).unwrap().1, u32::MAX);
    });
}

#[test]
fn a_short_retrieve_gives_the_leading_bytes_and_the_whole_length() {
    on_both_stores("short-retrieve=success", |device| {
        store(device, key("k"), b"abcdef");
        assert_eq!(retrieve(device, key("k"), 4), Ok((b"abcd".to_vec(), 6)));
    });
}

#[test]
fn a_short_retrieve_is_an_invalid_value_size_where_the_device_says_so() {
    on_both_stores("short-retrieve=error", |device| {
        store(device, key("k"), b"abcdef");
        let mut buffer = [0xee; 5];
        let answer = completion(submit_retrieve(device, key("k"), &mut buffer));
        assert_eq!(answer, (Status::INVALID_VALUE_SIZE, 0));
        assert_eq!(buffer, [0xee; 5]);
        assert_eq!(retrieve(device, key("k"), 6), Ok((b"abcdef".to_vec(), 6)));
        assert_eq!(retrieve(device, key("missing"), 0), Err(Status::KEY_NOT_FOUND));
    });
}

#[test]
fn deleting_a_missing_key_succeeds_or_does_not_by_personality() {
    on_both_stores("delete-missing=success", |device| {
        assert_eq!(status(submit_delete(device, key("k"))), Status::SUCCESS);
    });
    on_both_stores("delete-missing=error", |device| {
        assert_eq!(status(submit_delete(device, key("k"))), Status::KEY_NOT_FOUND);
        store(device, key("k"), b"v");
        assert_eq!(status(submit_delete(device, key("k"))), Status::SUCCESS);
        assert_eq!(status(submit_delete(device, key("k"))), Status::KEY_NOT_FOUND);
    });
}

#[test]
fn commands_a_device_lacks_are_invalid_opcodes() {
    on_both_stores("exist=no,list=absent", |device| {
        store(device, key("k"), b"v");
        assert_eq!(status(submit_exist(device, key("k"))), Status::INVALID_OPCODE);
        assert_eq!(list(device, None, 64), Err(Status::INVALID_OPCODE));
    });
}

#[test]
fn a_value_above_the_limit_is_an_invalid_value_size() {
    on_both_stores("max-value=8", |device| {
        assert_eq!(store(device, key("k"), &[1; 8]), Status::SUCCESS);
        assert_eq!(store(device, key("k"), &[2; 9]), Status::INVALID_VALUE_SIZE);
        assert_eq!(device.peek(&key("k")).unwrap(), [1; 8]);
    });
}

#[test]
fn a_full_namespace_refuses_what_would_grow_it_and_takes_what_shrinks_it() {
    on_both_stores("capacity=100", |device| {
        assert_eq!(store(device, key("a"), &[1; 60]), Status::SUCCESS);
        assert_eq!(store(device, key("b"), &[2; 41]), Status::CAPACITY_EXCEEDED);
        assert_eq!(store(device, key("b"), &[2; 40]), Status::SUCCESS);
        assert_eq!(store(device, key("a"), &[3; 61]), Status::CAPACITY_EXCEEDED);
        assert_eq!(device.peek(&key("a")).unwrap(), [1; 60]);
        device.set_personality("capacity=10".parse().unwrap());
        assert_eq!(store(device, key("a"), &[4; 50]), Status::SUCCESS);
        assert_eq!(device.usage(), Usage { keys: 2, bytes: 90 });
        submit_delete(device, key("a"));
        submit_delete(device, key("b"));
        assert_eq!(store(device, key("c"), &[5; 10]), Status::SUCCESS);
    });
}

#[test]
fn the_number_of_keys_is_limited() {
    on_both_stores("max-keys=2", |device| {
        assert_eq!(store(device, key("a"), b"1"), Status::SUCCESS);
        assert_eq!(store(device, key("b"), b"2"), Status::SUCCESS);
        assert_eq!(store(device, key("c"), b"3"), Status::CAPACITY_EXCEEDED);
        assert_eq!(store(device, key("a"), b"longer"), Status::SUCCESS);
        submit_delete(device, key("b"));
        assert_eq!(store(device, key("c"), b"3"), Status::SUCCESS);
    });
}

#[test]
fn latency_is_a_constant_plus_the_bytes_moved() {
    let latency_of = |outcome| match outcome {
        Outcome::Completed { latency, .. } => latency,
        other => panic!("no completion but {other:?}"),
    };
    on_both_stores("latency=100us,bandwidth=1k", |device| {
        let base = Duration::from_micros(100);
        let value = [0; 512];
        let options = nvme_kv_command_set::StoreOptions::NONE;
        let half = base + Duration::from_millis(500);
        assert_eq!(latency_of(submit_store(device, key("k"), &value, options)), half);
        assert_eq!(latency_of(submit_retrieve(device, key("k"), &mut [0; 4096])), half);
        assert_eq!(
            latency_of(submit_retrieve(device, key("k"), &mut [0; 256])),
            base + Duration::from_millis(250)
        );
        assert_eq!(latency_of(submit_exist(device, key("k"))), base);
        assert_eq!(latency_of(submit_exist(device, key("missing"))), base);
    });
}

/// Pages of one device until a page brings nothing new, as a host reads them.
fn list_all(device: &nvme_kv_emulator::Namespace, page: usize) -> Vec<Key> {
    let mut all: Vec<Key> = Vec::new();
    loop {
        let keys = list(device, all.last().copied(), page).unwrap();
        let fresh: Vec<Key> = keys.into_iter().filter(|key| !all.contains(key)).collect();
        if fresh.is_empty() {
            return all;
        }
        all.extend(fresh);
    }
}

fn some_keys() -> Vec<Key> {
    let mut random = Random::new(7);
    let mut keys: Vec<Key> = (0..300)
        .map(|_| {
            let len = 1 + random.below(16) as usize;
            Key::new(&random.bytes(len)).unwrap()
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn every_kind_of_list_brings_every_key_in_pages() {
    let keys = some_keys();
    for personality in ["list=ordered", "list=unordered", "list=wrapping"] {
        on_both_stores(personality, |device| {
            for key in &keys {
                device.poke(key, b"");
            }
            for page in [48, 100, 4096, 1 << 20] {
                let mut all = list_all(device, page);
                if personality != "list=unordered" {
                    assert!(all.is_sorted());
                }
                all.sort();
                assert_eq!(all, keys, "{personality}, pages of {page} bytes");
            }
        });
    }
}

#[test]
fn a_list_starts_with_the_start_key_if_it_is_there() {
    for personality in ["list=ordered", "list=unordered", "list=wrapping"] {
        on_both_stores(personality, |device| {
            for key in some_keys() {
                device.poke(&key, b"");
            }
            for key in some_keys() {
                assert_eq!(list(device, Some(key), 24).unwrap()[0], key, "{personality}");
            }
        });
    }
}

#[test]
fn an_ordered_list_goes_on_behind_a_start_key_that_is_not_there() {
    on_both_stores("list=ordered", |device| {
        for name in ["b", "d", "f"] {
            device.poke(&key(name), b"");
        }
        assert_eq!(list(device, Some(key("c")), 4096).unwrap(), [key("d"), key("f")]);
        assert_eq!(list(device, Some(key("g")), 4096).unwrap(), []);
    });
}

#[test]
fn a_wrapping_list_goes_on_at_the_first_key_and_brings_none_twice() {
    on_both_stores("list=wrapping", |device| {
        for name in ["b", "d", "f"] {
            device.poke(&key(name), b"");
        }
        let from_d = [key("d"), key("f"), key("b")];
        assert_eq!(list(device, Some(key("d")), 4096).unwrap(), from_d);
        assert_eq!(list(device, Some(key("c")), 4096).unwrap(), from_d);
        assert_eq!(list(device, Some(key("g")), 4096).unwrap(), [key("b"), key("d"), key("f")]);
        // Four bytes of count and two entries of four bytes.
        assert_eq!(list(device, Some(key("f")), 12).unwrap(), [key("f"), key("b")]);
    });
}

#[test]
fn an_unordered_list_has_one_order_that_is_not_byte_order() {
    let mut orders = Vec::new();
    on_both_stores("list=unordered", |device| {
        for key in some_keys() {
            device.poke(&key, b"");
        }
        let order = list(device, None, 1 << 20).unwrap();
        assert!(!order.is_sorted());
        orders.push(order);
    });
    assert_eq!(orders[0], orders[1], "both stores list in the same order");
}

#[test]
fn a_list_into_a_buffer_without_room_for_a_key_has_none() {
    on_both_stores("", |device| {
        device.poke(&key("k"), b"");
        assert_eq!(list(device, None, 7), Ok(vec![]));
        assert_eq!(status(submit_list(device, None, &mut [0; 3])), Status::SUCCESS);
        assert_eq!(status(submit_list(device, None, &mut [])), Status::SUCCESS);
    });
}

#[test]
fn no_text_is_the_default_personality() {
    assert_eq!("".parse(), Ok(Personality::default()));
    assert_eq!(" , ".parse(), Ok(Personality::default()));
}

#[test]
fn every_personality_key_is_read() {
    let text = "dw0=zero,short-retrieve=error,delete-missing=error,list=absent,exist=no,\
                max-value=65536,capacity=1g,max-keys=12,order=shuffled:7,latency=100us,\
                bandwidth=3m,granularity=4k";
    let expected = Personality {
        retrieve_length: RetrieveLength::Zero,
        short_retrieve: ShortRetrieve::InvalidValueSize,
        delete_missing: DeleteMissing::KeyNotFound,
        list: ListSupport::Absent,
        exist: false,
        max_value_size: 65536,
        capacity_bytes: 1 << 30,
        max_keys: 12,
        completion_order: CompletionOrder::Shuffled { seed: 7 },
        latency: Latency { base: Duration::from_micros(100), bytes_per_second: Some(3 << 20) },
        value_granularity: 4096,
    };
    assert_eq!(text.parse(), Ok(expected));
}

#[test]
fn a_printed_personality_reads_back_as_itself() {
    let mut random = Random::for_test("a_printed_personality");
    assert_eq!(Personality::default().to_string().parse(), Ok(Personality::default()));
    for _ in 0..2000 {
        let mut pick = |count: u64| random.below(count) as usize;
        let personality = Personality {
            retrieve_length: [RetrieveLength::Exact, RetrieveLength::Padded, RetrieveLength::Zero]
                [pick(3)],
            short_retrieve: [ShortRetrieve::Success, ShortRetrieve::InvalidValueSize][pick(2)],
            delete_missing: [DeleteMissing::Success, DeleteMissing::KeyNotFound][pick(2)],
            list: [
                ListSupport::Ordered,
                ListSupport::Unordered,
                ListSupport::Wrapping,
                ListSupport::Absent,
            ][pick(4)],
            exist: pick(2) == 0,
            max_value_size: (random.next() >> random.below(64)) as u32,
            capacity_bytes: random.next() << random.below(64),
            max_keys: u64::MAX >> random.below(64),
            completion_order: match random.below(2) {
                0 => CompletionOrder::Fifo,
                _ => CompletionOrder::Shuffled { seed: random.next() },
            },
            latency: Latency {
                base: Duration::from_nanos(random.below(1 << 40) * 1000),
                bytes_per_second: Some(random.next() >> random.below(63)).filter(|rate| *rate > 0),
            },
            value_granularity: (random.next() >> 32) as u32 | 1,
        };
        let text = personality.to_string();
        assert_eq!(text.parse(), Ok(personality), "{text}");
    }
}

#[test]
fn a_wrong_personality_is_an_error_that_names_key_value_and_choices() {
    let error = |text: &str| text.parse::<Personality>().unwrap_err().to_string();
    assert_eq!(
        error("dw0=exact,list=sorted"),
        "personality key \"list\" cannot be \"sorted\"; \
         give ordered, unordered, wrapping or absent"
    );
    assert!(error("lst=ordered").contains("\"lst\""));
    assert!(error("lst=ordered").contains("dw0, short-retrieve"));
    assert!(matches!("exist".parse::<Personality>(), Err(PersonalityError::NoValue { .. })));
    assert!(matches!(
        "exist=no,exist=no".parse::<Personality>(),
        Err(PersonalityError::Repeated { .. })
    ));
    let wrong = [
        "dw0=",
        "short-retrieve=85h",
        "delete-missing=no",
        "exist=true",
        "max-value=4g",
        "max-value=-1",
        "capacity=many",
        "capacity=99999999t",
        "max-keys=",
        "order=shuffled",
        "order=shuffled:x",
        "latency=5",
        "latency=xs",
        "latency=s",
        "bandwidth=0",
        "granularity=0",
    ];
    for text in wrong {
        let (key, value) = text.split_once('=').unwrap();
        let message = error(text);
        assert!(message.contains(&format!("\"{key}\" cannot be \"{value}\"; give ")), "{message}");
    }
}
