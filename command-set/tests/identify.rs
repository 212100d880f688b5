//! Identify data: the Key Value namespace structure and the identification descriptors.

mod common;

use common::check;
use nvme_kv_command_set::{IdentifyError, IdentifyKvNamespace, KvFormat, NamespaceDescriptors};
use proptest::prelude::*;

fn namespaces() -> impl Strategy<Value = IdentifyKvNamespace> {
    let formats = any::<(u16, u8, u32, u32)>().prop_map(
        |(max_key_len, additional_format_options, max_value_len, max_keys)| KvFormat {
            max_key_len,
            additional_format_options,
            max_value_len,
            max_keys,
        },
    );
    let numbers = any::<(u64, u64, u8, u8, u32, [u8; 16], [u8; 8])>();
    (numbers, 0u8..16, prop::collection::vec(formats, 1..=16)).prop_map(
        |((size_bytes, used_bytes, features, multipath, novg, nguid, eui64), current, formats)| {
            IdentifyKvNamespace {
                size_bytes,
                used_bytes,
                features,
                multipath,
                current_format: current,
                optimal_value_granularity: novg,
                nguid,
                eui64,
                formats,
            }
        },
    )
}

#[test]
fn fields_are_where_the_specification_puts_them() {
    let namespace = IdentifyKvNamespace {
        size_bytes: 0x0102_0304_0506_0708,
        used_bytes: 0x1112_1314_1516_1718,
        features: 0x21,
        multipath: 0x22,
        current_format: 1,
        optimal_value_granularity: 0x3132_3334,
        nguid: [0x41; 16],
        eui64: [0x42; 8],
        formats: vec![
            KvFormat::default(),
            KvFormat {
                max_key_len: 0x5152,
                additional_format_options: 0x53,
                max_value_len: 0x5455_5657,
                max_keys: 0x5859_5a5b,
            },
        ],
    };
    let mut expected = [0; 4096];
    expected[0..8].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
    expected[16..24].copy_from_slice(&[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
    expected[24] = 0x21;
    expected[25] = 1; // two formats
    expected[26] = 0x22;
    expected[29] = 1;
    expected[32..36].copy_from_slice(&[0x34, 0x33, 0x32, 0x31]);
    expected[48..64].fill(0x41);
    expected[64..72].fill(0x42);
    expected[88..90].copy_from_slice(&[0x52, 0x51]);
    expected[91] = 0x53;
    expected[92..96].copy_from_slice(&[0x57, 0x56, 0x55, 0x54]);
    expected[96..100].copy_from_slice(&[0x5b, 0x5a, 0x59, 0x58]);
    assert!(namespace.to_bytes() == expected);
    assert_eq!(IdentifyKvNamespace::parse(&expected), Ok(namespace.clone()));
    assert_eq!(namespace.current(), Some(&namespace.formats[1]));
}

#[test]
fn every_namespace_survives_encoding_and_parsing() {
    check(namespaces(), |namespace| {
        assert_eq!(IdentifyKvNamespace::parse(&namespace.to_bytes()), Ok(namespace));
    });
}

#[test]
fn identify_data_that_ends_inside_of_its_formats_is_refused_at_every_length() {
    let namespace =
        IdentifyKvNamespace { formats: vec![KvFormat::default(); 3], ..Default::default() };
    let bytes = namespace.to_bytes();
    let need = 72 + 3 * 16;
    for got in 0..need {
        let error = IdentifyKvNamespace::parse(&bytes[..got]).unwrap_err();
        let need = if got < 26 { 26 } else { need };
        assert_eq!(error, IdentifyError::Truncated { need, got });
    }
    assert_eq!(IdentifyKvNamespace::parse(&bytes[..need]), Ok(namespace));
}

#[test]
fn more_formats_than_there_is_room_for_are_refused() {
    let mut bytes = IdentifyKvNamespace::default().to_bytes();
    for count in 17..=256 {
        bytes[25] = (count - 1) as u8;
        assert_eq!(IdentifyKvNamespace::parse(&bytes), Err(IdentifyError::FormatCount(count)));
    }
}

#[test]
fn a_current_format_that_does_not_exist_is_no_format() {
    let mut bytes = IdentifyKvNamespace::default().to_bytes();
    bytes[29] = 0xf5; // the high bits are reserved
    let namespace = IdentifyKvNamespace::parse(&bytes).unwrap();
    assert_eq!((namespace.current_format, namespace.current()), (5, None));
}

#[test]
fn descriptors_are_where_the_specification_puts_them() {
    let descriptors = NamespaceDescriptors {
        eui64: Some([1; 8]),
        nguid: Some([2; 16]),
        uuid: Some([3; 16]),
        csi: Some(1),
    };
    let mut expected = vec![1, 8, 0, 0];
    expected.extend([1; 8]);
    expected.extend([2, 16, 0, 0]);
    expected.extend([2; 16]);
    expected.extend([3, 16, 0, 0]);
    expected.extend([3; 16]);
    expected.extend([4, 1, 0, 0, 1]);
    let used = expected.len();
    expected.resize(4096, 0);
    assert!(descriptors.to_bytes() == *expected);
    assert_eq!(NamespaceDescriptors::parse(&expected), Ok(descriptors));
    assert_eq!(NamespaceDescriptors::parse(&expected[..used]), Ok(descriptors));
}

#[test]
fn every_set_of_descriptors_survives_encoding_and_parsing() {
    let sets = any::<(Option<[u8; 8]>, Option<[u8; 16]>, Option<[u8; 16]>, Option<u8>)>();
    check(sets, |(eui64, nguid, uuid, csi)| {
        let descriptors = NamespaceDescriptors { eui64, nguid, uuid, csi };
        assert_eq!(NamespaceDescriptors::parse(&descriptors.to_bytes()), Ok(descriptors));
    });
}

#[test]
fn unknown_descriptors_are_passed_over() {
    let bytes = [9, 3, 0, 0, 0xff, 0xff, 0xff, 4, 1, 0, 0, 1];
    let found = NamespaceDescriptors::parse(&bytes).unwrap();
    assert_eq!(found, NamespaceDescriptors { csi: Some(1), ..Default::default() });
}

#[test]
fn a_descriptor_of_the_wrong_length_is_refused_by_name() {
    for (kind, expected) in [(1, 8), (2, 16), (3, 16), (4, 1)] {
        let mut bytes = [0; 64];
        bytes[..2].copy_from_slice(&[kind, 5]);
        assert_eq!(
            NamespaceDescriptors::parse(&bytes),
            Err(IdentifyError::DescriptorLength { offset: 0, kind, got: 5, expected })
        );
    }
}

#[test]
fn a_descriptor_that_leaves_the_data_is_refused() {
    assert_eq!(
        NamespaceDescriptors::parse(&[4, 1, 0, 0]),
        Err(IdentifyError::Truncated { need: 5, got: 4 })
    );
    assert_eq!(
        NamespaceDescriptors::parse(&[9, 255]),
        Err(IdentifyError::Truncated { need: 259, got: 2 })
    );
}
