//! The library's dependency tree is short on purpose; a new name in it must be a decision.

use std::collections::BTreeSet;
use std::process::Command;

const PACKAGE: &str = "mooncake-nvme-kv";

/// What the library itself names. One more needs a reason in ARCHITECTURE.md.
const DIRECT: [&str; 7] = [
    "crc32fast",
    "io-uring",
    "libc",
    "nvme-kv-command-set",
    "once_cell",
    "thiserror",
    "xxhash-rust",
];

/// What those bring along: crc32fast its CPU detection, io-uring its flags, thiserror its derive
/// macro.
const INDIRECT: [&str; 7] =
    ["bitflags", "cfg-if", "proc-macro2", "quote", "syn", "thiserror-impl", "unicode-ident"];

/// The package names of `cargo tree` for the library, without the library.
fn tree(options: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--package", PACKAGE])
        .args(options)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != PACKAGE).map(str::to_owned).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

#[test]
fn without_the_emulator_the_library_names_exactly_the_agreed_dependencies() {
    assert_eq!(tree(&["--no-default-features", "--depth", "1"]), set(&DIRECT));
}

#[test]
fn without_the_emulator_nothing_else_comes_in_through_a_dependency() {
    let agreed: Vec<&str> = DIRECT.into_iter().chain(INDIRECT).collect();
    assert_eq!(tree(&["--no-default-features"]), set(&agreed));
}

#[test]
fn the_emulator_and_its_engine_come_in_by_the_feature_alone() {
    let emulation = ["nvme-kv-emulator", "fjall"];
    let without = tree(&["--no-default-features"]);
    let with = tree(&["--no-default-features", "--features", "emulated"]);
    for name in emulation {
        assert!(!without.contains(name), "{name} without the feature");
        assert!(with.contains(name), "{name} with the feature");
    }
    let direct = tree(&["--no-default-features", "--features", "emulated", "--depth", "1"]);
    let added: Vec<_> = direct.difference(&set(&DIRECT)).cloned().collect();
    assert_eq!(added, ["nvme-kv-emulator"]);
}
