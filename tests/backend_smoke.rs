//! The thin whole: store, load, reopen, load.

mod support;

use support::{Rig, payload};

#[test]
fn what_is_stored_is_loaded_by_the_same_and_by_a_fresh_backend() {
    let rig = Rig::new();
    let sizes = [0, 1, 4095, 4096, 4097, 270_336 - 90, 270_336, 1 << 20, (1 << 20) + 1000];
    let device = rig.open();
    for (seed, size) in sizes.into_iter().enumerate() {
        let bytes = payload(size, seed as u64);
        let key = format!("tenant\0object {size}");
        let stored = device.put(key.as_bytes(), &bytes).unwrap();
        assert!(!stored.already && stored.size == size as u64);
        assert!(device.put(key.as_bytes(), &bytes).unwrap().already);
        device.expect(key.as_bytes(), &bytes);
        assert!(device.backend.exists(key.as_bytes()).unwrap());
    }
    let values = rig.value_count();
    device.backend.close();
    assert!(device.put(b"late", b"x").is_err());
    let device = rig.open();
    for (seed, size) in sizes.into_iter().enumerate() {
        let bytes = payload(size, seed as u64);
        let key = format!("tenant\0object {size}");
        assert!(device.backend.exists(key.as_bytes()).unwrap());
        device.expect(key.as_bytes(), &bytes);
        assert!(device.put(key.as_bytes(), &bytes).unwrap().already);
        let rewritten = payload(size + 5, 99);
        assert!(!device.put(key.as_bytes(), &rewritten).unwrap().already);
        device.expect(key.as_bytes(), &rewritten);
    }
    assert!(rig.value_count() >= values);
    assert!(!device.backend.exists(b"never stored").unwrap());
    assert!(device.get(b"never stored", 5).is_err());
}
