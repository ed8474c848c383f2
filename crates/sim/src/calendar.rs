//! The calendar: what happens next. Ties are broken by the order of planning, so that a run repeats.

use forebay_units::Nanos;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

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

/// Everything planned, earliest first.
///
/// What only travels for as long as all before it (requests to their devices, answers on their way back) arrives in the order in which it is
/// planned, and waits in a queue of its own: `O(1)`. All else is in a heap, `O(log planned)`, as is what would come before the last of its queue.
/// No allocation once it is as long as it gets.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    heap: BinaryHeap<Entry>,
    /// The heap's first entry was given out already, and is there until something takes its place: most events plan another.
    first_is_taken: bool,
    /// Requests that set out, and answers.
    ways: [VecDeque<Entry>; 2],
    planned: u64,
}

impl Calendar {
    /// Plans an event.
    // Who plans knows which: inlined, only that one's queue is left of it.
    #[inline(always)]
    pub(crate) fn plan(&mut self, at: Nanos, planned: Planned) {
        self.planned += 1;
        let entry = Entry { at, number: self.planned, planned };
        let way = match planned {
            Planned::Submit { .. } => &mut self.ways[0],
            Planned::Answer { .. } => &mut self.ways[1],
            _ => return self.plan_anywhere(entry),
        };
        if way.back().is_none_or(|last| last.at <= at) {
            way.push_back(entry);
        } else {
            self.plan_anywhere(entry);
        }
    }

    fn plan_anywhere(&mut self, entry: Entry) {
        if std::mem::take(&mut self.first_is_taken) {
            *self.heap.peek_mut().expect("what was taken is still there") = entry;
        } else {
            self.heap.push(entry);
        }
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(Nanos, Planned)> {
        if std::mem::take(&mut self.first_is_taken) {
            self.heap.pop();
        }
        // The greatest entry is the earliest.
        let way = usize::from(self.ways[1].front() > self.ways[0].front());
        if self.ways[way].front() > self.heap.peek() {
            return self.ways[way].pop_front().map(|entry| (entry.at, entry.planned));
        }
        let first = self.heap.peek()?;
        self.first_is_taken = true;
        Some((first.at, first.planned))
    }

    /// How many events were ever planned.
    pub(crate) fn planned(&self) -> u64 {
        self.planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    /// One request or answer in four does not arrive behind those before it, and things happen at the same instant often.
    fn some() -> impl Strategy<Value = (u64, Planned)> {
        let planned = prop_oneof![
            any::<u32>().prop_map(|flight| Planned::Submit { flight }),
            any::<u32>().prop_map(|flight| Planned::Answer { flight }),
            any::<u32>().prop_map(|origin| Planned::Device { origin }),
        ];
        (prop_oneof![3 => Just(7u64), 1 => 0u64..12], planned)
    }

    proptest! {
        #[test]
        fn every_event_comes_at_its_turn_whatever_waits_where(
            steps in prop::collection::vec(prop::option::weighted(0.6, some()), 1..400),
        ) {
            let (mut calendar, mut now) = (Calendar::default(), 0);
            let mut model: Vec<(u64, usize, Planned)> = Vec::new();
            // What was planned, and a turn at which the next is taken; in the end all are.
            for (number, step) in steps.into_iter().chain([None; 400]).enumerate() {
                if let Some((span, planned)) = step {
                    calendar.plan(Nanos(now + span), planned);
                    model.push((now + span, number, planned));
                    continue;
                }
                let first = model.iter().enumerate().min_by_key(|(_, (at, number, _))| (*at, *number));
                let expected = first.map(|(place, _)| place).map(|place| model.remove(place));
                prop_assert_eq!(calendar.next(), expected.map(|(at, _, planned)| (Nanos(at), planned)));
                now = expected.map_or(now, |(at, ..)| at);
            }
            prop_assert!(model.is_empty());
        }
    }
}
