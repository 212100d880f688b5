//! Identify, as a host reads it before it uses the namespace.

mod common;

use common::*;
use nvme_kv_command_set::{
    CSI_KV, IDENTIFY_LEN, IdentifyKvNamespace, NamespaceDescriptors, PassthroughCommand, Status,
    cns,
};
use nvme_kv_emulator::{Data, NSID, Namespace, Outcome};

fn identify(device: &Namespace, nsid: u32, cns: u8, csi: u8) -> Result<Vec<u8>, Status> {
    let command = PassthroughCommand::identify(nsid, cns, csi, 0, 0).to_bytes();
    let mut page = vec![0xee; IDENTIFY_LEN];
    match status(device.execute_admin(&command, Data::FromDevice(&mut page))) {
        status if status.is_success() => Ok(page),
        status => Err(status),
    }
}

#[test]
fn the_kv_namespace_states_the_limits_of_the_personality_and_the_usage() {
    on_both_stores("max-value=64k,capacity=1m,max-keys=1000,granularity=512", |device| {
        device.poke(&key("k"), &[0; 300]);
        let page = identify(device, NSID, cns::CSI_NAMESPACE, CSI_KV).unwrap();
        let namespace = IdentifyKvNamespace::parse(&page).unwrap();
        assert_eq!((namespace.size_bytes, namespace.used_bytes), (1 << 20, 300));
        assert_eq!(namespace.optimal_value_granularity, 512);
        assert_eq!(namespace.nguid, device.nguid());
        let format = namespace.current().unwrap();
        assert_eq!((format.max_key_len, format.max_value_len), (16, 65536));
        assert_eq!(format.max_keys, 1000);
    });
}

#[test]
fn an_unlimited_number_of_keys_is_not_stated() {
    let device = Device::in_memory("max-keys=unlimited");
    let page = identify(&device, NSID, cns::CSI_NAMESPACE, CSI_KV).unwrap();
    assert_eq!(IdentifyKvNamespace::parse(&page).unwrap().current().unwrap().max_keys, 0);
}

#[test]
fn the_descriptors_name_the_nguid_and_the_key_value_command_set() {
    let device = Device::in_memory("");
    let page = identify(&device, NSID, cns::DESCRIPTORS, 0).unwrap();
    let descriptors = NamespaceDescriptors::parse(&page).unwrap();
    assert_eq!(descriptors.nguid, Some(device.nguid()));
    assert_eq!(descriptors.csi, Some(CSI_KV));
}

#[test]
fn the_controller_has_what_linux_insists_on() {
    let page = identify(&Device::in_memory(""), 0, cns::CONTROLLER, 0).unwrap();
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    assert_eq!(page[77], 7, "MDTS: 128 pages for values of 512 KiB");
    assert_eq!(word(80), 0x0002_0000, "VER");
    assert_eq!(page[111], 1, "CNTRLTYPE");
    assert_ne!(u16::from_le_bytes([page[320], page[321]]), 0, "KAS");
    assert_eq!((page[512], page[513]), (0x66, 0x44), "SQES, CQES");
    assert!(u16::from_le_bytes([page[514], page[515]]) >= 128, "MAXCMD");
    assert_eq!(word(516), NSID, "NN");
    assert_eq!(word(536) & 1, 1, "SGLS");
    assert!(page[768..1024].starts_with(b"nqn.2014-08.org.nvmexpress:uuid:"), "SUBNQN");
    assert_eq!(page[768 + 32 + 36], 0, "SUBNQN ends with a UUID");
    assert_eq!(word(1792), (64 + 8192) / 16, "IOCCSZ");
    assert!(page[4..72].is_ascii(), "SN, MN, FR");
}

#[test]
fn the_largest_value_fits_the_maximum_transfer() {
    for (limit, shift) in [("1", 1), ("8k", 1), ("12k", 2), ("1m", 8), ("1048577", 9)] {
        let device = Device::in_memory(&format!("max-value={limit}"));
        assert_eq!(identify(&device, 0, cns::CONTROLLER, 0).unwrap()[77], shift, "{limit}");
    }
}

#[test]
fn the_active_namespace_lists_hold_the_one_namespace() {
    let device = Device::in_memory("");
    for (cns, csi) in [(cns::ACTIVE_NAMESPACES, 0), (cns::CSI_ACTIVE, CSI_KV)] {
        assert_eq!(identify(&device, 0, cns, csi).unwrap()[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(identify(&device, 1, cns, csi).unwrap(), [0; IDENTIFY_LEN]);
        assert_eq!(identify(&device, u32::MAX, cns, csi), Err(Status::INVALID_NAMESPACE));
    }
}

#[test]
fn the_namespace_is_ready_and_carries_its_nguid_in_the_common_structures() {
    let device = Device::in_memory("");
    assert_eq!(identify(&device, NSID, cns::CSI_INDEPENDENT, 0).unwrap()[14] & 1, 1);
    assert_eq!(identify(&device, NSID, cns::NAMESPACE, 0).unwrap()[104..120], device.nguid());
    assert_eq!(identify(&device, 0, cns::CSI_CONTROLLER, CSI_KV).unwrap(), [0; IDENTIFY_LEN]);
}

#[test]
fn what_the_controller_does_not_have_is_refused_by_status() {
    let device = Device::in_memory("");
    for cns in [cns::NAMESPACE, cns::DESCRIPTORS, cns::CSI_NAMESPACE, cns::CSI_INDEPENDENT] {
        assert_eq!(identify(&device, 2, cns, CSI_KV), Err(Status::INVALID_NAMESPACE));
    }
    assert_eq!(identify(&device, NSID, cns::CSI_NAMESPACE, 2), Err(Status::INVALID_FIELD));
    assert_eq!(identify(&device, NSID, 0x7f, 0), Err(Status::INVALID_FIELD));
    let mut other = PassthroughCommand::identify(0, cns::CONTROLLER, 0, 0, 0);
    other.opcode = 0x0a;
    let mut page = [0; IDENTIFY_LEN];
    let outcome = device.execute_admin(&other.to_bytes(), Data::FromDevice(&mut page));
    assert_eq!(status(outcome), Status::INVALID_OPCODE);
    assert_eq!(device.counts().identify, 6);
}

#[test]
fn an_identify_buffer_that_is_too_short_is_refused() {
    let device = Device::in_memory("");
    let mut command = PassthroughCommand::identify(0, cns::CONTROLLER, 0, 0, 0);
    let run = |command: &PassthroughCommand| {
        device.execute_admin(&command.to_bytes(), Data::FromDevice(&mut [0; 4095]))
    };
    assert_eq!(run(&command), Outcome::Errno(libc::EFAULT));
    command.data_len = 4095;
    assert_eq!(status(run(&command)), Status::INVALID_FIELD);
}
