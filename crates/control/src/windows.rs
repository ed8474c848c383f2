//! Windows: what the windows of one load were like, as they would have been at the present size of its cache.
//!
//! A level is `1 + error`: the number that was promised over its bound, 1 where it is just kept. When the size changes,
//! the levels are multiplied by what the model says of the change, and fewer of them are kept the more it says, since
//! of its answer a part is wrong. So a small step costs no history, and a large one all of it. What is known of the windows'
//! noise outlives both. It is *not* a record of what was promised and kept: that is `conformance`.
//! The rules and numbers are ours.

use std::collections::VecDeque;

/// Levels that are kept.
const LEVELS_MAX: usize = 100;
/// Verdicts that are kept.
const VERDICTS_MAX: usize = 200;
/// Windows that what was learnt of the noise before counts for at most.
const LEARNT_MAX: f64 = 64.0;
/// What is left of it with every window.
const FADE: f64 = 0.98;
/// Windows that what was assumed of the noise counts for.
const ASSUMED: f64 = 4.0;
/// Windows of no skewness that are taken to have been seen beside the real ones.
const SYMMETRIC: f64 = 30.0;
/// The part of what the model says of a change that is taken for wrong.
const MODEL_ERROR: f64 = 0.3;
/// Windows that are compared with those before.
const RECENT: usize = 8;
/// Deviations by which they must differ.
const DRIFT: f64 = 3.5;
/// Deviations beyond which a window counts as if it were so far out: a burst is no noise.
const OUTLIER: f64 = 4.0;

/// The windows of one load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Windows {
    /// The newest last.
    levels: VecDeque<f64>,
    /// Whether they missed, at whatever size; the newest last.
    missed: VecDeque<bool>,
    /// Sums of squared and cubed deviations, relative to the mean, of windows that are forgotten, and of how many.
    squares: f64,
    cubes: f64,
    learnt: f64,
}

/// What is to be expected of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExpectedWindow {
    /// How many windows say so.
    pub windows: usize,
    /// How many of them miss.
    pub missed: usize,
    /// Their mean level, and that of the newest.
    pub level: f64,
    /// See `level`.
    pub newest: f64,
    /// Their deviation, relative to the mean.
    pub deviation: f64,
    /// The level that the share of windows that must conform does not exceed.
    pub strict: f64,
    /// How uncertain the mean level is: one deviation of it.
    pub doubt: f64,
}

impl ExpectedWindow {
    /// How many times the mean level `strict` is; 1 where that says nothing.
    pub(crate) fn strictness(self) -> f64 {
        if self.level > 0.0 { self.strict / self.level } else { 1.0 }
    }
}

impl Windows {
    /// No windows yet; they are assumed to deviate by `deviation`, relative to their mean.
    pub(crate) fn assumed(deviation: f64) -> Windows {
        Windows {
            levels: VecDeque::new(),
            missed: VecDeque::new(),
            squares: deviation * deviation * ASSUMED,
            cubes: 0.0,
            learnt: ASSUMED,
        }
    }

    /// How many windows speak of the present size.
    pub(crate) fn len(&self) -> usize {
        self.levels.len()
    }

    /// Whether the newest window conforms at the present size.
    pub(crate) fn has_just_conformed(&self) -> bool {
        self.levels.back().is_some_and(|&level| level <= 1.0)
    }

    /// Takes a window in that was off by `error`, at the present size. It `counts` for the share that may miss unless the size
    /// is still on its way.
    pub(crate) fn push(&mut self, error: f64, counts: bool) {
        if self.levels.len() == LEVELS_MAX {
            self.forget(1);
        }
        for what in [&mut self.squares, &mut self.cubes, &mut self.learnt] {
            *what *= FADE;
        }
        self.levels.push_back(1.0 + error.clamp(-1.0, 1e6));
        if counts {
            if self.missed.len() == VERDICTS_MAX {
                self.missed.pop_front();
            }
            self.missed.push_back(error > 0.0);
        }
        self.follow();
    }

