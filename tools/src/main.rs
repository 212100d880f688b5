//! nvme-kv
fn main() {}
