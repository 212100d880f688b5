//! Identify data from a hostile device: the Key Value namespace and its descriptors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nvme_kv_command_set::{IdentifyKvNamespace, NamespaceDescriptors};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(namespace) = IdentifyKvNamespace::parse(bytes) {
        assert!((1..=16).contains(&namespace.formats.len()));
        assert_eq!(IdentifyKvNamespace::parse(&namespace.to_bytes()), Ok(namespace));
    }
    if let Ok(descriptors) = NamespaceDescriptors::parse(bytes) {
        assert_eq!(NamespaceDescriptors::parse(&descriptors.to_bytes()), Ok(descriptors));
    }
});
