use super::*;
use std::future::Future;
use std::pin::pin;
use std::task::Context;

const KEY: PhysicalKey = PhysicalKey([7; 16]);

/// Polls once with a waker that does nothing.
fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn mutations_of_one_key_run_one_after_the_other_in_order() {
    let table = KeyTable::new();
    let mut first = pin!(table.exclusive(KEY));
    let mut second = pin!(table.exclusive(KEY));
    let mut third = pin!(table.exclusive(KEY));
    let Poll::Ready(held) = poll(first.as_mut()) else { panic!("free key not granted") };
    assert!(poll(second.as_mut()).is_pending());
    assert!(poll(third.as_mut()).is_pending());
    drop(held);
    assert!(poll(third.as_mut()).is_pending(), "the third may not overtake");
    let Poll::Ready(held) = poll(second.as_mut()) else { panic!("second not granted") };
    drop(held);
    assert!(poll(third.as_mut()).is_ready());
}

#[test]
fn readers_share_and_a_waiting_mutation_is_not_overtaken_by_new_ones() {
    let table = KeyTable::new();
    let mut a = pin!(table.shared(KEY));
    let mut b = pin!(table.shared(KEY));
    let Poll::Ready(a) = poll(a.as_mut()) else { panic!() };
    let Poll::Ready(b) = poll(b.as_mut()) else { panic!() };
    let mut writer = pin!(table.exclusive(KEY));
    assert!(poll(writer.as_mut()).is_pending());
    let mut late = pin!(table.shared(KEY));
    assert!(poll(late.as_mut()).is_pending());
    drop(a);
    assert!(poll(writer.as_mut()).is_pending());
    drop(b);
    let Poll::Ready(held) = poll(writer.as_mut()) else { panic!() };
    assert!(poll(late.as_mut()).is_pending());
    drop(held);
    assert!(poll(late.as_mut()).is_ready());
}

#[test]
fn an_abandoned_wait_leaves_the_queue() {
    let table = KeyTable::new();
    let mut first = pin!(table.exclusive(KEY));
    let Poll::Ready(held) = poll(first.as_mut()) else { panic!() };
    {
        let mut abandoned = pin!(table.exclusive(KEY));
        assert!(poll(abandoned.as_mut()).is_pending());
    }
    drop(held);
    assert_eq!(table.len(), 0, "nothing left behind");
}

#[test]
fn a_pin_notices_a_mutation_before_during_and_after() {
    let table = KeyTable::new();
    let pin = table.pin(KEY);
    assert!(pin.if_undisturbed(|| ()));
    let mut writer = pin!(table.exclusive(KEY));
    let Poll::Ready(held) = poll(writer.as_mut()) else { panic!() };
    assert!(!pin.if_undisturbed(|| ()), "a mutation is in flight");
    assert!(pin.unchanged());
    held.bump();
    assert!(!pin.unchanged());
    let during = table.pin(KEY);
    drop(held);
    assert!(during.unchanged());
    assert!(!during.if_undisturbed(|| ()), "it began under a mutation");
    assert!(!pin.if_undisturbed(|| ()));
}

#[test]
fn cleaning_up_waits_for_old_readers_and_not_for_new_ones() {
    let table = KeyTable::new();
    let old = table.pin(KEY);
    let mut writer = pin!(table.exclusive(KEY));
    let Poll::Ready(held) = poll(writer.as_mut()) else { panic!() };
    held.bump();
    let new = table.pin(KEY);
    let mut gone = pin!(held.old_readers_gone());
    assert!(poll(gone.as_mut()).is_pending());
    drop(old);
    assert!(poll(gone.as_mut()).is_ready());
    drop(new);
}

#[test]
fn a_quarantine_outlives_its_holder_until_it_expires_and_is_reviewed() {
    let table = KeyTable::new();
    let slot = Slot::all().next().unwrap();
    let mark = Quarantine { slot, ghost: Ghost::Delete, until: Duration::from_secs(30) };
    let hold = || {
        let mut future = pin!(table.exclusive(KEY));
        match poll(future.as_mut()) {
            Poll::Ready(held) => held,
            Poll::Pending => panic!("free key not granted"),
        }
    };
    hold().quarantine(mark);
    assert_eq!(hold().review_quarantine(Duration::from_secs(29)), [mark]);
    assert_eq!(hold().review_quarantine(Duration::from_secs(30)), [mark], "seen once more");
    assert_eq!(hold().review_quarantine(Duration::from_secs(31)), []);
    assert_eq!(table.len(), 0);
}
