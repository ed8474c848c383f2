//! A lane: one thing at a time, first in, first out, so long each. A direction of a network link, or a worker of an
//! appliance.
//!
//! Since order and spans are known on arrival, a lane needs no events: it answers at once with the instant of delivery.
//! It loses nothing and reorders nothing; its queue is bounded by who sends.

use crate::geometry::ParameterError;
use forebay_units::Nanos;

/// What makes a lane; zero switches a part off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneParameters {
    /// Time after a thing has left until it is there; it holds up nothing behind it.
    pub latency: Nanos,
    /// Time that each holds the lane besides its bytes.
    pub item: Nanos,
    /// Bytes per second; 0: bytes take no time.
    pub bytes_per_second: u64,
}

/// What a lane has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneObservation {
    /// Time in which it was busy, up to the instant of the observation.
    pub busy: Nanos,
    /// Things accepted.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// See the module. Instants must not step back; one that does counts as the latest.
#[derive(Clone, Debug)]
pub struct Lane {
    parameters: LaneParameters,
    clock: Nanos,
    free_at: Nanos,
    totals: LaneObservation,
}

impl Lane {
    /// A lane at rest.
    ///
    /// # Errors
    /// [`ParameterError`] for a latency or an item of more than 10 s.
    pub fn new(parameters: LaneParameters) -> Result<Lane, ParameterError> {
        for (name, span) in [("latency", parameters.latency), ("item", parameters.item)] {
            if span > Nanos::secs(10) {
                return Err(ParameterError::new(name, span, "at most 10 s"));
            }
        }
        Ok(Lane { parameters, clock: Nanos::ZERO, free_at: Nanos::ZERO, totals: LaneObservation::default() })
    }

    /// What the lane is made of.
    pub fn parameters(&self) -> LaneParameters {
        self.parameters
    }

    /// Something of `bytes` enters at `now`; when it is at the other end.
    pub fn send(&mut self, now: Nanos, bytes: u64) -> Nanos {
        self.clock = self.clock.max(now);
        let mut span = self.parameters.item;
        if self.parameters.bytes_per_second > 0 {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.parameters.bytes_per_second);
            span = span.saturating_add(Nanos(nanos as u64));
        }
        self.free_at = self.free_at.max(self.clock).saturating_add(span);
        self.totals.busy = self.totals.busy.saturating_add(span);
        self.totals.items += 1;
        self.totals.bytes += bytes;
        self.free_at.saturating_add(self.parameters.latency)
    }

    /// What it has done until `now`.
    pub fn observe(&self, now: Nanos) -> LaneObservation {
        // What lies ahead is one stretch without a gap.
        let ahead = self.free_at.saturating_since(now.max(self.clock));
        LaneObservation { busy: self.totals.busy.saturating_since(ahead), ..self.totals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_wait_for_each_other_and_not_for_the_latency() {
        let parameters =
            LaneParameters { latency: Nanos(100), item: Nanos(10), bytes_per_second: 500_000_000 };
        let mut lane = Lane::new(parameters).unwrap();
        // 20 bytes at 2 ns each and 10 ns: the lane is held for 50 ns, and they are there 100 ns later.
        assert_eq!(lane.send(Nanos(0), 20), Nanos(150));
        assert_eq!(lane.send(Nanos(30), 20), Nanos(200));
        assert_eq!(lane.observe(Nanos(60)).busy, Nanos(60));
        // Free at 100; the next comes at 1,000.
        assert_eq!(lane.send(Nanos(1_000), 0), Nanos(1_110));
        let seen = lane.observe(Nanos(2_000));
        assert_eq!((seen.busy, seen.items, seen.bytes), (Nanos(110), 3, 40));
        assert!(Lane::new(LaneParameters { latency: Nanos::secs(11), ..parameters }).is_err());
    }

    #[test]
    fn more_than_a_lane_ever_does_is_there_at_the_end_of_time() {
        let mut lane =
            Lane::new(LaneParameters { bytes_per_second: 1, ..LaneParameters::default() }).unwrap();
        // 2^32 s each, of which the fifth is beyond 2^64 ns.
        (0..4).for_each(|_| assert!(lane.send(Nanos::ZERO, 1 << 32) < Nanos::MAX));
        assert_eq!(lane.send(Nanos::ZERO, 1 << 32), Nanos::MAX);
        assert_eq!(lane.observe(Nanos(7)).busy, Nanos(7));
    }
}
