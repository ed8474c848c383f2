//! Whether a cache that begins is loaded with what an earlier one held, how much of that, and how fast: from the snapshots, with nothing set by hand.
//!
//! PRESTO asks these three questions and answers: about the working set, and faster than the volume would load itself. Here (ours): a block that is
//! loaded spares one miss at most, its first, so that what loading can give is known beforehand: as many misses as blocks, of all the look-ups
//! of [`HORIZON_S`]. A volume with a small working set and many requests fills its cache by itself within seconds, and is left to it.

use crate::warmup::WarmupRules;
use forebay_units::Bytes;

/// The time in which misses are to be spared: PRESTO's first column.
pub const HORIZON_S: f64 = 300.0;
/// Loading begins so many times as fast as the volume's own misses would load, if the most that is allowed permits it.
const START_OVER_OWN: f64 = 2.0;
/// A start below this, in bytes per second, would waste the first seconds,
const START_MIN: f64 = (4 << 20) as f64;
/// and one above it would hurt others for seconds where the storage is slow; where it is fast, the pace doubles that soon.
const START_MAX: f64 = (8 << 20) as f64;

/// What is known of an earlier cache and of the one that begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TakeoverInput {
    /// Distinct blocks in the snapshots,
    pub blocks: u64,
    /// and those that the newest says were used again.
    pub reused_blocks: u64,
    /// Distinct blocks read in the observation's window; 0: not observed.
    pub working_set_blocks: u64,
    /// Block look-ups per second before the newest snapshots.
    pub lookups_per_s: f64,
    /// The share of them that the cache answered; absent without look-ups.
    pub hit_ratio: Option<f64>,
    /// The same of all snapshots together: what it was before something that reads everything once, a backup say.
    pub hit_ratio_before: Option<f64>,
    /// How many blocks the cache that begins may hold, and how many it already does.
    pub quota_blocks: u64,
    /// Likewise.
    pub resident_blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Takeover {
    /// Load the best blocks.
    Load {
        /// How many.
        blocks: u64,
        /// How fast to begin; what others feel decides from there.
        bytes_per_second: u64,
        /// The share of the look-ups of [`HORIZON_S`] whose misses that may spare.
        spared: f64,
        /// How long the volume's own misses would take for as much, at least.
        own_s: f64,
    },
    /// Load nothing, and why.
    Skip(TakeoverSkip),
}

/// Why nothing is loaded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TakeoverSkip {
    /// Nothing is known.
    #[error("no snapshot of it can be used")]
    NoSnapshot,
    /// Nobody used it.
    #[error("nobody read it before its last snapshots")]
    Idle,
    /// The cache was of no use.
    #[error("its cache answered only {0:.3} of its look-ups")]
    FewHits(f64),
    /// It needs no help.
    #[error(
        "its own misses can fill the cache in {own_s:.0} s, or take longer: loading spares {spared:.4} of the look-ups of five minutes at most"
    )]
    FillsItself {
        /// How many blocks these are.
        blocks: u64,
        /// Seconds, at least.
        own_s: f64,
        /// At most.
        spared: f64,
    },
    /// A person wants none of it loaded.
    #[error("`cache_share_max` ({0}) leaves it no block")]
    NoShare(f64),
    /// The cache is full, or has no quota.
    #[error("its cache has no room")]
    NoRoom,
}

impl Takeover {
    /// The decision about the cache of `volume`, whose blocks have so many bytes, in one sentence.
    pub fn summary(&self, volume: &str, block_bytes: u64) -> String {
        match self {
            Takeover::Skip(reason) => {
                format!("nothing of its snapshots is loaded into the cache of {volume}: {reason}")
            }
            Takeover::Load { blocks, spared, own_s, .. } => format!(
                "{} are loaded into the cache of {volume} from its snapshots: by itself it would take {own_s:.0} s at least, and that may spare misses for {:.0}% of the \
                 look-ups of {HORIZON_S:.0} s",
                Bytes(blocks * block_bytes),
                spared * 100.0
            ),
        }
    }
}

