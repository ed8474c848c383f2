//! What is asked of a volume: synthetic open and closed loops, and recorded requests.

use crate::drawn::{Draws, Helper, Law};
use crate::scenario::{ArrivalKind, LoadTable, Popularity, VolumeTable};
use forebay_units::{Nanos, mix64, nearest};
use forebay_workload::generator::{Arrivals, BlockPicker, Random};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request of a trace, in the trace's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Since the trace's start; one that steps back counts as the one before it.
    pub at: Nanos,
    /// First byte.
    pub offset: u64,
    /// Bytes; above 0.
    pub length: u32,
    /// Whether it writes.
    pub writes: bool,
}

/// The recorded requests of a scenario's loads, by place of the volume and of its load.
pub type Traces = BTreeMap<(usize, usize), Arc<[RecordedRequest]>>;

/// The place of the first request that was recorded at `from` or later. One by one, not by halves: times may step back.
pub(crate) fn beginning(requests: &[RecordedRequest], from: Nanos) -> usize {
    requests.iter().position(|request| request.at >= from).unwrap_or(requests.len())
}

/// A request to a volume, in blocks and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// The first byte, which may lie within the first block.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) writes: bool,
}

/// Where the places of a working set are: units of so many blocks from the first on.
#[derive(Clone, Copy, Debug)]
struct Places {
    first: u64,
    units: u64,
    block_shift: u32,
}

impl Places {
    #[inline]
    fn asked(self, place: u64, writes: bool) -> Asked {
        let start = self.first + place * self.units;
        Asked {
            first: start,
            end: start + self.units,
            offset: start << self.block_shift,
            bytes: self.units << self.block_shift,
            writes,
        }
    }
}

#[derive(Debug)]
enum Source {
    /// Nobody asks. What comes after it is drawn from here, as after a trace.
    Idle(Random),
    /// An open loop: the span to its next arrival, and what it asks for then.
    Open { draws: Draws, span: Nanos, places: Places },
    /// A closed loop.
    Closed { law: Law, random: Random, places: Places },
    Recorded {
        random: Random,
        requests: Arc<[RecordedRequest]>,
        /// Where it begins, and when that was recorded.
        first: (usize, Nanos),
        next: usize,
        speed: f64,
        repeat: bool,
        origin: Nanos,
        last: Nanos,
    },
}

/// A load on virtual time.
#[derive(Debug)]
pub(crate) struct Load {
    source: Source,
    block_shift: u32,
    pub(crate) outstanding_max: u32,
    /// How many clients a closed loop has; 0 for the others.
    pub(crate) clients: u32,
}

/// Least time between the end of a trace and its next beginning, so that time passes (ours).
pub(crate) const REPEAT_AFTER_MIN: Nanos = Nanos::millis(1);

impl Load {
    /// Nobody asks, until a load takes its place.
    pub(crate) fn idle(random: Random) -> Load {
        Load { source: Source::Idle(random), block_shift: 0, outstanding_max: 0, clients: 0 }
    }

