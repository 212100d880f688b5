//! The emulated executor does what every executor does.
#![cfg(feature = "emulated")]

mod executor_bench;
mod executor_conformance;

use executor_conformance::conformance;
use mooncake_nvme_kv::config::{ConnectorConfig, Transport};
use mooncake_nvme_kv::device::Connector;
use nvme_kv_command_set::WireProfile;

fn open(name: &str, wire_profile: WireProfile) -> Option<Connector> {
    let config = ConnectorConfig {
        device_path: format!("mem:{name}"),
        transport: Transport::Emulated,
        wire_profile,
        ..ConnectorConfig::default()
    };
    Some(Connector::open(&config).expect("an emulated namespace opens"))
}

fn mooncake_profile() -> Option<Connector> {
    open("conformance", WireProfile::Mooncake)
}

fn spec_profile() -> Option<Connector> {
    open("conformance-spec", WireProfile::Spec)
}

conformance!(emulated, crate::mooncake_profile);
conformance!(emulated_with_the_spec_profile, crate::spec_profile);
