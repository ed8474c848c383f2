//! Types and sizes of requests, as many as a model holds.

use super::super::Kind;
use foldhash::fast::FixedState;
use forebay_trace::{Operation, Request};
use hashbrown::HashMap;

/// Different types and sizes above which sizes are rounded.
const KINDS_MAX: usize = 1 << 10;
/// Types and sizes of a model.
const KINDS_KEPT: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Counted {
    operation: Operation,
    bytes: u64,
    /// Requests by the sector of 4 KiB at which they start.
    sectors: [u64; 8],
}

impl Counted {
    fn requests(&self) -> u64 {
        self.sectors.iter().sum()
    }
}

/// Types and sizes by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds {
    kinds: Vec<Counted>,
    ids: HashMap<(u8, u64), u32, FixedState>,
    /// The kind looked up last, as it is likely to be asked for again.
    last: Option<(u8, u64, u32)>,
}

impl Kinds {
    /// The number of a request's kind, which is counted.
    #[inline]
    pub(super) fn count(&mut self, request: &Request) -> u32 {
        let (operation, bytes) = (request.operation as u8, request.length);
        let id = match self.last {
            Some((of, size, id)) if of == operation && size == bytes => id,
            _ => self.number(request.operation, bytes),
        };
        self.last = Some((operation, bytes, id));
        self.kinds[id as usize].sectors[(request.offset / 512) as usize & 7] += 1;
        id
    }

    fn number(&mut self, operation: Operation, mut bytes: u64) -> u32 {
        if self.kinds.len() >= KINDS_MAX - 5 * 40 && !self.ids.contains_key(&(operation as u8, bytes)) {
            bytes = bytes.next_power_of_two();
        }
        *self.ids.entry((operation as u8, bytes)).or_insert_with(|| {
            self.kinds.push(Counted { operation, bytes, sectors: [0; 8] });
            self.kinds.len() as u32 - 1
        })
    }

    /// Puts the commonest first, and gives rare sizes the nearest of the common ones of their type; the new numbers.
    pub(super) fn merge(&mut self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.kinds.len()).collect();
        order.sort_by_key(|&kind| (std::cmp::Reverse(self.kinds[kind].requests()), kind));
        let (common, rare) = order.split_at(order.len().min(KINDS_KEPT));
        let mut kept = common.to_vec();
        // A type is never lost.
        for &kind in rare {
            if !kept.iter().any(|&of| self.kinds[of].operation == self.kinds[kind].operation) {
                kept.push(kind);
            }
        }
        let log = |kind: usize| (self.kinds[kind].bytes.max(1) as f64).ln();
        let renamed: Vec<u32> = (0..self.kinds.len())
            .map(|kind| {
                let of_type = (0u32..)
                    .zip(&kept)
                    .filter(|(_, of)| self.kinds[**of].operation == self.kinds[kind].operation);
                let far = |of: usize| (log(of) - log(kind)).abs();
                let nearest = of_type.min_by(|a, b| far(*a.1).total_cmp(&far(*b.1)));
                nearest.expect("every type was kept").0
            })
            .collect();
        let mut kinds: Vec<Counted> =
            kept.iter().map(|&kind| Counted { sectors: [0; 8], ..self.kinds[kind] }).collect();
        for (kind, &name) in self.kinds.iter().zip(&renamed) {
            let sectors = &mut kinds[name as usize].sectors;
            sectors.iter_mut().zip(kind.sectors).for_each(|(sum, count)| *sum += count);
        }
        self.kinds = kinds;
        renamed
    }

    /// Of each kind, how many requests there were, and whether they read.
    pub(super) fn counts(&self) -> Vec<(u64, bool)> {
        self.kinds.iter().map(|kind| (kind.requests(), kind.operation == Operation::Read)).collect()
    }

    pub(super) fn models(&self) -> Vec<Kind> {
        let model = |kind: &Counted| Kind {
            operation: kind.operation,
            bytes: kind.bytes,
            sectors: match kind.sectors[1..] {
                [0, 0, 0, 0, 0, 0, 0] => Vec::new(),
                _ => (0u8..).zip(kind.sectors).filter(|(_, count)| *count > 0).collect(),
            },
        };
        self.kinds.iter().map(model).collect()
    }
}