/// Decides. `O(1)`.
pub fn decide_takeover(input: &TakeoverInput, rules: &WarmupRules) -> Takeover {
    if input.blocks == 0 {
        return Takeover::Skip(TakeoverSkip::NoSnapshot);
    }
    let Some(lately) = input.hit_ratio.filter(|_| input.lookups_per_s > 0.0) else {
        return Takeover::Skip(TakeoverSkip::Idle);
    };
    let before = input.hit_ratio_before.filter(|before| lately < rules.hit_ratio_min && *before > lately);
    let hit_ratio = before.unwrap_or(lately);
    if hit_ratio < rules.hit_ratio_min {
        return Takeover::Skip(TakeoverSkip::FewHits(hit_ratio));
    }
    // What is read within a window, and whatever was read more than once: the rest is unlikely to be asked for again soon.
    let wanted = match input.working_set_blocks {
        // What was read once of late is what came over the rest.
        _ if before.is_some() => input.reused_blocks.min(input.blocks),
        0 => input.blocks,
        working_set => working_set.max(input.reused_blocks).min(input.blocks),
    };
    let limit = (input.quota_blocks as f64 * rules.cache_share_max) as u64;
    let blocks = wanted.min(limit).min(input.quota_blocks.saturating_sub(input.resident_blocks));
    if blocks == 0 {
        return Takeover::Skip(match input.quota_blocks {
            1.. if limit == 0 && wanted > 0 => TakeoverSkip::NoShare(rules.cache_share_max),
            1.. if wanted == 0 => TakeoverSkip::FewHits(lately),
            _ => TakeoverSkip::NoRoom,
        });
    }
    // What is there already, of these or of others, its own misses need not bring.
    let own_s = blocks.min(wanted.saturating_sub(input.resident_blocks)) as f64 / input.lookups_per_s;
    let spared = (own_s / HORIZON_S).min(hit_ratio);
    if spared < rules.spared_min {
        return Takeover::Skip(TakeoverSkip::FillsItself { blocks, own_s, spared });
    }
    let own_rate = input.lookups_per_s * input.block_bytes as f64;
    let start =
        (START_OVER_OWN * own_rate).clamp(START_MIN, START_MAX).min(rules.bytes_per_second_max as f64);
    Takeover::Load { blocks, bytes_per_second: start as u64, spared, own_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: TakeoverInput = TakeoverInput {
        blocks: 30_000,
        reused_blocks: 12_000,
        working_set_blocks: 20_000,
        lookups_per_s: 400.0,
        hit_ratio: Some(0.8),
        hit_ratio_before: Some(0.8),
        quota_blocks: 32_768,
        resident_blocks: 0,
        block_bytes: 4_096,
    };

    fn skip(input: TakeoverInput) -> TakeoverSkip {
        match decide_takeover(&input, &WarmupRules::default()) {
            Takeover::Skip(reason) => reason,
            load => panic!("{load:?}"),
        }
    }

    #[test]
    fn about_the_working_set_is_loaded_and_faster_than_by_itself() {
        // 20,000 blocks at 400 per second: 50 s by itself at best; 20,000 of 120,000 look-ups in five minutes. Twice its own 1.6 MB/s would be 3.3 MB/s.
        let load = decide_takeover(&DATABASE, &WarmupRules::default());
        let expected =
            Takeover::Load { blocks: 20_000, bytes_per_second: 4 << 20, spared: 1.0 / 6.0, own_s: 50.0 };
        assert_eq!(load, expected);
        let rules = WarmupRules { cache_share_max: 0.25, ..WarmupRules::default() };
        assert!(matches!(decide_takeover(&DATABASE, &rules), Takeover::Load { blocks: 8_192, .. }));
        let busy = TakeoverInput { lookups_per_s: 4_000.0, ..DATABASE };
        let Takeover::Load { bytes_per_second, .. } = decide_takeover(&busy, &WarmupRules::default()) else {
            panic!()
        };
        assert_eq!(bytes_per_second, 8 << 20, "twice 16.4 MB/s is more");
        let brisk = TakeoverInput { lookups_per_s: 900.0, ..DATABASE };
        let Takeover::Load { bytes_per_second, .. } = decide_takeover(&brisk, &WarmupRules::default()) else {
            panic!()
        };
        assert_eq!(bytes_per_second, 2 * 900 * 4_096);
        let unobserved = TakeoverInput { working_set_blocks: 0, ..DATABASE };
        assert!(matches!(
            decide_takeover(&unobserved, &WarmupRules::default()),
            Takeover::Load { blocks: 30_000, .. }
        ));
    }

    #[test]
    fn what_is_loaded_and_spared_is_bounded_by_what_is_known() {
        let rules = WarmupRules { bytes_per_second_max: 1 << 20, ..WarmupRules::default() };
        let loaded = |input: TakeoverInput| match decide_takeover(&input, &rules) {
            Takeover::Load { blocks, bytes_per_second, spared, .. } => (blocks, bytes_per_second, spared),
            Takeover::Skip(reason) => panic!("{reason}"),
        };
        // What was used again is loaded beyond the working set, and never more than snapshots have.
        let reused = TakeoverInput { reused_blocks: 25_000, ..DATABASE };
        assert_eq!(loaded(reused), (25_000, 1 << 20, 25_000.0 / 400.0 / 300.0));
        assert_eq!(loaded(TakeoverInput { working_set_blocks: 90_000, ..DATABASE }).0, 30_000);
        // 20,000 blocks at 40 per second take longer than five minutes: all that the cache answered is spared, and no more.
        assert_eq!(loaded(TakeoverInput { lookups_per_s: 40.0, ..DATABASE }).2, 0.8);
    }

    #[test]
    fn what_was_used_again_is_loaded_although_a_scan_came_over_it() {
        let scanned = TakeoverInput { hit_ratio: Some(0.02), hit_ratio_before: Some(0.5), ..DATABASE };
        let load = decide_takeover(&scanned, &WarmupRules::default());
        assert!(matches!(load, Takeover::Load { blocks: 12_000, spared: 0.1, .. }), "{load:?}");
        let never = TakeoverInput { hit_ratio_before: Some(0.03), ..scanned };
        assert_eq!(skip(never), TakeoverSkip::FewHits(0.03));
        let nothing = TakeoverInput { reused_blocks: 0, ..scanned };
        assert_eq!(skip(nothing), TakeoverSkip::FewHits(0.02));
    }

    #[test]
    fn who_asks_slower_than_before_is_loaded_after_all() {
        // 600 blocks in 1.5 s, it seemed. Clients that wait for a slow origin ask 20 times a second, and 100 blocks are there after 5 s.
        let local = TakeoverInput { working_set_blocks: 600, reused_blocks: 500, ..DATABASE };
        assert!(matches!(skip(local), TakeoverSkip::FillsItself { .. }));
        let slow = TakeoverInput { lookups_per_s: 20.0, resident_blocks: 100, ..local };
        let load = decide_takeover(&slow, &WarmupRules::default());
        assert!(matches!(load, Takeover::Load { blocks: 600, own_s: 25.0, .. }), "{load:?}");
        // Who was as fast as before has it all by then.
        let full = TakeoverInput { resident_blocks: 600, ..local };
        assert_eq!(skip(full), TakeoverSkip::FillsItself { blocks: 600, own_s: 0.0, spared: 0.0 });
    }

    #[test]
    fn nothing_is_loaded_where_it_gives_nothing() {
        assert_eq!(skip(TakeoverInput { lookups_per_s: 0.0, ..DATABASE }), TakeoverSkip::Idle);
        assert_eq!(skip(TakeoverInput { blocks: 0, ..DATABASE }), TakeoverSkip::NoSnapshot);
        assert_eq!(skip(TakeoverInput { hit_ratio: None, ..DATABASE }), TakeoverSkip::Idle);
        let few = TakeoverInput { hit_ratio: Some(0.01), hit_ratio_before: None, ..DATABASE };
        assert_eq!(skip(few), TakeoverSkip::FewHits(0.01));
        assert_eq!(skip(TakeoverInput { resident_blocks: 32_768, ..DATABASE }), TakeoverSkip::NoRoom);
        assert_eq!(skip(TakeoverInput { quota_blocks: 0, ..DATABASE }), TakeoverSkip::NoRoom);
        let none = WarmupRules { cache_share_max: 0.0, ..WarmupRules::default() };
        assert_eq!(decide_takeover(&DATABASE, &none), Takeover::Skip(TakeoverSkip::NoShare(0.0)));
        // High locality: 600 blocks at 400 per second are there after 1.5 s, 0.5 % of five minutes.
        let local = TakeoverInput { working_set_blocks: 600, reused_blocks: 500, ..DATABASE };
        assert_eq!(skip(local), TakeoverSkip::FillsItself { blocks: 600, own_s: 1.5, spared: 0.005 });
        assert_eq!(
            Takeover::Skip(skip(local)).summary("mail", 4_096),
            "nothing of its snapshots is loaded into the cache of mail: its own misses can fill the cache in 2 s, or take longer: loading spares 0.0050 of the look-ups of five minutes at most"
        );
        assert_eq!(
            decide_takeover(&DATABASE, &WarmupRules::default()).summary("db", 4_096),
            "78.12MiB are loaded into the cache of db from its snapshots: by itself it would take 50 s at least, and that may spare misses for 17% of the look-ups of 300 s"
        );
    }
}
