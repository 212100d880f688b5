//! What happened to one key, and whether it could have happened in some order.
//!
//! Calls overlap. A history is sound (linearizable) if there is one order of all events in which
//! each takes effect at a single moment between its begin and its end.

use std::collections::HashSet;

use super::size_of;

/// Which payload of a key.
pub type Version = u64;

/// What a call did to a key, or saw of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Stored this version, or found it stored.
    Stored(Version),
    /// Removed what was there.
    Removed,
    /// Deleted what was there, after the handler had been told.
    Evicted,
    /// Hid what was there until the handler objected,
    Hidden,
    /// and showed it again.
    Shown,
    /// Loaded this version.
    Loaded(Version),
    /// Found no object.
    Absent,
    /// Found some object.
    Present,
    /// Found an object of so many bytes.
    Sized(usize),
    /// Found an object, but not of so many bytes.
    NotSized(usize),
}

/// Something that happened between two readings of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub what: What,
    pub begin: u64,
    pub end: u64,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>5} to {:>5}: {:?}", self.begin, self.end, self.what)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Absent,
    Stored(Version),
    Hidden(Version),
}

impl State {
    /// What `what` makes of it; `None`: that cannot happen.
    fn after(self, what: What) -> Option<State> {
        use State::{Absent, Hidden, Stored};
        match (what, self) {
            (What::Stored(new), Absent | Stored(_)) => Some(Stored(new)),
            (What::Removed | What::Evicted, Stored(_)) => Some(Absent),
            (What::Hidden, Stored(version)) => Some(Hidden(version)),
            (What::Shown, Hidden(version)) => Some(Stored(version)),
            (What::Loaded(seen), Stored(version)) => (seen == version).then_some(self),
            (What::Absent, Absent | Hidden(_)) => Some(self),
            (What::Present, Stored(_)) => Some(self),
            (What::Sized(len), Stored(version)) => (size_of(version) == len).then_some(self),
            (What::NotSized(len), Stored(version)) => (size_of(version) != len).then_some(self),
            _ => None,
        }
    }
}

/// Whether `events` have an order in which each is possible, from nothing stored.
pub fn is_sound(events: &[Event]) -> bool {
    assert!(events.len() <= 64, "a bit for every event");
    extend(events, 0, State::Absent, &mut HashSet::new())
}

/// Whether those that are not in `done` can follow.
fn extend(events: &[Event], done: u64, state: State, tried: &mut HashSet<(u64, State)>) -> bool {
    let left = || events.iter().enumerate().filter(|(place, _)| done & (1 << place) == 0);
    let Some(first_end) = left().map(|(_, event)| event.end).min() else { return true };
    if !tried.insert((done, state)) {
        return false;
    }
    left().filter(|(_, event)| event.begin < first_end).any(|(place, event)| {
        let next = state.after(event.what);
        next.is_some_and(|next| extend(events, done | 1 << place, next, tried))
    })
}

/// The judge of all other tests is judged first.
#[test]
fn only_histories_with_a_possible_order_are_sound() {
    let event = |what, begin, end| Event { what, begin, end };
    let stored = event(What::Stored(1), 0, 5);
    assert!(is_sound(&[stored, event(What::Loaded(1), 3, 4), event(What::Absent, 1, 2)]));
    assert!(!is_sound(&[stored, event(What::Loaded(1), 1, 2), event(What::Absent, 3, 4)]), "back");
    assert!(!is_sound(&[stored, event(What::Absent, 6, 7)]), "lost");
    assert!(!is_sound(&[stored, event(What::Loaded(2), 6, 7)]), "never stored");
    let rewritten = event(What::Stored(2), 6, 9);
    assert!(is_sound(&[stored, rewritten, event(What::Loaded(1), 7, 8)]));
    assert!(!is_sound(&[stored, rewritten, event(What::Loaded(1), 10, 11)]), "stale");
    let (hidden, shown) = (event(What::Hidden, 6, 8), event(What::Shown, 8, 10));
    assert!(is_sound(&[stored, hidden, shown, event(What::Absent, 7, 9)]));
    assert!(!is_sound(&[stored, hidden, shown, event(What::Absent, 11, 12)]), "not shown");
    assert!(!is_sound(&[stored, event(What::Evicted, 6, 7), event(What::Evicted, 8, 9)]), "twice");
}
