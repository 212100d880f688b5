//! Tables of environments and what they must give.

mod concurrency;

use std::collections::HashMap;
use std::time::Duration;

use nvme_kv_command_set::WireProfile;

use super::variables::Variables;
use super::{
    Config, ConnectorConfig, Environment, IoConcurrency, LifecycleConfig, ProcessEnvironment,
    Transport,
};
use crate::layout::ChecksumKind;
use crate::{Error, ErrorCode, Result};

const PREFIX: &str = "MOONCAKE_NVME_KV_";

/// An environment with a device path and `settings`, whose names go without the prefix.
fn environment(settings: &[(&str, &str)]) -> HashMap<String, String> {
    let path = [("DEVICE_PATH", "/dev/ng0n1")];
    path.iter()
        .chain(settings)
        .map(|(name, value)| (format!("{PREFIX}{name}"), value.to_string()))
        .collect()
}

/// What `settings` give, and the warnings.
fn read(settings: &[(&str, &str)]) -> (Result<Config>, Vec<String>) {
    let env = environment(settings);
    let mut variables = Variables::new(&env);
    let config = Config::read(&mut variables);
    (config, variables.warnings().to_vec())
}

/// What `settings` give, which must be accepted without a warning.
fn accepted(settings: &[(&str, &str)]) -> Config {
    let (config, warnings) = read(settings);
    assert_eq!(warnings, [""; 0], "{settings:?}");
    config.unwrap_or_else(|error| panic!("{settings:?}: {error}"))
}

/// What `settings` give, with exactly one warning, and that warning.
fn warned(settings: &[(&str, &str)]) -> (Config, String) {
    let (config, warnings) = read(settings);
    let [warning] = &warnings[..] else { panic!("{settings:?}: {warnings:?}") };
    (config.unwrap_or_else(|error| panic!("{settings:?}: {error}")), warning.clone())
}

fn refused(settings: &[(&str, &str)]) -> Error {
    read(settings).0.expect_err("the setting must be refused")
}

#[test]
fn an_environment_with_only_a_device_path_gives_the_documented_defaults() {
    let expected = Config {
        connector: ConnectorConfig {
            device_path: "/dev/ng0n1".into(),
            nsid: 1,
            nsid_explicit: false,
            queue_depth: 256,
            runtime_transfer_limit: 270_336,
            protocol_max_value_size: 524_288,
            transfer_alignment: 4096,
            value_block_unit: 512,
            transport: Transport::Auto,
            wire_profile: WireProfile::Mooncake,
            command_timeout: Duration::from_secs(30),
        },
        io: IoConcurrency { io: 18, max_io: 256, prepare: 12, batch_submit: 6, root_submit: 1 },
        checksum: ChecksumKind::Xxh32,
        read_plan_batch_size: 8,
        staging_bytes: 128 << 20,
        lifecycle: LifecycleConfig::default(),
    };
    assert_eq!(accepted(&[]), expected);
    assert_eq!(expected.connector.effective_max_value_size(), 270_336);
}

#[test]
fn the_default_config_is_an_empty_environment_apart_from_the_device_path() {
    let mut config = accepted(&[]);
    config.connector.device_path.clear();
    assert_eq!(Config::default(), config);
}

