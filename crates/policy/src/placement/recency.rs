//! The two admissions that order a tier by when its chunks were used, for comparison: plain LRU, and LARC (Huang et al., MSST 2013).

use super::coldest::Coldest;
use super::{Chunk, Placement, Promotion, Where};
use forebay_units::Nanos;

/// LARC's queue of what was used once.
#[derive(Debug)]
pub(super) struct Larc {
    pub(super) remembered: Coldest,
    /// How long the queue may be, in chunks.
    pub(super) target: f64,
}

impl Placement {
    pub(super) fn touch_by_recency(
        &mut self,
        now: Nanos,
        chunk: Chunk,
        at: Where,
        writes: bool,
    ) -> Option<Promotion> {
        self.sequence += 1;
        if at == Where::Origin && writes && self.placing.write_weight <= 0.0 {
            return None;
        }
        let (slot, _) = self.heat.remember(chunk.id(), self.asked)?;
        self.heat.set_key(slot, self.sequence);
        self.reorder(at);
        if at != Where::Origin {
            return None;
        }
        let promotion = self.promote(now, slot, None);
        if promotion.is_none() {
            self.heat.forget(slot);
        }
        promotion
    }

    pub(super) fn touch_by_larc(
        &mut self,
        now: Nanos,
        chunk: Chunk,
        at: Where,
        writes: bool,
    ) -> Option<Promotion> {
        let capacity = f64::from(self.shape.capacity_chunks);
        self.sequence += 1;
        let sequence = self.sequence;
        let larc = self.larc.as_mut().expect("it was made when the admission was set");
        if at != Where::Origin {
            larc.target = (larc.target - capacity / (capacity - larc.target)).max(0.1 * capacity);
            let slot = self.heat.find(chunk.id()).expect("a chunk with a place is remembered");
            self.heat.set_key(slot, sequence);
            self.reorder(at);
            return None;
        }
        if writes && self.placing.write_weight <= 0.0 {
            return None;
        }
        larc.target = (larc.target + capacity / larc.target).min(0.9 * capacity);
        if let Some(slot) = self.heat.find(chunk.id()) {
            let heat = &self.heat;
            larc.remembered.remove(slot, |slot| heat.key(slot));
            self.heat.set_key(slot, sequence);
            let promotion = self.promote(now, slot, None);
            let (heat, larc) = (&self.heat, self.larc.as_mut().expect("as above"));
            if promotion.is_none() {
                larc.remembered.insert(slot, |slot| heat.key(slot));
            }
            return promotion;
        }
        while f64::from(larc.remembered.len()) >= larc.target.max(1.0) {
            let slot = larc.remembered.first().expect("it is not empty");
            let heat = &self.heat;
            larc.remembered.remove(slot, |slot| heat.key(slot));
            self.heat.forget(slot);
        }
        let (slot, _) = self.heat.remember(chunk.id(), self.asked)?;
        self.heat.set_key(slot, sequence);
        let heat = &self.heat;
        larc.remembered.insert(slot, |slot| heat.key(slot));
        None
    }
}
