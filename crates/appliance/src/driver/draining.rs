//! Volumes end, one or all of them: the worker's part.
//!
//! One that is removed refuses what comes, and its clients are disconnected when what is in flight was answered. When the worker itself ends, others will serve its volumes next: clients
//! are refused nothing, but hear the end (see `service/leaving.rs`), and the worker stays until they have.

use super::flash::VolumeFlash;
use super::worker::Worker;
use crate::appliance::Drained;
use crate::slab::SlabKey;
use crate::volume::VolumeMachine;
use forebay_units::Nanos;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

pub(super) struct Draining {
    volume: SlabKey,
    pub(super) deadline: Nanos,
    /// Whether flash is to hold for the next start what it holds of the volume.
    keeps_flash: bool,
    reply: Option<SyncSender<Drained>>,
}

/// All volumes end, and then the worker.
pub(super) struct Ending {
    reply: SyncSender<Drained>,
    /// The worst of all volumes.
    drained: Drained,
    pub(super) deadline: Nanos,
}

impl Worker {
    pub(super) fn hurry(&mut self, deadline: Nanos) {
        self.drains_until = Some(deadline);
        for draining in &mut self.draining {
            draining.deadline = draining.deadline.min(deadline);
        }
        if let Some(ending) = &mut self.ending {
            ending.deadline = ending.deadline.min(deadline);
        }
    }

    pub(super) fn remove(
        &mut self,
        now: Nanos,
        volume: SlabKey,
        timeout: Duration,
        reply: SyncSender<Drained>,
    ) {
        if let Some(machine) = self.service.volume(volume) {
            machine.drain();
        }
        let deadline = now.saturating_add(timeout.into());
        let deadline = self.drains_until.map_or(deadline, |until| deadline.min(until));
        self.draining.push(Draining { volume, deadline, keeps_flash: false, reply: Some(reply) });
    }

    pub(super) fn end(&mut self, now: Nanos, timeout: Duration, reply: SyncSender<Drained>) {
        let deadline = now.saturating_add(timeout.into());
        self.hurry(deadline);
        // Who does not wait at all does not stop in order, even where nothing happens to be in flight.
        let is_in_order = !timeout.is_zero();
        for volume in self.service.volume_keys() {
            if is_in_order {
                self.service.leave(volume);
            } else if let Some(machine) = self.service.volume(volume) {
                machine.drain();
            }
            self.draining.push(Draining { volume, deadline, keeps_flash: is_in_order, reply: None });
        }
        self.ending = Some(Ending { reply, drained: Drained::Completely, deadline });
    }

    pub(super) fn check_drained(&mut self, now: Nanos) {
        for draining in std::mem::take(&mut self.draining) {
            let volume = draining.volume;
            let is_idle = self.service.volume(volume).is_none_or(|machine| machine.is_idle());
            if is_idle {
                self.service.bid_farewell(volume);
                self.look_at_changed(now, &mut Vec::new());
            }
            let is_done = is_idle && self.service.is_flushed(volume) && self.service.has_parted(volume);
            if !is_done && now < draining.deadline {
                self.draining.push(draining);
                continue;
            }
            let machine = self.service.remove_volume(volume);
            let failure = machine.as_ref().and_then(|machine| machine.last_flush_failure());
            if let Some(reason) = failure {
                let origin = self.origin_of(volume).describe();
                tracing::error!(%origin, reason, "the origin did not flush what it had acknowledged; it may not be safe");
            }
            let flash = self.forget_origin(volume);
            let drained = match (is_done, failure) {
                (false, _) => Drained::TimedOut,
                (true, Some(_)) => Drained::NotFlushed,
                (true, None) => Drained::Completely,
            };
            if let (Some(machine), Some(flash)) = (machine, flash) {
                self.leave_flash(machine, flash, draining.keeps_flash);
            }
            self.look_at_changed(now, &mut Vec::new());
            if let Some(ending) = &mut self.ending {
                ending.drained = ending.drained.max(drained);
            }
            if let Some(reply) = draining.reply {
                let _ = reply.send(drained);
            }
        }
    }

    /// Whether the worker was told to end, has, and has told who waits for it.
    pub(super) fn has_ended(&mut self, now: Nanos) -> bool {
        let may_end = |ending: &Ending| self.parting.is_empty() || now >= ending.deadline;
        if !self.draining.is_empty() || !self.ending.as_ref().is_some_and(may_end) {
            return false;
        }
        for thread in self.saving.drain(..) {
            let _ = thread.join();
        }
        let Ending { reply, drained, .. } = self.ending.take().expect("looked at above");
        let _ = reply.send(drained);
        true
    }

    /// A volume is gone: flash drops what it holds of it, or keeps it for the next start. That happens on a thread of its own, since the index
    /// of a large cache takes a while to write.
    fn leave_flash(&mut self, machine: VolumeMachine, flash: VolumeFlash, keeps: bool) {
        let Some((partition, is_true)) = machine.into_flash() else { return };
        if !(keeps && is_true) {
            return flash.store.tier().discard(partition);
        }
        let save = move || {
            let VolumeFlash { name, store, stamp, origin } = flash;
            match store.tier().save(partition, stamp.take()) {
                Ok(saved) => tracing::info!(?saved, volume = %name, "flash is left"),
                Err(error) => tracing::warn!(%error, volume = %name, "flash keeps nothing"),
            }
            drop(origin);
        };
        match std::thread::Builder::new().name("flash-save".to_owned()).spawn(save) {
            Ok(thread) => self.saving.push(thread),
            Err(error) => tracing::warn!(%error, "no thread to leave flash with; it keeps nothing"),
        }
    }
}
