//! What a host asks before there is a node, and who is turned away.

use nvme_kv_command_set::{CSI_KV, NamespaceDescriptors, PassthroughCommand, Status, admin, cns};

use super::host::{Host, NQN, Served, entry, initialize};

fn identify(host: &mut Host, cns: u8, csi: u8, nsid: u32) -> Vec<u8> {
    let command = PassthroughCommand::identify(nsid, cns, csi, 0, 0);
    let done = host.execute(entry(&command), &[], 4096);
    assert_eq!(done.status, Status::SUCCESS, "CNS {cns:02x}h");
    assert_eq!(done.data.len(), 4096);
    done.data
}

fn admin_command(opcode: u8, cdw10: u32, cdw11: u32, cdw14: u32) -> [u8; 64] {
    entry(&PassthroughCommand { opcode, cdw10, cdw11, cdw14, ..PassthroughCommand::default() })
}

#[test]
fn a_host_that_asks_what_linux_asks_finds_one_key_value_namespace() {
    let served = Served::start("target-linux-sequence");
    let mut admin = Host::open(served.address());
    let controller = admin.connect_admin(5000);

    let capabilities = admin.property(0x00, true).result;
    assert_ne!(capabilities & 1 << 43, 0, "several command sets");
    assert!(capabilities & 0xffff >= 127, "queues of 128 entries");
    assert_eq!(admin.property(0x1c, false).result & 1, 1, "ready");
    assert_eq!(admin.property(0x08, false).result, 0x0002_0000);

    let page = identify(&mut admin, cns::CONTROLLER, 0, 0);
    assert_eq!(page[77], 8, "MDTS: 1 MiB");
    assert_eq!(page[78..80], controller.to_le_bytes());
    assert_eq!(page[111], 1, "an I/O controller");
    assert_ne!(page[320..322], [0, 0], "KAS");
    assert_eq!(page[536] & 1, 1, "SGLS");
    assert_eq!(&page[768..768 + NQN.len() + 1], format!("{NQN}\0").as_bytes());
    assert_eq!(page[1792..1796], 516u32.to_le_bytes(), "IOCCSZ");

    let log = admin.execute(
        admin_command(admin::GET_LOG_PAGE, 1023 << 16 | 0x05, 0, u32::from(CSI_KV) << 24),
        &[],
        4096,
    );
    let effects = |opcode: usize| log.data[1024 + opcode * 4];
    assert_eq!([0x01, 0x02, 0x06, 0x10, 0x14].map(effects), [3, 1, 1, 3, 1]);

    let queues = admin.execute(admin_command(admin::SET_FEATURES, 0x07, 3 << 16 | 3, 0), &[], 0);
    assert_eq!(queues.result, 3 << 16 | 3);
    let events = admin.execute(admin_command(admin::SET_FEATURES, 0x0b, 0x1900, 0), &[], 0);
    assert_eq!(events.status, Status::SUCCESS);
    let _held = admin.submit(admin_command(admin::ASYNC_EVENT_REQUEST, 0, 0, 0), &[], 0);
    let alive = admin.execute(admin_command(admin::KEEP_ALIVE, 0, 0, 0), &[], 0);
    assert_eq!(alive.status, Status::SUCCESS);

    identify(&mut admin, cns::CSI_CONTROLLER, 0, 0);
    assert_eq!(identify(&mut admin, cns::ACTIVE_NAMESPACES, 0, 0)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let descriptors = identify(&mut admin, cns::DESCRIPTORS, 0, 1);
    assert_eq!(NamespaceDescriptors::parse(&descriptors).unwrap().csi, Some(CSI_KV));
    assert_eq!(identify(&mut admin, cns::CSI_INDEPENDENT, 0, 1)[14] & 1, 1, "NSTAT");
}

#[test]
fn a_transfer_limit_covers_the_largest_value_of_the_device() {
    let served = Served::start("target-mdts");
    served.namespace.set_personality("max-value=3m".parse().unwrap());
    let mut admin = Host::open(served.address());
    admin.connect_admin(0);
    assert_eq!(identify(&mut admin, cns::CONTROLLER, 0, 0)[77], 10, "4 MiB");
}

#[test]
fn a_connect_to_something_else_is_refused_with_the_wrong_field() {
    let served = Served::start("target-refused");
    let address = served.address();
    let invalid = Status::new(1, 0x82);
    let refused = |queue_id, controller, nqn: &str| {
        let done = Host::open(address).connect(queue_id, controller, nqn, 0);
        assert!(done.dnr);
        (done.status, done.result)
    };
    assert_eq!(refused(0, 0xffff, "nqn.other"), (invalid, 1 << 16 | 256));
    assert_eq!(refused(0, 5, NQN), (invalid, 1 << 16 | 16), "static controllers do not exist");
    assert_eq!(refused(1, 77, NQN), (invalid, 1 << 16 | 16), "no such controller");

    let mut admin = Host::open(address);
    let controller = admin.connect(0, 0xffff, NQN, 0).result as u16;
    let not_enabled = Status::new(0, 0x0c);
    assert_eq!(refused(1, controller, NQN), (not_enabled, 0));
    admin.set_property(0x14, 0x0046_0061);
    let _first = served.io_queue(controller, 1);
    assert_eq!(refused(1, controller, NQN), (Status::new(1, 0x81), 0), "queue 1 is taken");
    assert_eq!(refused(65, controller, NQN), (invalid, 42), "beyond the last queue");
}

#[test]
fn a_queue_takes_no_command_before_connect_and_no_second_connect() {
    let served = Served::start("target-before-connect");
    let mut host = Host::open(served.address());
    let sequence_error = Status::new(0, 0x0c);
    assert_eq!(host.execute(super::exist(1), &[], 0).status, sequence_error);
    host.connect_admin(0);
    assert_eq!(host.connect(0, 0xffff, NQN, 0).status, sequence_error);
}

#[test]
fn digests_are_refused_and_the_connection_works_without_them() {
    let served = Served::start("target-digests");
    let mut host = Host::raw(served.address());
    host.send(&initialize(0, 0, 0x3));
    let answer = host.receive().unwrap();
    assert_eq!((answer.kind(), answer.header[11]), (0x1, 0));
    host.connect_admin(0);
}

#[test]
fn data_is_aligned_as_the_host_wants_it() {
    let served = Served::start("target-alignment");
    let mut host = Host::raw(served.address());
    // 16 dwords, 0's based.
    host.send(&initialize(0, 15, 0));
    host.receive().unwrap();
    host.connect_admin(0);
    let command = PassthroughCommand::identify(0, cns::CONTROLLER, 0, 0, 0);
    host.submit(entry(&command), &[], 4096);
    let pdu = host.receive().unwrap();
    assert_eq!((pdu.kind(), pdu.header[3]), (0x7, 64));
    assert_eq!(pdu.data.len(), 64 - 24 + 4096);
}
