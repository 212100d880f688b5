//! PDUs that break the protocol end the connection with the reason.

use super::{
    exist,
    host::{Host, Pdu, Served, capsule, host_data, initialize},
    store,
};

/// Fatal error status and field of the C2HTermReq that must come, after which
/// the target closes.
fn terminated(host: &mut Host, offending: &[u8]) -> (u16, u32) {
    let pdu = host.receive().unwrap();
    assert_eq!((pdu.kind(), pdu.header.len()), (0x3, 24));
    assert!(pdu.data.len() <= 128 && offending.starts_with(&pdu.data), "it quotes the PDU");
    assert!(host.is_closed());
    (pdu.u16(8), u32::from_le_bytes(pdu.header[10..14].try_into().unwrap()))
}

fn changed(mut pdu: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    pdu[at..at + bytes.len()].copy_from_slice(bytes);
    pdu
}

#[test]
fn a_malformed_first_pdu_is_answered_with_the_wrong_field() {
    let served = Served::start("target-malformed-first");
    let request = initialize(0, 0, 0);
    for (pdu, expected) in [
        (initialize(1, 0, 0), (6, 8)),
        (initialize(0, 32, 0), (1, 10)),
        (changed(request.clone(), 1, &[1]), (1, 1)),
        (changed(request.clone(), 2, &[127]), (1, 2)),
        (changed(request.clone(), 4, &[120]), (1, 4)),
        (changed(request.clone(), 4, &u32::MAX.to_le_bytes()), (1, 3)),
        (capsule(0, exist(1), &[], 0), (2, 0)),
        (vec![0x55; 8], (1, 0)),
        // A PDU that only a controller sends.
        (changed(request, 0, &[0x9]), (1, 0)),
    ] {
        let mut host = Host::raw(served.address());
        host.send(&pdu);
        assert_eq!(terminated(&mut host, &pdu), expected, "{pdu:02x?}");
    }
}

#[test]
fn a_malformed_command_is_answered_with_the_wrong_field() {
    let served = Served::start("target-malformed-command");
    let command = capsule(0, exist(1), &[], 0);
    let with_data = capsule(0, store(1, 8), &[0; 8], 0);
    for (pdu, expected) in [
        (initialize(0, 0, 0), (2, 0)),
        (changed(command.clone(), 1, &[0x1]), (1, 1)),
        (changed(command.clone(), 1, &[0x2]), (1, 1)),
        (changed(command.clone(), 2, &[71]), (1, 2)),
        (changed(command, 4, &[71]), (1, 4)),
        (changed(with_data.clone(), 3, &[71]), (1, 3)),
        (changed(with_data.clone(), 3, &[84]), (1, 3)),
        (changed(with_data.clone(), 4, &[0, 0, 1, 0]), (5, 4)),
        (changed(with_data, 4, &[0xff; 4]), (5, 4)),
        (host_data(0, 0, 0, &[0; 8]), (2, 10)),
    ] {
        let (_admin, mut io) = served.attach();
        io.send(&pdu);
        assert_eq!(terminated(&mut io, &pdu), expected, "{pdu:02x?}");
    }
}

#[test]
fn data_that_no_r2t_asked_for_ends_the_connection() {
    let served = Served::start("target-malformed-data");
    let wrong = |change: &dyn Fn(&Pdu) -> Vec<u8>| {
        let (_admin, mut io) = served.attach();
        io.submit(store(1, 100_000), &[0; 100_000], 0);
        let request = io.receive().unwrap();
        let pdu = change(&request);
        io.send(&pdu);
        terminated(&mut io, &pdu)
    };
    let data = |request: &Pdu, offset, len: usize| {
        host_data(request.u16(8), request.u16(10), offset, &vec![0; len])
    };
    assert_eq!(wrong(&|r| data(r, 4, 100)), (4, 12), "not at the beginning");
    assert_eq!(wrong(&|r| data(r, 0, 100_001)), (4, 16), "too long");
    assert_eq!(wrong(&|r| data(r, 0, 0)), (4, 16), "empty");
    assert_eq!(wrong(&|r| host_data(r.u16(8) + 1, r.u16(10), 0, &[0; 8])), (1, 8));
    assert_eq!(wrong(&|r| host_data(r.u16(8), r.u16(10) + 1, 0, &[0; 8])), (2, 10));
    assert_eq!(wrong(&|r| changed(data(r, 0, 8), 16, &[9])), (1, 16), "two lengths");
    assert_eq!(served.namespace.usage().keys, 0);
}

#[test]
fn a_host_that_overruns_its_queue_is_cut_off() {
    let served = Served::start("target-overrun");
    let (_admin, mut io) = served.attach();
    // The queue has 128 entries, and these commands all wait for data.
    let pdus: Vec<u8> =
        (0..129).flat_map(|id| capsule(id, store(1, 9000), &[0; 9000], 0)).collect();
    io.send(&pdus);
    let last = loop {
        let pdu = io.receive().unwrap();
        if pdu.kind() != 0x9 {
            break pdu;
        }
    };
    assert_eq!((last.kind(), last.u16(8)), (0x3, 2));
}

#[test]
fn a_host_that_terminates_is_let_go() {
    let served = Served::start("target-h2c-terminate");
    let (_admin, mut io) = served.attach();
    io.send(&changed(changed(vec![0; 24], 0, &[0x2, 0, 24, 0, 24]), 8, &[1]));
    assert!(io.is_closed());
}
