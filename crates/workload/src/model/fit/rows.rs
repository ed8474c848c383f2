//! The transitions of the chain while they are counted, by packed keys.

use super::super::{ANY, Link, Transition};
use super::ranges::Renamed;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Different rows above which ranges are to get coarser.
const ROWS_MAX: usize = 1 << 18;

/// Fields of a packed row, in the order of a model's rows: from, to, kind and link. Any state comes last.
const KIND: u32 = 3;
const TO: u32 = KIND + KIND_BITS;
const FROM: u32 = TO + STATE_BITS;
const KIND_BITS: u32 = 11;
/// One bit more than states need, for any.
const STATE_BITS: u32 = 15;

fn field(key: u64, shift: u32, bits: u32) -> u32 {
    (key >> shift) as u32 & ((1 << bits) - 1)
}

/// A packed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RowKey(u64);

impl RowKey {
    /// From a state to (a state, a kind) by a link; states may be any.
    pub(super) fn new(from: u32, to: (u32, u32), link: Link) -> RowKey {
        let or_any = |state: u32| u64::from(state.min((1 << STATE_BITS) - 1));
        RowKey(or_any(from) << FROM | or_any(to.0) << TO | u64::from(to.1) << KIND | link as u64)
    }

    /// With the new names of its states, none of which is any.
    pub(super) fn renamed(self, renamed: &Renamed) -> RowKey {
        let name = |shift: u32| renamed[field(self.0, shift, STATE_BITS) as usize];
        RowKey::new(name(FROM), (name(TO), self.kind()), self.link())
    }

    fn with_kinds(self, renamed: &[u32]) -> RowKey {
        let kind = renamed[self.kind() as usize];
        RowKey(self.0 & !(((1 << KIND_BITS) - 1) << KIND) | u64::from(kind) << KIND)
    }

    fn kind(self) -> u32 {
        field(self.0, KIND, KIND_BITS)
    }

    fn link(self) -> Link {
        Link::numbered(field(self.0, 0, KIND)).expect("a link was packed")
    }

    /// A state of the row, or any.
    fn state(self, shift: u32) -> u32 {
        match field(self.0, shift, STATE_BITS) {
            state if state == (1 << STATE_BITS) - 1 => ANY,
            state => state,
        }
    }

    /// The row with so many requests, but for its time.
    fn transition(self, requests: u64) -> Transition {
        let (from, to) = (self.state(FROM), self.state(TO));
        Transition { from, to, kind: self.kind(), link: self.link(), requests, gap_us: 0.0 }
    }
}

/// Count, and sum of gaps in ns, by row.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    rows: HashMap<RowKey, (u64, f64), FixedState>,
}

impl Rows {
    #[inline]
    pub(super) fn add(&mut self, row: RowKey, gap_ns: u64) {
        let row = self.rows.entry(row).or_insert((0, 0.0));
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
            let row = self.rows.entry(name(key)).or_insert((0, 0.0));
            row.0 += count;
            row.1 += sum;
        }
    }

    /// The chain: what is too rare to be kept apart is summed over the state before, for which a quarter of the rows is left.
    pub(super) fn transitions(&self, transitions_max: usize) -> Vec<Transition> {
        // In order, so that the same trace gives the same model.
        let mut rows: Vec<(RowKey, (u64, f64))> = self.rows.iter().map(|(key, sums)| (*key, *sums)).collect();
        rows.sort_unstable_by_key(|row| row.0);
        let most = transitions_max - transitions_max / 4;
        let rare = if rows.len() > most {
            let mut counts: Vec<u64> = rows.iter().map(|(_, (requests, _))| *requests).collect();
            *counts.select_nth_unstable_by(most, |a, b| b.cmp(a)).1
        } else {
            0
        };
        let with_gap = |key: RowKey, (requests, sum): (u64, f64)| {
            let gap_us = sum / requests as f64 / 1e3;
            Transition { gap_us, ..key.transition(requests) }
        };
        let mut found: Vec<Transition> = Vec::new();
        let mut summed: BTreeMap<RowKey, (u64, f64)> = BTreeMap::new();
        // Those that leave by summed rows, by where they come from.
        let mut rests: BTreeMap<u32, u64> = BTreeMap::new();
        for (key, sums) in rows {
            if sums.0 > rare {
                found.push(with_gap(key, sums));
                continue;
            }
            let row = key.transition(sums.0);
            *rests.entry(row.from).or_default() += sums.0;
            let sum = summed.entry(RowKey::new(ANY, (row.to, row.kind), row.link)).or_default();
            (sum.0, sum.1) = (sum.0 + sums.0, sum.1 + sums.1);
        }
        let rest =
            |(from, requests): (u32, u64)| RowKey::new(from, (ANY, 0), Link::Jump).transition(requests);
        found.extend(rests.into_iter().map(rest));
        found.extend(summed.into_iter().map(|(key, sums)| with_gap(key, sums)));
        found
    }
}
