//! Connections that end: by the host, by the target, by silence.

use std::{net::Shutdown, time::Duration};

use nvme_kv_command_set::{Opcode, Status};

use super::{
    exist,
    host::{Host, Served},
    retrieve, store, value,
};
use crate::{Effect, Fault, Trigger};

fn slow_store() -> Fault {
    let on = Trigger { kind: Some(Opcode::Store), nth: 1, key: None };
    Fault { on, effect: Effect::Delay(Duration::from_millis(50)) }
}

#[test]
fn a_host_that_vanishes_in_the_middle_of_its_data_stores_nothing() {
    let served = Served::start("target-vanish");
    let (admin, mut io) = served.attach();
    let data = value(1, 300_000);
    io.submit(store(1, data.len()), &data, 0);
    let request = io.receive().unwrap();
    assert_eq!(request.kind(), 0x9);
    let mut part = super::host::host_data(
        request.u16(8),
        request.u16(10),
        0,
        &data[..request.u32(16) as usize],
    );
    part.truncate(part.len() / 2);
    io.send(&part);
    drop((admin, io));

    let (_admin, mut io) = served.attach();
    assert_eq!(io.execute(exist(1), &[], 0).status, Status::KEY_NOT_FOUND);
    assert_eq!(io.execute(store(1, data.len()), &data, 0).status, Status::SUCCESS);
    assert!(io.execute(retrieve(1, data.len()), &[], data.len()).data == data);
}

#[test]
fn i_o_queues_end_with_their_admin_queue() {
    let served = Served::start("target-admin-ends");
    let (admin, mut io) = served.attach();
    drop(admin);
    assert!(io.is_closed());
}

#[test]
fn a_controller_whose_host_falls_silent_ends() {
    let served = Served::start("target-keep-alive");
    let mut admin = Host::open(served.address());
    let controller = admin.connect_admin(50);
    let mut io = served.io_queue(controller, 1);
    assert!(admin.is_closed());
    assert!(io.is_closed());
}

#[test]
fn dropped_connections_can_be_opened_again() {
    let served = Served::start("target-drop");
    let (mut admin, mut io) = served.attach();
    io.execute(store(1, 4), b"kept", 0);
    served.target.drop_connections();
    assert!(admin.is_closed() && io.is_closed());
    let (_admin, mut io) = served.attach();
    assert_eq!(io.execute(retrieve(1, 4), &[], 4).data, b"kept");
}

#[test]
fn a_stopping_target_answers_what_it_received_and_returns() {
    let mut served = Served::start("target-stop");
    let (_admin, mut io) = served.attach();
    served.namespace.script(slow_store());
    // The answer of the first shows that the second was received with it.
    let both = [
        super::host::capsule(500, [0; 64], &[], 0),
        super::host::capsule(501, store(1, 4), b"done", 0),
    ];
    io.send(&both.concat());
    let first = io.complete(&mut |_| &[]);
    assert_eq!((first.command_id, first.status), (500, Status::INVALID_NAMESPACE));
    served.stop().unwrap();
    let second = io.complete(&mut |_| &[]);
    assert_eq!((second.command_id, second.status), (501, Status::SUCCESS));
    assert!(io.is_closed());
}

#[test]
fn a_stopping_target_closes_no_queue_before_all_have_their_answers() {
    let mut served = Served::start("target-stop-together");
    let (mut admin, mut io) = served.attach();
    served.namespace.script(slow_store());
    let both = [
        super::host::capsule(500, [0; 64], &[], 0),
        super::host::capsule(501, store(1, 4), b"done", 0),
    ];
    io.send(&both.concat());
    assert_eq!(io.complete(&mut |_| &[]).command_id, 500);
    served.target.shutdown();
    assert!(admin.is_closed());
    // It was sent before the admin queue was closed.
    io.stream.set_nonblocking(true).unwrap();
    assert_eq!(io.complete(&mut |_| &[]).command_id, 501);
    served.stop().unwrap();
}

#[test]
fn a_host_that_closes_its_half_gets_its_answers() {
    let served = Served::start("target-half");
    let (_admin, mut io) = served.attach();
    let id = io.submit(store(1, 4), b"half", 0);
    io.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(io.complete(&mut |_| &[]).command_id, id);
    assert!(io.is_closed());
}

#[test]
fn a_host_that_reads_nothing_does_not_stop_another() {
    let served = Served::start("target-stuck");
    let mut admin = Host::open(served.address());
    let controller = admin.connect_admin(0);
    let mut stuck = served.io_queue(controller, 1);
    let mut io = served.io_queue(controller, 2);
    let data = value(1, 500_000);
    io.execute(store(1, data.len()), &data, 0);
    for _ in 0..100 {
        stuck.submit(retrieve(1, data.len()), &[], data.len());
    }
    assert!(io.execute(retrieve(1, data.len()), &[], data.len()).data == data);
    // And what it asked for waits for it.
    for _ in 0..100 {
        assert!(stuck.complete(&mut |_| &[]).data == data);
    }
}
