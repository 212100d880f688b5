//! Many threads on one namespace, the same on both stores.

mod common;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use common::*;
use nvme_kv_command_set::{Key, Status};
use nvme_kv_emulator::Usage;

const THREADS: u64 = 8;

fn numbered(index: u64) -> Key {
    Key::new(&Random::new(index).bytes(16)).unwrap()
}

#[test]
fn of_many_stores_if_absent_of_one_key_exactly_one_wins() {
    on_both_stores("", |device| {
        let wins: Vec<AtomicU64> = (0..400).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for thread in 1..=THREADS {
                let wins = &wins;
                scope.spawn(move || {
                    for (index, won) in wins.iter().enumerate() {
                        let status =
                            store_if_absent(device, numbered(index as u64), &[thread as u8; 3000]);
                        if status.is_success() {
                            let before = won.swap(thread, Ordering::SeqCst);
                            assert_eq!(before, 0, "two winners");
                        } else {
                            assert_eq!(status, Status::KEY_EXISTS);
                        }
                    }
                });
            }
        });
        for (index, won) in wins.iter().enumerate() {
            let winner = won.load(Ordering::SeqCst);
            assert_ne!(winner, 0, "no winner");
            let value = device.peek(&numbered(index as u64)).unwrap();
            assert_eq!(value, [winner as u8; 3000], "the winner's value is there");
        }
        assert_eq!(device.usage(), Usage { keys: 400, bytes: 400 * 3000 });
    });
}

#[test]
fn of_many_stores_at_the_limit_exactly_those_that_fit_succeed() {
    for (personality, fitting) in [("max-keys=100", 100), ("capacity=6400", 64)] {
        on_both_stores(personality, |device| {
            let stored = AtomicU64::new(0);
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let stored = &stored;
                    scope.spawn(move || {
                        for index in 0..50 {
                            let key = numbered(thread << 32 | index);
                            match store(device, key, &[1; 100]) {
                                status if status.is_success() => {
                                    stored.fetch_add(1, Ordering::SeqCst);
                                }
                                status => assert_eq!(status, Status::CAPACITY_EXCEEDED),
                            }
                        }
                    });
                }
            });
            assert_eq!(stored.load(Ordering::SeqCst), fitting);
            assert_eq!(device.usage(), Usage { keys: fitting, bytes: fitting * 100 });
        });
    }
}

#[test]
fn values_are_never_mixed_and_usage_stays_exact_under_random_changes() {
    let seed = Random::for_test("values_are_never_mixed").next();
    on_both_stores("", |device| {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ thread);
                    for _ in 0..400 {
                        let key = numbered(random.below(10));
                        match random.below(4) {
                            0 => {
                                submit_delete(device, key);
                            }
                            1 => {
                                let mut buffer = [0; 5000];
                                let (status, len) =
                                    completion(submit_retrieve(device, key, &mut buffer));
                                if status.is_success() {
                                    let value = &buffer[..len as usize];
                                    assert!(value.iter().all(|byte| *byte == value[0]));
                                }
                            }
                            2 => {
                                let keys = list(device, None, 4096).unwrap();
                                assert!(keys.is_sorted() && keys.len() <= 10);
                            }
                            _ => {
                                let value =
                                    vec![random.next() as u8; 1 + random.below(5000) as usize];
                                assert_eq!(store(device, key, &value), Status::SUCCESS);
                            }
                        }
                    }
                });
            }
        });
        let keys = device.keys();
        let bytes: usize = keys.iter().map(|key| device.peek(key).unwrap().len()).sum();
        assert_eq!(device.usage(), Usage { keys: keys.len() as u64, bytes: bytes as u64 });
    });
}
