//! Cacheability: whether a read cache can take load off the origin for this workload at all (Dynamite, step 3).

use forebay_locality::MissRatioCurve;
use serde::{Deserialize, Serialize};

/// The rules; the numbers are ours, since the rules are the cache vendor's to set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheabilityRules {
    /// Least share of reads among the requests: a write-through cache sends every write on. Default 0.2; 0 to 1.
    pub read_share_min: f64,
    /// Largest miss ratio that the largest size which it may have leaves. Default 0.8; 0 to 1.
    pub floor_max: f64,
    /// Largest number of cached blocks made invalid by writes, per block filled. Default 0.8.
    pub invalidation_share_max: f64,
    /// Largest share of sequential reads: origins prefetch them well. Default 0.9; 0 to 1.
    pub sequential_share_max: f64,
    /// Reads behind the curve below which it is not believed. Default 200.
    pub curve_accesses_min: u64,
}

impl Default for CacheabilityRules {
    fn default() -> CacheabilityRules {
        CacheabilityRules {
            read_share_min: 0.2,
            floor_max: 0.8,
            invalidation_share_max: 0.8,
            sequential_share_max: 0.9,
            curve_accesses_min: 200,
        }
    }
}

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Character<'a> {
    /// Share of reads among the recent requests.
    pub read_share: f64,
    /// The live curve; `None` where there is none yet.
    pub curve: Option<&'a MissRatioCurve>,
    /// The largest size that it may have, in blocks: what a volume larger than any cache could hit beyond it does not count.
    pub blocks_max: u64,
    /// Blocks that its cache may hold now.
    pub quota_blocks: u64,
    /// Blocks of these for which the system has no memory.
    pub refused_blocks: u64,
    /// Reads behind it.
    pub curve_accesses: u64,
    /// Cached blocks made invalid per block filled, where something is cached.
    pub invalidation_share: Option<f64>,
    /// Share of sequential reads.
    pub sequential_share: f64,
    /// Whether the configuration allows it.
    pub may_cache: bool,
}

/// Why a workload cannot be helped by a cache.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NotCacheable {
    /// The configuration forbids it.
    #[error("its configuration forbids a cache")]
    Forbidden,
    /// Too many writes for a write-through cache.
    #[error("only {read_share:.2} of its requests are reads, expected at least {limit:.2}")]
    WriteHeavy {
        /// Found.
        read_share: f64,
        /// Wanted.
        limit: f64,
    },
    /// Too little is known of its locality.
    #[error("its curve rests on {accesses} reads, expected at least {limit}")]
    CurveUnknown {
        /// Found.
        accesses: u64,
        /// Wanted.
        limit: u64,
    },
    /// There is no memory for a cache.
    #[error("there is no memory that it may have")]
    NoMemory,
    /// Its cache has less memory than it was given.
    #[error("the system refuses its cache memory: of {quota} blocks it has {has}")]
    MemoryRefused {
        /// Blocks for which there is memory.
        has: u64,
        /// Blocks that it may have.
        quota: u64,
    },
    /// Too little is read twice.
    #[error(
        "with the {blocks} blocks that it may have at most it would still miss {floor:.2} of its reads, expected at most {limit:.2}"
    )]
    NoReuse {
        /// The largest size that it may have.
        blocks: u64,
        /// Found.
        floor: f64,
        /// Wanted.
        limit: f64,
    },
    /// Writes hit what is cached too often.
    #[error("writes make {share:.2} blocks invalid for each block filled, expected at most {limit:.2}")]
    Invalidated {
        /// Found.
        share: f64,
        /// Wanted.
        limit: f64,
    },
    /// The origin prefetches it well.
    #[error("{share:.2} of its reads are sequential, expected at most {limit:.2}")]
    Sequential {
        /// Found.
        share: f64,
        /// Wanted.
        limit: f64,
    },
}

