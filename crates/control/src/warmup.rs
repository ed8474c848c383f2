//! Warm-up: which zones to load before they are asked for, and whether to load any (Dynamite, step 9).
//!
//! Zones with more than a thousandth of the accesses are read whole, the hottest first. A warm-up from zones that
//! are hot no longer does harm (the paper measured it), so nothing is loaded unless the zones of the last window
//! overlap those before; nor are they loaded where a zone is hot for a few of its blocks only (ours). Where it is known which blocks such a cache held, these are loaded in their place (ours).

use crate::decision::ZoneRange;
use crate::observation::ZoneHeat;
use crate::prewarm::{Entry, LoadScore};
use forebay_locality::MissRatioCurve;
use forebay_units::BlockRange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How warm-up is decided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmupRules {
    /// Least share of the accesses of a zone that is loaded. Default 0.001 (Dynamite); 0 to 1.
    pub zone_share_min: f64,
    /// Least overlap of the hot zones of now and before, weighted by accesses. Default 0.5 (ours); 0 to 1.
    pub overlap_min: f64,
    /// Least part of what a cache of as many blocks would answer that zones which are loaded whole must answer. Default 2/3 (ours); 0 to 1.
    pub dense_min: f64,
    /// Accesses behind the zones below which nothing is loaded. Default 500 (ours).
    pub accesses_min: u64,
    /// Largest rate in bytes per second. Default 64 MiB/s (ours).
    #[serde(with = "crate::plain::size")]
    pub bytes_per_second_max: u64,
    /// Share of the origin's idle time that loading may use. Default 0.5 (ours); 0 to 1.
    pub idle_share: f64,
    /// Largest share of a cache that is loaded from snapshots. Default 1 (ours); 0 to 1.
    pub cache_share_max: f64,
    /// Least hit ratio before its snapshots of a cache that is loaded from them. Default 0.05 (ours); 0 to 1.
    pub hit_ratio_min: f64,
    /// Least share of the look-ups of five minutes that loading from snapshots may spare. Default 0.01 (ours); 0 to 1.
    pub spared_min: f64,
    /// By which score the blocks of snapshots are loaded. Default: decayed frequency, twice where they had been used again (ours).
    pub score: LoadScore,
    /// Where they enter. Default: the tail (ours).
    pub insertion: Entry,
}

impl Default for WarmupRules {
    fn default() -> WarmupRules {
        WarmupRules {
            zone_share_min: 0.001,
            overlap_min: 0.5,
            dense_min: 2.0 / 3.0,
            accesses_min: 500,
            bytes_per_second_max: 64 << 20,
            idle_share: 0.5,
            cache_share_max: 1.0,
            hit_ratio_min: 0.05,
            spared_min: 0.01,
            score: LoadScore::default(),
            insertion: Entry::default(),
        }
    }
}

/// What a warm-up is decided from.
#[derive(Clone, Copy, Debug)]
pub struct WarmupInput<'a> {
    /// The zones of now.
    pub zones: &'a [ZoneHeat],
    /// All accesses behind them.
    pub accesses: u64,
    /// The zones of some intervals before; empty where none are known.
    pub earlier: &'a [u64],
    /// Blocks of a zone.
    pub zone_blocks: u64,
    /// Blocks of the volume.
    pub volume_blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// What such a cache held before, where that is known: what is most worth being loaded first. It is loaded in place of whole zones.
    pub resident: Option<&'a [BlockRange]>,
    /// In how many seconds it is to be loaded; `None`: as soon as may be.
    pub within_s: Option<f64>,
    /// The curve of the load that the zones are of; `None` where that is not known.
    pub curve: Option<&'a MissRatioCurve>,
    /// Blocks that the cache may still take.
    pub room_blocks: u64,
    /// How busy the origin is, 0 to 1.
    pub utilisation: f64,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Warmup {
    /// Load these.
    Load {
        /// The hottest first; or what such a cache held.
        zones: Vec<ZoneRange>,
        /// They are what such a cache held.
        were_resident: bool,
        /// Their bytes.
        bytes: u64,
        /// At most so fast.
        bytes_per_second: u64,
        /// How much the zones of now and before overlap.
        overlap: f64,
    },
    /// Load nothing, and why.
    Skip(SkipReason),
}

/// Why nothing is loaded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SkipReason {
    /// Too few accesses to call a zone hot.
    #[error("its zones rest on {0} accesses, which is too few")]
    TooFewAccesses(u64),
    /// The hot zones change.
    #[error("its hot zones of now and before overlap by {0:.2} only, so that those of now may be cold soon")]
    Unstable(f64),
    /// No zone is hotter than the others.
    #[error("none of its zones takes enough of its accesses")]
    NoHotZone,
    /// Most of what would be loaded is cold.
    #[error(
        "its hot blocks lie scattered: whole zones would answer too little of what as many hot blocks do"
    )]
    Scattered,
    /// The cache is full, or as small as a zone.
    #[error("its cache has no room for a zone")]
    NoRoom,
}

