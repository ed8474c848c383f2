//! Parting: a cache in front of one volume that also serves a neighbour stops doing so, where the neighbour's own does that with less.
//!
//! A violation is answered with the caches that are there to be made at that time: a busy neighbour's, while the volume's own reads are hardly
//! known. Once it has a cache of its own both grow for the same objective, and by feedback alone they keep the sizes that they
//! happen to have. So the model is asked now and then what both would take if each served its own volume. The rules and numbers are ours.

use super::correcting::worst_of;
use super::scenes::Scenes;
use super::{Change, Controller};
use crate::decision::{DecisionKind, Fact};
use crate::feedback::Law;
use crate::inventory::VolumeId;
use crate::performance::OVERLOADED;
use crate::sizing::smallest;
use crate::windows::normal_quantile;
use forebay_units::Bytes;
use std::collections::BTreeMap;

/// Steps between two questions.
const PART_EVERY: u64 = 4;
/// Intervals since the last change of either cache.
const SETTLED: usize = 4;
/// Intervals until a cache that serves the neighbour again after all may part from it again.
const PART_AGAIN: u64 = 120;
/// The part of what both take that must be left.
const PART_BELOW: f64 = 0.8;

impl Controller {
    /// Lets the cache of `id` go back to what its own volume needs where a neighbour's own cache can do the rest, and both are smaller together then: the
    /// change of one of them that begins it.
    pub(super) fn part(
        &mut self,
        id: VolumeId,
        scenes: &mut Scenes,
        changes: &BTreeMap<VolumeId, Change>,
    ) -> Option<(VolumeId, Change)> {
        let asks = (self.step + u64::from(id.0)).is_multiple_of(PART_EVERY);
        if !asks || self.config.feedback.law != Law::Model || self.volumes[&id].spec.objectives.is_empty() {
            return None;
        }
        let settled = |id: &VolumeId| {
            let volume = &self.volumes[id];
            !changes.contains_key(id)
                && volume.grant.as_ref().is_some_and(|grant| {
                    grant.age >= SETTLED
                        && grant.learning == 0
                        && grant.flooded.is_none()
                        && self.step >= grant.limited_until
                })
        };
        let grant = self.volumes[&id].grant.as_ref().filter(|_| settled(&id))?;
        if self.step < grant.part_from {
            return None;
        }
        let has_own = |other: &VolumeId| {
            let own = self.volumes.get(other).and_then(|volume| volume.grant.as_ref());
            own.is_some_and(|own| own.serves.contains(other) && own.blocks > 0 && !own.is_spare)
        };
        let neighbour =
            grant.serves.iter().copied().find(|other| *other != id && has_own(other) && settled(other))?;
        let others: Vec<VolumeId> =
            grant.serves.iter().copied().filter(|other| *other != neighbour).collect();
        let ceiling = self.blocks_ceiling(neighbour);
        // Of its own windows only the noise is known: that must have room. What was found to be needed still is.
        let share = self.beneficiaries(id)?.1;
        let margin = self.config.sizing_margin.max(room_for_noise(share, grant.windows.deviation()));
        let kept = grant.needs.kept(self.step).unwrap_or(0);
        let chunks = [id, neighbour].map(|id| self.volumes[&id].chunk_blocks(self.config.chunk_bytes));
        let (index, place) = self.scene_place(scenes, id);
        let scene = &scenes.list[index];
        let own = scene.place(neighbour)?;
        if scene.utilisation >= OVERLOADED {
            return None;
        }
        let before = scene.blocks();
        // What its own volume, and whom else it serves, needs of it.
        let mut blocks = before.clone();
        let needed = smallest(before[place], chunks[0], -margin, |size| {
            blocks[place] = size;
            let excess = scene.excess(&blocks);
            worst_of(scene, &excess, &others).max(excess[place])
        });
        blocks[place] = needed.blocks.max(kept.min(before[place]));
        // And what the neighbour needs then.
        let rest = smallest(ceiling, chunks[1], 0.0, |size| {
            blocks[own] = size;
            scene.excess(&blocks)[own]
        });
        blocks[own] = rest.blocks.max(before[own]);
        let bytes = |blocks: &[u64]| -> u64 {
            [(id, place), (neighbour, own)]
                .iter()
                .map(|(id, at)| blocks[*at] * self.volumes[id].block_bytes())
                .sum()
        };
        let (now, then) = (bytes(&before), bytes(&blocks));
        let worse =
            scene.excess(&before).iter().zip(scene.excess(&blocks)).any(|(now, then)| then > now.max(0.0));
        if !needed.reached || !rest.reached || worse || then as f64 >= PART_BELOW * now as f64 {
            return None;
        }
        let names = [id, neighbour].map(|id| self.volumes[&id].spec.name.clone());
        let facts = |at: usize| {
            vec![
                Fact::number("size_before", before[at] as f64, "blocks"),
                Fact::number("size_after", blocks[at] as f64, "blocks"),
                Fact::number("both_before", now as f64, "bytes"),
                Fact::number("both_after", then as f64, "bytes"),
            ]
        };
        let summary = format!(
            "the cache of {} serves {} no longer: its own can, and both together take {} instead of {} then",
            names[0],
            names[1],
            Bytes(then),
            Bytes(now)
        );
        let begins = if blocks[own] > before[own] {
            let most = (before[own] as f64 * (1.0 + self.config.feedback.model_growth_max)) as u64;
            (neighbour, Change::new(blocks[own].min(most), DecisionKind::Grown, summary, facts(own)))
        } else {
            let least = (before[place] as f64 * (1.0 - self.config.feedback.model_shrink_max)) as u64;
            (id, Change::new(blocks[place].max(least), DecisionKind::Shrunk, summary, facts(place)))
        };
        let grant = self.volumes.get_mut(&id)?.grant.as_mut()?;
        grant.serves.retain(|served| *served != neighbour);
        grant.serve(&[id]);
        grant.parted.push(neighbour);
        grant.part_from = self.step + PART_AGAIN;
        // Its windows were the neighbour's.
        grant.load_changed(0);
        Some(begins)
    }
}

/// How far below the bound the mean of windows that deviate from it by `deviation`, relative to it, has to be for a `share` of them to conform, as a
/// share of the bound.
fn room_for_noise(share: f64, deviation: f64) -> f64 {
    1.0 - 1.0 / (1.0 + normal_quantile(share).max(0.0) * deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_room_below_the_bound() {
        // 19 of 20 windows lie below 1.645 deviations: a mean of 1 / 1.23 of the bound where they deviate by .14.
        assert!((room_for_noise(0.95, 0.14) - 0.187).abs() < 1e-3);
        // 99 of 100: 2.326. Half of them lie below the mean itself, and without noise all do.
        assert!((room_for_noise(0.99, 0.14) - 0.2456).abs() < 1e-3);
        assert_eq!((room_for_noise(0.5, 0.14).abs() < 1e-9, room_for_noise(0.95, 0.0)), (true, 0.0));
        assert_eq!(room_for_noise(0.3, 0.14), 0.0);
    }
}
