use super::*;

fn key(logical: &[u8]) -> Fingerprint {
    Fingerprint::of(&ObjectKeys::new(logical))
}

fn root(slot: u32) -> Root {
    Root { slot: Slot::new(slot).unwrap(), size: 5 }
}

fn record(slot: u32, only: bool) -> Record {
    let footprint = Footprint { values: 3, bytes: 12_288 };
    Record { root: root(slot), key: PhysicalKey([slot as u8; 16]), footprint, only }
}

#[test]
fn what_is_not_in_the_index_is_absent_only_once_it_is_complete() {
    let index = Index::new();
    assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
    index.set_complete();
    assert_eq!(index.get(&key(b"a")), Knowledge::Absent);
}

#[test]
fn a_visible_root_is_the_only_one_once_the_index_is_complete() {
    let index = Index::new();
    index.put(key(b"a"), &record(1, false));
    assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
    index.set_complete();
    assert_eq!(index.get(&key(b"a")), Knowledge::Only(root(1)));
}

#[test]
fn distrust_means_asking_the_device_even_when_the_index_is_complete() {
    let index = Index::new();
    index.set_complete();
    index.put(key(b"a"), &record(3, true));
    index.distrust(key(b"a"));
    assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
    assert_eq!(index.usage().objects, 1, "it still takes its room");
}

#[test]
fn reads_do_not_end_distrust_and_do_not_replace_what_is_known() {
    let index = Index::new();
    index.learn(key(b"a"), &record(1, false));
    index.learn(key(b"a"), &record(2, true));
    assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
    index.distrust(key(b"a"));
    index.learn(key(b"a"), &record(1, true));
    index.learn_scanned(key(b"a"), &record(1, true), ScanKind::Reporting);
    assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
    index.forget(&key(b"a"));
    assert_eq!(index.get(&key(b"a")), Knowledge::Unknown, "not proven absent for good");
    index.put(key(b"a"), &record(1, true));
    index.expect_hidden(&key(b"a"));
    assert_eq!(index.get(&key(b"a")), Knowledge::Visible(root(1)));
    index.set_complete();
    index.forget(&key(b"a"));
    assert_eq!(index.get(&key(b"a")), Knowledge::Absent);
}

#[test]
fn damage_is_forgotten_only_by_a_new_root() {
    let index = Index::new();
    index.set_damaged(key(b"a"));
    index.distrust(key(b"a"));
    index.learn(key(b"a"), &record(0, true));
    index.put_resolved(key(b"a"), &record(0, true), ScanKind::Reporting);
    index.forget(&key(b"a"));
    assert_eq!(index.get(&key(b"a")), Knowledge::Damaged);
    let victim = index.victim(&key(b"a")).unwrap();
    index.doubt(&victim);
    assert_eq!(index.get(&key(b"a")), Knowledge::Damaged);
    let shown = index.hide(&key(b"a"));
    index.distrust(key(b"a"));
    index.show_doubted(key(b"a"), shown);
    assert_eq!(index.get(&key(b"a")), Knowledge::Damaged);
    index.put(key(b"a"), &record(0, true));
    assert_eq!(index.get(&key(b"a")), Knowledge::Only(root(0)));
}

#[test]
fn a_scan_ends_doubts_about_what_it_has_not_met_and_nobody_has_touched() {
    let index = Index::new();
    let names: [&[u8]; 6] = [b"gone", b"damaged, gone", b"met", b"touched", b"hidden", b"new"];
    let [gone, damaged_gone, met, touched, hidden, new] = names.map(key);
    index.distrust(gone);
    for key in [damaged_gone, met, touched, hidden] {
        index.set_damaged(key);
    }
    index.begin_scan(ScanKind::Reporting);
    index.set_damaged(new);
    index.confirm_damaged(&met, ScanKind::Reporting);
    // A write that failed half-way, and an eviction that was refused.
    index.distrust(touched);
    let shown = index.hide(&hidden).unwrap();
    index.show(&hidden, shown);
    index.drop_doubted(ScanKind::Reporting);
    index.set_complete();
    for key in [gone, damaged_gone] {
        assert_eq!(index.get(&key), Knowledge::Absent);
    }
    for key in [met, touched, hidden, new] {
        assert_eq!(index.get(&key), Knowledge::Damaged);
    }
}

#[test]
fn usage_follows_every_change() {
    let index = Index::new();
    let one = Usage { objects: 1, values: 3, bytes: 12_288 };
    index.put(key(b"a"), &record(0, true));
    index.put(key(b"a"), &record(1, true));
    assert_eq!(index.usage(), one);
    index.hide(&key(b"a"));
    index.set_damaged(key(b"b"));
    assert_eq!(index.usage(), one);
    index.remove(&key(b"a"));
    assert_eq!(index.usage(), Usage::default());
}

