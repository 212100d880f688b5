//! An executor under test and the steps that scenarios are made of.

// Each test program uses some of the steps.
#![allow(dead_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use mooncake_nvme_kv::device::{
    Completion, Connector, Executor, Operation, Payload, Reply, Target, Value, execute_one,
};
use nvme_kv_command_set::PhysicalKey;

/// An executor under test and what scenarios need.
pub(crate) struct Bench {
    connector: Connector,
    transport: &'static str,
    scenario: &'static str,
    random: AtomicU64,
    /// Comparisons of bytes that have been stored and retrieved.
    data_checks: AtomicU64,
}

impl Bench {
    pub(crate) fn new(
        connector: Connector,
        transport: &'static str,
        scenario: &'static str,
    ) -> Self {
        let seed = match std::env::var("MNKV_SEED") {
            Ok(text) => text.parse().expect("MNKV_SEED is a number"),
            Err(_) => 0x6b76,
        };
        println!("{transport}::{scenario}: MNKV_SEED={seed}");
        let random = AtomicU64::new(seed);
        Bench { connector, transport, scenario, random, data_checks: AtomicU64::new(0) }
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn executor(&self) -> &dyn Executor {
        self.connector.executor().as_ref()
    }

    fn number(&self) -> u64 {
        // splitmix64, a public-domain mixer.
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// A key of this transport and scenario.
    pub(crate) fn key(&self, number: u32) -> PhysicalKey {
        let name = format!("{}::{}", self.transport, self.scenario);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let mut key = [0; 16];
        key[..8].copy_from_slice(&hash.to_le_bytes());
        // Byte 11 is the device's in one of the wire profiles.
        key[12..].copy_from_slice(&number.to_be_bytes());
        PhysicalKey(key)
    }

    pub(crate) fn transfer_len(&self, len: usize) -> usize {
        self.executor().capabilities().transfer_len(len as u32) as usize
    }

    pub(crate) fn store(&self, key: PhysicalKey, head: &[u8], slices: &[&[u8]]) -> Completion {
        let payload = Payload::new(slices);
        let body = payload.whole().expect("a value is short");
        let value = Value { head: head.to_vec(), body };
        execute_one(self.executor(), Operation::Store { key, value })
    }

    /// Stores and expects success.
    pub(crate) fn stored(&self, key: PhysicalKey, head: &[u8], slices: &[&[u8]]) {
        self.store(key, head, slices).result.expect("the value is stored");
    }

    pub(crate) fn delete(&self, key: PhysicalKey) {
        let result = execute_one(self.executor(), Operation::Delete { key }).result;
        assert!(result.as_ref().is_ok() || result.as_ref().is_err_and(|e| e.is_not_found()));
    }

    /// The value is `expected`, into a pooled buffer and into memory that starts `skip` bytes
    /// after a page boundary.
    pub(crate) fn holds(&self, key: PhysicalKey, expected: &[u8], skip: usize) {
        let len = expected.len() as u32;
        let transfer = self.transfer_len(expected.len());
        let buffer = self.executor().buffers().get(transfer);
        let done = execute_one(self.executor(), Operation::Retrieve { key, buffer, len });
        self.length_fits(done.result.expect("the value is retrieved"), expected.len());
        let buffer = done.buffer.expect("the buffer comes back");
        self.same(&buffer[..expected.len()], expected);
        self.holds_in_place(key, expected, skip);
    }

    /// The value is `expected`, into memory that starts `skip` bytes after a page boundary, and
    /// nothing around it changes.
    pub(crate) fn holds_in_place(&self, key: PhysicalKey, expected: &[u8], skip: usize) {
        let transfer = self.transfer_len(expected.len());
        let mut memory = Pages::new(skip + transfer + 100);
        memory.bytes().fill(0x5a);
        let target = Target::new(&mut memory.bytes()[skip..skip + transfer]);
        let len = expected.len() as u32;
        let done = execute_one(self.executor(), Operation::RetrieveInto { key, target, len });
        self.length_fits(done.result.expect("the value is retrieved"), expected.len());
        let (before, rest) = memory.bytes().split_at(skip);
        self.same(&rest[..expected.len()], expected);
        assert!(before.iter().chain(&rest[transfer..]).all(|byte| *byte == 0x5a));
    }

    pub(crate) fn same(&self, got: &[u8], expected: &[u8]) {
        self.data_checks.fetch_add(1, Ordering::Relaxed);
        assert!(got == expected, "{} bytes came back as others", expected.len());
    }

    pub(crate) fn length_fits(&self, reply: Reply, len: usize) {
        let padded = len.next_multiple_of(4096);
        if let Some(value_len) = reply.value_len {
            assert!((len..=padded).contains(&(value_len as usize)), "{value_len} for {len}");
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        println!("data checks: {} {}", self.transport, self.data_checks.load(Ordering::Relaxed));
    }
}

/// Memory that starts at a page boundary.
pub(crate) struct Pages {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

impl Pages {
    pub(crate) fn new(len: usize) -> Self {
        let memory = vec![0; len + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        Pages { memory, skip, len }
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut pages = Pages::new(bytes.len());
        pages.bytes().copy_from_slice(bytes);
        pages
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.memory[self.skip..self.skip + self.len]
    }
}
