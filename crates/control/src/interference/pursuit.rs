//! What is left of a victim's latency, and of its neighbours' loads, when what was found to matter is taken out of both.

use super::{Correlation, Victim, is_positive};
use forebay_workload::statistics::{differences, mean, ranks};

/// Neighbours after which nobody looks for more: each costs a degree of freedom.
const FOUND_MAX: usize = 16;

/// A part of a series that is smaller than this, as a share of its length, is rounding (ours).
const NEGLIGIBLE: f64 = 1e-6;

/// Changes of one series, centred, by value and by rank; both lose what is taken out.
struct Series {
    by_value: Projected,
    by_rank: Projected,
}

impl Series {
    fn of(changes: &[f64]) -> Series {
        Series { by_value: Projected::of(changes), by_rank: Projected::of(&ranks(changes)) }
    }

    /// The correlation of what is left of both; `None` where nothing is left of one.
    fn correlation(&self, of: &Series, lag: usize) -> Option<Correlation> {
        let pearson = self.by_value.cosine(&of.by_value)?;
        let spearman = self.by_rank.cosine(&of.by_rank)?;
        Some(Correlation { score: (pearson + spearman) / 2.0, pearson, spearman, lag, granger: None })
    }

    fn lose(&mut self, other: &Series) {
        self.by_value.lose(&other.by_value);
        self.by_rank.lose(&other.by_rank);
    }
}

/// A centred vector, and its length before anything was taken out.
#[derive(Clone)]
pub(super) struct Projected {
    values: Vec<f64>,
    length: f64,
}

impl Projected {
    pub(super) fn of(values: &[f64]) -> Projected {
        let centre = mean(values).unwrap_or(0.0);
        let values: Vec<f64> = values.iter().map(|value| value - centre).collect();
        let length = dot(&values, &values).sqrt();
        Projected { values, length }
    }

    /// What is left of it, squared; `None` if that is only rounding.
    pub(super) fn square(&self) -> Option<f64> {
        let square = dot(&self.values, &self.values);
        (square.sqrt() > NEGLIGIBLE * self.length).then_some(square)
    }

    fn cosine(&self, other: &Projected) -> Option<f64> {
        let product = (self.square()? * other.square()?).sqrt();
        Some((dot(&self.values, &other.values) / product).clamp(-1.0, 1.0))
    }

    /// Takes out what `other` explains.
    pub(super) fn lose(&mut self, other: &Projected) {
        let Some(square) = other.square() else { return };
        let share = dot(&self.values, &other.values) / square;
        self.values.iter_mut().zip(&other.values).for_each(|(value, other)| *value -= share * other);
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The victim and every neighbour that is not judged yet, at every lag.
pub(super) struct Residuals {
    victim: Series,
    /// Neighbour, and its series by lag. Who was found, or does not vary, is not here.
    neighbours: Vec<(usize, Vec<Series>)>,
    changes: usize,
    taken_out: usize,
}

impl Residuals {
    /// The victim's latency is taken in a `form` that rises with it. `None` if it never changes.
    pub(super) fn new(
        neighbours: &[&[f64]],
        victim: Victim<'_>,
        form: impl Fn(f64) -> f64,
        lag_max: usize,
        variation_min: f64,
    ) -> Option<Residuals> {
        let formed: Vec<f64> = victim.latency.iter().map(|latency| form(latency.max(1e-9))).collect();
        // All lags are judged on the same changes of latency: those that have a load before them at each.
        let changes = differences(&formed).split_off(lag_max);
        let count = changes.len();
        let at_lag = |load: &[f64], lag: usize| Series::of(&differences(load)[lag_max - lag..][..count]);
        let mut residuals = Residuals {
            victim: Series::of(&changes),
            neighbours: Vec::with_capacity(neighbours.len()),
            changes: count,
            taken_out: 0,
        };
        residuals.victim.by_value.square()?;
        for (neighbour, load) in neighbours.iter().enumerate() {
            if varies(load, variation_min) {
                residuals.neighbours.push((neighbour, (0..=lag_max).map(|lag| at_lag(load, lag)).collect()));
            }
        }
        if varies(victim.load, variation_min) {
            let own = at_lag(victim.load, 0);
            if own.correlation(&residuals.victim, 0).is_some_and(|own| is_positive(&own)) {
                residuals.lose(&own);
            }
        }
        Some(residuals)
    }

    /// The share of the victim's changes that is explained by what was taken out, mean of both views.
    pub(super) fn explained(&self) -> f64 {
        let share = |of: &Projected| 1.0 - of.square().unwrap_or(0.0) / of.length.powi(2);
        (share(&self.victim.by_value) + share(&self.victim.by_rank)) / 2.0
    }

    /// Changes that are free to differ by chance.
    pub(super) fn freedom(&self) -> f64 {
        self.changes.saturating_sub(self.taken_out).max(1) as f64
    }

    /// Of the neighbours that are `enough`, the one that changes most with what is left of the victim.
    pub(super) fn best(&self, enough: impl Fn(usize, &Correlation) -> bool) -> Option<(usize, Correlation)> {
        if self.taken_out >= FOUND_MAX {
            return None;
        }
        let enough = self.rest().into_iter().filter(|(neighbour, found)| enough(*neighbour, found));
        enough.max_by(|(_, a), (_, b)| a.score.total_cmp(&b.score))
    }

    /// What is left of each neighbour, at the lag where it changes most with what is left of the victim.
    pub(super) fn rest(&self) -> Vec<(usize, Correlation)> {
        let best = |lags: &[Series]| {
            let all =
                lags.iter().enumerate().filter_map(|(lag, series)| series.correlation(&self.victim, lag));
            all.max_by(|a, b| a.score.total_cmp(&b.score))
        };
        self.neighbours.iter().filter_map(|(neighbour, lags)| Some((*neighbour, best(lags)?))).collect()
    }

    /// Takes what a neighbour explains out of the victim and of all others.
    pub(super) fn take_out(&mut self, neighbour: usize, lag: usize) {
        let Some(at) = self.neighbours.iter().position(|(other, _)| *other == neighbour) else { return };
        let (_, mut lags) = self.neighbours.swap_remove(at);
        self.lose(&lags.swap_remove(lag));
    }

    fn lose(&mut self, series: &Series) {
        self.victim.lose(series);
        let others = self.neighbours.iter_mut().flat_map(|(_, lags)| lags);
        others.for_each(|other| other.lose(series));
        self.taken_out += 1;
    }
}

/// Whether the changes are large enough to be more than noise around a constant.
fn varies(values: &[f64], variation_min: f64) -> bool {
    let level = mean(values).unwrap_or(0.0).abs();
    let changes: Vec<f64> = differences(values).iter().map(|change| change.abs()).collect();
    level > 0.0 && mean(&changes).unwrap_or(0.0) >= variation_min * level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_explained_is_gone() {
        // x = (-1, 0, 1) about its mean; y = (1, 0, 5) - 2 = (-1, -2, 3): share (1 + 3) / 2 = 2, left (1, -2, 1).
        let x = Projected::of(&[4.0, 5.0, 6.0]);
        let mut y = Projected::of(&[1.0, 0.0, 5.0]);
        y.lose(&x);
        assert_eq!(y.values, [1.0, -2.0, 1.0]);
        assert_eq!(y.cosine(&x), Some(0.0));
        // Nothing is left of it after itself; what is nothing explains nothing.
        let mut same = x.clone();
        same.lose(&x);
        assert_eq!((same.square(), same.cosine(&y)), (None, None));
        y.lose(&same);
        assert_eq!(y.values, [1.0, -2.0, 1.0]);
    }
}