#[test]
fn an_abandoned_scan_leaves_only_what_was_known_before() {
    let index = Index::new();
    index.put(key(b"old"), &record(0, true));
    index.begin_scan(ScanKind::Reporting);
    assert!(index.claim_for_scan(&key(b"old")));
    index.learn_scanned(key(b"new"), &record(0, false), ScanKind::Reporting);
    assert!(index.claim_for_scan(&key(b"new")));
    assert!(!index.claim_for_scan(&key(b"new")), "reported once");
    index.put(key(b"stored meanwhile"), &record(0, true));
    assert!(!index.claim_for_scan(&key(b"stored meanwhile")));
    index.abandon_scan(ScanKind::Reporting);
    assert_eq!(index.get(&key(b"new")), Knowledge::Unknown);
    assert_eq!(index.usage().objects, 2);
}

#[test]
fn what_two_scans_have_seen_outlives_the_failure_of_one() {
    let index = Index::new();
    index.begin_scan(ScanKind::Reporting);
    index.begin_scan(ScanKind::Silent);
    index.learn_scanned(key(b"both"), &record(0, false), ScanKind::Reporting);
    index.learn_scanned(key(b"both"), &record(0, false), ScanKind::Silent);
    index.learn_scanned(key(b"one"), &record(0, false), ScanKind::Reporting);
    index.abandon_scan(ScanKind::Reporting);
    assert_eq!(index.get(&key(b"both")), Knowledge::Visible(root(0)));
    assert_eq!(index.get(&key(b"one")), Knowledge::Unknown);
    index.learn_scanned(key(b"late"), &record(0, false), ScanKind::Reporting);
    index.set_complete();
    index.abandon_scan(ScanKind::Reporting);
    assert_eq!(index.get(&key(b"late")), Knowledge::Only(root(0)), "proven by the other scan");
}

/// Takes the `count` oldest.
fn oldest(index: &Index, count: usize) -> Vec<Fingerprint> {
    let need = Usage { objects: count as u64, ..Usage::default() };
    index.take_oldest(need, count).into_iter().map(|victim| victim.fingerprint).collect()
}

#[test]
fn the_oldest_unpinned_objects_are_chosen_oldest_first() {
    let index = Index::new();
    let name = |n: u32| key(&n.to_le_bytes());
    for n in 0..5000 {
        index.put(name(n), &record(0, true));
        if n != 3 {
            index.unpin(&name(n));
        }
    }
    index.touch(&name(0));
    assert_eq!(oldest(&index, 4), [name(1), name(2), name(4), name(5)]);
    index.touch(&name(6));
    assert_eq!(oldest(&index, 1), [name(7)], "used since it was found to be old");
    assert!(oldest(&index, 6000).len() < 1024, "what was found first");
    let rest = oldest(&index, 6000);
    assert!(rest.len() > 4000 && rest.contains(&name(4999)) && !rest.contains(&name(3)));
}

#[test]
fn what_a_scan_found_is_older_than_what_was_used_since_opening() {
    let index = Index::new();
    index.put(key(b"stored"), &record(0, true));
    index.unpin(&key(b"stored"));
    index.learn_scanned(key(b"scanned"), &record(0, true), ScanKind::Silent);
    assert_eq!(oldest(&index, 2), [key(b"scanned"), key(b"stored")]);
}

#[test]
fn an_object_is_pinned_until_every_callback_has_returned() {
    let index = Index::new();
    index.put(key(b"a"), &record(0, true));
    index.put(key(b"a"), &record(1, true));
    index.unpin(&key(b"a"));
    assert_eq!(oldest(&index, 1), []);
    index.unpin(&key(b"a"));
    assert_eq!(oldest(&index, 1), [key(b"a")]);
}

#[test]
fn a_victim_that_was_rewritten_is_not_forgotten() {
    let index = Index::new();
    index.put(key(b"a"), &record(0, true));
    index.unpin(&key(b"a"));
    let victims = index.take_oldest(Usage { objects: 1, ..Usage::default() }, 1);
    index.put(key(b"a"), &record(1, true));
    index.unpin(&key(b"a"));
    index.doubt(&victims[0]);
    assert_eq!(index.get(&key(b"a")), Knowledge::Only(root(1)));
}

#[test]
fn what_is_being_rewritten_counts_although_its_root_is_not_where_it_was() {
    let index = Index::new();
    index.put(key(b"a"), &record(0, true));
    index.unpin(&key(b"a"));
    let victims = index.take_oldest(Usage { objects: 1, ..Usage::default() }, 1);
    assert!(index.pin(&key(b"a")));
    index.doubt(&victims[0]);
    assert_eq!(index.usage().objects, 1);
    index.unpin(&key(b"a"));
    index.doubt(&victims[0]);
    assert_eq!(index.usage().objects, 0);
    assert_eq!(index.get(&key(b"a")), Knowledge::Unknown);
}
