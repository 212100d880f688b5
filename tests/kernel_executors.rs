//! The kernel's transports do what every executor does, on the namespace whose generic node
//! `MNKV_KERNEL_NODE` names. Skipped where it is not set.

mod executor_bench;
mod executor_conformance;

use executor_bench::{Bench, Pages};
use executor_conformance::conformance;
use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::config::{ConnectorConfig, Transport};
use mooncake_nvme_kv::device::Connector;
use nvme_kv_command_set::WireProfile;

fn node() -> Option<String> {
    let node = std::env::var("MNKV_KERNEL_NODE").ok();
    if node.is_none() {
        eprintln!("SKIPPED: MNKV_KERNEL_NODE is not set");
    }
    node
}

fn config(transport: Transport) -> Option<ConnectorConfig> {
    Some(ConnectorConfig { device_path: node()?, transport, ..ConnectorConfig::default() })
}

fn open(transport: Transport, wire_profile: WireProfile) -> Option<Connector> {
    let config = ConnectorConfig { wire_profile, ..config(transport)? };
    Some(Connector::open(&config).expect("the namespace opens"))
}

fn by_io_uring() -> Option<Connector> {
    open(Transport::IoUring, WireProfile::Mooncake)
}

fn by_ioctl() -> Option<Connector> {
    open(Transport::Ioctl, WireProfile::Mooncake)
}

fn by_io_uring_with_the_spec_profile() -> Option<Connector> {
    open(Transport::IoUring, WireProfile::Spec)
}

fn by_ioctl_with_the_spec_profile() -> Option<Connector> {
    open(Transport::Ioctl, WireProfile::Spec)
}

conformance!(io_uring, crate::by_io_uring);
conformance!(ioctl, crate::by_ioctl);
conformance!(io_uring_with_the_spec_profile, crate::by_io_uring_with_the_spec_profile);
conformance!(ioctl_with_the_spec_profile, crate::by_ioctl_with_the_spec_profile);

#[test]
fn what_io_uring_wrote_ioctl_reads_and_the_other_way_round() {
    let (Some(uring), Some(ioctl)) = (by_io_uring(), by_ioctl()) else { return };
    let name = "what_one_wrote_the_other_reads";
    let uring = Bench::new(uring, "io_uring", name);
    let ioctl = Bench::new(ioctl, "ioctl", name);
    for (number, size) in [1, 4096, 5000, 262_144].into_iter().enumerate() {
        for (writer, reader) in [(&uring, &ioctl), (&ioctl, &uring)] {
            let key = writer.key(number as u32);
            let value = writer.bytes(size);
            writer.delete(key);
            writer.stored(key, &[1; 84], &[&value]);
            reader.holds(key, &[&[1; 84], &value[..]].concat(), 0);
            reader.delete(key);
        }
    }
}

#[test]
fn io_uring_stores_aligned_memory_without_a_copy_and_several_segments_with_only_the_head_copied() {
    let Some(connector) = by_io_uring() else { return };
    let bench = Bench::new(connector, "io_uring", "copies");
    let payload = Pages::of(&bench.bytes(65_536));
    let before = bench.executor().statistics();
    bench.stored(bench.key(0), &[], &[payload.as_slice()]);
    bench.stored(bench.key(1), &[], &[&payload.as_slice()[4..4100]]);
    bench.holds_in_place(bench.key(0), payload.as_slice(), 0);
    let direct = bench.executor().statistics();
    assert_eq!(direct.bytes_copied, before.bytes_copied);
    bench.stored(bench.key(2), &[9; 84], &[payload.as_slice()]);
    let vectored = bench.executor().statistics();
    assert_eq!(vectored.bytes_copied - direct.bytes_copied, 84);
    assert_eq!(vectored.vectored - direct.vectored, 1);
    bench.holds(bench.key(2), &[&[9; 84], payload.as_slice()].concat(), 0);
    assert_eq!(bench.executor().statistics().rejected, 0);
    (0..3).for_each(|number| bench.delete(bench.key(number)));
}

