//! How the shared library is linked.

fn main() {
    // The number of the ABI's major version, see MNKV_ABI_VERSION in cbindgen.toml.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmooncake_nvme_kv.so.0");
    // Thread-local destructors and the fork handler point into the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
