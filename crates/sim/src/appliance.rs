//! An appliance: the link between it and its clients, and workers that each own some of its volumes.
//!
//! It says when a request has come through, and when an answer is back. It is *not* the cache, and has no memory of its
//! own: what is cached is shared by all appliances.

use crate::scenario::ApplianceTable;
use forebay_devmodel::{Lane, LaneParameters, ParameterError};
use forebay_units::Nanos;

/// An appliance on virtual time.
#[derive(Debug)]
pub(crate) struct Appliance {
    there: Lane,
    back: Lane,
    workers: Vec<Lane>,
    /// Volumes so far: they go round the workers.
    volumes: usize,
}

impl Appliance {
    pub(crate) fn new(table: &ApplianceTable) -> Result<Appliance, ParameterError> {
        let lane = |parameters: LaneParameters| Lane::new(parameters);
        let workers = (0..table.workers.unwrap_or(1)).map(|_| lane(table.worker()));
        Ok(Appliance {
            there: lane(table.link())?,
            back: lane(table.link())?,
            workers: workers.collect::<Result<_, _>>()?,
            volumes: 0,
        })
    }

    /// The worker of the next volume.
    pub(crate) fn add_volume(&mut self) -> usize {
        self.volumes += 1;
        (self.volumes - 1) % self.workers.len()
    }

    /// A request sets out at `now`: when its worker has taken it up.
    pub(crate) fn reach(&mut self, worker: usize, now: Nanos, writes: bool, bytes: u64) -> Nanos {
        let at = self.there.send(now, if writes { bytes } else { 0 });
        self.workers[worker].send(at, bytes)
    }

    /// An answer sets out at `now`: when its client has it.
    pub(crate) fn answer(&mut self, now: Nanos, writes: bool, bytes: u64) -> Nanos {
        self.back.send(now, if writes { 0 } else { bytes })
    }
}
