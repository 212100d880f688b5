//! What a configured device path names.

use std::path::{Path, PathBuf};

/// The kernel's names of NVMe nodes. Instances are decimal numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeName {
    /// `ngXnY` (or `ngXcYnZ`): the generic character node, on which all commands work.
    Generic,
    /// `nvmeXnY` (or `nvmeXcYnZ`): the block node; the generic one has this name.
    Block {
        /// The generic node of the same namespace.
        generic: String,
    },
    /// `nvmeX`: a controller, whose namespaces are told apart by their identifier.
    Controller {
        /// X.
        instance: u32,
    },
    /// `nvmeXnYpZ`: a partition, which is no namespace.
    Partition,
    /// Anything else, such as a node that was given a name of its own.
    Other,
}

impl NodeName {
    /// Reads the last component of a path.
    pub(super) fn parse(name: &str) -> NodeName {
        if let Some(rest) = name.strip_prefix("ng") {
            return match namespace(rest) {
                Some("") => NodeName::Generic,
                _ => NodeName::Other,
            };
        }
        let Some(rest) = name.strip_prefix("nvme") else { return NodeName::Other };
        match (namespace(rest), number(rest)) {
            (Some(""), _) => NodeName::Block { generic: format!("ng{rest}") },
            (Some(tail), _)
                if tail
                    .strip_prefix('p')
                    .and_then(number)
                    .is_some_and(|(_, tail)| tail.is_empty()) =>
            {
                NodeName::Partition
            }
            (None, Some((instance, ""))) => NodeName::Controller { instance },
            _ => NodeName::Other,
        }
    }
}

/// Skips `XnY` or `XcYnZ` and returns what follows.
fn namespace(text: &str) -> Option<&str> {
    let (_, rest) = number(text)?;
    let rest = match rest.strip_prefix('c') {
        Some(rest) => number(rest)?.1,
        None => rest,
    };
    Some(number(rest.strip_prefix('n')?)?.1)
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// The kernel's lists of devices; elsewhere in tests.
pub(super) struct Sysfs<'p>(pub(super) &'p Path);

impl Sysfs<'_> {
    /// The instance that the generic nodes of a controller's namespaces carry: that of its
    /// subsystem where namespaces are shared between controllers, else its own.
    pub(super) fn namespace_instance(&self, controller: u32) -> u32 {
        let name = format!("nvme{controller}");
        let subsystems = entries(&self.0.join("class/nvme-subsystem"));
        subsystems
            .into_iter()
            .find(|subsystem| subsystem.join(&name).exists())
            .and_then(|subsystem| {
                let name = subsystem.file_name()?.to_str()?;
                number(name.strip_prefix("nvme-subsys")?).map(|(instance, _)| instance)
            })
            .unwrap_or(controller)
    }

    /// The name the kernel gave to the character device with these numbers.
    pub(super) fn character_device(&self, major: u32, minor: u32) -> Option<String> {
        let link = std::fs::read_link(self.0.join(format!("dev/char/{major}:{minor}"))).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    /// What the block layer allows for the namespace with this generic node: the least over its
    /// paths.
    pub(super) fn queue_limits(&self, generic: &str) -> QueueLimits {
        let mut limits = QueueLimits::default();
        let Some((instance, namespace)) = generic
            .strip_prefix("ng")
            .and_then(number)
            .and_then(|(instance, rest)| Some((instance, rest.rsplit_once('n')?.1)))
        else {
            return limits;
        };
        let of_namespace = |disk: &PathBuf| {
            let Some(rest) = name_of(disk).strip_prefix("nvme") else { return false };
            let Some((of, rest)) = number(rest) else { return false };
            of == instance && rest.rsplit_once('n').is_some_and(|(_, last)| last == namespace)
        };
        let disks: Vec<PathBuf> =
            entries(&self.0.join("block")).into_iter().filter(of_namespace).collect();
        // Where a namespace has several paths (`nvmeXcYnZ`), the disk above them has no queue.
        let is_path = |disk: &&PathBuf| name_of(disk)["nvme".len()..].contains('c');
        let only_paths = disks.iter().any(|disk| is_path(&disk));
        for disk in &disks {
            let queue = disk.join("queue");
            let bytes = read_number(&queue.join("max_hw_sectors_kb"))
                .and_then(|kibibytes| kibibytes.checked_mul(1024));
            limits.max_transfer = least(limits.max_transfer, bytes);
            if only_paths && !is_path(&disk) {
                continue;
            }
            // Drivers of fabrics keep two requests of each queue for themselves.
            let per_queue = read_number(&queue.join("nr_requests"))
                .map(|requests| requests.saturating_sub(2).max(1));
            let queues = entries(&disk.join("mq")).len().max(1) as u32;
            let all = per_queue.map(|requests| requests.saturating_mul(queues));
            limits.per_queue = least(limits.per_queue, per_queue);
            limits.all_queues = least(limits.all_queues, all);
        }
        limits
    }
}

/// Limits of the block layer; `None` where the kernel does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::device) struct QueueLimits {
    /// The longest transfer, bytes.
    pub(in crate::device) max_transfer: Option<u32>,
    /// Commands that one hardware queue, which one processor uses, can have in flight.
    pub(in crate::device) per_queue: Option<u32>,
    /// The same for all hardware queues together.
    pub(in crate::device) all_queues: Option<u32>,
}

fn least(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The positive number in a file.
fn read_number(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok().filter(|number| *number > 0)
}

/// The generic nodes in a directory of nodes, in order of their names.
pub(super) fn all_generic_nodes(directory: &Path) -> Vec<PathBuf> {
    let mut nodes = entries(directory);
    nodes.retain(|path| NodeName::parse(name_of(path)) == NodeName::Generic);
    nodes.sort();
    nodes
}

/// Those of `instance`.
pub(super) fn generic_nodes(directory: &Path, instance: u32) -> Vec<PathBuf> {
    let prefix = format!("ng{instance}n");
    let mut nodes = all_generic_nodes(directory);
    nodes.retain(|path| name_of(path).starts_with(&prefix));
    nodes
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The paths in a directory; none where it cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests;
