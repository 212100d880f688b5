//! The full comparison: when nothing is in flight any more, backend, device and ledger agree.

use nvme_kv_emulator::RetrieveLength;

use crate::device::FaultPlan;
use crate::world::{Checked, World, open_beside};

impl World {
    pub(crate) fn agree(&mut self) -> Checked {
        self.begin(FaultPlan::default(), "everything settles and is compared".to_string());
        self.settle();
        self.end("")?;
        for key in 0..self.key_count() {
            self.load_key(key)?;
            self.ask_key(key)?;
        }
        self.heal()?;
        if self.lists() {
            self.begin(FaultPlan::default(), "sweep, to compare".to_string());
            self.sweep_now(false)?;
            self.backend.reset_scan();
            self.scanned = false;
            self.begin(FaultPlan::default(), "scan, to compare".to_string());
            let found = self.scan_now(false)?;
            self.compare_with_device(found.len() as u64)?;
        }
        self.compare_with_fresh()
    }

    /// Offloads what is damaged again, or removes it.
    fn heal(&mut self) -> Checked {
        for key in 0..self.key_count() {
            let (damaged, suspected, stored) = {
                let object = &self.ledger.borrow().objects[key];
                (object.damaged, object.suspected, object.versions().next())
            };
            if !damaged && !suspected {
                continue;
            }
            // The same again must not be taken for stored.
            let version = match stored {
                Some(stored) if self.random.one_in(2) => stored,
                _ => self.any_version(key),
            };
            self.offload_batch(&[(key, version)], FaultPlan::default(), false, false)?;
            let healed = {
                let object = &self.ledger.borrow().objects[key];
                !object.damaged && !object.suspected
            };
            if healed {
                self.load_key(key)?;
                continue;
            }
            self.begin(FaultPlan::default(), format!("remove k{key}, which cannot be healed"));
            let name = self.ledger.borrow().keys[key].clone();
            let result = self.backend.remove(&name);
            self.ledger.get_mut().objects[key].removed();
            self.ledger.get_mut().junk[key] = true;
            self.end(&format!("-> {result:?}"))?;
        }
        Ok(())
    }

    fn compare_with_device(&mut self, reported: u64) -> Checked {
        let survey = self.survey();
        if let Some((key, roots)) = survey.roots.iter().find(|(_, roots)| roots.len() > 1) {
            let slots: Vec<u32> = roots.iter().map(|root| root.slot.get()).collect();
            return Err(format!("{} has roots in {slots:?} after a scan", key.escape_ascii()));
        }
        let objects = survey.roots.len() as u64;
        let (values, bytes) = survey.visible();
        let usage = self.backend.usage();
        // A device that reports no lengths cannot tell a chunk from a longer orphan that begins with its
        // bytes; such an orphan is accepted, and counted as what it stands for.
        let blind = self.namespace.personality().retrieve_length == RetrieveLength::Zero;
        let same_bytes = usage.bytes == bytes || (blind && usage.bytes < bytes);
        if (usage.objects, usage.values) != (objects, values) || !same_bytes {
            return Err(format!(
                "counters say {usage:?}; the device holds {objects} objects in {values} values \
                 of {bytes} bytes"
            ));
        }
        let held = self.namespace.usage();
        if (held.keys, held.bytes) != (values, bytes) {
            return Err(format!("the device holds {held:?}, objects are {values} values"));
        }
        if reported != objects {
            return Err(format!("{reported} objects were reported, {objects} are there"));
        }
        let commands = self.device.commands();
        for key in 0..self.key_count() {
            let there = survey.roots.contains_key(&self.ledger.borrow().keys[key]);
            let model = self.ledger.borrow().objects[key].clone();
            if there != model.versions().next().is_some() || there == model.may_be(None) {
                return Err(format!(
                    "{}, and is {} on the device",
                    self.ledger.borrow().describe(key),
                    if there { "there" } else { "not" }
                ));
            }
            self.ask_key(key)?;
        }
        if self.device.commands() != commands {
            return Err("a complete index asked the device".to_string());
        }
        for key in 0..self.key_count() {
            self.load_key(key)?;
        }
        Ok(())
    }

    /// What the next process would read.
    fn compare_with_fresh(&mut self) -> Checked {
        let fresh = open_beside(self);
        let living = std::mem::replace(&mut self.backend, fresh);
        let checked = (0..self.key_count()).try_for_each(|key| {
            self.load_key(key)?;
            self.ask_key(key).map(|_| ())
        });
        self.backend = living;
        checked.map_err(|violation| format!("in a fresh process: {violation}"))
    }
}
