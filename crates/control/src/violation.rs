//! Violations: sustained non-conformance. A spike is not one, and neither is a phase of low load (Dynamite, §5.1).

use crate::conformance::{Judgement, Verdict};
use forebay_units::Nanos;
use serde::{Deserialize, Serialize};

/// When non-conformance is sustained. The numbers are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViolationRules {
    /// How many of the last windows are looked at. Default 5; 1 to 64.
    pub windows: usize,
    /// How many of them must be nonconforming. Default 3; 1 to `windows`.
    pub nonconforming: usize,
}

impl Default for ViolationRules {
    fn default() -> ViolationRules {
        ViolationRules { windows: 5, nonconforming: 3 }
    }
}

/// What the last windows come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// No window is nonconforming, or the last ones conform.
    Kept,
    /// Some are nonconforming, too few to act.
    Suspected {
        /// How many.
        nonconforming: usize,
    },
    /// Enough are nonconforming, the last one among them.
    Violated {
        /// How many.
        nonconforming: usize,
        /// Of so many of the last windows, or, if that is more than `rules.windows`, of the last ones that asked for enough.
        windows: usize,
    },
}

impl Assessment {
    /// After how many windows without a miss a violation is over: as many as made it, and where those lay far apart, three times the mean distance (ours).
    pub fn over_after(self, rules: &ViolationRules) -> usize {
        match self {
            Assessment::Violated { nonconforming, windows } if windows > 2 * rules.windows => {
                (rules.nonconforming * windows).div_ceil(nonconforming.max(1))
            }
            _ => rules.nonconforming,
        }
    }
}

/// As improbable it must be that a load which keeps its share misses so many windows (ours).
const CHANCE: f64 = 1e-3;

/// A share that is missed for long, a window here and one there: what [`assess`] takes for spikes. Of `verdicts`, newest first, of which the newest misses, at least
/// twice as many as of a violation must be nonconforming, and more than may be by chance where `share` of those that ask for enough conform. `O(windows²)`.
pub fn assess_share(
    verdicts: impl Iterator<Item = Verdict>,
    share: f64,
    rules: &ViolationRules,
) -> Option<Assessment> {
    let (mut windows, mut nonconforming) = (0, 0);
    for verdict in verdicts.filter(|verdict| *verdict != Verdict::LowLoad) {
        windows += 1;
        if verdict == Verdict::Conforming {
            if windows == 1 {
                return None;
            }
            continue;
        }
        nonconforming += 1;
        if nonconforming >= 2 * rules.nonconforming
            && chance_of(nonconforming, windows, 1.0 - share) <= CHANCE
        {
            return Some(Assessment::Violated { nonconforming, windows });
        }
    }
    None
}

/// The probability that at least `missed` of `windows` miss where each does with probability `each`, below 1.
fn chance_of(missed: usize, windows: usize, each: f64) -> f64 {
    // The probability of exactly `count`, from that of one less.
    let mut exactly = (1.0 - each).powi(windows as i32);
    let mut fewer = 0.0;
    for count in 0..missed {
        fewer += exactly;
        exactly *= (windows - count) as f64 / (count + 1) as f64 * each / (1.0 - each);
    }
    (1.0 - fewer).max(0.0)
}

/// Assesses the verdicts of the past, oldest first; only the last `rules.windows` count, and where some of those asked for too little, twice as
/// many of the last that did ask for enough.
///
/// The newest window must itself be nonconforming for a violation: what is over needs no action. A workload that comes in bursts misses its objective in
/// window after window too, with quiet ones in between; of these twice as many must be nonconforming, which no single burst has (ours).
pub fn assess(
    verdicts: impl DoubleEndedIterator<Item = Verdict> + Clone,
    rules: &ViolationRules,
) -> Assessment {
    let (mut newest, mut quiet, mut nonconforming) = (None, false, 0);
    for verdict in verdicts.clone().rev().take(rules.windows) {
        newest.get_or_insert(verdict);
        quiet |= verdict == Verdict::LowLoad;
        nonconforming += usize::from(verdict == Verdict::Nonconforming);
    }
    if newest == Some(Verdict::Nonconforming) && quiet && nonconforming < rules.nonconforming {
        let busy = verdicts.rev().filter(|verdict| *verdict != Verdict::LowLoad).take(2 * rules.windows);
        let missed = busy.filter(|verdict| *verdict == Verdict::Nonconforming).count();
        if missed >= 2 * rules.nonconforming {
            return Assessment::Violated { nonconforming: missed, windows: 2 * rules.windows };
        }
    }
    match (nonconforming, newest) {
        (0, _) => Assessment::Kept,
        (_, Some(Verdict::Nonconforming)) if nonconforming >= rules.nonconforming => {
            Assessment::Violated { nonconforming, windows: rules.windows }
        }
        _ => Assessment::Suspected { nonconforming },
    }
}

