//! The disk, which is with the storage side or with a server of others behind it: it does what it is given when it likes, fails a flush now and then, and loses power.

use super::node::{CELL, CELLS};
use super::strike::Failure;
use super::world::{CALM_NS, Event, World, note};
use crate::origin::Fate;
use forebay_appliance::service::SlabKey;
use forebay_linear::version_in;
use forebay_origin::{OriginCompletion, OriginError, OriginOperation, OriginRequest};
use rand::Rng;

impl World {
    /// What the disk has been given is done, in part or whole, before the file is opened again.
    pub(super) fn leave_disk(&mut self) {
        self.disk.end_requests(&mut self.random);
        self.answers.clear();
    }

    /// The machine with the disk loses power, when the daemon there is gone: of what was not flushed any part may be lost.
    pub(super) fn power_fails(&mut self) {
        note!(self, "power fails where the disk is");
        self.boots += 1;
        self.course.power_failures += 1;
        let now = self.tick();
        let live: Vec<u64> = (0..CELLS).map(|cell| self.disk.held(cell)).collect();
        let is_told = |(cell, version): &(u64, u64)| {
            // Of what was done before an error of a flush they know that it may be lost.
            let at = self.history.acknowledged_at(*cell, *version);
            at.is_some_and(|at| at > self.doubted_through) && self.is_accounted_for(*version)
        };
        let told: Vec<(u64, u64)> = (0..).zip(live).filter(is_told).collect();
        self.disk.crash(&mut self.history, true, now, &mut self.random);
        // Of what a power failure took from a file nobody is told by it.
        self.disk.next_flush_fails = false;
        if told.iter().any(|(cell, version)| self.disk.held(*cell) != *version) {
            note!(self, "changes are lost of which applications were told that they were done");
            self.course.told_and_lost += 1;
            self.untold_loss = Some(now);
            let lost = told.iter().filter(|(cell, version)| self.disk.held(*cell) != *version);
            let knows_storage =
                lost.map(|(_, version)| *version).any(|version| self.storage_knows_of(version));
            self.loss_known_by = if knows_storage { None } else { self.appliance_of_clients() };
        }
    }

    pub(super) fn submit_to_disk(&mut self, key: SlabKey, request: OriginRequest) {
        let now = self.tick();
        if let OriginOperation::Write { offset, data, .. } = &request.operation {
            note!(
                self,
                "the disk is given {:?} at {offset}+{}",
                version_in(&data[..CELL as usize], offset / CELL),
                data.len()
            );
        }
        let incarnation = self.holder().expect("who asks is there");
        let serial = self.disk.submit(request, (incarnation, key), 0, now, Fate::Done, false);
        let delay = self.delay() / 2;
        self.schedule(delay, Event::Work(serial));
    }

    pub(super) fn work(&mut self, serial: u64) {
        if !self.disk.requests.contains_key(&serial) {
            return; // It ended with the daemon.
        }
        let delay = self.delay() / 2;
        if self.now < self.disk_hangs_until {
            return self.schedule(self.disk_hangs_until - self.now + delay, Event::Work(serial));
        }
        let count = [1, 3, 8, usize::MAX][self.random.random_range(0..4)];
        if !self.disk.work(serial, count, &mut self.random) {
            return self.schedule(delay, Event::Work(serial));
        }
        let now = self.tick();
        let mut request = self.disk.requests.remove(&serial).expect("looked at above");
        let is_flush = request.request.operation == OriginOperation::Flush;
        // What a failing power took is told once.
        if is_flush && std::mem::take(&mut self.disk.next_flush_fails) && self.now < CALM_NS {
            request.fate = Fate::Fails { errno: 5 };
            self.failed_flush = Some(now);
            self.course.failed_flushes += 1;
            if self.percent(50) {
                let delay = 2 * delay + self.delay();
                self.schedule(delay, Event::Strike(Failure::ProxyIsReplaced));
            }
        } else {
            self.disk.complete(serial, &request, now);
        }
        self.answers.insert(serial, request);
        self.schedule(delay, Event::Answer(serial));
    }

    pub(super) fn answer(&mut self, serial: u64) {
        let Some(mut request) = self.answers.remove(&serial) else { return };
        let result = match request.fate {
            Fate::Done => Ok(self.disk.answer(&mut request)),
            _ => Err(OriginError::Failed { errno: 5, context: String::new() }),
        };
        let holder = self.holder().filter(|holder| *holder == request.incarnation);
        if let Some(node) = holder.and_then(|holder| self.nodes.get_mut(&holder)) {
            node.inbox.push((0, OriginCompletion { id: request.request.id, result }));
            let id = request.incarnation;
            self.wake(id);
        }
    }
}