    /// The size changes, and the model says that windows will have `ratio` times the level; `None` where it says nothing.
    pub(crate) fn rescale(&mut self, ratio: Option<f64>) {
        let kept = ratio.filter(|ratio| *ratio > 0.0 && ratio.is_finite()).map_or(0.0, |ratio| {
            // So many windows as together are as uncertain as the model's answer.
            (self.deviation() / (MODEL_ERROR * ratio.ln()).abs().max(1e-9)).powi(2)
        });
        let drop = self.levels.len().saturating_sub(kept.min(LEVELS_MAX as f64) as usize);
        self.forget(drop);
        let ratio = ratio.unwrap_or(1.0);
        self.levels.iter_mut().for_each(|level| *level *= ratio);
    }

    /// The load is another one since the last `count` windows.
    pub(crate) fn load_changed(&mut self, count: usize) {
        self.forget_all_before(self.levels.len().saturating_sub(count));
        let older = self.missed.len().saturating_sub(count);
        self.missed.drain(..older);
    }

    /// Only the last `count` windows say something of the levels.
    pub(crate) fn keep(&mut self, count: usize) {
        self.forget(self.levels.len().saturating_sub(count));
    }

    /// Nothing that was seen is of any use for levels any more.
    pub(crate) fn clear(&mut self) {
        self.levels.clear();
    }

    /// Forgets the oldest levels, but not what they say of the noise: unless they were far too slow, and told of a backlog.
    fn forget(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        if self.levels.len() >= 2 && self.mean() < 1.5 {
            let (squares, cubes, seen) = self.noise(count.min(self.levels.len() - 1));
            self.squares += squares;
            self.cubes += cubes;
            self.learnt += seen;
            let fade = (LEARNT_MAX / self.learnt).min(1.0);
            self.squares *= fade;
            self.cubes *= fade;
            self.learnt *= fade;
        }
        self.levels.drain(..count);
    }

    /// As [`Windows::forget`], where what follows is of another kind: the step to it is no noise.
    fn forget_all_before(&mut self, count: usize) {
        // Nor is their mean that of both.
        let after = self.levels.split_off(count);
        self.forget(count.saturating_sub(1));
        self.levels = after;
    }

    /// Windows that differ from those before by more than chance explains are what counts from now on: the cache was still
    /// finding its blocks, or the model's answer was wrong.
    fn follow(&mut self) {
        let Some(older) = self.levels.len().checked_sub(RECENT).filter(|&older| older >= 3) else { return };
        let mean = |from: usize, to: usize| self.levels.range(from..to).sum::<f64>() / (to - from) as f64;
        let (before, now) = (mean(0, older), mean(older, older + RECENT));
        let doubt = self.deviation() * (1.0 / older as f64 + 1.0 / RECENT as f64).sqrt();
        if (now / before.max(1e-3)).max(1e-3).ln().abs() > DRIFT * doubt {
            self.forget_all_before(older);
        }
    }

    fn mean(&self) -> f64 {
        self.levels.iter().sum::<f64>() / self.levels.len().max(1) as f64
    }

    /// Sums of squared and cubed deviations of the oldest `count` levels, relative to their mean, and of how many: by the
    /// differences between windows that follow one another and that lie three apart, since the mean may drift.
    fn noise(&self, count: usize) -> (f64, f64, f64) {
        let limit = OUTLIER * (self.squares / self.learnt).sqrt();
        let mean = self.mean().max(1e-3);
        let (mut squares, mut cubes, mut seen) = (0.0, 0.0, 0.0);
        for at in 1..=count.min(self.levels.len().saturating_sub(1)) {
            let difference = |back: usize| (self.levels[at] - self.levels[at - back]) / mean;
            let near = difference(1).clamp(-2.0 * limit, 2.0 * limit);
            let far = difference(at.min(3)).clamp(-2.0 * limit, 2.0 * limit);
            squares += (near * near + far * far) / 4.0;
            cubes += (self.levels[at] / mean - 1.0).clamp(-limit, limit).powi(3);
            seen += 1.0;
        }
        (squares, cubes, seen)
    }

    /// Sums of the squared and cubed deviations of all that is known, and of how many windows.
    fn moments(&self) -> (f64, f64, f64) {
        let (squares, cubes, seen) = self.noise(LEVELS_MAX);
        (self.squares + squares, self.cubes + cubes, self.learnt + seen)
    }

