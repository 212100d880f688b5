//! What one device does differently from another.

use std::time::Duration;

/// Behaviour of an emulated device. The default is a device that follows the
/// specification, with room for 1 TiB and values of up to 512 KiB.
///
/// As text (`FromStr`, `Display`): `dw0=zero,short-retrieve=error,max-value=64k`.
#[derive(Clone, Debug, PartialEq)]
pub struct Personality {
    /// Length a Retrieve reports in completion dword 0.
    pub retrieve_length: RetrieveLength,
    /// Answer to a Retrieve whose buffer is smaller than the value.
    pub short_retrieve: ShortRetrieve,
    /// Answer to a Delete of a key that is not there.
    pub delete_missing: DeleteMissing,
    /// Order and presence of List.
    pub list: ListSupport,
    /// Whether Exist is there; without it the answer is Invalid Opcode.
    pub exist: bool,
    /// Largest value in bytes; a larger Store ends with Invalid Value Size.
    pub max_value_size: u32,
    /// Bytes of values the namespace holds before Capacity Exceeded.
    pub capacity_bytes: u64,
    /// Keys the namespace holds before Capacity Exceeded; `u64::MAX` for no limit.
    pub max_keys: u64,
    /// Order in which a submitter should complete commands in flight together.
    pub completion_order: CompletionOrder,
    /// Time a command takes, as reported with its completion.
    pub latency: Latency,
    /// Unit in bytes to which [`RetrieveLength::Padded`] rounds up; at least 1.
    pub value_granularity: u32,
}

impl Default for Personality {
    fn default() -> Self {
        Self {
            retrieve_length: RetrieveLength::Exact,
            short_retrieve: ShortRetrieve::Success,
            delete_missing: DeleteMissing::Success,
            list: ListSupport::Ordered,
            exist: true,
            max_value_size: 512 * 1024,
            capacity_bytes: 1 << 40,
            max_keys: u64::MAX,
            completion_order: CompletionOrder::Fifo,
            latency: Latency { base: Duration::ZERO, bytes_per_second: None },
            value_granularity: 4096,
        }
    }
}

/// Length a successful Retrieve reports in completion dword 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrieveLength {
    /// The value size that its Store gave in CDW10.
    Exact,
    /// That size rounded up to [`Personality::value_granularity`].
    Padded,
    /// Always 0: the device does not say.
    Zero,
}

/// Answer to a Retrieve whose buffer is smaller than the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortRetrieve {
    /// Success with the leading bytes, and the length in dword 0.
    Success,
    /// Invalid Value Size (85h), no data, dword 0 zero.
    InvalidValueSize,
}

/// Answer to a Delete of a key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteMissing {
    /// Success, the default of the specification.
    Success,
    /// Key Does Not Exist (87h), as with the feature EDNEK enabled.
    KeyNotFound,
}

/// Order and presence of List.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListSupport {
    /// Byte order of the keys.
    Ordered,
    /// A fixed order that is not byte order. A start key that is not there
    /// stands where it would be in that order.
    Unordered,
    /// Byte order, and on past the last key from the first one until the
    /// buffer is full or every key was returned once.
    Wrapping,
    /// No List: Invalid Opcode.
    Absent,
}

/// Order in which commands in flight together complete.
///
/// A [`Namespace`](crate::Namespace) executes one command a call; this is for
/// the submitter that holds several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOrder {
    /// As submitted.
    Fifo,
    /// In an order drawn from a generator with this seed.
    Shuffled {
        /// Seed of the generator.
        seed: u64,
    },
}

/// Time model of a device: a constant and a bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Time of a command that moves no data.
    pub base: Duration,
    /// Bandwidth in bytes a second; `None` for an unlimited one.
    pub bytes_per_second: Option<u64>,
}

impl Latency {
    /// Time of a command that moves `bytes` bytes.
    pub fn of(&self, bytes: u64) -> Duration {
        let Some(rate) = self.bytes_per_second else { return self.base };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        self.base.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}
