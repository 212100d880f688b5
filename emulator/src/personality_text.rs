//! Personalities as text: comma-separated `key=value` pairs.
//!
//! Sizes and bandwidths take the binary suffixes k, m, g and t; times need one
//! of ns, us, ms and s. What is not mentioned keeps its default.

use std::{fmt, str::FromStr, time::Duration};

use crate::personality::{
    CompletionOrder, DeleteMissing, ListSupport, Personality, RetrieveLength, ShortRetrieve,
};

/// Why a text is not a personality; says what would have been one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PersonalityError {
    /// An item without `=`.
    #[error("personality item \"{item}\" is not of the form key=value")]
    NoValue {
        /// The item as given.
        item: String,
    },
    /// A key that does not exist.
    #[error("personality key \"{key}\" (value \"{value}\") is unknown; the keys are {KEYS}")]
    UnknownKey {
        /// The key as given.
        key: String,
        /// The value given with it.
        value: String,
    },
    /// A key that occurs twice.
    #[error("personality key \"{key}\" is given twice, the second time as \"{value}\"")]
    Repeated {
        /// The key as given.
        key: String,
        /// The second value.
        value: String,
    },
    /// A value the key does not take.
    #[error("personality key \"{key}\" cannot be \"{value}\"; give {choices}")]
    Value {
        /// The key as given.
        key: String,
        /// The value as given.
        value: String,
        /// What the key takes.
        choices: &'static str,
    },
}

const KEYS: &str = "dw0, short-retrieve, delete-missing, list, exist, max-value, capacity, \
                    max-keys, order, latency, bandwidth, granularity";

impl FromStr for Personality {
    type Err = PersonalityError;

    fn from_str(text: &str) -> Result<Self, PersonalityError> {
        let mut personality = Self::default();
        let mut seen = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let Some((key, value)) = item.split_once('=') else {
                return Err(PersonalityError::NoValue { item: item.into() });
            };
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(PersonalityError::Repeated { key: key.into(), value: value.into() });
            }
            seen.push(key);
            set(&mut personality, key, value)?;
        }
        Ok(personality)
    }
}

fn set(personality: &mut Personality, key: &str, value: &str) -> Result<(), PersonalityError> {
    let wrong = |choices| PersonalityError::Value { key: key.into(), value: value.into(), choices };
    match key {
        "dw0" => {
            personality.retrieve_length = match value {
                "exact" => RetrieveLength::Exact,
                "padded" => RetrieveLength::Padded,
                "zero" => RetrieveLength::Zero,
                _ => return Err(wrong("exact, padded or zero")),
            }
        }
        "short-retrieve" => {
            personality.short_retrieve = match value {
                "success" => ShortRetrieve::Success,
                "error" => ShortRetrieve::InvalidValueSize,
                _ => return Err(wrong("success or error")),
            }
        }
        "delete-missing" => {
            personality.delete_missing = match value {
                "success" => DeleteMissing::Success,
                "error" => DeleteMissing::KeyNotFound,
                _ => return Err(wrong("success or error")),
            }
        }
        "list" => {
            personality.list = match value {
                "ordered" => ListSupport::Ordered,
                "unordered" => ListSupport::Unordered,
                "wrapping" => ListSupport::Wrapping,
                "absent" => ListSupport::Absent,
                _ => return Err(wrong("ordered, unordered, wrapping or absent")),
            }
        }
        "exist" => {
            personality.exist = match value {
                "yes" => true,
                "no" => false,
                _ => return Err(wrong("yes or no")),
            }
        }
        "max-value" => {
            personality.max_value_size = size(value)
                .and_then(|bytes| u32::try_from(bytes).ok())
                .ok_or_else(|| wrong("a size of at most 4294967295 bytes, such as 65536 or 64k"))?;
        }
        "capacity" => {
            personality.capacity_bytes =
                size(value).ok_or_else(|| wrong("a size in bytes, such as 1048576 or 1g"))?;
        }
        "max-keys" => {
            personality.max_keys = match value {
                "unlimited" => u64::MAX,
                _ => value.parse().map_err(|_| wrong("a number of keys or unlimited"))?,
            }
        }
        "order" => {
            let choices = "fifo or shuffled:SEED, SEED being a number";
            personality.completion_order = match (value, value.strip_prefix("shuffled:")) {
                ("fifo", _) => CompletionOrder::Fifo,
                (_, Some(seed)) => {
                    CompletionOrder::Shuffled { seed: seed.parse().map_err(|_| wrong(choices))? }
                }
                _ => return Err(wrong(choices)),
            }
        }
        "latency" => {
            personality.latency.base =
                duration(value).ok_or_else(|| wrong("a time, such as 100us, 5ms or 1s"))?;
        }
        "bandwidth" => {
            let choices = "bytes a second (at least 1), such as 500m or 1g, or unlimited";
            personality.latency.bytes_per_second = match value {
                "unlimited" => None,
                _ => Some(size(value).filter(|rate| *rate > 0).ok_or_else(|| wrong(choices))?),
            }
        }
        "granularity" => {
            personality.value_granularity = size(value)
                .and_then(|bytes| u32::try_from(bytes).ok())
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| wrong("a size of 1 to 4294967295 bytes, such as 4096 or 4k"))?;
        }
        _ => {
            return Err(PersonalityError::UnknownKey { key: key.into(), value: value.into() });
        }
    }
    Ok(())
}

