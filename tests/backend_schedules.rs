//! The whole backend on threads whose every step a scheduler decides (shuttle), under thousands
//! of schedules: nothing blocks for ever, nobody reads a stale or mixed value, and in the end
//! index and device agree.
//!
//! Only this build has shuttle's primitives in the backend:
//!
//! ```sh
//! RUSTFLAGS=--cfg=shuttle cargo test --target-dir target/shuttle --test backend_schedules
//! ```

#![cfg(shuttle)]

mod schedules;
mod support;

use mooncake_nvme_kv::backend::ObjectToStore;
use mooncake_nvme_kv::config::{Config, EvictionPolicy};
use schedules::history::What;
use schedules::{World, below, explore, explore_long};
use shuttle::thread;
use support::payload;
use support::places::Piece;

#[test]
fn writes_loads_and_removals_of_the_same_keys_have_an_order() {
    explore(|| {
        let world = World::new(2, |_| {});
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..3).for_each(|_| world.any_step().expect("an open backend")));
            }
        });
        world.settle();
    });
}

#[test]
fn whoever_has_read_a_new_version_does_not_read_the_old_one_again() {
    explore(|| {
        let world = World::new(1, |_| {});
        world.put(0, 1).expect("an open backend");
        thread::scope(|scope| {
            scope.spawn(|| world.put(0, 2).expect("an open backend"));
            for _ in 0..2 {
                scope.spawn(|| {
                    for version in [2, 1, 2] {
                        world.get(0, version).expect("an open backend");
                    }
                });
            }
        });
        world.settle();
    });
}

fn of_two_objects(config: &mut Config) {
    config.lifecycle.max_objects = 2;
}

#[test]
fn objects_are_evicted_after_their_writer_was_told_and_after_the_handler_was() {
    explore(|| {
        let mut world = World::new(3, of_two_objects);
        world.refuses = below(2) == 0;
        let world = world;
        thread::scope(|scope| {
            for key in 0..3 {
                let world = &world;
                scope.spawn(move || {
                    for _ in 0..2 {
                        let version = below(6);
                        // Without room it is refused.
                        let _ = world.put_and(key, version, || {
                            let seen = world.get(key, version).expect("an open backend");
                            assert_eq!(seen, What::Loaded(version), "gone before its writer knew");
                        });
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..4 {
                    world.get(world.any_key(), below(3)).expect("an open backend");
                }
            });
            scope.spawn(|| world.evict().expect("an eviction"));
        });
        let usage = world.backend.usage();
        assert!(usage.objects <= 2, "the limit holds: {usage:?}");
        world.settle();
    });
}

#[test]
fn a_scan_beside_writes_loads_and_removals_finds_what_stays() {
    explore(|| {
        let world = World::of_remains(|config| config.lifecycle.scan_page = 1);
        thread::scope(|scope| {
            scope.spawn(|| {
                let scanned = world.scan().expect("a scan");
                assert!(scanned.contains(&2), "nobody touched it: {scanned:?}");
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        let key = below(2);
                        match below(4) {
                            0 => world.put(key, below(6)).expect("an open backend"),
                            1 => world.remove(key).expect("an open backend"),
                            2 => drop(world.get(key, below(3)).expect("an open backend")),
                            _ => drop(world.exists(key).expect("an open backend")),
                        }
                    }
                });
            }
        });
        world.settle();
    });
}

#[test]
fn an_eviction_beside_a_scan_scans_for_itself_and_takes_nothing_that_is_being_told() {
    explore(|| {
        let world = World::of_remains(|config| config.lifecycle.scan_page = 1);
        thread::scope(|scope| {
            scope.spawn(|| world.scan().expect("a scan"));
            scope.spawn(|| world.evict().expect("an eviction"));
            scope.spawn(|| {
                world.put(world.any_key(), below(6)).expect("an open backend");
                world.get(world.any_key(), below(3)).expect("an open backend");
            });
        });
        world.settle();
    });
}

#[test]
fn a_sweep_beside_writes_takes_orphans_and_no_chunk_of_an_object() {
    explore(|| {
        let world = World::with(
            2,
            |_| {},
            |rig, places| {
                // What a crash left of a write of key 0, and bytes that no write makes.
                places[0].put_chunks(rig, 0, &schedules::bytes_of(0, 2));
                places[1].put(rig, Piece::Chunk(3, 0), &payload(100, 1));
            },
        );
        thread::scope(|scope| {
            scope.spawn(|| world.backend.sweep(false).expect("a sweep"));
            scope.spawn(|| world.put(0, [2, 5][below(2) as usize]).expect("an open backend"));
            scope.spawn(|| {
                world.put(1, 1).expect("an open backend");
                world.put(1, 2).expect("an open backend");
            });
            scope.spawn(|| world.get(0, 2).expect("an open backend"));
        });
        assert!(matches!(world.get(0, 2), Ok(What::Loaded(2 | 5))), "acknowledged");
        assert_eq!(world.get(1, 2).expect("an open backend"), What::Loaded(2), "acknowledged");
        world.settle();
    });
}

#[test]
fn after_a_close_nothing_reaches_the_device_and_what_was_acknowledged_is_there() {
    explore(|| {
        let world = World::new(3, of_two_objects);
        thread::scope(|scope| {
            for _ in 0..2 {
                // Until the backend refuses.
                scope.spawn(|| (0..3).try_for_each(|_| world.any_step()));
            }
            scope.spawn(|| world.evict());
            scope.spawn(|| world.scan());
            scope.spawn(|| world.close());
            scope.spawn(|| world.close());
        });
        world.settle();
    });
}

#[test]
fn a_batch_on_several_lanes_is_reported_once_each_while_others_read_and_rewrite_it() {
    explore_long(20, || {
        let world = World::new(1, |config| config.lifecycle.eviction = EvictionPolicy::Fifo);
        // Two lanes' worth of objects.
        let names: Vec<Vec<u8>> = (0..256).map(|n| format!("batch {n}").into_bytes()).collect();
        let objects: Vec<_> =
            names.iter().map(|key| ObjectToStore { key, slices: &[b"payload"] }).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut told = vec![0; objects.len()];
                let mut calls = 0;
                let report = world.backend.offload(&objects, &mut |stored| {
                    stored.iter().for_each(|position| told[*position] += 1);
                    calls += 1;
                    // No lane waits for the callback, so it may call back in.
                    if calls <= 4 { world.put(0, below(6)) } else { Ok(()) }
                });
                let report = report.expect("an open backend");
                assert!(
                    report.callback_error.is_none() && report.results.iter().all(Result::is_ok)
                );
                assert!(told.iter().all(|times| *times == 1), "told once each");
            });
            scope.spawn(|| (0..3).for_each(|_| world.any_step().expect("an open backend")));
            scope.spawn(|| {
                for name in &names[..8] {
                    world.backend.exists(name).expect("an open backend");
                }
            });
        });
        let removed = names.iter().filter(|name| world.backend.remove(name).is_ok()).count();
        assert_eq!(removed, names.len());
        world.settle();
    });
}
