//! Derived and capped concurrency settings.

use super::{accepted, read, warned};
use crate::config::IoConcurrency;

#[test]
fn concurrency_is_derived_from_queue_depth_and_limits() {
    // queue depth, max_io, io -> io, batch_submit, root_submit, prepare
    let cases = [
        ("256", "", "", [18, 6, 1, 12]),
        ("18", "", "", [18, 6, 1, 12]),
        ("17", "", "", [17, 6, 1, 11]),
        ("8", "", "", [8, 6, 1, 2]),
        ("7", "", "", [7, 6, 1, 1]),
        ("6", "", "", [6, 5, 1, 1]),
        ("3", "", "", [3, 2, 1, 1]),
        ("2", "", "", [2, 1, 1, 1]),
        ("1", "", "", [1, 1, 1, 1]),
        ("0", "", "", [18, 6, 1, 12]),
        ("256", "4", "", [4, 3, 1, 1]),
        ("256", "1", "", [1, 1, 1, 1]),
        ("256", "0", "", [18, 6, 1, 12]),
        ("256", "4294967295", "", [18, 6, 1, 12]),
        ("256", "", "100", [100, 6, 1, 12]),
        ("256", "", "256", [256, 6, 1, 12]),
        ("4", "", "32", [32, 6, 1, 12]),
        ("256", "", "0", [18, 6, 1, 12]),
        ("256", "1000", "1000", [1000, 6, 1, 12]),
    ];
    for (depth, max_io, io, expected) in cases {
        let config = accepted(&[
            ("QUEUE_DEPTH", depth),
            ("MAX_IO_CONCURRENCY", max_io),
            ("IO_CONCURRENCY", io),
        ]);
        let IoConcurrency { io: total, batch_submit, root_submit, prepare, .. } = config.io;
        let got = [total, batch_submit, root_submit, prepare];
        assert_eq!(got, expected, "queue depth {depth}, max {max_io:?}, io {io:?}");
    }
}

#[test]
fn explicit_concurrency_is_capped_by_the_io_concurrency() {
    // io, batch_submit, root_submit, prepare -> the three in effect, number of warnings
    let cases = [
        ("10", "9", "9", "1", [9, 9, 1], 0),
        ("10", "10", "10", "2", [9, 9, 1], 3),
        ("10", "4", "1", "6", [4, 1, 6], 0),
        ("10", "4", "1", "7", [4, 1, 6], 1),
        ("10", "", "", "5", [6, 1, 4], 1),
        ("10", "1", "", "", [1, 1, 9], 0),
        ("2", "2", "2", "2", [1, 1, 1], 3),
        ("1", "1", "1", "1", [1, 1, 1], 0),
        ("1", "5", "5", "5", [1, 1, 1], 3),
        ("10", "0", "0", "0", [6, 1, 4], 0),
        ("10", "bad", "bad", "bad", [6, 1, 4], 3),
    ];
    for (io, batch, root, prepare, expected, expected_warnings) in cases {
        let (config, warnings) = read(&[
            ("IO_CONCURRENCY", io),
            ("BATCH_SUBMIT_CONCURRENCY", batch),
            ("ROOT_SUBMIT_CONCURRENCY", root),
            ("PREPARE_CONCURRENCY", prepare),
        ]);
        let io_settings = config.expect("concurrency is never refused").io;
        let got = [io_settings.batch_submit, io_settings.root_submit, io_settings.prepare];
        assert_eq!(got, expected, "io {io}, {batch:?}, {root:?}, {prepare:?}");
        assert_eq!(warnings.len(), expected_warnings, "{warnings:?}");
    }
}

#[test]
fn an_explicit_io_concurrency_over_a_configured_maximum_is_lowered_to_it() {
    let (config, warning) = warned(&[("MAX_IO_CONCURRENCY", "8"), ("IO_CONCURRENCY", "9")]);
    assert_eq!(config.io, IoConcurrency { max_io: 8, ..IoConcurrency::derived(8) });
    assert!(warning.contains("MOONCAKE_NVME_KV_IO_CONCURRENCY=9 "), "{warning}");
}

#[test]
fn the_concurrency_line_has_the_wording_that_mooncake_looks_for() {
    let config = accepted(&[
        ("QUEUE_DEPTH", "8"),
        ("MAX_IO_CONCURRENCY", "8"),
        ("IO_CONCURRENCY", "8"),
        ("BATCH_SUBMIT_CONCURRENCY", "7"),
        ("ROOT_SUBMIT_CONCURRENCY", "7"),
    ]);
    assert_eq!(
        config.io.to_string(),
        "NVMe KV backend I/O concurrency: 8 (max 8), batch submit concurrency: 7, \
         root submit concurrency: 7, prepare concurrency: 1"
    );
}

#[test]
fn a_bare_io_concurrency_does_one_thing_at_a_time() {
    let bare = IoConcurrency::default();
    assert_eq!([bare.io, bare.prepare, bare.batch_submit, bare.root_submit], [1; 4]);
}
