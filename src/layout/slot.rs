//! Where in a key's sequence of physical keys an object, or a piece of it, lives.

/// Number of slots a logical key has, hence of versions or colliding keys that can live side by
/// side (`MAX_PHYSICAL_KEY_SLOTS` in Mooncake).
pub const MAX_SLOTS: u32 = 64;

/// One of the [`MAX_SLOTS`] alternative positions of a logical key, `0..64`.
///
/// The lowest slot that holds a valid root is the visible version of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// Slot 0, where an object lives unless something else was there before it.
    pub const FIRST: Slot = Slot(0);

    /// The slot of that number; `None` from [`MAX_SLOTS`] on.
    pub fn new(number: u32) -> Option<Slot> {
        u8::try_from(number).ok().filter(|&n| u32::from(n) < MAX_SLOTS).map(Slot)
    }

    /// The slot's number, `0..64`.
    pub fn get(self) -> u32 {
        u32::from(self.0)
    }

    /// Every slot, lowest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator {
        (0..MAX_SLOTS as u8).map(Slot)
    }
}

/// Position of a chunk in its object, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkIndex(pub u32);
