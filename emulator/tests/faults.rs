//! Scripted faults and late commands, the same on both stores.

mod common;

use std::time::Duration;

use common::*;
use nvme_kv_command_set::{Key, Opcode, Status, StoreOptions};
use nvme_kv_emulator::{Effect, Fault, Namespace, Outcome, Trigger};

fn script(device: &Namespace, kind: Option<Opcode>, nth: u64, key: Option<Key>, effect: Effect) {
    device.script(Fault { on: Trigger { kind, nth, key }, effect });
}

const FAILED: Effect = Effect::Status(Status::INTERNAL);

#[test]
fn a_fault_hits_the_nth_command_of_its_kind_once() {
    on_both_stores("", |device| {
        store(device, key("early"), b"v");
        script(device, Some(Opcode::Store), 3, None, FAILED);
        let results: Vec<Status> = (0..5)
            .map(|_| {
                submit_exist(device, key("early"));
                store(device, key("k"), b"v")
            })
            .collect();
        let ok = Status::SUCCESS;
        assert_eq!(results, [ok, ok, Status::INTERNAL, ok, ok]);
    });
}

#[test]
fn a_fault_of_a_key_counts_commands_of_that_key_only() {
    on_both_stores("", |device| {
        script(device, None, 2, Some(key("k")), FAILED);
        assert_eq!(store(device, key("other"), b"v"), Status::SUCCESS);
        assert_eq!(store(device, key("k"), b"v"), Status::SUCCESS);
        assert_eq!(store(device, key("other"), b"v"), Status::SUCCESS);
        assert_eq!(retrieve(device, key("k"), 1), Err(Status::INTERNAL));
        assert_eq!(retrieve(device, key("k"), 1), Ok((b"v".to_vec(), 1)));
    });
}

#[test]
fn a_fault_of_any_kind_counts_every_io_command() {
    on_both_stores("", |device| {
        script(device, None, 4, None, FAILED);
        store(device, key("k"), b"v");
        submit_exist(device, key("k"));
        submit_delete(device, key("k"));
        assert_eq!(list(device, None, 64), Err(Status::INTERNAL));
    });
}

#[test]
fn one_command_takes_one_fault_and_the_next_takes_the_next() {
    on_both_stores("", |device| {
        script(device, None, 1, None, FAILED);
        script(device, None, 1, None, Effect::Errno(libc::EIO));
        script(device, None, 3, None, Effect::NotExecutedNoAnswer);
        assert_eq!(store(device, key("k"), b"v"), Status::INTERNAL);
        let outcome = submit_store(device, key("k"), b"v", StoreOptions::NONE);
        assert_eq!(outcome, Outcome::Errno(libc::EIO));
        assert_eq!(submit_exist(device, key("k")), Outcome::NoAnswer);
        assert_eq!(status(submit_exist(device, key("k"))), Status::KEY_NOT_FOUND);
    });
}

#[test]
fn cleared_faults_do_not_fire() {
    on_both_stores("", |device| {
        script(device, None, 1, None, FAILED);
        device.clear_faults();
        assert_eq!(store(device, key("k"), b"v"), Status::SUCCESS);
    });
}

#[test]
fn a_failed_command_is_not_executed() {
    for effect in [FAILED, Effect::Errno(libc::EIO), Effect::NotExecutedNoAnswer] {
        on_both_stores("", |device| {
            script(device, None, 1, None, effect);
            submit_store(device, key("k"), b"v", StoreOptions::NONE);
            assert_eq!(device.peek(&key("k")), None);
            assert_eq!(device.counts().store, 1);
        });
    }
}

#[test]
fn a_lost_completion_leaves_the_command_executed() {
    on_both_stores("", |device| {
        script(device, Some(Opcode::Store), 1, None, Effect::ExecutedNoAnswer);
        let outcome = submit_store(device, key("k"), b"v", StoreOptions::IF_ABSENT);
        assert_eq!(outcome, Outcome::NoAnswer);
        assert_eq!(store_if_absent(device, key("k"), b"w"), Status::KEY_EXISTS);
        assert_eq!(device.peek(&key("k")).unwrap(), b"v");
    });
}

#[test]
fn a_delay_is_added_to_the_latency() {
    on_both_stores("latency=1ms", |device| {
        script(device, None, 1, None, Effect::Delay(Duration::from_secs(3600)));
        let Outcome::Completed { status, latency, .. } = submit_exist(device, key("k")) else {
            panic!("no completion");
        };
        assert_eq!(status, Status::KEY_NOT_FOUND);
        assert_eq!(latency, Duration::from_secs(3600) + Duration::from_millis(1));
    });
}

