//! The log sink is one per process, so what configuration logs is tested in a process of its own.

use std::sync::{Arc, Mutex};

use mooncake_nvme_kv::config::Config;
use mooncake_nvme_kv::log::{self, Level};

#[test]
fn bad_numbers_are_logged_as_warnings_even_when_another_setting_is_refused() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    log::set_sink(Some(Box::new(move |level, line| {
        sink.lock().expect("no test thread panics in the sink").push((level, line.to_owned()));
    })));

    let good = [("MOONCAKE_NVME_KV_DEVICE_PATH", "mem:x"), ("MOONCAKE_NVME_KV_NSID", "2")];
    Config::from_environment(&good).expect("both values are good");
    assert_eq!(*lines.lock().expect("not poisoned"), []);

    let bad = [
        ("MOONCAKE_NVME_KV_DEVICE_PATH", "mem:x"),
        ("MOONCAKE_NVME_KV_QUEUE_DEPTH", "many"),
        ("MOONCAKE_NVME_KV_CHECKSUM", "md5"),
    ];
    Config::from_environment(&bad).expect_err("md5 is not a checksum");
    let expected = "MOONCAKE_NVME_KV_QUEUE_DEPTH=\"many\" is not a number from 0 to 4294967295; \
                    using 256";
    assert_eq!(*lines.lock().expect("not poisoned"), [(Level::Warning, expected.to_owned())]);
}