#[test]
fn every_variable_reaches_its_field() {
    let config = accepted(&[
        ("DEVICE_PATH", "mem:table"),
        ("NSID", "3"),
        ("QUEUE_DEPTH", "64"),
        ("RUNTIME_TRANSFER_LIMIT", "0x20000"),
        ("PROTOCOL_MAX_VALUE_SIZE", "262144"),
        ("TRANSFER_ALIGNMENT_BYTES", "01000"),
        ("VALUE_BLOCK_UNIT_BYTES", "4096"),
        ("TRANSPORT", "emulated"),
        ("WIRE_PROFILE", "spec"),
        ("CHECKSUM", "crc32"),
        ("COMMAND_TIMEOUT_MS", "1500"),
        ("MAX_IO_CONCURRENCY", "48"),
        ("IO_CONCURRENCY", "40"),
        ("PREPARE_CONCURRENCY", "5"),
        ("BATCH_SUBMIT_CONCURRENCY", "30"),
        ("ROOT_SUBMIT_CONCURRENCY", "4"),
        ("READ_PLAN_BATCH_SIZE", "16"),
        ("STAGING_MIB", "7"),
    ]);
    let expected = Config {
        connector: ConnectorConfig {
            device_path: "mem:table".into(),
            nsid: 3,
            nsid_explicit: true,
            queue_depth: 64,
            runtime_transfer_limit: 131_072,
            protocol_max_value_size: 262_144,
            transfer_alignment: 512,
            value_block_unit: 4096,
            transport: Transport::Emulated,
            wire_profile: WireProfile::Spec,
            command_timeout: Duration::from_millis(1500),
        },
        io: IoConcurrency { io: 40, max_io: 48, prepare: 5, batch_submit: 30, root_submit: 4 },
        checksum: ChecksumKind::Crc32,
        read_plan_batch_size: 16,
        staging_bytes: 7 << 20,
        lifecycle: LifecycleConfig::default(),
    };
    assert_eq!(config, expected);
}

