//! What is left of a victim's latency, and of its neighbours' loads, when what was found to matter is taken out of both.

use super::series::{Series, quasi_differences};
use super::{Correlation, InterferenceRules, is_positive};
use forebay_workload::statistics::{mean, variance};

/// Neighbours after which nobody looks for more: each costs a degree of freedom.
const FOUND_MAX: usize = 16;

/// The most that is asked of a score because a history is short (ours): by chance alone nothing comes near.
const NEEDED_MAX: f64 = 0.9;

/// How latency is taken.
pub(super) struct Form {
    /// Rises with it.
    pub(super) of: fn(f64) -> f64,
    /// By how much.
    slope: fn(f64) -> f64,
}

/// Of waiting in a queue that fills up, of shares of what is waited, and of what adds up: Box and Cox (1964) with powers of -1, 0 and 1.
pub(super) const FORMS: [Form; 3] = [
    Form { of: |latency| -1.0 / latency, slope: |latency| 1.0 / (latency * latency) },
    Form { of: f64::ln, slope: |latency| 1.0 / latency },
    Form { of: |latency| latency, slope: |_| 1.0 },
];

/// How much a latency's noise keeps of itself from one interval to the next: all of it, where it wanders, to nothing. Cochrane and Orcutt (1949)
/// take it out of both sides; that it is searched by likelihood is of Hildreth and Lu (1960).
pub(super) const RHOS: [f64; 4] = [1.0, 0.8, 0.5, 0.0];

/// Latencies are at least this, so that each form has a value.
pub(super) fn positive(latency: f64) -> f64 {
    latency.max(1e-9)
}

/// The loads of all workloads, less `rho` times what they were an interval before.
pub(super) struct Loads {
    rho: f64,
    lag_max: usize,
    /// Of each workload by lag; `None` of one that does not vary.
    by_lag: Vec<Option<Vec<Series>>>,
}

impl Loads {
    pub(super) fn new(loads: &[&[f64]], rho: f64, lag_max: usize, variation_min: f64) -> Loads {
        // All lags are judged on the same intervals of latency: those that have a load before them at each.
        let lags = |load: &[f64]| {
            let all = quasi_differences(load, rho);
            (0..=lag_max).map(|lag| Series::of(&all[lag_max - lag..all.len() - lag])).collect()
        };
        let by_lag = loads.iter().map(|load| varies(load, variation_min).then(|| lags(load))).collect();
        Loads { rho, lag_max, by_lag }
    }

    /// What is left of the latency of `victim` in a `form`, and of the loads of `others`, once what its own load explains is taken out. `None` if the
    /// latency never changes.
    pub(super) fn residuals(
        &self,
        victim: usize,
        latency: &[f64],
        form: &Form,
        others: &[usize],
    ) -> Option<Residuals<'_>> {
        let formed: Vec<f64> = latency.iter().map(|&latency| (form.of)(positive(latency))).collect();
        let left = quasi_differences(&formed, self.rho).split_off(self.lag_max);
        let judged = latency[self.lag_max + 1..].iter();
        let steepness = judged.map(|&latency| (form.slope)(positive(latency)).ln()).sum();
        let whole = Series::of(&left);
        whole.by_value.square()?;
        let own = self.by_lag[victim].as_ref().map(|lags| &lags[0]);
        let own = own.filter(|own| own.correlation(&whole, 0).is_some_and(|own| is_positive(&own)));
        let rest = others.iter().filter_map(|&other| Some((other, self.by_lag[other].clone()?)));
        let mut residuals = Residuals {
            loads: self,
            own,
            victim: whole.clone(),
            whole,
            rest: rest.collect(),
            found: Vec::new(),
            steepness,
            intervals: left.len(),
        };
        if let Some(own) = own {
            residuals.lose(own);
        }
        Some(residuals)
    }
}

/// What a neighbour has to show.
pub(super) struct Evidence<'a> {
    pub(super) rules: &'a InterferenceRules,
    /// Of each workload, in deviations of what chance alone does.
    pub(super) significance: &'a [f64],
}

impl Evidence<'_> {
    /// The least score of a neighbour where `free` intervals differ by chance, and correlations by `spread` times as much as if they were independent.
    fn needed(&self, neighbour: usize, free: f64, spread: f64) -> f64 {
        let by_chance = (self.significance[neighbour] / free.sqrt()).min(NEEDED_MAX) * spread;
        by_chance.max(self.rules.score_min)
    }
}

/// The victim, every neighbour that is not found yet, at every lag, and those that are.
pub(super) struct Residuals<'a> {
    loads: &'a Loads,
    /// The victim's load, where it explains something.
    own: Option<&'a Series>,
    /// The victim before anything was taken out, and what is left.
    whole: Series,
    victim: Series,
    /// Neighbour, and what is left of it by lag. Who does not vary is not here.
    rest: Vec<(usize, Vec<Series>)>,
    /// Neighbour and lag.
    found: Vec<(usize, usize)>,
    /// The logarithm of how much wider latencies are in their form.
    steepness: f64,
    intervals: usize,
}

