//! Shared by the test files: seeds and property checks.
#![allow(dead_code, reason = "each test file uses its own part")]

use nvme_kv_command_set::{Command, Key, StoreOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The seed of this run: `MNKV_SEED`, or a fixed one. Printed, so that a failure shows it.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("MNKV_SEED") {
        Ok(text) => text.parse().expect("MNKV_SEED is a decimal u64"),
        Err(_) => 20_240_731,
    };
    println!("MNKV_SEED={seed}");
    seed
}

/// Checks a property on 1000 generated values and shrinks a counterexample.
pub(crate) fn check<S: Strategy>(strategy: S, property: impl Fn(S::Value)) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases: 1000, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
        .run(&strategy, |value| {
            property(value);
            Ok(())
        })
        .unwrap();
}

/// Keys of every length.
pub(crate) fn keys() -> impl Strategy<Value = Key> {
    // Zeros and shared prefixes are common, so that order and padding matter.
    prop::collection::vec(prop_oneof![Just(0u8), Just(1u8), any::<u8>()], 1..=16)
        .prop_map(|bytes| Key::new(&bytes).unwrap())
}

/// Every combination of Store options.
pub(crate) fn store_options() -> impl Strategy<Value = StoreOptions> {
    any::<[bool; 3]>().prop_map(|[must_exist, must_not_exist, no_compress]| StoreOptions {
        must_exist,
        must_not_exist,
        no_compress,
    })
}

/// Every command.
pub(crate) fn commands() -> impl Strategy<Value = Command> {
    prop_oneof![
        (keys(), any::<u32>(), store_options())
            .prop_map(|(key, value_len, options)| Command::Store { key, value_len, options }),
        (keys(), any::<u32>(), any::<bool>())
            .prop_map(|(key, buffer_len, raw)| Command::Retrieve { key, buffer_len, raw }),
        (prop::option::of(keys()), any::<u32>())
            .prop_map(|(start, buffer_len)| Command::List { start, buffer_len }),
        keys().prop_map(|key| Command::Delete { key }),
        keys().prop_map(|key| Command::Exist { key }),
    ]
}
