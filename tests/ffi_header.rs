//! The header and the shared library agree, and export nothing else.

use std::collections::BTreeSet;
use std::io::Write;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mooncake_nvme_kv::ffi::*;

const HEADER: &str = include_str!("../include/mooncake_nvme_kv.h");

/// The functions that the header declares.
fn declared() -> BTreeSet<&'static str> {
    let open = HEADER.split("extern \"C\" {").nth(1).expect("functions");
    open.lines()
        .filter(|line| !line.starts_with("//") && !line.starts_with(' '))
        .filter_map(|line| {
            let name = &line[line.find("mnkv_").filter(|_| line.contains('('))?..];
            let before = &name[..name.find('(')?];
            before.rsplit([' ', '*']).next()
        })
        .collect()
}

/// The shared library that was built along with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    test.with_file_name("libmooncake_nvme_kv.so")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).arg(library()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Compiles `source` behind the header and nothing else.
fn compiles(compiler: &str, standard: &str, source: &str) {
    let language = if compiler == "cc" { "c" } else { "c++" };
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let mut child = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .args(["-I", include, "-x", language, "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let source = format!("#include <mooncake_nvme_kv.h>\n{source}");
    child.stdin.take().expect("piped").write_all(source.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "{compiler} {standard}");
}

#[test]
fn the_library_exports_exactly_what_the_header_declares() {
    let symbols = output("nm", &["--dynamic", "--defined-only", "--format=posix"]);
    let exported: BTreeSet<_> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 20 && exported.iter().all(|name| name.starts_with("mnkv_")));
}

#[test]
fn the_library_is_named_after_its_major_version_and_stays_loaded() {
    let dynamic = output("readelf", &["--dynamic", "--wide"]);
    let major = mnkv_abi_version() >> 16;
    let name = format!("soname: [libmooncake_nvme_kv.so.{major}]");
    assert!(dynamic.contains(&name), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn the_function_table_has_every_function_once() {
    let table = HEADER.split("typedef struct mnkv_functions {").nth(1).expect("a table");
    let table = table.split("} mnkv_functions;").next().expect("its end");
    let members: Vec<_> =
        table.split("(*").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let mut expected: BTreeSet<_> =
        declared().into_iter().map(|name| name.trim_start_matches("mnkv_")).collect();
    assert!(expected.remove("functions_get"));
    assert_eq!(members.iter().copied().collect::<BTreeSet<_>>(), expected);
    assert_eq!(members.len(), expected.len());
    // SAFETY: the table is static.
    let table = unsafe { &*mnkv_functions_get() };
    assert_eq!(table.struct_size, (1 + members.len()) * size_of::<usize>());
    assert_eq!((table.abi_version)(), mnkv_abi_version());
}

#[test]
fn the_version_of_the_header_is_that_of_the_library() {
    let define = format!("#define MNKV_ABI_VERSION {}\n", mnkv_abi_version());
    assert!(HEADER.contains(&define));
    // SAFETY: the string is static.
    let version = unsafe { std::ffi::CStr::from_ptr(mnkv_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_header_compiles_alone_and_twice_as_c_and_as_cplusplus() {
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++20")] {
        compiles(compiler, standard, "");
        compiles(compiler, standard, "#include <mooncake_nvme_kv.h>\n");
    }
}

#[test]
fn structs_have_the_same_shape_in_c_and_in_rust() {
    let shapes = [
        ("sizeof(mnkv_config)", size_of::<mnkv_config>()),
        ("offsetof(mnkv_config, nsid)", offset_of!(mnkv_config, nsid)),
        ("offsetof(mnkv_config, destination_slack)", offset_of!(mnkv_config, destination_slack)),
        ("offsetof(mnkv_config, access)", offset_of!(mnkv_config, access)),
        ("offsetof(mnkv_config, scan_page_size)", offset_of!(mnkv_config, scan_page_size)),
        ("offsetof(mnkv_config, staging_mib)", offset_of!(mnkv_config, staging_mib)),
        ("sizeof(mnkv_slice)", size_of::<mnkv_slice>()),
        ("sizeof(mnkv_mut_slice)", size_of::<mnkv_mut_slice>()),
        ("sizeof(mnkv_object)", size_of::<mnkv_object>()),
        ("sizeof(mnkv_destination)", size_of::<mnkv_destination>()),
        ("sizeof(mnkv_capabilities)", size_of::<mnkv_capabilities>()),
        ("offsetof(mnkv_capabilities, transport)", offset_of!(mnkv_capabilities, transport)),
        ("sizeof(mnkv_identify)", size_of::<mnkv_identify>()),
        ("offsetof(mnkv_identify, eui64)", offset_of!(mnkv_identify, eui64)),
        ("sizeof(mnkv_scan_report)", size_of::<mnkv_scan_report>()),
        ("offsetof(mnkv_scan_report, foreign)", offset_of!(mnkv_scan_report, foreign)),
        ("sizeof(mnkv_sweep_report)", size_of::<mnkv_sweep_report>()),
        ("sizeof(mnkv_usage)", size_of::<mnkv_usage>()),
        ("offsetof(mnkv_usage, bytes)", offset_of!(mnkv_usage, bytes)),
        ("sizeof(mnkv_functions)", size_of::<mnkv_functions>()),
        ("sizeof(mnkv_status_t)", size_of::<mnkv_status_t>()),
    ];
    for (compiler, standard, word) in
        [("cc", "-std=c11", "_Static_assert"), ("c++", "-std=c++20", "static_assert")]
    {
        let source: String = shapes
            .iter()
            .map(|(shape, value)| format!("{word}({shape} == {value}, \"{shape}\");\n"))
            .collect();
        compiles(compiler, standard, &source);
    }
}
