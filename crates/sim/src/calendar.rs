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

impl Planned {
    /// It as one word, which the calendar keeps and the hash of a run takes in: the kind in four bits, then 28 and 32 bits.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        let (kind, high, low) = match self {
            Planned::Arrival { volume, load } => (1, volume, load),
            Planned::Device { origin } => (2, 0, origin),
            Planned::Submit { flight } => (3, 0, flight),
            Planned::Served { flight, queue } => (4, queue, flight),
            Planned::Answer { flight } => (5, 0, flight),
            Planned::Load { volume, load } => (6, volume, load),
            Planned::Prewarm { volume } => (8, 0, volume),
            Planned::Interval => (9, 0, 0),
            Planned::Ask { asked } => (10, 0, asked),
            Planned::Tier { volume, on } => (11, u32::from(on), volume),
        };
        debug_assert!(high < 1 << 28, "volumes and queues are counted in thousands");
        kind << 60 | u64::from(high) << 32 | u64::from(low)
    }

    #[inline]
    fn of_word(word: u64) -> Planned {
        let (high, low) = ((word >> 32) as u32 & ((1 << 28) - 1), word as u32);
        match word >> 60 {
            1 => Planned::Arrival { volume: high, load: low },
            2 => Planned::Device { origin: low },
            3 => Planned::Submit { flight: low },
            4 => Planned::Served { flight: low, queue: high },
            5 => Planned::Answer { flight: low },
            6 => Planned::Load { volume: high, load: low },
            8 => Planned::Prewarm { volume: low },
            9 => Planned::Interval,
            10 => Planned::Ask { asked: low },
            _ => Planned::Tier { volume: low, on: high > 0 },
        }
    }
}

/// Three words, so that moving one does not wait for its parts to be written.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    number: u64,
    word: u64,
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
/// planned, and waits in a queue of its own. A device has one next event, in a place of its own. Both take `O(1)`, and `O(origins)` to find the next
/// device. All else is in a heap, `O(log planned)`, as is what would come before the last of its queue. No allocation once it is as long as it gets.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    heap: BinaryHeap<Entry>,
    /// The heap's first entry was given out already, and is there until something takes its place: most events plan another.
    first_is_taken: bool,
    /// Requests that set out, and answers.
    ways: [VecDeque<Entry>; 2],
    /// By origin.
    devices: Vec<Option<Entry>>,
    /// The origin whose device is next.
    next_device: usize,
    planned: u64,
}

impl Calendar {
    #[inline]
    fn entry(&mut self, at: Nanos, planned: Planned) -> Entry {
        self.planned += 1;
        Entry { at, number: self.planned, word: planned.word() }
    }

    /// Plans an event. Of devices it is [`Calendar::plan_device`] that plans.
    // Who plans knows which: inlined, only that one's queue is left of it.
    #[inline(always)]
    pub(crate) fn plan(&mut self, at: Nanos, planned: Planned) {
        let entry = self.entry(at, planned);
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

    /// The device of `origin` has something to do at `at`, in place of what was planned for it.
    #[inline]
    pub(crate) fn plan_device(&mut self, origin: u32, at: Nanos) {
        let entry = self.entry(at, Planned::Device { origin });
        let origin = origin as usize;
        if self.devices.len() <= origin {
            self.devices.resize(origin + 1, None);
        }
        self.set_device(origin, Some(entry));
    }

    // Inlined, the entry's words come from registers: read as a whole right after they were written, they are waited for.
    #[inline(always)]
    fn set_device(&mut self, origin: usize, entry: Option<Entry>) {
        self.devices[origin] = entry;
        // The greatest entry is the earliest, and nothing is less than any.
        if entry > self.devices[self.next_device] {
            self.next_device = origin;
        } else if origin == self.next_device && self.devices.len() > 1 {
            self.next_device = (0..self.devices.len()).max_by_key(|&at| self.devices[at]).unwrap_or(0);
        }
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(Nanos, Planned)> {
        if std::mem::take(&mut self.first_is_taken) {
            self.heap.pop();
        }
        let way = usize::from(self.ways[1].front() > self.ways[0].front());
        let travels = self.ways[way].front().copied();
        let device = self.devices.get(self.next_device).copied().flatten();
        let first = self.heap.peek().copied();
        let next = first.max(travels.max(device));
        if next == first {
            self.first_is_taken = first.is_some();
        } else if next == travels {
            self.ways[way].pop_front();
        } else {
            self.set_device(self.next_device, None);
        }
        next.map(|entry| (entry.at, Planned::of_word(entry.word)))
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
        for (at, flight) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            calendar.plan(Nanos(at), Planned::Submit { flight });
        }
        let order: Vec<u64> = std::iter::from_fn(|| calendar.next())
            .map(|(at, planned)| match planned {
                Planned::Submit { flight } => at.0 * 10 + u64::from(flight),
                _ => 0,
            })
            .collect();
        assert_eq!(order, [31, 33, 50, 52]);
    }

    #[test]
    fn a_word_tells_what_is_planned() {
        let (high, low) = ((1 << 28) - 1, u32::MAX);
        let all = [
            Planned::Arrival { volume: high, load: low },
            Planned::Device { origin: low },
            Planned::Ask { asked: low },
            Planned::Submit { flight: low },
            Planned::Served { flight: low, queue: high },
            Planned::Answer { flight: low },
            Planned::Load { volume: high, load: low },
            Planned::Prewarm { volume: low },
            Planned::Tier { volume: low, on: true },
            Planned::Tier { volume: low, on: false },
            Planned::Interval,
        ];
        for planned in all {
            assert_eq!(Planned::of_word(planned.word()), planned);
        }
    }

    /// One request or answer in four does not arrive behind those before it, and things happen at the same instant often.
    fn some() -> impl Strategy<Value = (u64, Planned)> {
        let planned = prop_oneof![
            any::<u32>().prop_map(|flight| Planned::Submit { flight }),
            any::<u32>().prop_map(|flight| Planned::Answer { flight }),
            any::<u32>().prop_map(|asked| Planned::Ask { asked }),
            (0u32..4).prop_map(|origin| Planned::Device { origin }),
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
                    match planned {
                        Planned::Device { origin } => {
                            calendar.plan_device(origin, Nanos(now + span));
                            model.retain(|(.., other)| *other != planned);
                        }
                        _ => calendar.plan(Nanos(now + span), planned),
                    }
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