/// Every numeric variable, its default in an otherwise empty environment, its largest value, and
/// what 0 gives.
type Number = (&'static str, u32, u32, u32, fn(&Config) -> u32);
const NUMBERS: [Number; 14] = [
    ("NSID", 1, u32::MAX, 0, |c| c.connector.nsid),
    ("QUEUE_DEPTH", 256, u32::MAX, 256, |c| c.connector.queue_depth),
    ("RUNTIME_TRANSFER_LIMIT", 270_336, u32::MAX, 270_336, |c| c.connector.runtime_transfer_limit),
    ("PROTOCOL_MAX_VALUE_SIZE", 524_288, u32::MAX, 0, |c| c.connector.protocol_max_value_size),
    ("TRANSFER_ALIGNMENT_BYTES", 4096, u32::MAX, 4096, |c| c.connector.transfer_alignment),
    ("VALUE_BLOCK_UNIT_BYTES", 512, u32::MAX, 512, |c| c.connector.value_block_unit),
    ("COMMAND_TIMEOUT_MS", 30_000, u32::MAX, 30_000, |c| {
        u32::try_from(c.connector.command_timeout.as_millis()).expect("read from a u32")
    }),
    ("MAX_IO_CONCURRENCY", 256, u32::MAX, 256, |c| c.io.max_io),
    ("IO_CONCURRENCY", 18, 256, 18, |c| c.io.io),
    ("PREPARE_CONCURRENCY", 12, 12, 12, |c| c.io.prepare),
    ("BATCH_SUBMIT_CONCURRENCY", 6, 17, 6, |c| c.io.batch_submit),
    ("ROOT_SUBMIT_CONCURRENCY", 1, 17, 1, |c| c.io.root_submit),
    ("READ_PLAN_BATCH_SIZE", 8, 1024, 8, |c| c.read_plan_batch_size),
    ("STAGING_MIB", 128, u32::MAX, 128, |c| {
        u32::try_from(c.staging_bytes >> 20).expect("read from a u32")
    }),
];

#[test]
fn an_empty_value_counts_as_not_set() {
    for (name, default, _, _, field) in NUMBERS {
        assert_eq!(field(&accepted(&[(name, "")])), default, "{name}");
    }
    let config = accepted(&[("TRANSPORT", ""), ("WIRE_PROFILE", ""), ("CHECKSUM", "")]);
    assert_eq!(config, accepted(&[]));
}

#[test]
fn numbers_may_be_decimal_hexadecimal_or_octal() {
    for (name, _, _, _, field) in NUMBERS {
        for text in ["10", "0xa", "0XA", "012", " +10"] {
            assert_eq!(field(&accepted(&[(name, text)])), 10, "{name}={text:?}");
        }
    }
}

#[test]
fn a_bad_number_falls_back_and_the_warning_names_variable_value_and_substitute() {
    for (name, default, _, _, field) in NUMBERS {
        for text in ["x", "12k", "8 ", "-1", "0x", "4294967296", "99999999999999999999", "\u{fffd}"]
        {
            let (config, warning) = warned(&[(name, text)]);
            assert_eq!(field(&config), default, "{name}={text:?}");
            assert!(warning.contains(&format!("{PREFIX}{name}={text:?} ")), "{warning}");
            assert!(warning.ends_with(&format!("using {default}")), "{warning}");
        }
    }
}

#[test]
fn a_bad_namespace_identifier_does_not_count_as_explicit() {
    assert!(!warned(&[("NSID", "one")]).0.connector.nsid_explicit);
    assert!(accepted(&[("NSID", "1")]).connector.nsid_explicit);
}

#[test]
fn zero_means_the_default_except_for_namespace_and_protocol_limit() {
    for (name, _, _, zero, field) in NUMBERS {
        assert_eq!(field(&accepted(&[(name, "0")])), zero, "{name}");
    }
}

#[test]
fn the_largest_value_is_taken_and_one_more_is_lowered_with_a_warning() {
    for (name, _, largest, _, field) in NUMBERS {
        assert_eq!(field(&accepted(&[(name, &largest.to_string())])), largest, "{name}");
        if let Some(more) = largest.checked_add(1) {
            for text in [more.to_string(), u32::MAX.to_string()] {
                let (config, warning) = warned(&[(name, &text)]);
                assert_eq!(field(&config), largest, "{name}={text}");
                assert!(warning.contains(&format!("{PREFIX}{name}={text} ")), "{warning}");
                assert!(warning.ends_with(&format!("using {largest}")), "{warning}");
            }
        }
    }
}

#[test]
fn the_effective_value_size_is_the_smaller_limit_rounded_down_to_the_alignment() {
    // protocol, runtime, alignment -> effective
    let cases = [
        ("4096", "270336", "", 4096),
        ("4095", "270336", "", 0),
        ("8191", "270336", "", 4096),
        ("0", "270336", "", 0),
        ("524288", "524288", "", 524_288),
        ("524288", "1048576", "", 524_288),
        ("1048576", "1048576", "", 1_048_576),
        ("4294967295", "4294967295", "", 4_294_963_200),
        ("4294967295", "4294967295", "1", u32::MAX),
        ("4294967295", "4294967295", "4294967295", u32::MAX),
        ("524288", "270336", "0", 270_336),
        ("524288", "270336", "512", 270_336),
        ("524288", "270336", "65536", 262_144),
        ("524288", "270336", "3000", 270_000),
        ("524288", "270336", "300000", 0),
    ];
    for (protocol, runtime, alignment, expected) in cases {
        let config = accepted(&[
            ("PROTOCOL_MAX_VALUE_SIZE", protocol),
            ("RUNTIME_TRANSFER_LIMIT", runtime),
            ("TRANSFER_ALIGNMENT_BYTES", alignment),
        ]);
        let got = config.connector.effective_max_value_size();
        assert_eq!(got, expected, "protocol {protocol}, runtime {runtime}, align {alignment:?}");
    }
}

/// The `capabilities` section of the format vectors: what Mooncake's executor reports.
#[test]
fn capabilities_match_the_format_vectors() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/data/format_vectors.json")).expect("JSON");
    let cases = vectors["capabilities"].as_array().expect("a list");
    assert!(!cases.is_empty());
    for case in cases {
        let connector = accepted(&[
            ("QUEUE_DEPTH", &case["queue_depth"].to_string()),
            ("RUNTIME_TRANSFER_LIMIT", &case["runtime_transfer_limit"].to_string()),
        ])
        .connector;
        assert_eq!(
            connector.effective_max_value_size(),
            case["effective_max_value_size"],
            "{case}"
        );
        assert_eq!(connector.queue_depth, case["effective_queue_depth"], "{case}");
    }
}

