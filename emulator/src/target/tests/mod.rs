//! The target, seen from a host on the other end of a TCP connection.

mod attach;
mod faults;
mod fuzz;
mod host;
mod lifetime;
mod malformed;
mod values;

use nvme_kv_command_set::{Command, Key, PassthroughCommand, StoreOptions};

use crate::NSID;

fn key(number: u32) -> Key {
    let mut bytes = [7; 16];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    Key::new(&bytes).unwrap()
}

fn store(number: u32, len: usize) -> [u8; 64] {
    let options = StoreOptions::NONE;
    io(&Command::Store { key: key(number), value_len: len as u32, options })
}

fn retrieve(number: u32, len: usize) -> [u8; 64] {
    io(&Command::Retrieve { key: key(number), buffer_len: len as u32, raw: false })
}

fn exist(number: u32) -> [u8; 64] {
    io(&Command::Exist { key: key(number) })
}

fn io(command: &Command) -> [u8; 64] {
    host::entry(&PassthroughCommand::new(command, NSID, 0))
}

/// Bytes that differ by position and by `salt`.
fn value(salt: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(31).wrapping_add(salt) >> 3) as u8 ^ at as u8)
        .collect()
}
