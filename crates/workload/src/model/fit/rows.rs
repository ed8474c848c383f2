//! The transitions of the chain while they are counted, by packed keys.

use super::super::{ANY, Gaps, Link, Phase, Transition};
use super::ranges::Renamed;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Different rows above which ranges are to get coarser.
const ROWS_MAX: usize = 1 << 18;

/// Fields of a packed row: link, kind, to, kind before, from, phase.
const KIND: u32 = 3;
const TO: u32 = KIND + KIND_BITS;
const FROM_KIND: u32 = TO + STATE_BITS;
const FROM: u32 = FROM_KIND + KIND_BITS;
const PHASE: u32 = FROM + STATE_BITS;
const KIND_BITS: u32 = 11;
const STATE_BITS: u32 = 14;

fn field(key: u64, shift: u32, bits: u32) -> u32 {
    (key >> shift) as u32 & ((1 << bits) - 1)
}

/// A packed row without its phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowKey(u64);

impl RowKey {
    /// From (from, kind before), (to, kind) and link.
    pub(super) fn new(from: (u32, u32), to: (u32, u32), link: Link) -> RowKey {
        RowKey(
            u64::from(from.0) << FROM
                | u64::from(from.1) << FROM_KIND
                | u64::from(to.0) << TO
                | u64::from(to.1) << KIND
                | link as u64,
        )
    }

    /// With the new names of its states.
    pub(super) fn renamed(self, renamed: &Renamed) -> RowKey {
        let name = |key: u64, shift: u32| {
            let state = renamed[field(key, shift, STATE_BITS) as usize];
            (key & !(((1 << STATE_BITS) - 1) << shift)) | u64::from(state) << shift
        };
        RowKey(name(name(self.0, FROM), TO))
    }

    fn with_kinds(self, renamed: &[u32]) -> RowKey {
        let name = |key: u64, shift: u32| {
            let kind = renamed[field(key, shift, KIND_BITS) as usize];
            (key & !(((1 << KIND_BITS) - 1) << shift)) | u64::from(kind) << shift
        };
        RowKey(name(name(self.0, FROM_KIND), KIND))
    }

    /// The row without its counts, and its phase.
    fn transition(self) -> (usize, Transition) {
        let key = self.0;
        let row = Transition {
            from: field(key, FROM, STATE_BITS),
            from_kind: field(key, FROM_KIND, KIND_BITS),
            to: field(key, TO, STATE_BITS),
            kind: field(key, KIND, KIND_BITS),
            link: link(key),
            requests: 0,
            gap_us: 0.0,
        };
        ((key >> PHASE) as usize, row)
    }
}

/// A row of a phase in the order of a model's: by phase, from, kind before, link, to and kind; any comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order(u64);

impl Order {
    /// From the lowest bit: kind, to, link; and kind before and from, which may be any, with a bit more.
    const TO: u32 = KIND_BITS;
    const LINK: u32 = Order::TO + STATE_BITS;
    const FROM_KIND: u32 = Order::LINK + 3;
    const FROM: u32 = Order::FROM_KIND + KIND_BITS + 1;
    const PHASE: u32 = Order::FROM + STATE_BITS + 1;

    fn of(phase: usize, row: &Transition) -> Order {
        let or_any = |value: u32, bits: u32| u64::from(value.min((1 << (bits + 1)) - 1));
        Order(
            (phase as u64) << Order::PHASE
                | or_any(row.from, STATE_BITS) << Order::FROM
                | or_any(row.from_kind, KIND_BITS) << Order::FROM_KIND
                | (row.link as u64) << Order::LINK
                | u64::from(row.to) << Order::TO
                | u64::from(row.kind),
        )
    }

    /// The phase, and the row with so many requests, but for its time.
    fn transition(self, requests: u64) -> (usize, Transition) {
        let or_any = |shift: u32, bits: u32| match field(self.0, shift, bits + 1) {
            value if value >> bits == 0 => value,
            _ => ANY,
        };
        let row = Transition {
            from: or_any(Order::FROM, STATE_BITS),
            from_kind: or_any(Order::FROM_KIND, KIND_BITS),
            to: field(self.0, Order::TO, STATE_BITS),
            kind: field(self.0, 0, KIND_BITS),
            link: link(self.0 >> Order::LINK),
            requests,
            gap_us: 0.0,
        };
        ((self.0 >> Order::PHASE) as usize, row)
    }
}