/// A stretch of windows of one objective, from the first that missed it: a violation, or a spike until it is known to be one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// The beginning of the first window that missed.
    pub from: Nanos,
    /// The end of the last one so far.
    pub until: Nanos,
    /// The largest excess of a window: how far beyond the bound, relative to it; infinite where everything hung.
    pub depth: f64,
    /// Windows that missed.
    pub windows: u64,
    /// Requests of the windows that missed,
    hit: u64,
    /// of all requests until the end of the last one of these,
    requests: u64,
    /// and those since.
    since: u64,
}

impl Episode {
    /// Begins with a window that missed and ended at `at`.
    pub fn begin(at: Nanos, window: Nanos, judgement: &Judgement) -> Episode {
        let from = Nanos(at.0.saturating_sub(window.0));
        let mut episode = Episode { from, until: at, depth: 0.0, windows: 0, hit: 0, requests: 0, since: 0 };
        episode.go_on(at, judgement);
        episode
    }

    /// Takes in the next window.
    pub fn go_on(&mut self, at: Nanos, judgement: &Judgement) {
        if judgement.verdict != Verdict::Nonconforming {
            self.since += judgement.requests;
            return;
        }
        self.until = at;
        self.depth = self.depth.max(judgement.excess);
        self.windows += 1;
        self.hit += judgement.requests;
        self.requests += self.since + judgement.requests;
        self.since = 0;
    }

