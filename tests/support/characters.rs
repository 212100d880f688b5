//! The devices that the backend is tried on: each personality alone, and a few unkind mixtures.

use mooncake_nvme_kv::config::Config;
use nvme_kv_command_set::WireProfile;
use nvme_kv_emulator::{
    CompletionOrder, DeleteMissing, ListSupport, Personality, RetrieveLength, ShortRetrieve,
};

/// One device and the settings it is used with.
#[derive(Clone)]
pub struct Character {
    /// What is special about it.
    pub name: &'static str,
    pub personality: Personality,
    pub settings: Settings,
}

type Settings = fn(&mut Config);

/// Values that keep a test fast: 8 KiB.
pub fn small_values(config: &mut Config) {
    config.connector.runtime_transfer_limit = 8192;
}

fn small_spec(config: &mut Config) {
    small_values(config);
    config.connector.wire_profile = WireProfile::Spec;
}

fn one_at_a_time(config: &mut Config) {
    small_values(config);
    config.connector.queue_depth = 1;
}

fn spec(config: &mut Config) {
    config.connector.wire_profile = WireProfile::Spec;
}

/// Everything that can be unkind at once, but for the length that a Retrieve reports.
fn unkind(retrieve_length: RetrieveLength) -> Personality {
    Personality {
        retrieve_length,
        short_retrieve: ShortRetrieve::InvalidValueSize,
        delete_missing: DeleteMissing::KeyNotFound,
        list: ListSupport::Absent,
        exist: false,
        max_value_size: 8192,
        completion_order: CompletionOrder::Shuffled { seed: 11 },
        ..Personality::default()
    }
}

/// Every character, with small values.
pub fn characters() -> Vec<Character> {
    let kind = Personality::default;
    let all: [(&str, Personality, Settings); 22] = [
        ("kind", kind(), small_values),
        (
            "reports padded lengths",
            Personality { retrieve_length: RetrieveLength::Padded, ..kind() },
            small_values,
        ),
        (
            "reports no length",
            Personality { retrieve_length: RetrieveLength::Zero, ..kind() },
            small_values,
        ),
        (
            "refuses short buffers",
            Personality { short_retrieve: ShortRetrieve::InvalidValueSize, ..kind() },
            small_values,
        ),
        (
            "answers 87h to a Delete of nothing",
            Personality { delete_missing: DeleteMissing::KeyNotFound, ..kind() },
            small_values,
        ),
        ("has no List", Personality { list: ListSupport::Absent, ..kind() }, small_values),
        ("lists in no order", Personality { list: ListSupport::Unordered, ..kind() }, small_values),
        ("wraps its List", Personality { list: ListSupport::Wrapping, ..kind() }, small_values),
        ("has no Exist", Personality { exist: false, ..kind() }, small_values),
        ("holds 8 KiB values", Personality { max_value_size: 8192, ..kind() }, |_| {}),
        ("holds 16 KiB values", Personality { max_value_size: 16_384, ..kind() }, |_| {}),
        (
            "completes in any order",
            Personality { completion_order: CompletionOrder::Shuffled { seed: 5 }, ..kind() },
            small_values,
        ),
        ("takes one command at a time", kind(), one_at_a_time),
        ("spec", kind(), small_spec),
        (
            "spec, reports padded lengths",
            Personality { retrieve_length: RetrieveLength::Padded, ..kind() },
            small_spec,
        ),
        (
            "spec, reports no length",
            Personality { retrieve_length: RetrieveLength::Zero, ..kind() },
            small_spec,
        ),
        (
            "spec, refuses short buffers",
            Personality { short_retrieve: ShortRetrieve::InvalidValueSize, ..kind() },
            small_spec,
        ),
        ("unkind, exact lengths", unkind(RetrieveLength::Exact), |_| {}),
        ("unkind, padded lengths", unkind(RetrieveLength::Padded), |_| {}),
        ("unkind, no lengths", unkind(RetrieveLength::Zero), |_| {}),
        ("unkind, spec, exact lengths", unkind(RetrieveLength::Exact), spec),
        ("unkind, spec, no lengths", unkind(RetrieveLength::Zero), spec),
    ];
    all.map(|(name, personality, settings)| Character { name, personality, settings }).into()
}

/// A few of them with values of the default size.
pub fn full_size_characters() -> Vec<Character> {
    let full = |name, personality: Personality, settings: Settings| Character {
        name,
        personality: Personality { max_value_size: 512 * 1024, ..personality },
        settings,
    };
    vec![
        full("kind", Personality::default(), |_| {}),
        full("unkind, padded lengths", unkind(RetrieveLength::Padded), |_| {}),
        full("unkind, spec, no lengths", unkind(RetrieveLength::Zero), spec),
    ]
}

/// Devices that tell an orphan of another length in different ways, or not at all.
pub fn length_tellers() -> Vec<Personality> {
    let mut all = Vec::new();
    for retrieve_length in [RetrieveLength::Exact, RetrieveLength::Padded, RetrieveLength::Zero] {
        for short_retrieve in [ShortRetrieve::Success, ShortRetrieve::InvalidValueSize] {
            all.push(Personality { retrieve_length, short_retrieve, ..Personality::default() });
        }
    }
    all
}
