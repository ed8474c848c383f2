//! The calendar: what happens next. Ties are broken by the order of planning, so that a run repeats.

use forebay_units::Nanos;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planned {
    /// The next request of a volume's open loop, or of one of its clients, if the load is still this one.
    Arrival { volume: u32, load: u32 },
    /// A device has something to do.
    Device { origin: u32 },
    /// A request has come through its appliance's link and worker.
    Ask { asked: u32 },
    /// A request reaches its device.
    Submit { flight: u32 },
    /// A server of an origin is done with a request.
    Served { flight: u32, queue: u32 },
    /// The answer to a request reaches the appliance.
    Answer { flight: u32 },
    /// A volume's next load begins.
    Load { volume: u32, load: u32 },
    /// The next read of a warm-up may go out.
    Prewarm { volume: u32 },
    /// A volume begins or ceases to use the tier.
    Tier { volume: u32, on: bool },
    /// A control interval ends.
    Interval,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    number: u64,
    planned: Planned,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: the heap gives the greatest first.
    #[inline]
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// Everything planned, earliest first. `O(log planned)` per event, no allocation once it is as long as it gets.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    heap: BinaryHeap<Entry>,
    planned: u64,
}

impl Calendar {
    /// Plans an event.
    #[inline]
    pub(crate) fn plan(&mut self, at: Nanos, planned: Planned) {
        self.planned += 1;
        self.heap.push(Entry { at, number: self.planned, planned });
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(Nanos, Planned)> {
        self.heap.pop().map(|entry| (entry.at, entry.planned))
    }

    /// How many events were ever planned.
    pub(crate) fn planned(&self) -> u64 {
        self.planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_order_of_planning() {
        let mut calendar = Calendar::default();
        for (at, origin) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            calendar.plan(Nanos(at), Planned::Device { origin });
        }
        let order: Vec<u64> = std::iter::from_fn(|| calendar.next())
            .map(|(at, planned)| match planned {
                Planned::Device { origin } => at.0 * 10 + u64::from(origin),
                _ => 0,
            })
            .collect();
        assert_eq!(order, [31, 33, 50, 52]);
    }
}