#[test]
fn an_alignment_of_zero_in_a_literal_does_not_round() {
    let connector = ConnectorConfig { transfer_alignment: 0, ..ConnectorConfig::default() };
    assert_eq!(connector.effective_max_value_size(), 270_336);
}

#[test]
fn words_select_transport_wire_profile_and_checksum() {
    for transport in [Transport::Auto, Transport::IoUring, Transport::Ioctl, Transport::Emulated] {
        let config = accepted(&[("TRANSPORT", &transport.to_string())]);
        assert_eq!(config.connector.transport, transport);
    }
    for (word, profile) in [("mooncake", WireProfile::Mooncake), ("spec", WireProfile::Spec)] {
        assert_eq!(accepted(&[("WIRE_PROFILE", word)]).connector.wire_profile, profile);
    }
    for (word, kind) in [("xxh32", ChecksumKind::Xxh32), ("crc32", ChecksumKind::Crc32)] {
        assert_eq!(accepted(&[("CHECKSUM", word)]).checksum, kind);
    }
}

#[test]
fn an_unknown_word_is_refused_with_variable_value_and_choices() {
    let cases = [
        ("TRANSPORT", "auto, io_uring, ioctl, emulated"),
        ("WIRE_PROFILE", "mooncake, spec"),
        ("CHECKSUM", "xxh32, crc32"),
    ];
    let words = ["none", "AUTO", "Spec", "XXH32", " auto", "auto ", "io-uring", "0", "\u{fffd}"];
    for (name, choices) in cases {
        for word in words {
            let error = refused(&[(name, word)]);
            assert_eq!(error.code(), ErrorCode::InvalidParams, "{name}={word:?}");
            let message = format!("{PREFIX}{name}={word:?} is not one of {choices}");
            assert_eq!(error.message(), message);
        }
    }
}

#[test]
fn a_missing_empty_or_undecodable_device_path_is_refused() {
    for env in [HashMap::new(), environment(&[("DEVICE_PATH", "")])] {
        let error = Config::from_environment(&env).expect_err("no device path");
        assert_eq!(error.code(), ErrorCode::InvalidParams);
        assert!(error.message().contains("MOONCAKE_NVME_KV_DEVICE_PATH is not set"), "{error}");
    }
    let error = refused(&[("DEVICE_PATH", "/dev/\u{fffd}")]);
    assert_eq!(error.code(), ErrorCode::InvalidParams);
    assert!(error.message().contains("MOONCAKE_NVME_KV_DEVICE_PATH="), "{error}");
}

#[test]
fn a_device_path_is_taken_byte_for_byte() {
    for path in ["/dev/nvme1n1", "mem:a b", " /x", "relative/dir", "/data/\u{e9}"] {
        assert_eq!(accepted(&[("DEVICE_PATH", path)]).connector.device_path, path);
    }
}

#[test]
fn tables_of_pairs_are_environments() {
    let array = [("A", "1"), ("B", "")];
    let slice: &[(&str, &str)] = &array;
    for env in [&array as &dyn Environment, &slice] {
        assert_eq!(env.var("A").as_deref(), Some("1"));
        assert_eq!(env.var("B").as_deref(), Some(""));
        assert_eq!(env.var("C"), None);
    }
}

#[test]
fn the_process_environment_is_what_the_operating_system_gave() {
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let expected = value.to_string_lossy().into_owned();
        assert_eq!(ProcessEnvironment.var(name), Some(expected), "{name}");
    }
    assert_eq!(ProcessEnvironment.var("MOONCAKE_NVME_KV_NOT_A_SETTING"), None);
}
