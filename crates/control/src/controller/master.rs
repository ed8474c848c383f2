//! The master: turns what volumes want into quotas within the capacity.

use super::scene::Scene;
use crate::allocation::{Claim, allocate};
use crate::inventory::VolumeId;
use std::collections::BTreeMap;

/// What one volume wants.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) volume: VolumeId,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) blocks_min: u64,
    pub(super) priority: u8,
    /// The scene of its origin, by its place in the scenes given, and its own place in it.
    pub(super) scene: Option<(usize, usize)>,
}

/// Grants everything where it fits; else the allocation that violates least. Returns blocks by volume and whether
/// anything had to be cut. The bytes granted never exceed `capacity`.
///
/// The violation of each origin is taken as a function of one volume's blocks at a time, the others as they want.
pub(super) fn grant(
    wants: &[Want],
    scenes: &[Scene],
    capacity: u64,
    chunk_bytes: u64,
) -> (BTreeMap<VolumeId, u64>, bool) {
    let wanted: u128 = wants.iter().map(|want| u128::from(want.blocks) * u128::from(want.block_bytes)).sum();
    if wanted <= u128::from(capacity) {
        return (wants.iter().map(|want| (want.volume, want.blocks)).collect(), false);
    }
    let guaranteed: u64 = wants.iter().map(|want| want.blocks_min.min(want.blocks) * want.block_bytes).sum();
    let free = capacity.saturating_sub(guaranteed);
    // Finer chunks for fewer claims: the programme's time is bounded by claims * chunks^2 (ours).
    let resolution = (8_192 / wants.len().max(1)).clamp(16, 256) as u64;
    let unit = chunk_bytes.max(free.div_ceil(resolution)).max(1);
    let chunks = (free / unit) as usize;
    let mut at_want: Vec<Vec<u64>> = scenes.iter().map(Scene::blocks).collect();
    for want in wants {
        if let Some((scene, place)) = want.scene {
            at_want[scene][place] = want.blocks;
        }
    }
    let claims: Vec<Claim> = wants
        .iter()
        .map(|want| {
            let least = want.blocks_min.min(want.blocks);
            let beyond = (want.blocks - least) * want.block_bytes;
            let most = (beyond.div_ceil(unit) as usize).min(chunks);
            let mut cost = Vec::with_capacity(most + 1);
            for k in 0..=most {
                let blocks = (least + k as u64 * unit / want.block_bytes).min(want.blocks);
                cost.push(match want.scene {
                    Some((scene, place)) => {
                        let mut sizes = at_want[scene].clone();
                        sizes[place] = blocks;
                        scenes[scene].weighted_violation(&sizes)
                    }
                    None => 0.0,
                });
            }
            Claim { priority: want.priority, minimum: 0, cost }
        })
        .collect();
    let given = allocate(chunks, &claims);
    let quotas = wants
        .iter()
        .zip(&given)
        .map(|(want, &chunks)| {
            let least = want.blocks_min.min(want.blocks);
            (want.volume, (least + chunks as u64 * unit / want.block_bytes).min(want.blocks))
        })
        .collect();
    (quotas, true)
}
