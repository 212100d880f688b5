//! Objects that were written under other settings, by the C++ original or by this library.

mod support;

use mooncake_nvme_kv::layout::ChecksumKind;
use nvme_kv_emulator::Personality;
use support::characters::{length_tellers, small_values};
use support::places::{Piece, Places};
use support::{Rig, payload};

const KEY: &[u8] = b"tenant\0object";
/// Value size limit of the rigs, bytes.
const VALUE: usize = 8192;
const INLINE: usize = 700;

fn small_rig() -> Rig {
    Rig::with(Personality::default(), small_values)
}

#[test]
fn objects_written_with_another_value_limit_are_read_recognised_and_rewritten() {
    for theirs in [4096, 16_384, 65_536] {
        for size in [0, INLINE, 7000, 8150, 15_000, 2 * VALUE, 5 * VALUE + 4095, 70_000] {
            for slot in [0, 4] {
                let rig = small_rig();
                let places = Places::new(&rig, KEY, 8);
                let writer = Places::new(&rig, KEY, 20).with_limit(theirs);
                let old = payload(size, 6);
                writer.put_object(&rig, slot, &old);
                let values = rig.value_count();
                let device = rig.open();
                device.expect(KEY, &old);
                device.expect(KEY, &old);
                assert!(device.put(KEY, &old).unwrap().already);
                assert!(rig.open().put(KEY, &old).unwrap().already);
                assert_eq!(rig.value_count(), values);
                let mut memory = vec![0; size + 1];
                let odd = 1 - memory.as_ptr() as usize % 2;
                rig.open().get_into(KEY, &mut memory[odd..odd + size]).unwrap();
                assert!(memory[odd..odd + size] == old[..]);

                let new = payload(3 * VALUE, 7);
                assert!(!rig.open().put(KEY, &new).unwrap().already);
                assert_eq!(places.on_device(&rig), places.object(u32::from(slot == 0), new.len()));
                rig.open().expect(KEY, &new);
            }
        }
    }
}

#[test]
fn objects_padded_to_another_alignment_are_read_recognised_and_rewritten() {
    for personality in length_tellers() {
        for (theirs, ours) in [(4096, 512), (512, 4096), (8192, 4096)] {
            for size in [INLINE, 5000, VALUE + 100, 2 * VALUE + 4100] {
                let mut rig = Rig::with(personality.clone(), small_values);
                let (old, new) = (payload(size, 1), payload(size, 2));
                rig.config.connector.transfer_alignment = theirs;
                rig.open().put(KEY, &old).unwrap();
                let values = rig.value_count();
                rig.config.connector.transfer_alignment = ours;
                let device = rig.open();
                device.expect(KEY, &old);
                assert!(device.put(KEY, &old).unwrap().already);
                assert!(rig.open().put(KEY, &old).unwrap().already);
                assert!(!rig.open().put(KEY, &new).unwrap().already);
                assert_eq!(rig.value_count(), values);
                rig.open().expect(KEY, &new);
            }
        }
    }
}

#[test]
fn both_checksums_are_readable_side_by_side_and_recognised() {
    let name = |kind| format!("{kind:?}").into_bytes();
    let kinds = [ChecksumKind::Xxh32, ChecksumKind::Crc32];
    for size in [0, INLINE, 3 * VALUE + 1] {
        let mut rig = small_rig();
        let bytes = payload(size, 8);
        for kind in kinds {
            rig.config.checksum = kind;
            rig.open().put(&name(kind), &bytes).unwrap();
            // The C++ original's objects have type 1 and 2, ours with CRC-32 0x101 and 0x102.
            let writer = Places::new(&rig, &name(kind), 8).with_checksum(kind);
            let root = rig.namespace.peek(&writer.device_key(Piece::Root(0))).unwrap();
            assert!(root.starts_with(&writer.root(0, &bytes)));
        }
        let values = rig.value_count();
        for setting in kinds {
            rig.config.checksum = setting;
            for written in kinds {
                let device = rig.open();
                device.expect(&name(written), &bytes);
                assert!(device.put(&name(written), &bytes).unwrap().already);
                device.expect(&name(written), &bytes);
            }
        }
        assert_eq!(rig.value_count(), values);
        let new = payload(size + 2, 9);
        for (setting, written) in kinds.into_iter().zip([kinds[1], kinds[0]]) {
            rig.config.checksum = setting;
            assert!(!rig.open().put(&name(written), &new).unwrap().already);
            rig.open().expect(&name(written), &new);
        }
        assert_eq!(rig.value_count(), 2 * rig.values_of(&name(kinds[0]), new.len()));
    }
}
