//! List pages: building, strict parsing and tolerant scanning.

mod common;

use common::{check, keys};
use nvme_kv_command_set::{Key, ListError, ListPageBuilder, ListScanner, parse_list};
use proptest::prelude::*;

fn key(bytes: &[u8]) -> Key {
    Key::new(bytes).unwrap()
}

fn page(keys: &[Key]) -> Vec<u8> {
    let mut builder = ListPageBuilder::new(usize::MAX);
    assert!(keys.iter().all(|key| builder.push(key)));
    builder.finish()
}

/// Keys, entries passed over, and whether the page ended early.
fn scan(page: &[u8]) -> (Vec<Key>, usize, bool) {
    let mut scanner = ListScanner::new(page);
    let keys = scanner.by_ref().collect();
    (keys, scanner.skipped(), scanner.truncated())
}

#[test]
fn entries_are_padded_to_four_bytes() {
    let keys = [key(b"a"), key(b"ab"), key(b"abc"), key(&[7; 16])];
    let mut expected = vec![4, 0, 0, 0];
    expected.extend([1, 0, b'a', 0]);
    expected.extend([2, 0, b'a', b'b']);
    expected.extend([3, 0, b'a', b'b', b'c', 0, 0, 0]);
    expected.extend([16, 0]);
    expected.extend([7; 16]);
    expected.extend([0, 0]); // 20 bytes in all
    assert_eq!(page(&keys), expected);
    assert_eq!(parse_list(&expected), Ok(keys.to_vec()));
}

#[test]
fn every_list_of_keys_survives_building_and_reading() {
    check(prop::collection::vec(keys(), 0..12), |keys| {
        let page = page(&keys);
        assert_eq!(page.len() % 4, 0);
        assert_eq!(parse_list(&page).as_ref(), Ok(&keys));
        assert_eq!(scan(&page), (keys, 0, false));
    });
}

#[test]
fn a_page_holds_the_longest_prefix_of_keys_that_fits_its_capacity() {
    check((prop::collection::vec(keys(), 0..12), 0usize..160), |(keys, capacity)| {
        let mut builder = ListPageBuilder::new(capacity);
        let pushed = keys.iter().take_while(|key| builder.push(key)).count();
        let built = builder.finish();
        assert!(built.len() <= capacity);
        if capacity >= 4 {
            assert_eq!(parse_list(&built).as_deref(), Ok(&keys[..pushed]));
        }
        if let Some(next) = keys.get(pushed) {
            let entry = (2 + next.len()).next_multiple_of(4);
            assert!(built.len() + entry > capacity);
        }
    });
}

#[test]
fn what_follows_the_counted_keys_is_not_looked_at() {
    let mut bytes = page(&[key(b"one")]);
    bytes.extend([0xff; 100]);
    assert_eq!(parse_list(&bytes), Ok(vec![key(b"one")]));
    assert_eq!(scan(&bytes), (vec![key(b"one")], 0, false));
}

#[test]
fn a_page_cut_anywhere_is_refused_strictly_and_salvaged_tolerantly() {
    let keys = [key(b"abcdef"), key(b"ab"), key(b"abcdefgh")];
    let bytes = page(&keys);
    let key_ends = [12, 16, 26]; // the padding of the last entry is 26..28
    for cut in 0..bytes.len() {
        let error = parse_list(&bytes[..cut]).unwrap_err();
        match error {
            ListError::Truncated { need, got, .. } => assert!(got == cut && need > cut),
            ListError::Count { count: 3, room } => assert!(room < 3),
            other => panic!("cut at {cut}: {other}"),
        }
        let whole = key_ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(scan(&bytes[..cut]), (keys[..whole].to_vec(), 0, whole < 3), "cut at {cut}");
    }
}

#[test]
fn a_count_without_the_room_for_it_is_refused() {
    let mut bytes = page(&[key(b"one"), key(b"two")]);
    bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(parse_list(&bytes), Err(ListError::Count { count: u32::MAX, room: 4 }));
    assert_eq!(scan(&bytes), (vec![key(b"one"), key(b"two")], 0, true));
}

#[test]
fn an_empty_page_has_no_keys_and_no_page_has_no_count() {
    assert_eq!(parse_list(&[0; 4]), Ok(vec![]));
    assert_eq!(scan(&[0; 4]), (vec![], 0, false));
    assert_eq!(parse_list(&[0; 3]), Err(ListError::Truncated { offset: 0, need: 4, got: 3 }));
    assert_eq!(scan(&[0; 3]), (vec![], 0, true));
}

#[test]
fn padding_that_is_not_zero_is_refused_strictly_and_tolerated_otherwise() {
    let mut bytes = page(&[key(b"abc"), key(b"xy")]);
    bytes[11] = 1;
    assert_eq!(parse_list(&bytes), Err(ListError::Padding { offset: 11 }));
    assert_eq!(scan(&bytes), (vec![key(b"abc"), key(b"xy")], 0, false));
}

#[test]
fn a_key_length_of_zero_or_over_16_is_refused_with_its_offset() {
    for len in [0, 17, 255, 256, u16::MAX] {
        let mut bytes = page(&[key(b"xy"), key(b"abc")]);
        bytes.extend([0; 512]);
        bytes[8..10].copy_from_slice(&len.to_le_bytes());
        assert_eq!(parse_list(&bytes), Err(ListError::KeyLength { offset: 8, len }));
    }
}

#[test]
fn the_scanner_passes_over_long_keys_and_counts_them() {
    let mut bytes = vec![3, 0, 0, 0];
    bytes.extend([2, 0, b'a', b'b']);
    bytes.extend([17, 0]);
    bytes.extend([9; 17]);
    bytes.push(0);
    bytes.extend([2, 0, b'c', b'd']);
    assert_eq!(scan(&bytes), (vec![key(b"ab"), key(b"cd")], 1, false));
}

#[test]
fn the_scanner_stops_where_lengths_stop_making_sense() {
    for len in [0, 256, u16::MAX] {
        let mut bytes = page(&[key(b"ab"), key(b"cd"), key(b"ef")]);
        bytes.extend([0; 512]);
        bytes[8..10].copy_from_slice(&len.to_le_bytes());
        assert_eq!(scan(&bytes), (vec![key(b"ab")], 0, true), "{len}");
    }
}

#[test]
fn an_exhausted_scanner_stays_exhausted() {
    let bytes = [5, 0, 0, 0, 1, 0, b'a', 0, 0, 0, 0, 0, 1, 0, b'b', 0];
    let mut scanner = ListScanner::new(&bytes);
    assert_eq!(scanner.by_ref().count(), 1);
    assert_eq!(scanner.by_ref().count(), 0);
    assert!(scanner.truncated());
}
