//! Status: a code means nothing without its type.

use nvme_kv_command_set::{KvStatus, Status};

const KV: [(u8, KvStatus, Status); 9] = [
    (0x81, KvStatus::CapacityExceeded, Status::CAPACITY_EXCEEDED),
    (0x82, KvStatus::NamespaceNotReady, Status::NAMESPACE_NOT_READY),
    (0x83, KvStatus::ReservationConflict, Status::RESERVATION_CONFLICT),
    (0x84, KvStatus::FormatInProgress, Status::FORMAT_IN_PROGRESS),
    (0x85, KvStatus::InvalidValueSize, Status::INVALID_VALUE_SIZE),
    (0x86, KvStatus::InvalidKeySize, Status::INVALID_KEY_SIZE),
    (0x87, KvStatus::KeyNotFound, Status::KEY_NOT_FOUND),
    (0x88, KvStatus::UnrecoveredError, Status::UNRECOVERED_ERROR),
    (0x89, KvStatus::KeyExists, Status::KEY_EXISTS),
];

#[test]
fn key_value_codes_are_read_under_the_generic_and_command_specific_types() {
    for (sc, kv, constant) in KV {
        assert_eq!(Status::new(0, sc), constant);
        assert_eq!(Status::new(0, sc).kv(), Some(kv));
        assert_eq!(Status::new(1, sc).kv(), Some(kv));
    }
}

#[test]
fn no_code_of_a_media_path_or_vendor_status_is_read_as_key_value() {
    for sct in 2..8 {
        for sc in 0..=255 {
            let status = Status::new(sct, sc);
            assert_eq!(status.kv(), None, "{status}");
            assert!(!status.is_success(), "{status}");
        }
    }
}

#[test]
fn other_generic_codes_are_not_key_value() {
    for sc in (0..=255).filter(|sc| !(0x81..=0x89).contains(sc)) {
        assert_eq!(Status::new(0, sc).kv(), None, "{sc:02x}h");
    }
}

#[test]
fn every_status_field_is_taken_apart_and_put_together() {
    for field in 0..=0x7fff {
        let status = Status::from_cqe(field);
        assert_eq!(u16::from(status.sc()), field & 0xff);
        assert_eq!(u16::from(status.sct()), field >> 8 & 7);
        assert_eq!(status.more(), field & 0x2000 != 0);
        assert_eq!(status.dnr(), field & 0x4000 != 0);
        assert_eq!(status.to_u16(), field);
        assert_eq!(status, Status::new(status.sct(), status.sc()));
        assert_eq!(status.is_success(), field & 0x7ff == 0);
    }
}

#[test]
fn do_not_retry_does_not_hide_that_a_key_exists() {
    let linux = Status::from_cqe(0x4089);
    assert_eq!(linux.kv(), Some(KvStatus::KeyExists));
    assert_eq!(linux, Status::KEY_EXISTS);
    assert!(linux.dnr());
    assert_eq!(Status::KEY_EXISTS.with_dnr().to_u16(), 0x4089);
}

#[test]
fn a_lost_connection_is_a_path_error() {
    assert_eq!(Status::from_cqe(0x370), Status::HOST_PATHING_ERROR);
}

#[test]
fn a_status_prints_type_code_and_meaning() {
    assert_eq!(Status::UNRECOVERED_READ.to_string(), "SCT 2h SC 81h (unrecovered read error)");
    assert_eq!(Status::CAPACITY_EXCEEDED.to_string(), "SCT 0h SC 81h (capacity exceeded)");
    assert_eq!(Status::new(7, 0xc5).to_string(), "SCT 7h SC c5h");
}