#[test]
fn a_wrong_length_replaces_dw0_of_a_success_only() {
    on_both_stores("", |device| {
        store(device, key("k"), b"abc");
        script(device, Some(Opcode::Retrieve), 1, None, Effect::WrongLength(99));
        assert_eq!(retrieve(device, key("k"), 3), Ok((b"abc".to_vec(), 99)));
        assert_eq!(retrieve(device, key("k"), 3), Ok((b"abc".to_vec(), 3)));
        script(device, Some(Opcode::Retrieve), 1, None, Effect::WrongLength(99));
        let answer = completion(submit_retrieve(device, key("missing"), &mut [0; 3]));
        assert_eq!(answer, (Status::KEY_NOT_FOUND, 0));
    });
}

#[test]
fn damage_changes_one_returned_byte_and_not_the_stored_one() {
    on_both_stores("", |device| {
        store(device, key("k"), b"abc");
        script(device, Some(Opcode::Retrieve), 1, None, Effect::Damage { offset: 1, xor: 0x20 });
        assert_eq!(retrieve(device, key("k"), 8).unwrap().0, b"aBc\xee\xee\xee\xee\xee");
        assert_eq!(retrieve(device, key("k"), 3).unwrap().0, b"abc");
        script(device, Some(Opcode::Retrieve), 1, None, Effect::Damage { offset: 3, xor: 0xff });
        assert_eq!(retrieve(device, key("k"), 4).unwrap().0, b"abc\xee");
    });
}

#[test]
fn damage_hits_list_pages_too() {
    on_both_stores("", |device| {
        store(device, key("abc"), b"v");
        script(device, Some(Opcode::List), 1, None, Effect::Damage { offset: 6, xor: 0x20 });
        assert_eq!(list(device, None, 64), Ok(vec![key("Abc")]));
    });
}

#[test]
fn a_late_command_executes_after_so_many_further_commands() {
    for after in [0, 1, 3] {
        on_both_stores("", |device| {
            script(device, Some(Opcode::Store), 1, None, Effect::LateNoAnswer { after });
            let outcome = submit_store(device, key("k"), b"late", StoreOptions::IF_ABSENT);
            assert_eq!(outcome, Outcome::NoAnswer);
            for _ in 0..after {
                assert_eq!(device.peek(&key("k")), None);
                submit_exist(device, key("other"));
            }
            assert_eq!(device.peek(&key("k")).unwrap(), b"late");
            assert_eq!(device.release_late(), 0);
            assert_eq!(device.counts().store, 1);
        });
    }
}

#[test]
fn a_late_command_holds_its_own_copy_of_the_data() {
    on_both_stores("", |device| {
        script(device, Some(Opcode::Store), 1, None, Effect::LateNoAnswer { after: u64::MAX });
        let mut value = b"as submitted".to_vec();
        submit_store(device, key("k"), &value, StoreOptions::NONE);
        value.fill(b'x');
        for _ in 0..100 {
            submit_exist(device, key("k"));
        }
        assert_eq!(device.peek(&key("k")), None);
        assert_eq!(device.release_late(), 1);
        assert_eq!(device.peek(&key("k")).unwrap(), b"as submitted");
    });
}

#[test]
fn a_late_store_obeys_its_options_when_it_executes() {
    on_both_stores("", |device| {
        let never = Effect::LateNoAnswer { after: u64::MAX };
        script(device, Some(Opcode::Store), 1, None, never);
        submit_store(device, key("k"), b"late", StoreOptions::IF_ABSENT);
        assert_eq!(store_if_absent(device, key("k"), b"in time"), Status::SUCCESS);
        assert_eq!(device.release_late(), 1);
        assert_eq!(device.peek(&key("k")).unwrap(), b"in time");

        script(device, Some(Opcode::Store), 1, None, never);
        submit_store(device, key("k"), b"ghost", StoreOptions::IF_ABSENT);
        submit_delete(device, key("k"));
        assert_eq!(device.release_late(), 1);
        assert_eq!(device.peek(&key("k")).unwrap(), b"ghost");
    });
}

#[test]
fn late_commands_execute_in_the_order_of_their_submission() {
    on_both_stores("", |device| {
        for value in [b"1", b"2"] {
            script(device, Some(Opcode::Store), 1, None, Effect::LateNoAnswer { after: u64::MAX });
            submit_store(device, key("k"), value, StoreOptions::NONE);
        }
        script(device, Some(Opcode::Delete), 1, None, Effect::LateNoAnswer { after: u64::MAX });
        submit_delete(device, key("gone"));
        store(device, key("gone"), b"v");
        assert_eq!(device.release_late(), 3);
        assert_eq!(device.peek(&key("k")).unwrap(), b"2");
        assert_eq!(device.peek(&key("gone")), None);
    });
}

#[test]
fn a_late_retrieve_writes_to_no_buffer() {
    on_both_stores("", |device| {
        store(device, key("k"), b"abc");
        script(device, Some(Opcode::Retrieve), 1, None, Effect::LateNoAnswer { after: 1 });
        let mut buffer = [0xee; 3];
        assert_eq!(submit_retrieve(device, key("k"), &mut buffer), Outcome::NoAnswer);
        submit_exist(device, key("k"));
        assert_eq!(buffer, [0xee; 3]);
    });
}
