//! Values in both directions, by capsule and by R2T.

use std::{collections::HashMap, thread};

use nvme_kv_command_set::Status;

use super::{
    exist,
    host::{Host, Served},
    retrieve, store, value,
};

#[test]
fn values_of_every_kind_of_transfer_come_back() {
    let served = Served::start("target-sizes");
    served.namespace.set_personality("max-value=1m".parse().unwrap());
    let (_admin, mut io) = served.attach();
    let sizes = [0, 1, 3, 4096, 8191, 8192, 8193, 131_072, 131_073, 262_145, 524_288, 1_048_576];
    for (number, len) in (0..).zip(sizes) {
        let data = value(number, len);
        assert_eq!(io.execute(store(number, len), &data, 0).status, Status::SUCCESS, "{len}");
        let done = io.execute(retrieve(number, len), &[], len);
        assert_eq!((done.status, done.result), (Status::SUCCESS, len as u64), "{len}");
        assert!(done.data == data, "the value of {len} bytes differs");
    }
}

#[test]
fn a_longer_transfer_than_the_limit_is_refused_in_both_directions() {
    let served = Served::start("target-too-long");
    let (_admin, mut io) = served.attach();
    let len = (1 << 20) + 1;
    let length_invalid = Status::new(0, 0x0f);
    assert_eq!(io.execute(store(1, len), &vec![0; len], 0).status, length_invalid);
    assert_eq!(io.execute(retrieve(1, len), &[], len).status, length_invalid);
    assert_eq!(io.execute(exist(1), &[], 0).status, Status::KEY_NOT_FOUND);
}

#[test]
fn a_short_retrieve_gets_the_beginning_and_the_size() {
    let served = Served::start("target-short");
    let (_admin, mut io) = served.attach();
    let data = value(1, 10_000);
    io.execute(store(1, data.len()), &data, 0);
    let done = io.execute(retrieve(1, 100), &[], 100);
    assert_eq!((done.status, done.result), (Status::SUCCESS, 10_000));
    assert_eq!(done.data, data[..100]);
}

#[test]
fn behind_the_end_of_a_value_a_host_sees_zeros_and_no_other_value() {
    let served = Served::start("target-tail");
    let (_admin, mut io) = served.attach();
    let secret = vec![0xee; 4096];
    io.execute(store(1, secret.len()), &secret, 0);
    io.execute(store(2, 5), b"short", 0);
    assert_eq!(io.execute(retrieve(1, 4096), &[], 4096).data, secret);
    let done = io.execute(retrieve(2, 4096), &[], 4096);
    assert_eq!(done.result, 5);
    assert_eq!(done.data[..5], *b"short");
    assert!(done.data[5..].iter().all(|byte| *byte == 0));
}

#[test]
fn an_error_carries_no_data_and_says_do_not_retry() {
    let served = Served::start("target-error");
    let (_admin, mut io) = served.attach();
    let done = io.execute(retrieve(1, 4096), &[], 4096);
    assert_eq!((done.status, done.dnr), (Status::KEY_NOT_FOUND, true));
    assert_eq!(done.data, b"");
}

#[test]
fn a_store_larger_than_its_data_is_refused() {
    let served = Served::start("target-store-length");
    let (_admin, mut io) = served.attach();
    assert_eq!(io.execute(store(1, 4096), &[1; 4000], 0).status, Status::new(0, 0x0f));
    assert_eq!(served.namespace.usage().keys, 0);
}

/// The host does not answer any R2T until the target asks for nothing more.
#[test]
fn a_target_asks_for_at_most_256_kib_at_once() {
    let served = Served::start("target-window");
    let (_admin, mut io) = served.attach();
    let len = 512 * 1024;
    let values: HashMap<u16, Vec<u8>> = (0..16)
        .map(|number| {
            let data = value(number, len);
            (io.submit(store(number, len), &data, 0), data)
        })
        .collect();
    let (mut asked, mut sent, mut done, mut most) = (0, 0, 0, 0);
    let mut requests = Vec::new();
    while done < values.len() {
        // With everything asked for in hand, the next PDU is sure to come only
        // if data is sent: what is outstanding is all that may be.
        if asked - sent == 256 * 1024 || asked == values.len() * len {
            for request in requests.drain(..) {
                io.send_data(&request, &values[&request.u16(8)]);
                sent += request.u32(16) as usize;
            }
        }
        let pdu = io.receive().unwrap();
        if pdu.kind() == 0x9 {
            asked += pdu.u32(16) as usize;
            most = most.max(asked - sent);
            requests.push(pdu);
        } else {
            assert_eq!(Status::from_cqe(pdu.u16(22) >> 1), Status::SUCCESS);
            done += 1;
        }
    }
    assert_eq!(most, 256 * 1024);
    assert_eq!(served.namespace.usage().bytes, (values.len() * len) as u64);
}

#[test]
fn many_commands_in_flight_are_all_answered() {
    let served = Served::start("target-depth");
    let (_admin, mut io) = served.attach();
    let len = 20_000;
    let values: HashMap<u16, Vec<u8>> = (0..100)
        .map(|number| {
            let data = value(number, len);
            (io.submit(store(number, len), &data, 0), data)
        })
        .collect();
    for _ in 0..100 {
        assert_eq!(io.complete(&mut |id| &values[&id]).status, Status::SUCCESS);
    }
    let asked: HashMap<u16, u32> =
        (0..100).map(|number| (io.submit(retrieve(number, len), &[], len), number)).collect();
    for _ in 0..100 {
        let done = io.complete(&mut |_| &[]);
        assert!(done.data == value(asked[&done.command_id], len));
    }
}

#[test]
fn queues_work_in_parallel() {
    let served = Served::start("target-queues");
    let mut admin = Host::open(served.address());
    let controller = admin.connect_admin(0);
    thread::scope(|scope| {
        for queue_id in 1..=8u16 {
            let served = &served;
            scope.spawn(move || {
                let mut io = served.io_queue(controller, queue_id);
                for round in 0..20 {
                    let number = u32::from(queue_id) << 16 | round;
                    let len = 1 + (round as usize * 9973) % 100_000;
                    let data = value(number, len);
                    let done = io.execute(store(number, len), &data, 0);
                    assert_eq!(done.status, Status::SUCCESS);
                    assert!(io.execute(retrieve(number, len), &[], len).data == data);
                }
            });
        }
    });
    assert_eq!(served.namespace.usage().keys, 160);
}