#[test]
fn io_uring_uses_registered_memory_of_the_pool_and_of_the_caller() {
    let Some(connector) = by_io_uring() else { return };
    let bench = Bench::new(connector, "io_uring", "fixed");
    let value = bench.bytes(65_536);
    // Across a multiple of every transfer length: where the caller's memory lies must not matter.
    let mut room = Pages::new((4 << 20) + 65_536);
    let skip = room.as_slice().as_ptr().align_offset(2 << 20) + (2 << 20) - 4096;
    let memory = &mut room.bytes()[skip..skip + 65_536];
    memory.copy_from_slice(&value);
    let fixed = || bench.executor().statistics().fixed;
    let before = fixed();
    bench.stored(bench.key(0), &[], &[&value[..5000]]);
    assert_eq!(fixed() - before, 1, "through a buffer of the pool");
    let start = memory.as_mut_ptr();
    // SAFETY: `memory` outlives the offer, which is taken back below.
    unsafe { bench.connector().register_memory(start, 65_536) }.expect("it is registered once");
    // SAFETY: as above; it is refused.
    let twice = unsafe { bench.connector().register_memory(start, 4096) };
    assert_eq!(twice.expect_err("it overlaps").code(), ErrorCode::InvalidParams);
    let before = fixed();
    bench.stored(bench.key(1), &[], &[&*memory]);
    assert_eq!(fixed() - before, 1, "from the caller's memory");
    bench.connector().unregister_memory(start);
    let before = fixed();
    bench.holds_in_place(bench.key(1), &value, 0);
    assert_eq!(fixed(), before, "no longer registered");
    (0..2).for_each(|number| bench.delete(bench.key(number)));
}

#[test]
fn the_namespace_is_found_from_its_block_node_and_from_its_controller() {
    let Some(config) = config(Transport::Auto) else { return };
    let generic = config.device_path.clone();
    let block = generic.replace("/ng", "/nvme");
    let controller = block.rsplit_once('n').expect("it ends in nY").0.to_owned();
    for path in [generic, block, controller] {
        let config = ConnectorConfig { device_path: path.clone(), ..config.clone() };
        let connector = Connector::open(&config).unwrap_or_else(|error| panic!("{path}: {error}"));
        let bench = Bench::new(connector, "auto", "found");
        bench.delete(bench.key(0));
        bench.stored(bench.key(0), &[], &[b"found"]);
        bench.holds(bench.key(0), b"found", 0);
        bench.delete(bench.key(0));
    }
}

#[test]
fn a_namespace_identifier_that_disagrees_is_refused() {
    let Some(config) = config(Transport::Auto) else { return };
    let config = ConnectorConfig { nsid: 77, nsid_explicit: true, ..config };
    let error = Connector::open(&config).expect_err("the namespace is another one");
    assert_eq!(error.code(), ErrorCode::InvalidParams);
    assert!(error.message().contains("77"), "{error}");
}

#[test]
fn closing_leaves_no_descriptor_and_no_thread_of_io_uring_and_ioctl() {
    let entries = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).expect("proc");
    let descriptors_now = || entries("fd").count();
    // The kernel's own workers for io_uring appear and end when it likes.
    let ours = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| !name.starts_with("iou-"))
    };
    let threads_now = || entries("task").flatten().filter(ours).count();
    for open in [by_io_uring, by_ioctl] {
        let (descriptors, threads) = (descriptors_now(), threads_now());
        for _ in 0..5 {
            let Some(connector) = open() else { return };
            let bench = Bench::new(connector, "either", "closing");
            executor_conformance::threads_do_not_get_in_each_others_way(&bench);
            executor_conformance::deep_batches_complete_every_command_once(&bench);
        }
        assert_eq!(descriptors_now(), descriptors);
        assert_eq!(threads_now(), threads);
    }
}