/// Applies the rules.
///
/// # Errors
/// [`NotCacheable`], the first rule that fails.
pub(crate) fn check(character: &Character<'_>, rules: &CacheabilityRules) -> Result<(), NotCacheable> {
    if !character.may_cache {
        return Err(NotCacheable::Forbidden);
    }
    if character.read_share < rules.read_share_min {
        return Err(NotCacheable::WriteHeavy {
            read_share: character.read_share,
            limit: rules.read_share_min,
        });
    }
    let Some(curve) = character.curve.filter(|_| character.curve_accesses >= rules.curve_accesses_min) else {
        let accesses = if character.curve.is_some() { character.curve_accesses } else { 0 };
        return Err(NotCacheable::CurveUnknown { accesses, limit: rules.curve_accesses_min });
    };
    let blocks = character.blocks_max;
    if blocks == 0 {
        return Err(NotCacheable::NoMemory);
    }
    if character.refused_blocks > 0 {
        let quota = character.quota_blocks;
        return Err(NotCacheable::MemoryRefused {
            has: quota.saturating_sub(character.refused_blocks),
            quota,
        });
    }
    let floor = curve.miss_ratio_at(blocks);
    if floor > rules.floor_max {
        return Err(NotCacheable::NoReuse { blocks, floor, limit: rules.floor_max });
    }
    if let Some(share) = character.invalidation_share.filter(|&share| share > rules.invalidation_share_max) {
        return Err(NotCacheable::Invalidated { share, limit: rules.invalidation_share_max });
    }
    if character.sequential_share > rules.sequential_share_max {
        return Err(NotCacheable::Sequential {
            share: character.sequential_share,
            limit: rules.sequential_share_max,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_locality::CurvePoint;

    #[test]
    fn each_rule_refuses_what_it_is_about() {
        let rules = CacheabilityRules::default();
        let curve = |floor| MissRatioCurve::new(vec![CurvePoint { size_blocks: 10, miss_ratio: floor }]);
        let (good_curve, bad_curve) = (curve(0.2), curve(0.95));
        let good = Character {
            read_share: 0.7,
            curve: Some(&good_curve),
            blocks_max: 100,
            quota_blocks: 100,
            refused_blocks: 0,
            curve_accesses: 1_000,
            invalidation_share: Some(0.1),
            sequential_share: 0.1,
            may_cache: true,
        };
        assert_eq!(check(&good, &rules), Ok(()));
        let refused = |character: Character<'_>| check(&character, &rules).unwrap_err();
        assert_eq!(refused(Character { may_cache: false, ..good }), NotCacheable::Forbidden);
        assert!(matches!(refused(Character { read_share: 0.1, ..good }), NotCacheable::WriteHeavy { .. }));
        assert!(matches!(
            refused(Character { curve: None, ..good }),
            NotCacheable::CurveUnknown { accesses: 0, .. }
        ));
        assert!(matches!(
            refused(Character { curve_accesses: 5, ..good }),
            NotCacheable::CurveUnknown { .. }
        ));
        assert!(matches!(
            refused(Character { curve: Some(&bad_curve), ..good }),
            NotCacheable::NoReuse { .. }
        ));
        // Two blocks of ten that would hit eight reads in ten: one in six.
        assert!(matches!(
            refused(Character { blocks_max: 2, ..good }),
            NotCacheable::NoReuse { blocks: 2, floor, .. } if floor > 0.8
        ));
        assert_eq!(refused(Character { blocks_max: 0, ..good }), NotCacheable::NoMemory);
        // A cache that holds next to nothing makes as many blocks invalid as it fills, and more would not help.
        let short = Character { refused_blocks: 99, invalidation_share: Some(1.0), ..good };
        assert_eq!(refused(short), NotCacheable::MemoryRefused { has: 1, quota: 100 });
        assert!(matches!(
            refused(Character { invalidation_share: Some(2.0), ..good }),
            NotCacheable::Invalidated { .. }
        ));
        let sequential = refused(Character { sequential_share: 0.99, ..good });
        assert_eq!(sequential.to_string(), "0.99 of its reads are sequential, expected at most 0.90");
    }
}
