use super::*;
use crate::config::Transport;
use crate::device::Connector;

fn config(path: &str, transport: Transport) -> ConnectorConfig {
    ConnectorConfig { device_path: path.into(), transport, ..ConnectorConfig::default() }
}

fn refused(path: &str, transport: Transport) -> Error {
    Connector::open(&config(path, transport)).expect_err("there is no such namespace")
}

const KERNEL: [Transport; 3] = [Transport::Auto, Transport::IoUring, Transport::Ioctl];

#[test]
fn a_missing_node_is_named_with_the_generic_node_in_place_of_the_block_node() {
    for transport in KERNEL {
        let error = refused("/dev/nvme987n65", transport);
        assert_eq!(error.code(), ErrorCode::FileOpenFail);
        assert!(error.message().contains("/dev/ng987n65"), "{error}");
        assert!(error.message().contains("no such device"), "{error}");
    }
}

#[test]
fn a_controller_without_the_namespace_is_told_from_a_missing_node() {
    let error = refused("/dev/nvme987", Transport::Auto);
    assert_eq!(error.code(), ErrorCode::FileOpenFail);
    assert!(error.message().contains("no namespace with identifier 1"), "{error}");
}

#[test]
fn a_device_that_is_no_namespace_is_refused_by_every_transport() {
    for transport in KERNEL {
        let error = refused("/dev/null", transport);
        assert_eq!(error.code(), ErrorCode::InvalidParams);
        assert!(error.message().contains("/dev/null is not an NVMe namespace"), "{error}");
    }
}

#[test]
fn directories_and_partitions_are_refused_with_what_to_name_instead() {
    let error = refused("/", Transport::Auto);
    assert_eq!(error.code(), ErrorCode::InvalidParams);
    assert!(error.message().contains("emulated"), "{error}");
    let error = refused("/dev/nvme0n1p1", Transport::Auto);
    assert!(error.message().contains("partition"), "{error}");
}

#[test]
fn every_reason_why_a_node_cannot_be_opened_has_its_own_remedy() {
    let said = |errno| {
        let error = not_opened(Path::new("/dev/ng0n1"), &io::Error::from_raw_os_error(errno));
        (error.code(), error.message().to_owned())
    };
    let reasons = [
        (libc::ENOENT, ErrorCode::FileOpenFail, "no such device"),
        (libc::ENODEV, ErrorCode::FileOpenFail, "no device behind the node"),
        (libc::EACCES, ErrorCode::FileOpenFail, "no permission"),
        (libc::EPERM, ErrorCode::FileOpenFail, "CAP_SYS_ADMIN"),
        (libc::EBUSY, ErrorCode::FileLockFail, "busy"),
    ];
    for (errno, code, words) in reasons {
        let (said_code, message) = said(errno);
        assert_eq!(said_code, code);
        assert!(message.starts_with("/dev/ng0n1: "), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn an_explicit_identifier_that_disagrees_is_an_error_that_names_both() {
    let mut config = config("/dev/ng0n1", Transport::Auto);
    config.nsid = 7;
    check_nsid(&config, Path::new("/dev/ng0n1"), 3).expect("7 is only a default");
    config.nsid_explicit = true;
    let error = check_nsid(&config, Path::new("/dev/ng0n1"), 3).expect_err("3 is not 7");
    assert_eq!(error.code(), ErrorCode::InvalidParams);
    assert!(error.message().contains("MOONCAKE_NVME_KV_NSID=7"), "{error}");
    assert!(error.message().contains("namespace 3"), "{error}");
}
