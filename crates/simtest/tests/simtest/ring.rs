//! The io_uring of the worker, as its driver sees one (`crates/ring`): what is asked of files in a turn is handed to the kernel in one call, which may refuse for
//! want of memory and is then asked again, while what is asked meanwhile goes to threads and overtakes; what has ended is taken in the same turn,
//! in any order, some of it at once. A ring that is refused for too long is given up: threads do what the kernel has not seen, and reads that it has; of
//! changes that it has, the outcome is unknown.

use crate::origin::Fate;
use crate::world::{Answered, World, note};
use forebay_appliance::service::SlabKey;
use forebay_origin::{OriginCompletion, OriginOperation, OriginRequest};
use rand::Rng;
use rand::seq::SliceRandom;

/// Rounds of operations that are submitted by the ends of others, as in `crates/ring`.
const ROUNDS_MAX: usize = 4;

/// How soon the kernel is offered again what it refused.
const RETRY_AFTER: u64 = 1_000_000;

/// Whom an operation in the ring is for.
#[derive(Debug)]
pub(crate) enum InRing {
    Origin { volume: usize, key: SlabKey, request: OriginRequest },
    Flash { key: SlabKey, request: OriginRequest },
}

/// What came of one.
#[derive(Debug)]
pub(crate) enum Ended {
    Origin(Answered),
    Flash(SlabKey, OriginCompletion),
}

/// The ring of one start of the daemon.
#[derive(Debug, Default)]
pub(crate) struct SimRing {
    /// In the order of the queue.
    unsubmitted: Vec<InRing>,
    /// The kernel takes nothing until then.
    stuck_until: Option<u64>,
    is_given_up: bool,
    ended: Vec<Ended>,
}

impl SimRing {
    /// Whether what this asks of a file would go into the ring.
    pub(crate) fn takes(&self, operation: &OriginOperation) -> bool {
        let is_plain = matches!(
            operation,
            OriginOperation::Read { .. } | OriginOperation::Write { fua: false, .. } | OriginOperation::Flush
        );
        is_plain && !self.is_given_up && self.stuck_until.is_none()
    }

    pub(crate) fn push(&mut self, operation: InRing) {
        self.unsubmitted.push(operation);
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// When the driver must look again although nothing wakes it.
    pub(crate) fn proceed_at(&self, now: u64) -> Option<u64> {
        match (self.unsubmitted.is_empty(), self.stuck_until) {
            (false, Some(_)) => Some(now + RETRY_AFTER),
            (true, _) if self.ended.is_empty() => None,
            _ => Some(now),
        }
    }

    /// Whether anything of the volume is in it.
    pub(crate) fn has_of(&self, index: usize) -> bool {
        let waits = |asked: &InRing| matches!(asked, InRing::Origin { volume, .. } if *volume == index);
        let ended = |ended: &Ended| matches!(ended, Ended::Origin(answered) if answered.volume == index);
        self.unsubmitted.iter().any(waits) || self.ended.iter().any(ended)
    }
}

impl World {
    /// The driver tells the kernel what was asked, and takes what has ended.
    pub(crate) fn proceed_ring(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.submit_to_kernel();
            let ring = &mut self.daemon.ring;
            // The kernel has them in the order in which they ended, which nothing bounds.
            ring.ended.shuffle(&mut self.random);
            if ring.ended.is_empty() {
                return;
            }
            for ended in std::mem::take(&mut ring.ended) {
                match ended {
                    Ended::Origin(answered) => self.daemon.inbox.push(answered),
                    Ended::Flash(key, completion) => self.daemon.flash_inbox.push((key, completion)),
                }
            }
        }
    }

    fn submit_to_kernel(&mut self) {
        let ring = &mut self.daemon.ring;
        if ring.unsubmitted.is_empty() {
            return;
        }
        if ring.stuck_until.is_some_and(|until| self.now < until) {
            return;
        }
        ring.stuck_until = None;
        let mut count = ring.unsubmitted.len();
        if self.faults.ring_trouble && self.random.random_range(0..10) == 0 {
            // It takes the first of them, or none.
            count = self.random.random_range(0..=count);
            self.daemon.ring.stuck_until = Some(self.now + self.random.random_range(1_000..3_000_000));
            note!(self, "the kernel takes {count} operations and no more for a while");
        }
        for asked in self.daemon.ring.unsubmitted.drain(..count).collect::<Vec<_>>() {
            // Some are done before the call returns.
            let at_once = self.percent(30);
            self.submit_one(asked, true, at_once);
        }
    }

    fn submit_one(&mut self, asked: InRing, in_ring: bool, at_once: bool) {
        match asked {
            InRing::Origin { volume, key, request } => {
                self.submit_to_origin(volume, key, request, in_ring, at_once);
            }
            InRing::Flash { key, request } => self.submit_to_flash(key, request, in_ring, at_once),
        }
    }

    /// The ring is of no use any more.
    pub(crate) fn give_up_ring(&mut self) {
        if !self.has_ring || self.daemon.ring.is_given_up {
            return;
        }
        note!(self, "the ring is given up");
        let ring = &mut self.daemon.ring;
        ring.is_given_up = true;
        ring.stuck_until = None;
        for asked in std::mem::take(&mut ring.unsubmitted) {
            self.submit_one(asked, false, false);
        }
        let incarnation = self.daemon.incarnation;
        for index in 0..self.volumes.len() {
            let mine = |at: &crate::origin::AtOrigin| at.in_ring && at.incarnation == incarnation;
            let origin = &self.volumes[index].origin;
            let serials: Vec<u64> =
                origin.requests.iter().filter(|(_, at)| mine(at)).map(|(serial, _)| *serial).collect();
            for serial in serials {
                let at = self.volumes[index].origin.requests.get_mut(&serial).expect("listed above");
                at.in_ring = false;
                match &at.request.operation {
                    // A thread does it anew; it goes on with whatever it has not read yet, which is as good.
                    OriginOperation::Read { .. } => continue,
                    OriginOperation::Flush => at.fate = Fate::Fails { errno: 5 },
                    _ => at.fate = Fate::Lost,
                }
                let delay = self.delay();
                self.end_request(index, serial, delay);
            }
        }
        self.give_up_flash_in_ring();
    }
}