/// A row with its requests and the sum of their gaps in ns.
#[derive(Clone, Copy, Debug)]
struct Summed {
    order: Order,
    requests: u64,
    sum: f64,
}

/// The link in the lowest bits.
fn link(bits: u64) -> Link {
    match bits & 7 {
        0 => Link::Jump,
        1 => Link::Follow,
        2 => Link::Resume,
        3 => Link::Again,
        _ => Link::Along,
    }
}

/// Count, and sum of gaps in ns, by row.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    rows: HashMap<u64, (u64, f64), FixedState>,
}

impl Rows {
    #[inline]
    pub(super) fn add(&mut self, row: RowKey, phase: usize, gap_ns: u64) {
        let row = self.rows.entry(row.0 | (phase as u64) << PHASE).or_insert((0, 0.0));
        row.0 += 1;
        row.1 += gap_ns as f64;
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.rows.len() > ROWS_MAX
    }

    pub(super) fn rename_states(&mut self, renamed: &Renamed) {
        self.rename(|row| row.renamed(renamed));
    }

    pub(super) fn rename_kinds(&mut self, renamed: &[u32]) {
        self.rename(|row| row.with_kinds(renamed));
    }

    fn rename(&mut self, name: impl Fn(RowKey) -> RowKey) {
        for (key, (count, sum)) in std::mem::take(&mut self.rows) {
            let row = self.rows.entry(name(RowKey(key)).0).or_insert((0, 0.0));
            row.0 += count;
            row.1 += sum;
        }
    }

    /// The chains: what is too rare to be kept apart is summed over the kind before, then over the state before.
    pub(super) fn phases(&self, gaps: &[Gaps], transitions_max: usize) -> Vec<Phase> {
        let mut phases: Vec<Phase> = gaps
            .iter()
            .map(|gaps| Phase { requests: 0, gaps: gaps.clone(), transitions: Vec::new() })
            .collect();
        // Rows of a level of detail, in order, so that the same trace gives the same model.
        let mut detailed: Vec<Summed> = Vec::with_capacity(self.rows.len());
        for (&key, &(requests, sum)) in &self.rows {
            let (phase, row) = RowKey(key).transition();
            phases[phase].requests += requests;
            detailed.push(Summed { order: Order::of(phase, &row), requests, sum });
        }
        detailed.sort_unstable_by_key(|row| row.order);
        let mut left = transitions_max;
        for step in 0..3 {
            // Half of what may be kept goes to each finer step; all that is left is the last one's.
            let most = if step < 2 { left / 2 } else { usize::MAX };
            let rare = if detailed.len() > most {
                let mut counts: Vec<u64> = detailed.iter().map(|row| row.requests).collect();
                *counts.select_nth_unstable_by(most, |a, b| b.cmp(a)).1
            } else {
                0
            };
            let mut coarser: Vec<Summed> = Vec::with_capacity(detailed.len());
            // Those that leave by summed rows, by where they come from; as these are in order, the same ones come one after the other.
            let mut rests: Vec<(usize, Transition)> = Vec::new();
            for Summed { order, requests, sum } in detailed {
                let (phase, row) = order.transition(requests);
                if step == 2 || requests > rare {
                    let gap_us = sum / requests as f64 / 1e3;
                    phases[phase].transitions.push(Transition { gap_us, ..row });
                    left = left.saturating_sub(1);
                    continue;
                }
                let from = |row: &Transition| (row.from, row.from_kind, row.link);
                match rests.last_mut() {
                    Some((of, rest)) if *of == phase && from(rest) == from(&row) => rest.requests += requests,
                    _ => rests.push((phase, Transition { to: ANY, kind: 0, ..row })),
                }
                let from = if step == 0 { row.from } else { ANY };
                let order = Order::of(phase, &Transition { from, from_kind: ANY, ..row });
                coarser.push(Summed { order, requests, sum });
            }
            for (phase, row) in rests {
                phases[phase].transitions.push(row);
            }
            // What is equal stays in turn, so that sums are the same to the last digit.
            coarser.sort_by_key(|row| row.order);
            coarser.dedup_by(|row, sum| {
                let is_same = row.order == sum.order;
                if is_same {
                    sum.requests += row.requests;
                    sum.sum += row.sum;
                }
                is_same
            });
            detailed = coarser;
        }
        phases
    }
}
