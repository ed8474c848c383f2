//! The transitions of the chain while they are counted, by packed keys.

use super::super::{ANY, Gaps, Link, Phase, Transition};
use super::ranges::Renamed;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

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
        let link = match key & 7 {
            0 => Link::Jump,
            1 => Link::Follow,
            2 => Link::Resume,
            3 => Link::Again,
            _ => Link::Along,
        };
        let row = Transition {
            from: field(key, FROM, STATE_BITS),
            from_kind: field(key, FROM_KIND, KIND_BITS),
            to: field(key, TO, STATE_BITS),
            kind: field(key, KIND, KIND_BITS),
            link,
            requests: 0,
            gap_us: 0.0,
        };
        ((key >> PHASE) as usize, row)
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
        // Rows of a level of detail by (phase, from, kind before, link, to, kind); in order, so that the same trace gives the same model.
        type Key = (usize, u32, u32, u8, u32, u32);
        let mut detailed: BTreeMap<Key, (Transition, f64)> = BTreeMap::new();
        for (&key, &(count, sum)) in &self.rows {
            let (phase, mut row) = RowKey(key).transition();
            row.requests = count;
            phases[phase].requests += count;
            let key = (phase, row.from, row.from_kind, row.link as u8, row.to, row.kind);
            detailed.insert(key, (row, sum));
        }
        let mut left = transitions_max;
        for step in 0..3 {
            // Half of what may be kept goes to each finer step; all that is left is the last one's.
            let most = if step < 2 { left / 2 } else { usize::MAX };
            let mut counts: Vec<u64> = detailed.values().map(|(row, _)| row.requests).collect();
            let rare = if counts.len() > most {
                counts.sort_unstable_by(|a, b| b.cmp(a));
                counts[most]
            } else {
                0
            };
            let mut coarser: BTreeMap<Key, (Transition, f64)> = BTreeMap::new();
            let mut rests: BTreeMap<(usize, u32, u32, u8), (Link, u64)> = BTreeMap::new();
            for ((phase, from, from_kind, link, to, kind), (mut row, sum)) in std::mem::take(&mut detailed) {
                if step == 2 || row.requests > rare {
                    row.gap_us = sum / row.requests as f64 / 1e3;
                    phases[phase].transitions.push(row);
                    left = left.saturating_sub(1);
                } else {
                    rests.entry((phase, from, from_kind, link)).or_insert((row.link, 0)).1 += row.requests;
                    row.from_kind = ANY;
                    row.from = if step == 0 { from } else { ANY };
                    let key = (phase, row.from, ANY, link, to, kind);
                    let summed = coarser.entry(key).or_insert((Transition { requests: 0, ..row }, 0.0));
                    summed.0.requests += row.requests;
                    summed.1 += sum;
                }
            }
            for ((phase, from, from_kind, _), (link, requests)) in rests {
                let row = Transition { from, from_kind, to: ANY, kind: 0, link, requests, gap_us: 0.0 };
                phases[phase].transitions.push(row);
            }
            detailed = coarser;
        }
        phases
    }
}
