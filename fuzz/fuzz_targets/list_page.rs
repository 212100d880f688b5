//! A List page from a hostile device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nvme_kv_command_set::{ListPageBuilder, ListScanner, parse_list};

fuzz_target!(|page: &[u8]| {
    let mut scanner = ListScanner::new(page);
    let found = scanner.by_ref().count();
    assert!((found + scanner.skipped()) * 4 <= page.len());

    // What the strict parser accepts, the scanner reads the same way, and it is the only way to
    // write those keys.
    if let Ok(keys) = parse_list(page) {
        assert!(ListScanner::new(page).eq(keys.iter().copied()));
        let mut builder = ListPageBuilder::new(page.len());
        assert!(keys.iter().all(|key| builder.push(key)));
        assert!(page.starts_with(&builder.finish()));
    }
});