    /// The load `table` of `volume` from `now` on; `seed` chooses which blocks are popular, and all else is drawn from `random`, by
    /// `helper` where there is one.
    pub(crate) fn new(
        table: &LoadTable,
        volume: &VolumeTable,
        requests: Option<Arc<[RecordedRequest]>>,
        seed: u64,
        mut random: Random,
        helper: Option<Helper>,
        now: Nanos,
    ) -> Load {
        let block_size = volume.block_size();
        let arrivals = match table.arrivals {
            ArrivalKind::Poisson => Some(Arrivals::Poisson { rate: table.rate.unwrap_or(1.0) }),
            ArrivalKind::Constant => Some(Arrivals::Constant { rate: table.rate.unwrap_or(1.0) }),
            ArrivalKind::Closed => Some(Arrivals::Closed {
                outstanding: table.clients.unwrap_or(1),
                think: table.think.unwrap_or(Nanos::ZERO),
            }),
            ArrivalKind::Trace | ArrivalKind::Idle => None,
        };
        let clients = match arrivals {
            Some(Arrivals::Closed { outstanding, .. }) => outstanding,
            _ => 0,
        };
        let source = match (arrivals, requests) {
            (Some(arrivals), _) => {
                let units = table.request_size.map_or(1, |size| size.get() >> block_size.shift());
                let set = table.working_set.unwrap_or(volume.size.saturating_sub(table.offset));
                let count = (set.get() >> block_size.shift()) / units;
                let picker = match table.popularity {
                    Popularity::Zipf => BlockPicker::zipf(count, table.theta.unwrap_or(0.9), mix64(seed)),
                    Popularity::Uniform => BlockPicker::uniform(count),
                    Popularity::Sequential => BlockPicker::sequential(count),
                };
                let first = block_size.block_of(table.offset.get()).0;
                let places = Places { first, units, block_shift: block_size.shift() };
                let law = Law { arrivals, picker, read_share: table.read_share };
                if clients > 0 {
                    Source::Closed { law, random, places }
                } else {
                    let span = law.arrivals.next_span(&mut random);
                    Source::Open { draws: Draws::new(law, random, helper), span, places }
                }
            }
            (None, Some(requests)) => {
                let begins = beginning(&requests, table.trace_from);
                Source::Recorded {
                    random,
                    first: (begins, table.trace_from),
                    next: begins,
                    requests,
                    speed: table.speed,
                    repeat: table.repeat,
                    origin: now,
                    last: now,
                }
            }
            (None, None) => Source::Idle(random),
        };
        Load { source, block_shift: block_size.shift(), outstanding_max: table.outstanding_max, clients }
    }

    /// What another load in its place is drawn from.
    pub(crate) fn into_random(self) -> Random {
        match self.source {
            Source::Open { draws, .. } => draws.into_random(),
            Source::Idle(random) | Source::Closed { random, .. } | Source::Recorded { random, .. } => random,
        }
    }

    /// When the next request of an open loop arrives, the last one having arrived at `now`; `None` for a closed loop
    /// and at the end of a trace.
    pub(crate) fn next_arrival(&mut self, now: Nanos) -> Option<Nanos> {
        match &mut self.source {
            Source::Idle(_) | Source::Closed { .. } => None,
            Source::Open { span, .. } => Some(now.saturating_add(*span)),
            Source::Recorded { requests, first, next, speed, repeat, origin, last, .. } => {
                if *next == requests.len() {
                    if !*repeat || first.0 == requests.len() {
                        return None;
                    }
                    // It begins again a thousandth of its length after its end: never without time passing.
                    *origin = last.saturating_add(Nanos(
                        (last.saturating_since(*origin).0 / 1_000).max(REPEAT_AFTER_MIN.0),
                    ));
                    *next = first.0;
                }
                let since = Nanos(nearest(requests[*next].at.saturating_since(first.1).0 as f64 / *speed));
                *last = origin.saturating_add(since).max(*last);
                Some(*last)
            }
        }
    }

    /// How long a client of a closed loop thinks.
    pub(crate) fn think(&mut self) -> Nanos {
        match &mut self.source {
            Source::Closed { law, random, .. } => law.arrivals.next_span(random),
            _ => Nanos::ZERO,
        }
    }

    /// The request that arrives.
    pub(crate) fn next_request(&mut self) -> Asked {
        let shift = self.block_shift;
        match &mut self.source {
            Source::Open { draws, span, places } => {
                let drawn = draws.next();
                *span = drawn.span;
                places.asked(drawn.place, drawn.writes)
            }
            Source::Closed { law, random, places } => {
                let (place, writes) = law.request(random);
                places.asked(place, writes)
            }
            Source::Recorded { requests, next, .. } => {
                let request = requests[*next];
                *next += 1;
                let end = request.offset + u64::from(request.length);
                Asked {
                    first: request.offset >> shift,
                    end: (end + (1 << shift) - 1) >> shift,
                    offset: request.offset,
                    bytes: u64::from(request.length),
                    writes: request.writes,
                }
            }
            Source::Idle(_) => unreachable!("an idle load has no arrivals"),
        }
    }
}