/// Decides a warm-up. `O(zones log zones)`.
pub fn decide(input: &WarmupInput<'_>, rules: &WarmupRules) -> Warmup {
    if input.accesses < rules.accesses_min || input.zone_blocks == 0 {
        return Warmup::Skip(SkipReason::TooFewAccesses(input.accesses));
    }
    let mut hot = hot_of(input.zones, input.accesses, rules);
    if hot.is_empty() {
        return Warmup::Skip(SkipReason::NoHotZone);
    }
    let overlap = overlap(&hot, input.earlier);
    if overlap < rules.overlap_min {
        return Warmup::Skip(SkipReason::Unstable(overlap));
    }
    hot.sort_unstable_by_key(|zone| (std::cmp::Reverse(zone.accesses), zone.zone));
    let resident = input.resident.filter(|resident| !resident.is_empty());
    let mut zones = match resident {
        Some(resident) => resident_within(resident, input),
        None => zones_within(&hot, input),
    };
    if zones.is_empty() {
        return Warmup::Skip(SkipReason::NoRoom);
    }
    let dense =
        if resident.is_some() { zones.len() } else { dense_among(&zones, &hot, input, rules.dense_min) };
    zones.truncate(dense);
    if zones.is_empty() {
        return Warmup::Skip(SkipReason::Scattered);
    }
    let bytes = zones.iter().map(|zone| zone.blocks).sum::<u64>().saturating_mul(input.block_bytes);
    // A tenth of the largest rate is allowed even at a busy origin: without any the violation lasts longer (ours).
    let share = ((1.0 - input.utilisation.clamp(0.0, 1.0)) * rules.idle_share).clamp(0.1, 1.0);
    let most = rules.bytes_per_second_max as f64 * share;
    // No faster than it has to be: half of the time is left for what is slower than was thought.
    let enough = input.within_s.map_or(f64::INFINITY, |seconds| 2.0 * bytes as f64 / seconds.max(1e-3));
    let bytes_per_second = (most.min(enough) as u64).max(1);
    Warmup::Load { zones, were_resident: resident.is_some(), bytes, bytes_per_second, overlap }
}

/// The hottest zones that the cache has room for, whole.
fn zones_within(hot: &[ZoneHeat], input: &WarmupInput<'_>) -> Vec<ZoneRange> {
    let mut room = input.room_blocks;
    let mut zones = Vec::new();
    for zone in hot {
        let Some(first_block) = zone.zone.checked_mul(input.zone_blocks) else { continue };
        let blocks = input.zone_blocks.min(input.volume_blocks.saturating_sub(first_block));
        if blocks == 0 {
            continue;
        }
        if blocks > room {
            break;
        }
        room -= blocks;
        zones.push(ZoneRange { first_block, blocks });
    }
    zones
}

/// How many of these `zones`, the hottest of the `hot` ones, are worth being loaded whole (ours): as many as answer together a part of `dense_min` of what
/// a cache of as many blocks would. `O(zones log points)`.
///
/// Where hot blocks lie scattered a zone is hot for a few of them, which are soon cached anyway, and all that is loaded beside them is cold: it costs
/// the origin's time just when it has none, and the room in which a cache that grows finds its blocks.
fn dense_among(zones: &[ZoneRange], hot: &[ZoneHeat], input: &WarmupInput<'_>, dense_min: f64) -> usize {
    let Some(curve) = input.curve else { return zones.len() };
    let lie_in = |zone: &&ZoneHeat| {
        zone.zone.checked_mul(input.zone_blocks).is_some_and(|first| first < input.volume_blocks)
    };
    let (mut blocks, mut accesses, mut dense) = (0u64, 0u64, 0);
    for (at, (zone, heat)) in zones.iter().zip(hot.iter().filter(lie_in)).enumerate() {
        blocks += zone.blocks;
        accesses = accesses.saturating_add(heat.accesses);
        let best = 1.0 - curve.miss_ratio_at(blocks);
        if accesses as f64 >= dense_min * best * input.accesses as f64 {
            dense = at + 1;
        }
    }
    dense
}

/// As much of what a cache held as there is room for.
fn resident_within(resident: &[BlockRange], input: &WarmupInput<'_>) -> Vec<ZoneRange> {
    let mut room = input.room_blocks;
    let mut ranges = Vec::new();
    for range in resident {
        let end = range.end.min(input.volume_blocks);
        let blocks = end.saturating_sub(range.first).min(room);
        if blocks > 0 {
            room -= blocks;
            ranges.push(ZoneRange { first_block: range.first, blocks });
        }
    }
    ranges
}