    /// By how much windows deviate from their mean, relative to it.
    pub(crate) fn deviation(&self) -> f64 {
        let (squares, _, count) = self.moments();
        (squares / count).sqrt()
    }

    /// What is to be expected of a window where a `share` of them must conform; `None` before the first one.
    ///
    /// Of a distribution of this mean, deviation and skewness the quantile is Cornish and Fisher's. A little is added, and
    /// more where windows missed more often than they may, so that the share is kept over time whatever their
    /// distribution is; less where they missed less often. `O(windows)`.
    pub(crate) fn expected(&self, share: f64) -> Option<ExpectedWindow> {
        let windows = self.levels.len();
        if windows == 0 {
            return None;
        }
        let (squares, cubes, count) = self.moments();
        let deviation = (squares / count).sqrt();
        let skewness = (cubes / (count + SYMMETRIC) / deviation.powi(3).max(1e-12)).clamp(0.0, 1.5);
        let normal = normal_quantile(share);
        let skewed = normal + (normal * normal - 1.0).max(0.0) * skewness / 6.0;
        let seen = self.missed.len() as f64;
        let allowed = (1.0 - share) * seen;
        let missed = self.missed.iter().filter(|&&missed| missed).count() as f64;
        let spent = (missed - allowed) / (allowed * share).sqrt().max(1.0);
        let steps = skewed.max(0.0) + (PRUDENCE + BUDGET * spent).clamp(-0.2, 1.0);
        let level = self.mean();
        let doubt = level * deviation / (windows as f64).sqrt();
        Some(ExpectedWindow {
            windows,
            missed: self.levels.iter().filter(|&&level| level > 1.0).count(),
            level,
            newest: self.levels[windows - 1],
            deviation,
            strict: level * (1.0 + steps * deviation),
            doubt,
        })
    }

    /// How many of the newest windows belong to a load that began with them: 2 where the last two both lie on one side of all
    /// the others by far, 1 where the last one misses by very far, 0 where they do not.
    ///
    /// By far is more than four deviations and a tenth of the objective, by very far eight and a half of it. `O(windows)`.
    pub(crate) fn changed(&self) -> usize {
        let Some(at) = self.levels.len().checked_sub(2).filter(|&at| at >= 3) else { return 0 };
        let mean = self.levels.iter().take(at).sum::<f64>() / at as f64;
        let (squares, _, seen) = self.noise(at - 1);
        let deviation = ((self.squares + squares) / (self.learnt + seen)).sqrt();
        let far = (4.0 * deviation * mean).max(0.1);
        let new = [self.levels[at], self.levels[at + 1]];
        if new.iter().all(|level| *level > mean + far) || new.iter().all(|level| *level < mean - far) {
            return 2;
        }
        usize::from(new[1] > 1.0 && new[1] > mean + (2.0 * far).max(0.5))
    }
}

/// Deviations that are added to the quantile: a size is judged by fewer windows than it will serve.
const PRUDENCE: f64 = 0.05;
/// Deviations that are added for every window that missed beyond those that may (for few allowed; else for every deviation
/// of their number).
const BUDGET: f64 = 0.3;