impl Residuals<'_> {
    /// Takes out the neighbour whose evidence is most in excess of what it needs, with what it explains of all; `false` where none has enough.
    pub(super) fn take_out(&mut self, evidence: &Evidence<'_>) -> bool {
        if self.found.len() >= FOUND_MAX {
            return false;
        }
        let free = self.free();
        let enough = self.rest.iter().flat_map(|(neighbour, lags)| {
            let victim = &self.victim;
            lags.iter().enumerate().filter_map(move |(lag, series)| {
                let found = series.correlation(victim, lag).filter(is_positive)?;
                let excess = |spread| found.score / evidence.needed(*neighbour, free, spread);
                // Most have too little however they are spread.
                let excess =
                    Some(excess(1.0)).filter(|most| *most >= 1.0).map(|_| excess(series.spread(victim)))?;
                (excess >= 1.0).then_some((excess, *neighbour, lag))
            })
        });
        let Some((_, neighbour, lag)) = enough.max_by(|a, b| a.0.total_cmp(&b.0)) else { return false };
        let at = self.rest.iter().position(|(other, _)| *other == neighbour);
        let (_, mut lags) = self.rest.swap_remove(at.expect("it was just looked at"));
        self.lose(&lags.swap_remove(lag));
        self.found.push((neighbour, lag));
        true
    }

    /// Gives up the neighbour with the least evidence of those that were found, if it is too little beside what all others explain. What is one's
    /// own doing only as long as nobody else is known is so taken back.
    pub(super) fn give_up(&mut self, evidence: &Evidence<'_>) -> Option<(usize, Correlation)> {
        let mut least: Option<(f64, usize, Correlation)> = None;
        for (at, &(neighbour, lag)) in self.found.iter().enumerate() {
            let (series, victim) = self.beside_others(at);
            let found = series.correlation(&victim, lag).unwrap_or(Correlation::none(lag));
            let needed = evidence.needed(neighbour, self.free(), series.spread(&victim));
            let excess = if is_positive(&found) { found.score / needed } else { 0.0 };
            if excess < 1.0 && least.is_none_or(|(least, ..)| excess < least) {
                least = Some((excess, at, found));
            }
        }
        let (_, at, found) = least?;
        let (neighbour, _) = self.found.swap_remove(at);
        Some((neighbour, found))
    }

    /// Each that was found, by what it explains beside all others.
    pub(super) fn found(&self) -> Vec<(usize, Correlation)> {
        let beside_others = |(at, &(neighbour, lag)): (usize, &(usize, usize))| {
            let (series, victim) = self.beside_others(at);
            Some((neighbour, series.correlation(&victim, lag)?))
        };
        self.found.iter().enumerate().filter_map(beside_others).collect()
    }

    /// What is left of each neighbour that was not found, at the lag where it goes most with what is left of the victim; nothing does where
    /// nothing is. A copy of one that was found is not here: which of them it is cannot be told.
    pub(super) fn rest(&self) -> Vec<(usize, Correlation)> {
        let is_explained = self.victim.by_value.square().is_none();
        let best = |lags: &[Series]| {
            let of_lag = |(lag, series): (usize, &Series)| match is_explained {
                true => Some(Correlation::none(lag)),
                false => series.correlation(&self.victim, lag),
            };
            lags.iter().enumerate().filter_map(of_lag).max_by(|a, b| a.score.total_cmp(&b.score))
        };
        self.rest.iter().filter_map(|(neighbour, lags)| Some((*neighbour, best(lags)?))).collect()
    }

    /// The logarithm of how likely the victim's latencies are by what was taken out, with noise of a normal distribution, less what each
    /// neighbour costs (Schwarz 1978). It compares forms and coefficients of the same intervals.
    pub(super) fn likelihood(&self) -> f64 {
        let intervals = self.intervals as f64;
        let left = self.victim.by_value.square().unwrap_or_else(|| self.whole.by_value.rounding());
        let explained = -intervals / 2.0 * (left / intervals).max(f64::MIN_POSITIVE).ln();
        self.steepness + explained - self.found.len() as f64 / 2.0 * intervals.ln()
    }

    /// One that was found and the victim, without what all others explain of both.
    fn beside_others(&self, at: usize) -> (Series, Series) {
        let series = |&(neighbour, lag): &(usize, usize)| {
            let lags = self.loads.by_lag[neighbour].as_ref().expect("who was found varies");
            &lags[lag]
        };
        let (mut found, mut victim) = (series(&self.found[at]).clone(), self.whole.clone());
        let others = self.found.iter().enumerate().filter(|(other, _)| *other != at);
        let mut taken: Vec<Series> = Vec::new();
        for other in self.own.into_iter().chain(others.map(|(_, other)| series(other))) {
            let mut other = other.clone();
            taken.iter().for_each(|earlier| other.lose(earlier));
            found.lose(&other);
            victim.lose(&other);
            taken.push(other);
        }
        (found, victim)
    }

    /// Intervals that are free to differ by chance.
    fn free(&self) -> f64 {
        let taken = self.found.len() + usize::from(self.own.is_some());
        self.intervals.saturating_sub(taken).max(1) as f64
    }

    fn lose(&mut self, series: &Series) {
        self.victim.lose(series);
        let others = self.rest.iter_mut().flat_map(|(_, lags)| lags);
        others.for_each(|other| other.lose(series));
    }
}

/// Whether it is more than noise around a constant.
fn varies(values: &[f64], variation_min: f64) -> bool {
    let level = mean(values).unwrap_or(0.0).abs();
    level > 0.0 && variance(values).unwrap_or(0.0).sqrt() >= variation_min * level
}
