//! Objects of every interesting size and content, on every kind of device.

mod support;

use support::characters::{Character, characters, full_size_characters};
use support::life::{Object, interesting_objects, key_of, large_objects, lives};
use support::{Rig, payload};

fn live_on(characters: Vec<Character>, objects: impl Fn(&Rig) -> Vec<Object>) {
    for Character { name, personality, settings } in characters {
        println!("a device that: {name}");
        let rig = Rig::with(personality, settings);
        let device = rig.open();
        for object in objects(&rig) {
            println!("  {} ({} bytes)", object.key.escape_ascii(), object.payload.len());
            lives(&rig, &device, &object);
        }
    }
}

#[test]
fn objects_of_every_size_and_content_live_on_every_device() {
    live_on(characters(), interesting_objects);
}

#[test]
fn objects_around_the_default_value_size_live_too() {
    live_on(full_size_characters(), |rig| {
        assert_eq!(rig.max_value_size(), 270_336);
        large_objects(rig)
    });
}

#[test]
fn two_hundred_rewrites_in_a_row_leave_one_object() {
    for Character { name, personality, settings } in characters() {
        println!("a device that: {name}");
        let rig = Rig::with(personality, settings);
        let device = rig.open();
        let chunk = rig.max_value_size() as usize;
        let key = key_of("rewritten");
        for round in 0..200 {
            // Inline and chunked versions take turns, growing and shrinking.
            let size = match round % 4 {
                0 => 100,
                1 => chunk + round,
                2 => 2 * chunk,
                _ => 2000 + round,
            };
            let bytes = payload(size, round as u64);
            assert!(!device.put(&key, &bytes).unwrap().already, "round {round}");
            assert_eq!(rig.value_count(), rig.values_of(&key, size), "round {round}");
            if round % 20 == 19 {
                device.expect(&key, &bytes);
                rig.open().expect(&key, &bytes);
            }
        }
    }
}

#[test]
fn two_hundred_rewrites_by_as_many_backends_leave_one_object() {
    let character = characters().swap_remove(0);
    let rig = Rig::with(character.personality, character.settings);
    let key = key_of("rewritten");
    for round in 0..200 {
        let bytes = payload(100 + 97 * round, round as u64);
        assert!(!rig.open().put(&key, &bytes).unwrap().already);
        assert_eq!(rig.value_count(), rig.values_of(&key, bytes.len()), "round {round}");
        rig.open().expect(&key, &bytes);
    }
}