/// Whether the zones that are hot among `zones` are those of `others`, as far as a warm-up asks for. `O(zones log zones)`.
pub(crate) fn are_alike(zones: &[ZoneHeat], accesses: u64, others: &[ZoneHeat], rules: &WarmupRules) -> bool {
    let others: Vec<u64> = others.iter().map(|zone| zone.zone).collect();
    overlap(&hot_of(zones, accesses, rules), &others) >= rules.overlap_min
}

/// The zones that take more than the least share of all `accesses`.
fn hot_of(zones: &[ZoneHeat], accesses: u64, rules: &WarmupRules) -> Vec<ZoneHeat> {
    let least = rules.zone_share_min * accesses as f64;
    zones.iter().copied().filter(|zone| zone.accesses as f64 > least).collect()
}

/// The share of the accesses to `hot` zones that goes to zones which were hot `earlier`.
fn overlap(hot: &[ZoneHeat], earlier: &[u64]) -> f64 {
    let earlier: BTreeSet<u64> = earlier.iter().copied().collect();
    let all: u64 = hot.iter().map(|zone| zone.accesses).sum();
    let kept: u64 = hot.iter().filter(|zone| earlier.contains(&zone.zone)).map(|zone| zone.accesses).sum();
    if all == 0 { 0.0 } else { kept as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_locality::CurvePoint;

    fn input<'a>(zones: &'a [ZoneHeat], earlier: &'a [u64]) -> WarmupInput<'a> {
        WarmupInput {
            zones,
            accesses: 10_000,
            earlier,
            zone_blocks: 256,
            volume_blocks: 2_600,
            block_bytes: 4_096,
            resident: None,
            within_s: None,
            curve: None,
            room_blocks: 800,
            utilisation: 0.6,
        }
    }

    fn heat(zone: u64, accesses: u64) -> ZoneHeat {
        ZoneHeat { zone, accesses }
    }

    #[test]
    fn hot_zones_are_loaded_hottest_first_within_the_room() {
        // Zone 10 is the short last one: 2,600 - 2,560 = 40 blocks. Zone 4 has exactly 0.1 % and is not above it.
        let zones = [heat(1, 500), heat(10, 3_000), heat(4, 10), heat(2, 2_000)];
        let Warmup::Load { zones, bytes, bytes_per_second, overlap, .. } =
            decide(&input(&zones, &[1, 2, 10]), &WarmupRules::default())
        else {
            panic!("expected a warm-up");
        };
        let range = |first_block, blocks| ZoneRange { first_block, blocks };
        assert_eq!(zones, [range(2_560, 40), range(512, 256), range(256, 256)]);
        assert_eq!(bytes, 552 * 4_096);
        assert_eq!(overlap, 1.0);
        assert_eq!(bytes_per_second, ((64u64 << 20) as f64 * 0.2) as u64); // (1 - 0.6) x 0.5
        // Room for two of them only.
        let zones = [heat(1, 500), heat(2, 2_000), heat(3, 1_000), heat(5, 900)];
        let small = WarmupInput { room_blocks: 600, ..input(&zones, &[1, 2, 3, 5]) };
        let Warmup::Load { zones, .. } = decide(&small, &WarmupRules::default()) else { panic!() };
        assert_eq!(zones, [range(512, 256), range(768, 256)]);
    }

    #[test]
    fn what_a_cache_held_is_loaded_in_place_of_zones_in_the_time_there_is() {
        let zones = [heat(1, 6_000), heat(2, 4_000)];
        let range = |first, end| BlockRange { first, end };
        // The last lies beyond the volume, the one before it ends there; room for 50 blocks.
        let held = [range(900, 910), range(2_590, 2_700), range(2_600, 2_610), range(0, 100)];
        let held = WarmupInput {
            resident: Some(&held),
            within_s: Some(40.0),
            room_blocks: 50,
            ..input(&zones, &[1, 2])
        };
        let Warmup::Load { zones, were_resident: true, bytes, bytes_per_second, .. } =
            decide(&held, &WarmupRules::default())
        else {
            panic!("expected a warm-up");
        };
        let range = |first_block, blocks| ZoneRange { first_block, blocks };
        assert_eq!(zones, [range(900, 10), range(2_590, 10), range(0, 30)]);
        // 204,800 bytes in half of 40 seconds; at once as fast as the origin allows.
        assert_eq!((bytes, bytes_per_second), (50 * 4_096, 10_240));
        let at_once = |within_s| match decide(&WarmupInput { within_s, ..held }, &WarmupRules::default()) {
            Warmup::Load { bytes_per_second, .. } => bytes_per_second,
            Warmup::Skip(reason) => panic!("{reason}"),
        };
        assert_eq!([at_once(None), at_once(Some(0.0))], [13_421_772; 2]); // 64 MiB x .2
        // However scattered it lies; and where nothing is known of it zones are loaded as they are otherwise.
        let few = [heat(1, 100)];
        let points = vec![CurvePoint { size_blocks: 10, miss_ratio: 0.0 }];
        let curve = MissRatioCurve::new(points);
        let scattered = WarmupInput { curve: Some(&curve), ..input(&few, &[1]) };
        assert_eq!(decide(&scattered, &WarmupRules::default()), Warmup::Skip(SkipReason::Scattered));
        let ours = WarmupInput { resident: held.resident, ..scattered };
        assert!(matches!(decide(&ours, &WarmupRules::default()), Warmup::Load { were_resident: true, .. }));
        let unknown = WarmupInput { resident: Some(&[]), room_blocks: 800, ..held };
        let unknown = decide(&unknown, &WarmupRules::default());
        assert!(matches!(unknown, Warmup::Load { were_resident: false, .. }), "{unknown:?}");
        // An origin that has no time at all gives a tenth of the most: 6.4 MiB/s.
        let busy = decide(&WarmupInput { utilisation: 1.0, within_s: None, ..held }, &WarmupRules::default());
        assert!(matches!(busy, Warmup::Load { bytes_per_second: 6_710_886, .. }), "{busy:?}");
        // Zones that are hot no longer speak against it, too.
        let unstable = WarmupInput { earlier: &[7], ..held };
        assert_eq!(decide(&unstable, &WarmupRules::default()), Warmup::Skip(SkipReason::Unstable(0.0)));
    }

    #[test]
    fn zones_are_alike_by_the_share_of_the_accesses_that_both_have() {
        let rules = WarmupRules::default();
        let now = [heat(1, 6_000), heat(2, 4_000), heat(3, 10)];
        let like = |others: &[u64]| {
            let others: Vec<ZoneHeat> = others.iter().map(|&zone| heat(zone, 1)).collect();
            are_alike(&now, 10_010, &others, &rules)
        };
        // 6,000 of the 10,000 accesses to hot zones; 4,000; none, for zone 3 is not hot.
        assert_eq!([like(&[1, 9]), like(&[2, 3]), like(&[3])], [true, false, false]);
    }

    #[test]
    fn zones_are_loaded_where_they_are_hot_as_a_whole() {
        let loaded = |zones: &[ZoneHeat], points: &[(u64, f64)]| {
            let point = |&(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio };
            let curve = MissRatioCurve::new(points.iter().map(point).collect());
            match decide(
                &WarmupInput { curve: Some(&curve), ..input(zones, &[1, 2, 3]) },
                &WarmupRules::default(),
            ) {
                Warmup::Load { zones, .. } => Ok(zones.len()),
                Warmup::Skip(reason) => Err(reason),
            }
        };
        // Two zones of 256 blocks that take .6 and .05 of the accesses, where 512 blocks answer no more than that, or all of it.
        let zones = [heat(1, 6_000), heat(2, 500)];
        assert_eq!(loaded(&zones, &[(512, 0.35), (1_024, 0.2)]), Ok(2));
        assert_eq!(loaded(&zones, &[(256, 0.35), (512, 0.0)]), Ok(1)); // .6 of .65, .65 of 1
        // Zipf 0.9 over 256 zones, scattered: three zones for the sake of a block each.
        let zones = [heat(1, 519), heat(2, 299), heat(3, 219)];
        let zipf = [(64, 0.86), (128, 0.81), (256, 0.755), (512, 0.69), (1_024, 0.625)];
        assert_eq!(loaded(&zones, &zipf), Err(SkipReason::Scattered));
        // Nothing is known of how it lies.
        let unknown = input(&zones, &[1, 2, 3]);
        assert!(matches!(decide(&unknown, &WarmupRules::default()), Warmup::Load { .. }));
    }

    #[test]
    fn nothing_is_loaded_where_it_would_do_harm() {
        let rules = WarmupRules::default();
        let zones = [heat(1, 6_000), heat(2, 4_000)];
        let skip = |input: WarmupInput<'_>| match decide(&input, &rules) {
            Warmup::Skip(reason) => reason,
            Warmup::Load { .. } => panic!("expected none"),
        };
        assert_eq!(skip(input(&zones, &[2, 7])), SkipReason::Unstable(0.4)); // 4,000 of 10,000
        assert_eq!(skip(input(&zones, &[])), SkipReason::Unstable(0.0));
        assert_eq!(skip(WarmupInput { room_blocks: 100, ..input(&zones, &[1, 2]) }), SkipReason::NoRoom);
        assert_eq!(
            skip(WarmupInput { accesses: 20, ..input(&zones, &[1, 2]) }),
            SkipReason::TooFewAccesses(20)
        );
        assert_eq!(skip(input(&[heat(1, 3)], &[1])), SkipReason::NoHotZone);
    }
}