    /// The share of the requests between its beginning and its end that were in windows that missed; 1 where nothing completed.
    pub fn share_hit(&self) -> f64 {
        if self.requests > 0 { self.hit as f64 / self.requests as f64 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Conforming as C, LowLoad as L, Nonconforming as N};

    #[test]
    fn three_of_five_with_the_newest_among_them() {
        let of = |verdicts: &[Verdict]| assess(verdicts.iter().copied(), &ViolationRules::default());
        assert_eq!(of(&[]), Assessment::Kept);
        assert_eq!(of(&[C, C, N, N]), Assessment::Suspected { nonconforming: 2 }); // a spike so far
        assert_eq!(of(&[C, N, C, N, N]), Assessment::Violated { nonconforming: 3, windows: 5 });
        assert_eq!(of(&[N, N, N, C]), Assessment::Suspected { nonconforming: 3 }); // over for now
        assert_eq!(of(&[N, N, L, L, L]), Assessment::Suspected { nonconforming: 2 }); // the load went away
        assert_eq!(of(&[N, N, N, L, L, L, L, L]), Assessment::Kept); // forgotten after five
    }

    #[test]
    fn bursts_that_come_back_are_one_violation() {
        let of = |verdicts: &[Verdict]| assess(verdicts.iter().copied(), &ViolationRules::default());
        // One window of six asks for enough. The sixth that misses is one too many: six of the last ten that asked for enough.
        let burst = [L, L, L, L, L, N];
        assert_eq!(of(&burst.repeat(5)), Assessment::Suspected { nonconforming: 1 });
        assert_eq!(of(&burst.repeat(6)), Assessment::Violated { nonconforming: 6, windows: 10 });
        // Between bursts nothing is to be done, and where most conform nothing is wrong.
        assert_eq!(of(&[burst.repeat(6), vec![L]].concat()), Assessment::Suspected { nonconforming: 1 });
        let kept = [L, L, C, L, N];
        assert_eq!(of(&kept.repeat(10)), Assessment::Suspected { nonconforming: 1 });
        // However long it is quiet in between, and whatever lay before the last ten: six of these, and five.
        assert_eq!(
            of(&[&[N, L, L, L].repeat(9)[..], &[N]].concat()),
            Assessment::Violated { nonconforming: 10, windows: 10 }
        );
        let apart = |busy: &[Verdict]| {
            of(&busy.iter().flat_map(|&verdict| [L, L, L, L, verdict]).collect::<Vec<_>>())
        };
        assert_eq!(
            apart(&[N, N, N, C, C, C, C, N, N, N]),
            Assessment::Violated { nonconforming: 6, windows: 10 }
        );
        assert_eq!(apart(&[N, N, N, C, C, C, C, C, N, N, N]), Assessment::Suspected { nonconforming: 1 });
        // A steady load is judged by its last windows alone, whatever was before.
        let over = [N, N, N, N, N, N, C, C, C, C, N];
        assert_eq!(of(&over), Assessment::Suspected { nonconforming: 1 });
    }

    #[test]
    fn a_share_that_is_missed_for_long_is_a_violation() {
        let rules = ViolationRules::default();
        let of = |verdicts: &[Verdict], share| assess_share(verdicts.iter().rev().copied(), share, &rules);
        // One window of five misses: never three of five.
        let every_fifth = [C, C, C, C, N].repeat(12);
        assert_eq!(assess(every_fifth.iter().copied(), &rules), Assessment::Suspected { nonconforming: 1 });
        assert_eq!(of(&every_fifth, 0.99), Some(Assessment::Violated { nonconforming: 6, windows: 26 }));
        // Where nineteen of twenty have to conform six of 26 may miss by chance, one time in seven hundred: it takes one more to be sure.
        assert_eq!(of(&every_fifth[..30], 0.95), None);
        assert_eq!(of(&every_fifth, 0.95), Some(Assessment::Violated { nonconforming: 7, windows: 31 }));
        // Where four of five have to it is kept.
        assert_eq!(of(&every_fifth, 0.8), None);
        // What is over needs no action, five are too few, and what asks for little counts for nothing.
        assert_eq!(of(&[&every_fifth[..], &[C]].concat(), 0.99), None);
        assert_eq!(of(&every_fifth[..25], 0.99), None);
        assert!(of(&[L, L, C, N].repeat(6), 0.99).is_some());
        assert_eq!(of(&[], 0.99), None);
        // A promise of all windows is missed by any, of none by none.
        assert!(of(&[C, N].repeat(6), 1.0).is_some());
        let over = |assessment: Assessment| assessment.over_after(&rules);
        assert_eq!(over(Assessment::Violated { nonconforming: 6, windows: 26 }), 13);
        assert_eq!(over(Assessment::Violated { nonconforming: 7, windows: 31 }), 14); // 13.3
        assert_eq!(over(Assessment::Violated { nonconforming: 6, windows: 12 }), 6);
        assert_eq!(over(Assessment::Violated { nonconforming: 6, windows: 10 }), 3);
        assert_eq!(over(Assessment::Violated { nonconforming: 3, windows: 5 }), 3);
    }

    #[test]
    fn chances_are_those_of_a_binomial() {
        // 1 - .99^10, and 1 - .95^20 - 20 x .05 x .95^19.
        assert!((chance_of(1, 10, 0.01) - (1.0 - 0.99f64.powi(10))).abs() < 1e-12);
        let two = 1.0 - 0.95f64.powi(20) - 20.0 * 0.05 * 0.95f64.powi(19);
        assert!((chance_of(2, 20, 0.05) - two).abs() < 1e-12);
        assert_eq!((chance_of(0, 3, 0.5), chance_of(1, 9, 0.0)), (1.0, 0.0));
    }

    #[test]
    fn an_episode_knows_its_ends_its_depth_and_whom_it_hit() {
        let window = Nanos::secs(10);
        let judged =
            |verdict, excess, requests| Judgement { verdict, value: None, excess, requests, failed: 0 };
        let mut episode = Episode::begin(Nanos::secs(110), window, &judged(N, 0.5, 300));
        episode.go_on(Nanos::secs(120), &judged(C, -0.2, 100));
        episode.go_on(Nanos::secs(130), &judged(N, 0.8, 500));
        // What comes after the last window that missed is not of it.
        episode.go_on(Nanos::secs(140), &judged(C, -0.1, 7_000));
        assert_eq!((episode.from, episode.until), (Nanos::secs(100), Nanos::secs(130)));
        assert_eq!((episode.depth, episode.windows), (0.8, 2));
        // 300 and 500 of 900.
        assert!((episode.share_hit() - 800.0 / 900.0).abs() < 1e-12);
        // It goes on: 7,000 and 1,000 conformed in between, then only 100.
        episode.go_on(Nanos::secs(150), &judged(C, -0.1, 1_000));
        episode.go_on(Nanos::secs(160), &judged(N, 0.1, 400));
        episode.go_on(Nanos::secs(170), &judged(C, -0.1, 100));
        episode.go_on(Nanos::secs(180), &judged(N, 0.1, 800));
        assert_eq!((episode.until, episode.depth, episode.windows), (Nanos::secs(180), 0.8, 4));
        assert!((episode.share_hit() - 2_000.0 / 10_200.0).abs() < 1e-12);
        let hangs = Episode::begin(Nanos::secs(5), window, &judged(N, f64::INFINITY, 0));
        assert_eq!((hangs.from, hangs.share_hit(), hangs.depth), (Nanos::ZERO, 1.0, f64::INFINITY));
    }
}
