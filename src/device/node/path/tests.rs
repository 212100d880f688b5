use std::fs;

use super::*;

/// A directory that is removed when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mnkv-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Directory(path)
    }

    fn file(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("writable");
        fs::write(path, content).expect("writable");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn names_are_told_apart_as_the_kernel_gives_them() {
    let block = |generic: &str| NodeName::Block { generic: generic.into() };
    for (name, expected) in [
        ("ng0n1", NodeName::Generic),
        ("ng12n345", NodeName::Generic),
        ("ng0c1n2", NodeName::Generic),
        ("nvme0n1", block("ng0n1")),
        ("nvme10n2", block("ng10n2")),
        ("nvme0c1n2", block("ng0c1n2")),
        ("nvme3", NodeName::Controller { instance: 3 }),
        ("nvme0n1p1", NodeName::Partition),
        ("nvme", NodeName::Other),
        ("nvme0n", NodeName::Other),
        ("nvme0n1p", NodeName::Other),
        ("nvme0n1x", NodeName::Other),
        ("nvme-fabrics", NodeName::Other),
        ("ng0", NodeName::Other),
        ("ng0n1p1", NodeName::Other),
        ("ngn1", NodeName::Other),
        ("sda", NodeName::Other),
        ("", NodeName::Other),
        ("nvme99999999999", NodeName::Other),
    ] {
        assert_eq!(NodeName::parse(name), expected, "{name}");
    }
}

#[test]
fn the_limits_are_the_least_over_the_paths_of_one_namespace() {
    let directory = Directory::new("limits");
    directory.file("block/nvme0n1/queue/max_hw_sectors_kb", "2147483644\n");
    directory.file("block/nvme0n1/queue/nr_requests", "16\n");
    directory.file("block/nvme0c0n1/queue/max_hw_sectors_kb", "1024\n");
    directory.file("block/nvme0c0n1/queue/nr_requests", "1023\n");
    directory.file("block/nvme0c1n1/queue/max_hw_sectors_kb", "512\n");
    directory.file("block/nvme0c1n1/queue/nr_requests", "128\n");
    (0..3).for_each(|queue| directory.file(&format!("block/nvme0c1n1/mq/{queue}/cpu_list"), "0"));
    directory.file("block/nvme0n11/queue/max_hw_sectors_kb", "4\n");
    directory.file("block/nvme1n1/queue/nr_requests", "8\n");
    directory.file("block/nvme1n2/queue/max_hw_sectors_kb", "none");
    let sysfs = Sysfs(&directory.0);
    let limits =
        |max_transfer, per_queue, all_queues| QueueLimits { max_transfer, per_queue, all_queues };
    let none = QueueLimits::default();
    assert_eq!(sysfs.queue_limits("ng0n1"), limits(Some(512 * 1024), Some(126), Some(378)));
    assert_eq!(sysfs.queue_limits("ng0n11"), limits(Some(4096), None, None));
    assert_eq!(sysfs.queue_limits("ng1n1"), limits(None, Some(6), Some(6)));
    assert_eq!(sysfs.queue_limits("ng1n2"), none, "not a number");
    assert_eq!(sysfs.queue_limits("ng2n1"), none, "not listed");
    assert_eq!(sysfs.queue_limits("kv"), none);
}

#[test]
fn a_controller_leads_to_the_instance_of_its_subsystem() {
    let directory = Directory::new("subsystem");
    directory.file("class/nvme-subsystem/nvme-subsys4/nvme7/cntlid", "1");
    let sysfs = Sysfs(&directory.0);
    assert_eq!(sysfs.namespace_instance(7), 4);
    assert_eq!(sysfs.namespace_instance(5), 5);
}

#[test]
fn the_namespaces_of_a_controller_are_the_generic_nodes_of_its_instance() {
    let directory = Directory::new("nodes");
    for name in ["ng0n2", "ng0n1", "ng1n1", "ng10n1", "nvme0n1", "nvme0", "ng0n1x"] {
        directory.file(name, "");
    }
    let expected: Vec<_> = ["ng0n1", "ng0n2"].map(|name| directory.0.join(name)).into();
    assert_eq!(generic_nodes(&directory.0, 0), expected);
}