/// The value that a standard normal variable does not exceed with probability `share`; at most 4.
pub(crate) fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-4.0, 4.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if crate::performance::normal_share_below(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(random: &mut forebay_workload::Random) -> f64 {
        (0..12).map(|_| forebay_workload::generator::unit(random)).sum::<f64>() - 6.0
    }

    fn of(errors: &[f64]) -> Windows {
        let mut windows = Windows::assumed(0.04);
        errors.iter().for_each(|error| windows.push(*error, true));
        windows
    }

    #[test]
    fn the_quantile_is_that_of_the_windows() {
        // Levels of mean .8 that deviate by a tenth: 1 % lie above .8 x (1 + 2.326 x .1) = .986. Added is .05 - .3 x .64 of a
        // deviation, since .64 windows of 64 may miss and none did: .975.
        let mut random = forebay_workload::random(1);
        let errors: Vec<f64> = (0..64).map(|_| 0.8 * (1.0 + 0.1 * normal(&mut random)) - 1.0).collect();
        let expected = of(&errors).expected(0.99).expect("windows");
        assert!(
            (expected.level - 0.8).abs() < 0.03 && (expected.deviation - 0.1).abs() < 0.03,
            "{expected:?}"
        );
        assert!((0.92..1.03).contains(&expected.strict), "{expected:?}");
        assert_eq!(of(&[]).expected(0.99), None);
        assert!((normal_quantile(0.99) - 2.326).abs() < 1e-3 && normal_quantile(0.5).abs() < 1e-3);
    }

    #[test]
    fn a_miss_too_many_makes_it_stricter_until_it_is_made_up_for() {
        let strict = |errors: &[f64]| of(errors).expected(0.99).expect("windows").strict;
        let kept = vec![-0.2; 63];
        let missed: Vec<f64> = kept.iter().copied().chain([0.01]).collect();
        let kept: Vec<f64> = kept.iter().copied().chain([-0.19]).collect();
        assert!(strict(&missed) > strict(&kept) + 0.005);
    }

    #[test]
    fn windows_with_rare_slow_ones_among_them_need_more_than_those_with_rare_fast_ones() {
        // About .62: four of five lie .02 below the mean and one .08 above it, or the other way round.
        let strictness = |common: f64, rare: f64| {
            let errors: Vec<f64> = (0..60).map(|at| if at % 5 == 4 { rare } else { common }).collect();
            let expected = of(&errors).expected(0.99).expect("windows");
            assert!((expected.level - 0.62).abs() < 1e-9, "{expected:?}");
            (expected.strictness(), expected.deviation)
        };
        let (slow, fast) = (strictness(-0.4, -0.3), strictness(-0.36, -0.46));
        // They deviate alike, by .04 / .62, and have skewnesses of 1.5 and -1.5, of which something is left for that windows are few.
        assert!((slow.1 - fast.1).abs() < 1e-9 && (0.05..0.09).contains(&slow.1), "{slow:?} {fast:?}");
        let deviations = (slow.0 - fast.0) / slow.1;
        assert!((0.3..1.1).contains(&deviations), "{deviations}"); // (2.326^2 - 1) x 1.5 / 6 = 1.1
    }

    #[test]
    fn what_is_of_no_use_any_more_is_forgotten() {
        let mut windows = of(&[0.2, -0.1]);
        assert!(windows.has_just_conformed());
        windows.push(0.01, true);
        assert!(!windows.has_just_conformed());
        windows.push(0.0, true);
        assert!(windows.has_just_conformed(), "just kept is kept");
        windows.keep(1);
        assert_eq!((windows.len(), windows.expected(0.99).expect("windows").level), (1, 1.0));
        windows.clear();
        assert!(windows.len() == 0 && !windows.has_just_conformed());
        // A hundred levels and two hundred verdicts are kept: a miss of before costs nothing.
        let strict = |first: f64, then: usize| {
            let errors: Vec<f64> = (0..then).map(|at| if at % 2 == 0 { -0.5 } else { -0.1 }).collect();
            let windows = of(&[&[first], &errors[..]].concat());
            assert_eq!(windows.len(), 100);
            windows.expected(0.99).expect("windows").strict
        };
        assert!(strict(0.01, 150) > strict(-0.1, 150) + 0.01);
        assert!((strict(0.01, 200) - strict(-0.1, 200)).abs() < 0.002);
        // So are misses of another load.
        let mut other = of(&[1.0; 20]);
        other.load_changed(0);
        let kept: Vec<f64> = (0..20).map(|at| -0.2 + 0.1 * f64::from(at % 2)).collect();
        kept.iter().for_each(|&error| other.push(error, true));
        let strict = |windows: &Windows| windows.expected(0.99).expect("windows").strict;
        assert!((strict(&other) - strict(&of(&kept))).abs() < 0.01);
    }

    #[test]
    fn noise_is_learnt_of_windows_but_not_of_a_backlog() {
        // Windows at .8 and .4 of the bound, and at ten times that: what waits makes them.
        let learnt = |times: f64| {
            let errors: Vec<f64> =
                (0..20).map(|at| times * if at % 2 == 0 { 0.8 } else { 0.4 } - 1.0).collect();
            let mut windows = of(&errors);
            windows.keep(0);
            windows.deviation()
        };
        assert!(learnt(1.0) > 0.1 && learnt(10.0) < 0.05, "{} {}", learnt(1.0), learnt(10.0));
    }

    #[test]
    fn misses_on_the_way_to_a_size_are_not_made_up_for() {
        let strict = |counts| {
            let mut windows = Windows::assumed(0.04);
            (0..20).for_each(|_| windows.push(1.0, counts));
            windows.clear();
            (0..20).for_each(|at| windows.push(-0.2 + 0.1 * f64::from(at % 2), true));
            windows.expected(0.99).expect("windows").strict
        };
        assert!(strict(true) > strict(false) + 0.005, "{} {}", strict(true), strict(false));
    }

    #[test]
    fn a_drift_is_no_noise_and_old_windows_are_dropped() {
        // Every window is a hundredth faster than the one before: differences of neighbours are .01, of those three apart
        // .03: (.0001 + .0009) / 4 = .016 squared.
        let errors: Vec<f64> = (0..40).map(|at| -0.01 * f64::from(at)).collect();
        let windows = of(&errors);
        assert!(windows.len() < 20, "{}", windows.len());
        assert!(windows.deviation() < 0.035, "{}", windows.deviation());
    }

    #[test]
    fn the_step_to_another_load_is_no_noise() {
        // Ten windows that deviate by .01 about .9, and two of another load at .4.
        let errors = (0..10).map(|at| -0.1 + 0.01 * f64::from(at % 2)).chain([-0.6, -0.6]);
        let mut windows = of(&errors.collect::<Vec<_>>());
        let kept = windows.changed();
        assert_eq!(kept, 2);
        windows.load_changed(kept);
        assert_eq!(windows.len(), 2);
        assert!(windows.deviation() < 0.04, "{}", windows.deviation());
    }

    #[test]
    fn a_change_of_size_costs_history_as_far_as_the_model_may_be_wrong() {
        let mut random = forebay_workload::random(2);
        let errors: Vec<f64> = (0..64).map(|_| 0.05 * normal(&mut random) - 0.2).collect();
        let before = of(&errors);
        let mut small = before.clone();
        small.rescale(Some(1.02));
        // .06 of deviation over .3 x .02 is ten, squared a hundred windows: all.
        assert_eq!(small.len(), 64);
        let level = |windows: &Windows| windows.expected(0.99).expect("windows").level;
        assert!((level(&small) / level(&before) - 1.02).abs() < 1e-9);
        let mut large = before.clone();
        large.rescale(Some(1.3));
        // .06 over .3 x .262: less than one.
        assert!(large.len() <= 1, "{}", large.len());
        assert!(large.deviation() > 0.03 && large.deviation() < 0.09);
        let mut unknown = before;
        unknown.rescale(None);
        assert_eq!(unknown.len(), 0);
    }

    #[test]
    fn a_jump_of_two_windows_is_a_change_and_a_spike_is_not() {
        let changed = |errors: &[f64]| of(errors).changed();
        assert_eq!(changed(&[-0.1, -0.12, -0.09, -0.1, 0.5, 0.6]), 2);
        assert_eq!(changed(&[-0.1, -0.12, -0.09, -0.1, 0.5, -0.1]), 0);
        assert_eq!(changed(&[-0.1, -0.12, -0.09, -0.1, -0.1, 0.3]), 0);
        assert_eq!(changed(&[-0.1, -0.12, -0.09, -0.1, -0.1, 3.0]), 1);
        assert_eq!(changed(&[-0.1, -0.12, -0.09, -0.1, -0.5, -0.4]), 2);
        assert_eq!(changed(&[-0.1, -0.12, -0.09, -0.1, -0.1, -0.5]), 0); // one that is fast
        assert_eq!(changed(&[-0.1, -0.12, -0.09, -0.1, -0.14, -0.15]), 0); // by less than a tenth
        assert_eq!(changed(&[-0.8, -0.82, -0.79, -0.8, -0.8, -0.1]), 0); // by very far, and still kept
        assert_eq!(changed(&[-0.1, -0.12, 0.5, 0.6]), 0); // two windows are no past
    }
}
