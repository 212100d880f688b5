//! Controllers and their nodes in sysfs. `root` is `/sys` outside of tests.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Names of the generic nodes (`ng0n1`) of a controller (`nvme0`), in order.
pub(crate) fn nodes_of(root: &Path, controller: &str) -> io::Result<Vec<String>> {
    let mut nodes = Vec::new();
    for entry in fs::read_dir(root.join("class/nvme").join(controller))? {
        let name = entry?.file_name();
        nodes.extend(name.to_str().filter(|name| is_node(name)).map(String::from));
    }
    nodes.sort();
    Ok(nodes)
}

/// The controller (`nvme0`) of a generic node (`ng0n1` or `/dev/ng0n1`) or of
/// itself (`nvme0` or `/dev/nvme0`).
pub(crate) fn controller_of(root: &Path, node: &str) -> Result<String, String> {
    let name = node.strip_prefix("/dev/").unwrap_or(node);
    if is_node(name) {
        let link = root.join("class/nvme-generic").join(name).join("device");
        let controller = fs::canonicalize(&link)
            .map_err(|error| format!("{node} is not attached ({}: {error})", link.display()))?;
        if let Some(controller) = controller.file_name().and_then(|name| name.to_str())
            && is_controller(controller)
        {
            return Ok(controller.into());
        }
        return Err(format!("{node} has no controller of its own ({})", controller.display()));
    }
    if is_controller(name) {
        return Ok(name.into());
    }
    Err(format!("\"{node}\" is neither a generic node nor a controller: give /dev/ngXnY or nvmeX"))
}

/// The controllers (`nvme0`) of a subsystem, in order.
pub(crate) fn controllers_of(root: &Path, nqn: &str) -> io::Result<Vec<String>> {
    let mut controllers = Vec::new();
    for entry in fs::read_dir(root.join("class/nvme"))? {
        let entry = entry?;
        // A controller that ends meanwhile has no name any more.
        let found = fs::read_to_string(entry.path().join("subsysnqn")).unwrap_or_default();
        if found.trim_end() == nqn
            && let Some(name) = entry.file_name().to_str()
        {
            controllers.push(name.into());
        }
    }
    controllers.sort();
    Ok(controllers)
}

/// The file that disconnects a controller when 1 is written to it.
pub(crate) fn delete_file(root: &Path, controller: &str) -> PathBuf {
    root.join("class/nvme").join(controller).join("delete_controller")
}

fn is_node(name: &str) -> bool {
    name.strip_prefix("ng")
        .and_then(|rest| rest.split_once('n'))
        .is_some_and(|(controller, namespace)| is_number(controller) && is_number(namespace))
}

fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_neither_node_nor_controller_are_refused() {
        for name in ["", "ng0", "ngn1", "nvme", "nvme0n1", "/dev/sda", "../nvme0", "ng0n1p1"] {
            let error = controller_of(Path::new("/nonexistent"), name).unwrap_err();
            assert!(error.contains("give /dev/ngXnY"), "{name}: {error}");
        }
    }

    #[test]
    fn a_controller_stands_for_itself() {
        assert_eq!(controller_of(Path::new("/nonexistent"), "/dev/nvme12").unwrap(), "nvme12");
    }

    #[test]
    fn a_node_that_does_not_exist_is_not_attached() {
        let error = controller_of(Path::new("/nonexistent"), "/dev/ng3n1").unwrap_err();
        assert!(error.contains("/dev/ng3n1 is not attached"), "{error}");
    }
}
