//! Faults and personalities, as the host sees them.

use std::time::Duration;

use nvme_kv_command_set::{Opcode, Status};

use super::{
    exist,
    host::{Served, capsule},
    key, retrieve, store,
};
use crate::{Effect, Fault, Trigger};

fn next(kind: Opcode, effect: Effect) -> Fault {
    Fault { on: Trigger { kind: Some(kind), nth: 1, key: None }, effect }
}

#[test]
fn a_command_without_an_answer_does_not_stop_the_others() {
    let served = Served::start("target-no-answer");
    let (_admin, mut io) = served.attach();
    served.namespace.script(next(Opcode::Store, Effect::ExecutedNoAnswer));
    io.submit(store(1, 4), b"lost", 0);
    assert_eq!(io.execute(exist(1), &[], 0).status, Status::SUCCESS);
}

#[test]
fn a_late_command_executes_after_its_connection_is_gone() {
    let served = Served::start("target-late");
    let (admin, mut io) = served.attach();
    served.namespace.script(next(Opcode::Store, Effect::LateNoAnswer { after: u64::MAX }));
    io.submit(store(1, 5), b"ghost", 0);
    assert_eq!(io.execute(exist(1), &[], 0).status, Status::KEY_NOT_FOUND);
    drop((admin, io));
    assert_eq!(served.namespace.release_late(), 1);
    let (_admin, mut io) = served.attach();
    assert_eq!(io.execute(retrieve(1, 5), &[], 5).data, b"ghost");
}

#[test]
fn a_delayed_command_is_overtaken_and_answered_in_the_end() {
    let served = Served::start("target-delay");
    let (_admin, mut io) = served.attach();
    served.namespace.poke(&key(1), b"slow");
    let delay = Effect::Delay(Duration::from_millis(50));
    served.namespace.script(next(Opcode::Retrieve, delay));
    let slow = io.submit(retrieve(1, 4), &[], 4);
    let fast = io.submit(exist(1), &[], 0);
    assert_eq!(io.complete(&mut |_| &[]).command_id, fast);
    let done = io.complete(&mut |_| &[]);
    assert_eq!((done.command_id, &done.data[..]), (slow, &b"slow"[..]));
}

#[test]
fn status_and_length_are_the_device_s_own() {
    let served = Served::start("target-status");
    let (_admin, mut io) = served.attach();
    served.namespace.poke(&key(1), b"value");
    served.namespace.script(next(Opcode::Retrieve, Effect::Status(Status::UNRECOVERED_READ)));
    served.namespace.script(next(Opcode::Exist, Effect::Status(Status::NAMESPACE_NOT_READY)));
    assert_eq!(io.execute(retrieve(1, 5), &[], 5).status, Status::UNRECOVERED_READ);
    let not_ready = io.execute(exist(1), &[], 0);
    assert_eq!((not_ready.status, not_ready.dnr), (Status::NAMESPACE_NOT_READY, false));
    served.namespace.set_personality("dw0=zero".parse().unwrap());
    let done = io.execute(retrieve(1, 5), &[], 5);
    assert_eq!((done.result, &done.data[..]), (0, &b"value"[..]));
}

#[test]
fn a_shuffling_device_answers_everything_in_an_order_of_its_own() {
    let served = Served::start("target-shuffled");
    served.namespace.set_personality("order=shuffled:7".parse().unwrap());
    let (_admin, mut io) = served.attach();
    let ids: Vec<u16> = (1000..1064).collect();
    // In one segment, so that the device has them all in hand.
    let capsules: Vec<u8> = ids.iter().flat_map(|id| capsule(*id, exist(1), &[], 0)).collect();
    io.send(&capsules);
    let mut answered: Vec<u16> = ids.iter().map(|_| io.complete(&mut |_| &[]).command_id).collect();
    assert_ne!(answered, ids);
    answered.sort_unstable();
    assert_eq!(answered, ids);
}

#[test]
fn shuffled_answers_beyond_what_is_sent_at_once_all_come() {
    let served = Served::start("target-shuffled-large");
    served.namespace.set_personality("order=shuffled:7".parse().unwrap());
    let (_admin, mut io) = served.attach();
    let len = 100_000;
    served.namespace.poke(&key(1), &vec![1; len]);
    let capsules: Vec<u8> =
        (0..64).flat_map(|id| capsule(id, retrieve(1, len), &[], len)).collect();
    io.send(&capsules);
    for _ in 0..64 {
        assert_eq!(io.complete(&mut |_| &[]).data.len(), len);
    }
}

#[test]
fn delayed_answers_beyond_what_is_held_all_come() {
    let served = Served::start("target-delayed-large");
    served.namespace.set_personality("max-value=1m,latency=20ms".parse().unwrap());
    let (_admin, mut io) = served.attach();
    let len = 1 << 20;
    served.namespace.poke(&key(1), &vec![1; len]);
    let capsules: Vec<u8> =
        (0..100).flat_map(|id| capsule(id, retrieve(1, len), &[], len)).collect();
    io.send(&capsules);
    for _ in 0..100 {
        assert_eq!(io.complete(&mut |_| &[]).data.len(), len);
    }
}
