//! How many device commands each operation costs, exactly.

mod support;

use mooncake_nvme_kv::device::fault::Counts;
use nvme_kv_emulator::{ListSupport, Personality};
use support::{Device, Rig, payload};

const KEY: &[u8] = b"tenant\0object";
const INLINE: usize = 4096;
/// Four chunks of the default value size.
const LARGE: usize = 1 << 20;
const CHUNKS: u64 = 4;
/// All slots but the first.
const OTHER_SLOTS: u64 = 63;

fn counts(store: u64, retrieve: u64, delete: u64, exist: u64) -> Counts {
    Counts { store, retrieve, delete, exist }
}

/// A row of the table: what is done, and its commands with the index complete and not.
struct Row {
    what: &'static str,
    complete: Counts,
    incomplete: Counts,
}

/// What is on the device before the operation, and how it is done. The second backend knows
/// nothing: its index is incomplete.
fn measure(
    stored: Option<usize>,
    personality: &Personality,
    operation: impl Fn(&Device),
) -> [Counts; 2] {
    let rig = Rig::with(personality.clone(), |_| {});
    let device = rig.open();
    if let Some(size) = stored {
        device.put(KEY, &payload(size, 1)).unwrap();
    }
    let count = |device: &Device| {
        device.faults.take_counts();
        operation(device);
        device.faults.take_counts()
    };
    if personality.list == ListSupport::Absent {
        let incomplete = rig.open();
        return [Counts::default(), count(&incomplete)];
    }
    assert!(device.backend.index_is_complete());
    let complete = count(&device);

    let rig = Rig::with(personality.clone(), |_| {});
    // Something else is stored, so that an empty device does not complete the index.
    rig.open().put(b"something else", b"").unwrap();
    if let Some(size) = stored {
        rig.open().put(KEY, &payload(size, 1)).unwrap();
    }
    let device = rig.open();
    assert!(!device.backend.index_is_complete());
    [complete, count(&device)]
}

fn store(size: usize, seed: u64, already: bool) -> impl Fn(&Device) {
    move |device| {
        assert_eq!(device.put(KEY, &payload(size, seed)).unwrap().already, already);
    }
}

fn load(size: usize) -> impl Fn(&Device) {
    move |device| device.expect(KEY, &payload(size, 1))
}

fn exists(expected: bool) -> impl Fn(&Device) {
    move |device| assert_eq!(device.backend.exists(KEY).unwrap(), expected)
}

#[test]
fn every_operation_costs_exactly_what_the_table_says() {
    let kind = Personality::default();
    let probe = |store, delete| counts(store, 1, delete, OTHER_SLOTS);
    let rows = [
        (
            Row { what: "write, inline", complete: counts(1, 0, 0, 0), incomplete: probe(1, 0) },
            measure(None, &kind, store(INLINE, 1, false)),
        ),
        (
            Row {
                what: "write, 1 MiB",
                complete: counts(CHUNKS + 1, 0, 0, 0),
                incomplete: probe(CHUNKS + 1, 0),
            },
            measure(None, &kind, store(LARGE, 1, false)),
        ),
        (
            Row {
                what: "read, inline",
                complete: counts(0, 1, 0, 0),
                incomplete: counts(0, 1, 0, 0),
            },
            measure(Some(INLINE), &kind, load(INLINE)),
        ),
        (
            Row {
                // A manifest that is cached saves the root.
                what: "read, 1 MiB",
                complete: counts(0, CHUNKS, 0, 0),
                incomplete: counts(0, CHUNKS + 1, 0, 0),
            },
            measure(Some(LARGE), &kind, load(LARGE)),
        ),
        (
            Row { what: "read, missing", complete: counts(0, 0, 0, 0), incomplete: probe(0, 0) },
            measure(None, &kind, |device| drop(device.get(KEY, INLINE).unwrap_err())),
        ),
        (
            Row {
                what: "re-offload, inline",
                complete: counts(0, 1, 0, 0),
                incomplete: probe(0, 0),
            },
            measure(Some(INLINE), &kind, store(INLINE, 1, true)),
        ),
        (
            Row {
                what: "re-offload, 1 MiB",
                complete: counts(0, 1, 0, 0),
                incomplete: probe(0, 0),
            },
            measure(Some(LARGE), &kind, store(LARGE, 1, true)),
        ),
        (
            Row {
                what: "exists, hit",
                complete: counts(0, 0, 0, 0),
                incomplete: counts(0, 1, 0, 0),
            },
            measure(Some(LARGE), &kind, exists(true)),
        ),
        (
            Row { what: "exists, miss", complete: counts(0, 0, 0, 0), incomplete: probe(0, 0) },
            measure(None, &kind, exists(false)),
        ),
        (
            Row { what: "rewrite, inline", complete: counts(1, 1, 1, 0), incomplete: probe(1, 1) },
            measure(Some(INLINE), &kind, store(INLINE, 2, false)),
        ),
        (
            Row {
                what: "rewrite, 1 MiB",
                complete: counts(CHUNKS + 1, 1, CHUNKS + 1, 0),
                incomplete: probe(CHUNKS + 1, CHUNKS + 1),
            },
            measure(Some(LARGE), &kind, store(LARGE, 2, false)),
        ),
    ];
    println!("device commands, index complete / incomplete:");
    println!("{:20} {:>34} {:>34}", "", "complete", "incomplete");
    for (row, [complete, incomplete]) in &rows {
        println!("{:20} {:>34} {:>34}", row.what, shown(complete), shown(incomplete));
    }
    for (row, measured) in rows {
        assert_eq!(measured, [row.complete, row.incomplete], "{}", row.what);
    }
}