impl fmt::Display for Personality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dw0 = match self.retrieve_length {
            RetrieveLength::Exact => "exact",
            RetrieveLength::Padded => "padded",
            RetrieveLength::Zero => "zero",
        };
        let short = match self.short_retrieve {
            ShortRetrieve::Success => "success",
            ShortRetrieve::InvalidValueSize => "error",
        };
        let missing = match self.delete_missing {
            DeleteMissing::Success => "success",
            DeleteMissing::KeyNotFound => "error",
        };
        let list = match self.list {
            ListSupport::Ordered => "ordered",
            ListSupport::Unordered => "unordered",
            ListSupport::Wrapping => "wrapping",
            ListSupport::Absent => "absent",
        };
        let exist = if self.exist { "yes" } else { "no" };
        write!(f, "dw0={dw0},short-retrieve={short},delete-missing={missing},list={list}")?;
        write!(f, ",exist={exist},max-value={}", size_text(self.max_value_size.into()))?;
        write!(f, ",capacity={}", size_text(self.capacity_bytes))?;
        match self.max_keys {
            u64::MAX => write!(f, ",max-keys=unlimited")?,
            keys => write!(f, ",max-keys={keys}")?,
        }
        match self.completion_order {
            CompletionOrder::Fifo => write!(f, ",order=fifo")?,
            CompletionOrder::Shuffled { seed } => write!(f, ",order=shuffled:{seed}")?,
        }
        write!(f, ",latency={}", duration_text(self.latency.base))?;
        match self.latency.bytes_per_second {
            None => write!(f, ",bandwidth=unlimited")?,
            Some(rate) => write!(f, ",bandwidth={}", size_text(rate))?,
        }
        write!(f, ",granularity={}", size_text(self.value_granularity.into()))
    }
}

const SIZE_UNITS: [(&str, u64); 4] =
    [("t", 1 << 40), ("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)];

fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = SIZE_UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((&text, 1));
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn size_text(bytes: u64) -> String {
    match SIZE_UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((suffix, unit)) => format!("{}{suffix}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Longest suffixes first: every other one ends in `s`.
const TIME_UNITS: [(&str, u128); 4] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

fn duration(text: &str) -> Option<Duration> {
    let (digits, unit) = TIME_UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))?;
    let nanos = u128::from(digits.parse::<u64>().ok()?) * unit;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

fn duration_text(time: Duration) -> String {
    let nanos = time.as_nanos();
    match TIME_UNITS.iter().rev().find(|(_, unit)| nanos.is_multiple_of(*unit)) {
        Some((suffix, unit)) => format!("{}{suffix}", nanos / unit),
        None => format!("{nanos}ns"),
    }
}
