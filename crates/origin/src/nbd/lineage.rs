//! Who connects, over all its runs: what a daemon that outlasts its process says to servers of ours with each connection.
//!
//! A process that is killed knows nothing of what it had sent when it is started anew. A server that hears that both are one client, and which run this is, takes nothing more of what
//! the earlier one had sent, and begins nothing of this one before all of that is over ([`Succession::takes_place_of`]).

use crate::pool::locked;
use forebay_nbd::Succession;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};

/// Which client the origins of a process are, and in which run. Clones are of the same.
#[derive(Clone, Debug)]
pub struct Lineage {
    client: u64,
    generation: u32,
    instances: Arc<Mutex<Instances>>,
}

#[derive(Debug, Default)]
struct Instances {
    next: u32,
    /// Those with which nobody was let in.
    spare: Vec<Instance>,
}

/// One origin of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    number: u32,
    /// Connections that were tried.
    attempts: u64,
}

impl Lineage {
    /// Run `generation` of `client`, which no other client of the same volumes may be.
    ///
    /// `client` is below [`Succession::CLIENTS`] (40 bits); `generation` is at least 1, and larger than that of any earlier run. Both outlast the process, and must be on stable storage before
    /// the first connection is made.
    ///
    /// # Panics
    /// Where they are out of range.
    pub fn new(client: u64, generation: u32) -> Lineage {
        // Says what is wrong.
        let _ = Succession::of(client, generation, 0, 0);
        Lineage { client, generation, instances: Arc::default() }
    }

    /// A number for a client that has none yet, seeded by the system: 40 bits.
    pub fn draw_client() -> u64 {
        random() % Succession::CLIENTS
    }

    /// A number that no other origin of the run has; `None` when a million of them were used.
    pub(super) fn take(&self) -> Option<Instance> {
        let mut instances = locked(&self.instances);
        if let Some(spare) = instances.spare.pop() {
            return Some(spare);
        }
        let number = instances.next;
        if number == Succession::INSTANCES {
            return None;
        }
        instances.next += 1;
        Some(Instance { number, attempts: 0 })
    }

    /// The first attempt to connect did not succeed: an origin that is absent for weeks is tried every half second.
    pub(super) fn give_back(&self, instance: Instance) {
        let instance = Instance { attempts: instance.attempts + 1, ..instance };
        locked(&self.instances).spare.push(instance);
    }

    /// The first place of each lane.
    pub(super) fn lanes(&self, instance: Instance) -> Vec<Succession> {
        let first = |lane| {
            let first = Succession::of(self.client, self.generation, instance.number, lane);
            Succession { number: first.number + instance.attempts, ..first }
        };
        (0..Succession::LANES).map(first).collect()
    }
}

/// The first place of each lane of a client that says nothing of runs.
pub(super) fn random_lanes() -> Vec<Succession> {
    (0..Succession::LANES).map(|_| Succession { id: random(), number: 0, lacks_flush: false }).collect()
}

/// Seeded by the system, anew for each process; two of one process differ too.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_of_a_run_has_a_number_of_its_own() {
        let lineage = Lineage::new(7, 3);
        let [first, second] = [lineage.clone(), lineage.clone()].map(|own| own.take().unwrap());
        let lanes = [first, second].map(|instance| lineage.lanes(instance));
        assert_eq!(lanes[0][0], Succession::of(7, 3, 0, 0));
        assert_eq!(lanes[1][15], Succession::of(7, 3, 1, 15));
        // Nobody was let in with it, but somebody may be yet, late.
        lineage.give_back(first);
        let again = lineage.take().unwrap();
        assert!(lineage.lanes(again)[0].takes_place_of(lanes[0][0]));
        assert_ne!(lineage.take().unwrap().number, again.number);
        // They run out, and what was given back is left.
        locked(&lineage.instances).next = Succession::INSTANCES;
        assert_eq!(lineage.take(), None);
        lineage.give_back(again);
        assert!(lineage.take().is_some());
    }

    #[test]
    fn who_says_nothing_of_runs_is_told_apart_by_all_of_the_number() {
        let (one, other) = (random_lanes(), random_lanes());
        let mut ids: Vec<u64> = one.iter().chain(&other).map(|place| place.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 32);
        assert!(one.iter().all(|place| place.generation() == 0));
    }
}
