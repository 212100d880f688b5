//! What may be read of each key, by the rules of one key and docs/faults.md.

use std::collections::BTreeSet;

/// A version of some key; 0 is the first.
pub(crate) type Version = usize;

/// What one key may be: absent, or one of its versions.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// All that the key may be now. Several after failures that say so, and after crashes.
    pub(crate) possible: BTreeSet<Option<Version>>,
    /// Commands of unknown outcome may still change which of them it is.
    pub(crate) unsettled: bool,
    /// Its bytes were damaged on the device: it may be reported as such, or be gone.
    pub(crate) damaged: bool,
    /// The backend has reported that, and so must really write it at the next offload.
    pub(crate) reported: bool,
    /// A read or scan met damage on the way from the device, and the backend may not trust what
    /// is stored until the next offload.
    pub(crate) suspected: bool,
    /// To change it failed: the backend may know less of it than before, until a write, or a scan,
    /// even one that fails later, looks at all slots.
    pub(crate) doubted: bool,
}

impl Object {
    pub(crate) fn absent() -> Object {
        Object {
            possible: BTreeSet::from([None]),
            unsettled: false,
            damaged: false,
            reported: false,
            suspected: false,
            doubted: false,
        }
    }

    /// It was acknowledged.
    pub(crate) fn stored(&mut self, version: Version) {
        self.possible = BTreeSet::from([Some(version)]);
    }

    /// It was really written, and not found to be stored already, which damage that no read has
    /// met may belie.
    pub(crate) fn written(&mut self) {
        self.damaged = false;
        self.reported = false;
        self.suspected = false;
        self.doubted = false;
    }

    /// It was removed or evicted for certain.
    pub(crate) fn removed(&mut self) {
        self.possible = BTreeSet::from([None]);
        self.damaged = false;
        self.reported = false;
        self.suspected = false;
        self.doubted = false;
    }

    /// It may have become so.
    pub(crate) fn perhaps(&mut self, state: Option<Version>) {
        self.possible.insert(state);
    }

    pub(crate) fn may_be(&self, state: Option<Version>) -> bool {
        self.possible.contains(&state)
    }

    pub(crate) fn may_be_absent(&self) -> bool {
        self.damaged || self.may_be(None)
    }

    /// Something was seen that only these explain.
    pub(crate) fn seen(&mut self, explains: impl Fn(Option<Version>) -> bool) {
        if !self.unsettled && !self.damaged {
            self.possible.retain(|state| explains(*state));
        }
    }

    /// The versions it may be.
    pub(crate) fn versions(&self) -> impl Iterator<Item = Version> + '_ {
        self.possible.iter().filter_map(|state| *state)
    }
}
