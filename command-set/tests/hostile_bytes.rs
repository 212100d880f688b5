//! Damaged device data: mutations of valid bytes go through every parser.
//!
//! A parser may refuse, but it must not panic, must not allocate more than its input justifies,
//! and what it accepts must survive being written and read again.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nvme_kv_command_set::{
    Command, IdentifyKvNamespace, Key, KvFormat, ListPageBuilder, ListScanner,
    NamespaceDescriptors, PassthroughCommand, PhysicalKey, Status, StoreOptions, Wire, parse_list,
};

const ROUNDS: usize = 20_000;

#[test]
fn damaged_list_pages_are_read_safely() {
    let keys: Vec<_> = (1..=16).map(|len| Key::new(&vec![len as u8; len]).unwrap()).collect();
    let page = |keys: &[Key]| {
        let mut builder = ListPageBuilder::new(4096);
        assert!(keys.iter().all(|key| builder.push(key)));
        builder.finish()
    };
    let whole_keys = vec![keys[15]; 100];
    let corpus = [page(&[]), page(&keys), page(&keys[..1]), page(&whole_keys)];
    mutate(&corpus, |bytes| {
        let (strict, allocated) = allocation_of(|| parse_list(bytes));
        assert!(allocated <= 5 * bytes.len(), "{allocated} bytes for {}", bytes.len());
        let mut scanner = ListScanner::new(bytes);
        let (found, allocated) = allocation_of(|| scanner.by_ref().count());
        assert_eq!(allocated, 0);
        let counted = bytes.first_chunk().map_or(0, |count| u32::from_le_bytes(*count));
        let seen = (found + scanner.skipped()) as u64;
        assert!(seen <= u64::from(counted));
        assert_eq!(scanner.truncated(), seen < u64::from(counted) || bytes.len() < 4);
        if let Ok(keys) = strict {
            assert!(ListScanner::new(bytes).eq(keys.iter().copied()));
            assert!(bytes.starts_with(&{
                let mut builder = ListPageBuilder::new(bytes.len());
                assert!(keys.iter().all(|key| builder.push(key)));
                builder.finish()
            }));
        }
    });
}

#[test]
fn damaged_identify_data_is_read_safely() {
    let namespace = |formats| IdentifyKvNamespace {
        size_bytes: 1 << 40,
        used_bytes: 1 << 20,
        formats: vec![
            KvFormat { max_key_len: 16, max_value_len: 1 << 20, ..Default::default() };
            formats
        ],
        ..Default::default()
    };
    // Short enough that most mutations hit a field.
    let corpus = [1, 2, 16].map(|formats| namespace(formats).to_bytes()[..400].to_vec());
    mutate(&corpus, |bytes| {
        let (parsed, allocated) = allocation_of(|| IdentifyKvNamespace::parse(bytes));
        assert!(allocated <= 5 * bytes.len(), "{allocated} bytes for {}", bytes.len());
        if let Ok(namespace) = parsed {
            assert!(namespace.formats.len() <= 16);
            assert_eq!(IdentifyKvNamespace::parse(&namespace.to_bytes()), Ok(namespace));
        }
    });
}

#[test]
fn damaged_descriptors_are_read_safely() {
    let all = NamespaceDescriptors {
        eui64: Some([1; 8]),
        nguid: Some([2; 16]),
        uuid: Some([3; 16]),
        csi: Some(1),
    };
    let few = NamespaceDescriptors { csi: Some(1), ..Default::default() };
    let corpus = [all, few].map(|descriptors| descriptors.to_bytes()[..80].to_vec());
    mutate(&corpus, |bytes| {
        let (parsed, allocated) = allocation_of(|| NamespaceDescriptors::parse(bytes));
        assert_eq!(allocated, 0);
        if let Ok(descriptors) = parsed {
            assert_eq!(NamespaceDescriptors::parse(&descriptors.to_bytes()), Ok(descriptors));
        }
    });
}

#[test]
fn damaged_commands_are_decoded_safely() {
    let wire = Wire::default();
    let key = PhysicalKey([0xa5; 16]);
    let corpus = [
        wire.store(&key, 4096, StoreOptions::IF_ABSENT, 0x1000),
        wire.retrieve(&key, 4096, 0x1000),
        wire.list(None, 4096, 0x1000),
        wire.list(Some(&key.into()), 4096, 0x1000),
        wire.delete(&key),
        wire.exist(&key),
    ]
    .map(|command| command.to_bytes().to_vec());
    mutate(&corpus, |bytes| {
        let mut exact = [0; 72];
        let len = bytes.len().min(72);
        exact[..len].copy_from_slice(&bytes[..len]);
        let (command, allocated) = allocation_of(|| PassthroughCommand::from_bytes(&exact));
        assert_eq!(allocated, 0);
        assert_eq!(command.to_bytes(), exact);
        match command.decode() {
            Ok(meaning) => {
                let again = PassthroughCommand::new(&meaning, command.nsid, command.timeout_ms);
                assert_eq!(again.decode(), Ok(meaning));
                let is_list = matches!(meaning, Command::List { .. });
                assert!(meaning.key().is_some() || is_list);
            }
            Err(error) => assert!(
                [Status::INVALID_OPCODE, Status::INVALID_FIELD, Status::INVALID_KEY_SIZE]
                    .contains(&error.status())
            ),
        }
    });
}

/// Feeds [`ROUNDS`] mutations of the corpus, and the corpus itself, to `target`.
fn mutate(corpus: &[Vec<u8>], target: impl Fn(&[u8])) {
    let mut random = Random(common::seed());
    corpus.iter().for_each(|bytes| target(bytes));
    for _ in 0..ROUNDS {
        let mut bytes = corpus[random.below(corpus.len())].clone();
        for _ in 0..=random.below(4) {
            random.damage(&mut bytes);
        }
        target(&bytes);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// One change: a bit, a byte, a number that is often mishandled, a cut, a repeat or noise.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        const NUMBERS: [u64; 9] = [0, 1, 15, 16, 17, 0xff, 0x7fff_ffff, 0xffff_fffc, u64::MAX];
        let at = self.below(bytes.len() + 1);
        match self.below(6) {
            0 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << self.below(8)),
            1 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte = self.next() as u8),
            2 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let width = 1 << self.below(4);
                // Mostly where a number is.
                let at = if self.below(2) == 0 { at & !3 } else { at };
                bytes[at..].iter_mut().zip(number).take(width).for_each(|(to, from)| *to = from);
            }
            3 => bytes.truncate(at),
            4 => {
                let end = at + self.below(bytes.len() - at + 1);
                let repeat = bytes[at..end].to_vec();
                bytes.splice(at..at, repeat);
            }
            _ => {
                let len = self.below(64);
                bytes.extend((0..len).map(|_| self.next() as u8));
            }
        }
    }
}

/// Runs `work` and returns how many bytes it asked the allocator for.
fn allocation_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = REQUESTED.get();
    let result = work();
    (result, REQUESTED.get() - before)
}

thread_local! {
    /// Bytes this thread has asked for. Constant, so that reading it does not allocate.
    static REQUESTED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every method hands its arguments to the system allocator unchanged; the counter is a
// thread-local without destructor and does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTED.set(REQUESTED.get() + layout.size());
        // SAFETY: the caller's promise about `layout` is the one that `System` wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        REQUESTED.set(REQUESTED.get() + size);
        // SAFETY: `pointer` came from `System` with this layout, and `size` is the caller's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