fn shown(counts: &Counts) -> String {
    let kinds = [
        (counts.store, "Store"),
        (counts.retrieve, "Retrieve"),
        (counts.delete, "Delete"),
        (counts.exist, "Exist"),
    ];
    let parts: Vec<String> = kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    if parts.is_empty() { "none".into() } else { parts.join(", ") }
}

#[test]
fn what_a_backend_has_written_or_read_it_knows_without_a_complete_index() {
    let rig = Rig::new();
    rig.open().put(b"something else", b"").unwrap();
    let device = rig.open();
    assert!(!device.backend.index_is_complete());
    device.put(KEY, &payload(LARGE, 1)).unwrap();
    device.faults.take_counts();
    exists(true)(&device);
    assert_eq!(device.faults.take_counts(), counts(0, 0, 0, 0), "exists");
    store(LARGE, 1, true)(&device);
    assert_eq!(device.faults.take_counts(), counts(0, 1, 0, 0), "re-offload");
    load(LARGE)(&device);
    assert_eq!(device.faults.take_counts(), counts(0, CHUNKS, 0, 0), "read");
    store(LARGE, 2, false)(&device);
    assert_eq!(device.faults.take_counts(), counts(CHUNKS + 1, 1, CHUNKS + 1, 0), "rewrite");

    // Versions take turns in slots 0 and 1; a reader that knows nothing guesses slot 0.
    store(LARGE, 3, false)(&device);
    let reader = rig.open();
    reader.expect(KEY, &payload(LARGE, 3));
    assert_eq!(reader.faults.take_counts(), counts(0, CHUNKS + 1, 0, 0), "first read");
    exists(true)(&reader);
    reader.expect(KEY, &payload(LARGE, 3));
    assert_eq!(reader.faults.take_counts(), counts(0, CHUNKS, 0, 0), "second read");
}

#[test]
fn a_device_without_exist_is_asked_once_and_then_probed_by_retrieve() {
    let rig = Rig::with(Personality { exist: false, ..Personality::default() }, |_| {});
    rig.open().put(b"something else", b"").unwrap();
    let device = rig.open();
    exists(false)(&device);
    assert_eq!(device.faults.take_counts(), counts(0, 1 + OTHER_SLOTS, 0, OTHER_SLOTS));
    exists(false)(&device);
    assert_eq!(device.faults.take_counts(), counts(0, 1 + OTHER_SLOTS, 0, 0));
    store(INLINE, 1, false)(&device);
    assert_eq!(device.faults.take_counts(), counts(1, 1 + OTHER_SLOTS, 0, 0));
}

#[test]
fn a_device_without_list_never_has_a_complete_index() {
    let unlisted = Personality { list: ListSupport::Absent, ..Personality::default() };
    let [_, incomplete] = measure(None, &unlisted, store(INLINE, 1, false));
    assert_eq!(incomplete, counts(1, 1, 0, OTHER_SLOTS));
}

#[test]
fn an_object_in_another_slot_is_found_with_one_further_batch() {
    let rig = Rig::new();
    let places = support::places::Places::new(&rig, KEY, 8);
    places.put_object(&rig, 5, &payload(LARGE, 1));
    let device = rig.open();
    load(LARGE)(&device);
    let cost = device.faults.take_counts();
    // The guess at slot 0 ends with its root's answer; at worst its chunks were asked for too.
    assert_eq!((cost.store, cost.delete, cost.exist), (0, 0, OTHER_SLOTS));
    assert!((2 + CHUNKS..=3 + 2 * CHUNKS).contains(&cost.retrieve), "{cost:?}");
    load(LARGE)(&device);
    assert_eq!(device.faults.take_counts(), counts(0, CHUNKS, 0, 0));
    let reader = rig.open();
    exists(true)(&reader);
    assert_eq!(reader.faults.take_counts(), counts(0, 2, 0, OTHER_SLOTS));
}
