//! Valid sessions with random changes: nothing may crash the target, and every
//! connection has to end.

use std::{
    io::{Read, Write},
    net::Shutdown,
    panic,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::{
    exist,
    host::{Host, NQN, Served, capsule, connect, host_data, initialize},
    retrieve, store,
};
use crate::target::THREAD_NAME;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn seed() -> u64 {
    match std::env::var("MNKV_SEED") {
        Ok(text) => text.parse().expect("MNKV_SEED is a number"),
        Err(_) => {
            let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            time.unwrap().as_nanos() as u64
        }
    }
}

/// A session that the target would accept, in PDUs.
fn session(controller: u16, queue_id: u16) -> Vec<Vec<u8>> {
    let (entry, data) = connect(queue_id, controller, NQN, 0);
    vec![
        initialize(0, 0, 0),
        capsule(0, entry, &data, 0),
        capsule(1, store(1, 100), &[1; 100], 0),
        capsule(2, store(2, 200_000), &[0; 200_000], 0),
        host_data(2, 0, 0, &[2; 131_072]),
        host_data(2, 0, 131_072, &[3; 68_928]),
        capsule(3, retrieve(1, 4096), &[], 4096),
        capsule(4, exist(1), &[], 0),
    ]
}

fn mutate(random: &mut Random, pdus: &mut Vec<Vec<u8>>) {
    for _ in 0..=random.below(3) {
        let index = random.below(pdus.len());
        let pdu = &mut pdus[index];
        // Headers are where the decisions are.
        let at = random.below(pdu.len().min(128));
        match random.below(6) {
            0 => pdu[at] ^= 1 << random.below(8),
            1 => pdu[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => pdu[4..8].copy_from_slice(&(random.next() as u32).to_le_bytes()),
            3 => pdu.truncate(at),
            4 => {
                let copy = pdu.clone();
                pdus.insert(index, copy);
            }
            _ => {
                pdus.remove(index);
            }
        }
        pdus.retain(|pdu| pdu.len() >= 8);
        if pdus.is_empty() {
            return;
        }
    }
}

static PANICKED: AtomicBool = AtomicBool::new(false);

/// A target outlives a connection that panics; this test must not.
fn notice_panics_of_connections() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |information| {
        if thread::current().name() == Some(THREAD_NAME) {
            PANICKED.store(true, Ordering::Relaxed);
        }
        report(information);
    }));
}

#[test]
fn a_mutated_session_ends_and_the_target_lives_on() {
    let seed = seed();
    println!("MNKV_SEED={seed}");
    notice_panics_of_connections();
    let mut random = Random(seed);
    let served = Served::start("target-fuzz");
    let mut admin = Host::open(served.address());
    let controller = admin.connect_admin(0);
    for round in 0..400 {
        let admin_queue = random.below(4) == 0;
        let mut pdus = match admin_queue {
            true => session(0xffff, 0),
            false => session(controller, 1 + round % 60),
        };
        mutate(&mut random, &mut pdus);
        let mut host = Host::raw(served.address());
        // The target may have closed already.
        let _ = host.stream.write_all(&pdus.concat());
        let _ = host.stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let ended = host.stream.read_to_end(&mut answers);
        if let Err(error) = ended {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "round {round}: {error}");
        }
        assert!(answers.len() < 1 << 20, "round {round}: {} bytes of answers", answers.len());
    }
    assert!(!PANICKED.load(Ordering::Relaxed), "a connection panicked");
    let (_admin, mut io) = served.attach();
    let data = vec![9; 150_000];
    io.execute(store(3, data.len()), &data, 0);
    assert!(io.execute(retrieve(3, data.len()), &[], data.len()).data == data);
}
