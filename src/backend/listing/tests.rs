use std::collections::BTreeSet;

use nvme_kv_command_set::ListPageBuilder;

use super::*;

/// How a device lists.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Sorted,
    /// Begins again after the last key.
    Wrapping,
    /// In another order than key order.
    Unordered,
    /// In another order; from the start if the start key is missing.
    Forgetful,
    /// Leaves the start key out.
    Exclusive,
}

struct Device {
    manner: Manner,
    keys: BTreeSet<Key>,
    /// Bytes of a page that are used.
    page: usize,
}

fn key(n: u32) -> Key {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&n.wrapping_mul(0x9E37_79B9).to_be_bytes());
    Key::new(&bytes).expect("16 bytes")
}

impl Device {
    fn order(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.keys.iter().copied().collect();
        if let Manner::Unordered | Manner::Forgetful = self.manner {
            keys.sort_by_key(|key| key.as_bytes()[..4].iter().rev().copied().collect::<Vec<_>>());
        }
        keys
    }

    fn list(&self, start: Option<&Key>, page: &mut [u8]) {
        let order = self.order();
        let place = start.and_then(|start| order.iter().position(|key| key == start));
        let after = |start: &Key| order.iter().position(|key| key > start).unwrap_or(order.len());
        let from = match (start, place, self.manner) {
            (None, ..) => 0,
            (Some(_), Some(place), Manner::Exclusive) => place + 1,
            (Some(_), Some(place), _) => place,
            (Some(_), None, Manner::Unordered | Manner::Forgetful) => 0,
            (Some(start), None, _) => after(start),
        };
        let wrapped = if self.manner == Manner::Wrapping { from } else { 0 };
        let mut builder = ListPageBuilder::new(self.page);
        let _ = order[from..].iter().chain(&order[..wrapped]).all(|key| builder.push(key));
        let bytes = builder.finish();
        page[..bytes.len()].copy_from_slice(&bytes);
    }
}

const MANNERS: [Manner; 5] =
    [Manner::Sorted, Manner::Wrapping, Manner::Unordered, Manner::Forgetful, Manner::Exclusive];

/// All keys of a walk; `meanwhile` sees each page before the next is asked for.
fn walk(device: &mut Device, meanwhile: &mut dyn FnMut(&mut Device, &[Key])) -> Vec<Key> {
    let mut listing = Listing::new();
    let mut all = Vec::new();
    for _ in 0..100_000 {
        let keys = listing
            .advance(&mut |start, page| {
                device.list(start, page);
                Ok(())
            })
            .expect("a device that lists");
        if keys.is_empty() {
            return all;
        }
        meanwhile(device, &keys);
        all.extend(keys);
    }
    panic!("{:?}: the walk does not end", device.manner);
}

#[test]
fn every_key_is_met_once_whatever_the_order_and_the_page() {
    for manner in MANNERS {
        for (count, page) in [(0, 200), (1, 200), (9, 64), (500, 64), (500, 1000), (500, 65_536)] {
            let mut device = Device { manner, keys: (0..count).map(key).collect(), page };
            let mut met = walk(&mut device, &mut |_, _| {});
            met.sort();
            let expected: Vec<Key> = device.keys.iter().copied().collect();
            assert_eq!(met, expected, "{manner:?}, {count} keys, pages of {page} bytes");
        }
    }
}

#[test]
fn keys_that_stay_are_met_even_if_others_vanish_and_appear_meanwhile() {
    for manner in MANNERS {
        // Every third key stays; all others go as soon as they were listed, and new ones come.
        let mut device = Device { manner, keys: (0..900).map(key).collect(), page: 500 };
        let staying: BTreeSet<Key> = (0..900).step_by(3).map(key).collect();
        let mut fresh = 1000;
        let met = walk(&mut device, &mut |device, page| {
            device.keys.retain(|key| !page.contains(key) || staying.contains(key));
            device.keys.insert(key(fresh));
            fresh += 1;
        });
        let met: BTreeSet<Key> = met.into_iter().collect();
        assert!(met.is_superset(&staying), "{manner:?}");
    }
}

#[test]
fn a_walk_whose_every_key_is_deleted_meets_the_rest() {
    for manner in MANNERS {
        let mut device = Device { manner, keys: (0..900).map(key).collect(), page: 500 };
        let all = device.keys.clone();
        let met = walk(&mut device, &mut |device, page| {
            device.keys.retain(|key| !page.contains(key));
        });
        assert_eq!(met.into_iter().collect::<BTreeSet<Key>>(), all, "{manner:?}");
    }
}
