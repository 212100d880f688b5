//! Wire profiles: how a logical request becomes the command a device gets.

use crate::{Command, Key, PassthroughCommand, PhysicalKey, StoreOptions};

/// Byte of the key that the `mooncake` profile overwrites: CDW14 bits 31:24.
const CSI_BYTE: usize = 11;

/// Which bytes a request turns into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WireProfile {
    /// What Mooncake's C++ backend sends: CDW14 bits 31:24 are the command set identifier 01h
    /// in place of key byte 11, CDW12 is a 0's based block count, and sizes are padded to the
    /// transfer alignment.
    #[default]
    Mooncake,
    /// The command set as specified: the whole key, CDW12 zero, exact value sizes.
    Spec,
}

/// What turns requests into commands for one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// The wire profile.
    pub profile: WireProfile,
    /// Namespace identifier.
    pub nsid: u32,
    /// Sizes of the `mooncake` profile are multiples of this, in bytes. Zero is taken as one.
    pub transfer_alignment: u32,
    /// Bytes per block of the `mooncake` profile's CDW12. Zero is taken as one.
    pub value_block_unit: u32,
    /// Timeout of every command in milliseconds; zero is the driver's default.
    pub timeout_ms: u32,
}

/// Mooncake's defaults: namespace 1, alignment 4096, block unit 512, 30 s.
impl Default for Wire {
    fn default() -> Self {
        Self {
            profile: WireProfile::Mooncake,
            nsid: 1,
            transfer_alignment: 4096,
            value_block_unit: 512,
            timeout_ms: 30_000,
        }
    }
}

impl Wire {
    /// The key that the device gets: `mooncake` sets byte 11 to 01h, `spec` changes nothing.
    pub fn device_key(&self, key: &PhysicalKey) -> Key {
        let mut bytes = key.0;
        if self.profile == WireProfile::Mooncake {
            bytes[CSI_BYTE] = crate::CSI_KV;
        }
        PhysicalKey(bytes).into()
    }

    /// Whether a key that a device lists can be the derived one: equal, except that the
    /// `mooncake` profile does not compare byte 11, which never holds key material there.
    pub fn same_key(&self, derived: &PhysicalKey, listed: &Key) -> bool {
        listed.physical().is_some_and(|listed| self.device_key(&listed) == self.device_key(derived))
    }

    /// Bytes of data buffer for a logical length.
    ///
    /// `mooncake`: rounded up to the transfer alignment. `spec`: rounded up to a multiple of 4,
    /// because Linux copies buffers of other lengths. Where the rounded length does not fit,
    /// `u32::MAX`.
    pub fn transfer_len(&self, logical: u32) -> u32 {
        let alignment = match self.profile {
            WireProfile::Mooncake => self.transfer_alignment.max(1),
            WireProfile::Spec => 4,
        };
        logical.checked_next_multiple_of(alignment).unwrap_or(u32::MAX)
    }

    /// A Store of `value_len` logical bytes from a buffer of
    /// [`transfer_len`](Self::transfer_len) bytes at `addr`.
    pub fn store(
        &self,
        key: &PhysicalKey,
        value_len: u32,
        options: StoreOptions,
        addr: u64,
    ) -> PassthroughCommand {
        let key = self.device_key(key);
        let value_len = self.wire_len(value_len);
        self.with_data(&Command::Store { key, value_len, options }, value_len, addr)
    }

    /// A Retrieve of `buffer_len` logical bytes into a buffer of
    /// [`transfer_len`](Self::transfer_len) bytes at `addr`.
    pub fn retrieve(&self, key: &PhysicalKey, buffer_len: u32, addr: u64) -> PassthroughCommand {
        let key = self.device_key(key);
        let buffer_len = self.wire_len(buffer_len);
        self.with_data(&Command::Retrieve { key, buffer_len, raw: false }, buffer_len, addr)
    }

    /// A Delete.
    pub fn delete(&self, key: &PhysicalKey) -> PassthroughCommand {
        self.command(&Command::Delete { key: self.device_key(key) })
    }

    /// An Exist.
    pub fn exist(&self, key: &PhysicalKey) -> PassthroughCommand {
        self.command(&Command::Exist { key: self.device_key(key) })
    }

    /// A List into a buffer of exactly `buffer_len` bytes at `addr`. `start` is a key as a
    /// device lists it and goes out unmodified.
    pub fn list(&self, start: Option<&Key>, buffer_len: u32, addr: u64) -> PassthroughCommand {
        let command = Command::List { start: start.copied(), buffer_len };
        PassthroughCommand { addr, data_len: buffer_len, ..self.command(&command) }
    }

    fn command(&self, command: &Command) -> PassthroughCommand {
        PassthroughCommand::new(command, self.nsid, self.timeout_ms)
    }

    /// `wire_len` is what CDW10 holds.
    fn with_data(&self, command: &Command, wire_len: u32, addr: u64) -> PassthroughCommand {
        PassthroughCommand {
            addr,
            data_len: self.transfer_len(wire_len),
            cdw12: self.block_count(wire_len),
            ..self.command(command)
        }
    }

    /// CDW10 of a logical length.
    fn wire_len(&self, logical: u32) -> u32 {
        match self.profile {
            WireProfile::Mooncake => self.transfer_len(logical),
            WireProfile::Spec => logical,
        }
    }

    /// CDW12 of a transfer: 0's based number of blocks in the `mooncake` profile.
    fn block_count(&self, transfer: u32) -> u32 {
        match self.profile {
            WireProfile::Mooncake => {
                transfer.div_ceil(self.value_block_unit.max(1)).saturating_sub(1)
            }
            WireProfile::Spec => 0,
        }
    }
}
