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

    /// The longest transfer of the namespace with this generic node, bytes: the least over its
    /// paths. `None` where the kernel does not say.
    pub(super) fn max_transfer(&self, generic: &str) -> Option<u32> {
        let (instance, rest) = number(generic.strip_prefix("ng")?)?;
        let namespace = rest.rsplit_once('n')?.1;
        let is_path = |name: &str| {
            let Some((of, rest)) = name.strip_prefix("nvme").and_then(number) else { return false };
            of == instance && rest.rsplit_once('n').is_some_and(|(_, last)| last == namespace)
        };
        entries(&self.0.join("block"))
            .into_iter()
            .filter(|disk| is_path(name_of(disk)))
            .filter_map(|disk| {
                let text = std::fs::read_to_string(disk.join("queue/max_hw_sectors_kb")).ok()?;
                text.trim().parse::<u32>().ok()?.checked_mul(1024)
            })
            .filter(|bytes| *bytes > 0)
            .min()
    }
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
