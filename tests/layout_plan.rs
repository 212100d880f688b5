//! What an object of a given size becomes, decided before any of it is touched.

mod layout_support;

use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::layout::{
    ChunkIndex, LayoutError, Limits, WritePlan, chunk_range, max_object_size, read_plan,
    root_prefix_len, root_value_len, write_plan,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

const DEFAULT: Limits = Limits { max_value_size: 270_336 };

#[test]
fn an_empty_payload_is_inline() {
    assert_eq!(write_plan(11, 0, DEFAULT), Ok(WritePlan::Inline));
    assert_eq!(root_value_len(WritePlan::Inline, 11, 0), 92);
}

#[test]
fn the_largest_inline_object_fills_one_value_and_one_more_byte_is_a_chunk() {
    let largest = u64::from(DEFAULT.max_value_size) - root_prefix_len(11) as u64;
    let inline = read_plan(11, largest, DEFAULT).expect("fits");
    assert_eq!(inline.shape, WritePlan::Inline);
    assert_eq!(inline.root_value_len, DEFAULT.max_value_size);

    let chunked = read_plan(11, largest + 1, DEFAULT).expect("fits");
    assert_eq!(chunked.shape, WritePlan::Chunked { chunk_size: 270_336, chunk_count: 1 });
    assert_eq!(chunked.root_value_len, 92 + 8 + 24);
}

#[test]
fn one_manifest_describes_3_043_983_360_bytes_by_default() {
    let limit = 3_043_983_360;
    assert_eq!(max_object_size(1, DEFAULT), limit);
    let full = WritePlan::Chunked { chunk_size: 270_336, chunk_count: 11_260 };
    assert_eq!(write_plan(1, limit, DEFAULT), Ok(full));
    let error = write_plan(1, limit + 1, DEFAULT).expect_err("one byte too many");
    assert_eq!(error, LayoutError::TooLarge { size: limit + 1, limit });
    assert_eq!(error.code(), ErrorCode::InvalidParams);
}

#[test]
fn a_payload_that_32_bits_cannot_count_is_too_large() {
    let limits = Limits { max_value_size: u32::MAX };
    let limit = u64::from(u32::MAX);
    assert_eq!(max_object_size(1, limits), limit);
    let whole = WritePlan::Chunked { chunk_size: u32::MAX, chunk_count: 1 };
    assert_eq!(write_plan(1, limit, limits), Ok(whole));
    for size in [limit + 1, u64::MAX] {
        assert_eq!(write_plan(1, size, limits), Err(LayoutError::TooLarge { size, limit }));
    }
}

#[test]
fn a_key_that_leaves_no_room_for_a_root_is_refused_at_any_payload_size() {
    let longest = DEFAULT.max_value_size as usize - root_prefix_len(0);
    assert_eq!(write_plan(longest, 0, DEFAULT), Ok(WritePlan::Inline));
    for key_len in [longest + 1, u32::MAX as usize - 80, u32::MAX as usize + 1, usize::MAX] {
        for payload in [0, 1, u64::MAX] {
            let error = write_plan(key_len, payload, DEFAULT).expect_err("no room");
            let len = key_len as u64;
            let max_value_size = DEFAULT.max_value_size;
            assert_eq!(error, LayoutError::KeyTooLong { len, max_value_size });
            assert_eq!(error.code(), ErrorCode::InvalidParams);
        }
        assert_eq!(max_object_size(key_len, DEFAULT), 0);
    }
}

#[test]
fn a_device_whose_values_are_smaller_than_a_header_takes_nothing() {
    for max_value_size in [0, 1, 56, 80] {
        let error = write_plan(0, 0, Limits { max_value_size }).expect_err("no room");
        assert_eq!(error, LayoutError::KeyTooLong { len: 0, max_value_size });
    }
    assert_eq!(write_plan(0, 0, Limits { max_value_size: 81 }), Ok(WritePlan::Inline));
}

#[test]
fn where_no_manifest_fits_the_limit_is_what_fits_inline() {
    // 81 bytes of prefix, and a manifest of one chunk has 32.
    let limits = Limits { max_value_size: 81 + 31 };
    assert_eq!(max_object_size(0, limits), 31);
    assert_eq!(write_plan(0, 31, limits), Ok(WritePlan::Inline));
    assert_eq!(write_plan(0, 32, limits), Err(LayoutError::TooLarge { size: 32, limit: 31 }));

    let limits = Limits { max_value_size: 81 + 32 };
    assert_eq!(max_object_size(0, limits), 113);
    assert_eq!(
        write_plan(0, 33, limits),
        Ok(WritePlan::Chunked { chunk_size: 113, chunk_count: 1 })
    );
}

#[test]
fn a_chunk_beyond_the_end_is_empty_and_no_index_overflows() {
    assert_eq!(chunk_range(4096, 4097, ChunkIndex(1)), 4096..4097);
    assert_eq!(chunk_range(4096, 4097, ChunkIndex(2)), 4097..4097);
    assert_eq!(
        chunk_range(u32::MAX, u64::MAX, ChunkIndex(u32::MAX)).end,
        u64::from(u32::MAX) << 32
    );
    assert!(chunk_range(u32::MAX, 7, ChunkIndex(u32::MAX)).is_empty());
}

#[test]
fn every_plan_fits_the_device_and_covers_the_payload_exactly_once() {
    let key_len = prop_oneof![0..400_usize, Just(usize::MAX), any::<usize>()];
    let max_value_size = prop_oneof![0..200_u32, 200..600_000_u32, any::<u32>()];
    let scale = (0..4_u8, any::<u64>());
    runner()
        .run(&(key_len, max_value_size, scale, any::<u32>()), |(key_len, max, scale, index)| {
            let limits = Limits { max_value_size: max };
            let payload_len = match scale {
                (0, n) => n,
                (1, n) => n % (u64::from(u32::MAX) + 2),
                (2, n) => n % (u64::from(max) * 4 + 1),
                // At the limit itself, one below and one above.
                (_, n) => (max_object_size(key_len, limits) + n % 3).saturating_sub(1),
            };
            check_plan(key_len, payload_len, limits, index)
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

fn check_plan(
    key_len: usize,
    payload_len: u64,
    limits: Limits,
    index: u32,
) -> Result<(), TestCaseError> {
    let max = u64::from(limits.max_value_size);
    let prefix = root_prefix_len(key_len) as u64;
    let limit = max_object_size(key_len, limits);
    let plan = match write_plan(key_len, payload_len, limits) {
        Err(LayoutError::KeyTooLong { .. }) => {
            prop_assert!(prefix > max);
            return Ok(());
        }
        Err(LayoutError::TooLarge { .. }) => {
            prop_assert!(prefix <= max && payload_len > limit);
            return Ok(());
        }
        other => other.map_err(|error| TestCaseError::fail(error.to_string()))?,
    };
    prop_assert!(prefix <= max && payload_len <= limit && limit <= u64::from(u32::MAX));
    let root = u64::from(root_value_len(plan, key_len, payload_len));
    prop_assert!(root <= max);
    match plan {
        WritePlan::Inline => prop_assert_eq!(root, prefix + payload_len),
        WritePlan::Chunked { chunk_size, chunk_count } => {
            prop_assert!(prefix + payload_len > max);
            prop_assert_eq!(u64::from(chunk_size), max);
            prop_assert_eq!(root, prefix + 8 + 24 * u64::from(chunk_count));
            let range = |i| chunk_range(chunk_size, payload_len, ChunkIndex(i));
            let last = chunk_count - 1;
            prop_assert_eq!(range(0).start, 0);
            prop_assert!(!range(last).is_empty());
            prop_assert_eq!(range(last).end, payload_len);
            if last > 0 {
                let i = index % last;
                prop_assert_eq!(range(i).end - range(i).start, max);
                prop_assert_eq!(range(i).end, range(i + 1).start);
            }
        }
    }
    Ok(())
}

fn runner() -> TestRunner {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&layout_support::seed().to_le_bytes());
    let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}
