//! The backend on a real kernel: objects of every interesting size and content, through either
//! transport. Needs the guest of `kernel_tests/run`; skipped where `MNKV_KERNEL_NODE` is not set.

mod executor_bench;
mod kernel_support;
mod support;

use std::sync::Arc;

use kernel_support::served::Served;
use kernel_support::{both_transports, name_of};
use mooncake_nvme_kv::config::Transport;
use nvme_kv_command_set::Key;
use nvme_kv_emulator::Personality;
use support::characters::{Character, characters, full_size_characters};
use support::life::{Object, interesting_objects, large_objects, lives};
use support::{Rig, payload};

/// A namespace that this kernel has attached, and the way to it. Dropped in this order.
struct KernelRig {
    rig: Rig,
    served: Served,
}

impl KernelRig {
    /// `None` outside of the guest.
    fn new(path: &str, character: &Character, transport: Transport) -> Option<KernelRig> {
        let served = Served::new(path, character.personality.clone())?;
        let rig = Rig::at(path, character.personality.clone(), |config| {
            (character.settings)(config);
            served.configure(config, transport);
        });
        Some(KernelRig { rig, served })
    }
}

fn live_on(
    transport: Transport,
    character: &Character,
    index_is_complete: bool,
    objects: fn(&Rig) -> Vec<Object>,
) {
    let Some(kernel) = KernelRig::new("mem:kernel-matrix", character, transport) else { return };
    println!("a device that: {}", character.name);
    let KernelRig { rig, served } = &kernel;
    if !index_is_complete {
        served.namespace.poke(&Key::new(b"somebody else's").expect("a key"), b"value");
    }
    let device = rig.open();
    assert_eq!(device.backend.index_is_complete(), index_is_complete);
    assert_eq!(device.backend.capabilities().max_value_size, rig.max_value_size());
    let compared: u64 = objects(rig).iter().map(|object| lives(rig, &device, object)).sum();
    println!("data checks: {} {compared}", name_of(transport));
}

fn small(name: &str) -> Character {
    characters().into_iter().find(|character| character.name == name).expect("it is one of them")
}

fn with_a_complete_index(transport: Transport) {
    live_on(transport, &small("kind"), true, interesting_objects);
}

fn with_an_incomplete_index(transport: Transport) {
    live_on(transport, &small("kind"), false, interesting_objects);
}

fn on_an_unkind_device(transport: Transport) {
    live_on(transport, &small("unkind, padded lengths"), false, large_objects);
}

fn with_the_spec_profile(transport: Transport) {
    live_on(transport, &small("spec, reports no length"), true, large_objects);
}

fn of_the_default_value_size(transport: Transport) {
    live_on(transport, &full_size_characters()[0], true, large_objects);
}

both_transports! {
    with_a_complete_index =>
        objects_live_on_io_uring_with_a_complete_index,
        objects_live_on_ioctl_with_a_complete_index;
    with_an_incomplete_index =>
        objects_live_on_io_uring_with_an_incomplete_index,
        objects_live_on_ioctl_with_an_incomplete_index;
    on_an_unkind_device =>
        objects_live_on_io_uring_on_an_unkind_device,
        objects_live_on_ioctl_on_an_unkind_device;
    with_the_spec_profile =>
        objects_live_on_io_uring_with_the_spec_profile,
        objects_live_on_ioctl_with_the_spec_profile;
    of_the_default_value_size =>
        large_objects_live_on_io_uring,
        large_objects_live_on_ioctl;
}

#[test]
fn io_uring_and_ioctl_read_what_the_other_wrote_and_so_does_the_emulator_in_the_directory() {
    const TRANSPORTS: [Transport; 2] = [Transport::IoUring, Transport::Ioctl];
    let directory = std::env::temp_dir().join("kernel-backend-directory");
    let path = directory.to_str().expect("it is UTF-8");
    let character =
        Character { name: "kind", personality: Personality::default(), settings: |_| {} };
    let sizes = [0, 1, 4096, 65_536, 262_144, 1 << 20, (1 << 20) + 1000];
    let object = |writer: Transport, size: usize| {
        let seed = size as u64 * 2 + u64::from(writer == Transport::Ioctl);
        (format!("{} wrote {size}", name_of(writer)).into_bytes(), payload(size, seed))
    };
    let Some(mut kernel) = KernelRig::new(path, &character, TRANSPORTS[0]) else { return };
    for writer in TRANSPORTS {
        kernel.rig.config.connector.transport = writer;
        let device = kernel.rig.open();
        for size in sizes {
            let (key, bytes) = object(writer, size);
            assert!(!device.put(&key, &bytes).expect("it is stored").already);
        }
    }
    for reader in TRANSPORTS {
        kernel.rig.config.connector.transport = reader;
        let device = kernel.rig.open();
        for writer in TRANSPORTS {
            for size in sizes {
                let (key, bytes) = object(writer, size);
                device.expect(&key, &bytes);
                assert!(device.put(&key, &bytes).expect("it is there").already);
            }
        }
        println!("data checks: {} {}", name_of(reader), 2 * sizes.len());
    }
    let KernelRig { rig, served } = kernel;
    drop(rig);
    let namespace = Arc::clone(&served.namespace);
    drop(served);
    assert_eq!(Arc::strong_count(&namespace), 1, "nobody else has the directory open");
    drop(namespace);

    let rig = Rig::at(path, Personality::default(), |_| {});
    let device = rig.open();
    for writer in TRANSPORTS {
        for size in sizes {
            let (key, bytes) = object(writer, size);
            device.expect(&key, &bytes);
            assert!(device.put(&key, &bytes).expect("it is there").already);
        }
    }
    drop((device, rig));
    std::fs::remove_dir_all(&directory).expect("it is ours");
}
