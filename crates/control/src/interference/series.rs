//! A series of one value an interval, as it is correlated: without what is left of the interval before, centred, by value and by rank.

use super::Correlation;
use forebay_workload::statistics::{mean, ranks};

/// A part of a series that is smaller than this, as a share of its length, is rounding (ours).
const NEGLIGIBLE: f64 = 1e-6;

/// The most of itself that a series is taken to keep from one interval to the next (ours): a few intervals always count for something.
const PERSISTENCE_MAX: f64 = 0.95;

/// Each value less `rho` times the one before: changes for 1, levels for 0. One shorter than `values`.
pub(super) fn quasi_differences(values: &[f64], rho: f64) -> Vec<f64> {
    values.windows(2).map(|pair| pair[1] - rho * pair[0]).collect()
}

/// One series by value and by rank; both lose what is taken out.
#[derive(Clone)]
pub(super) struct Series {
    pub(super) by_value: Projected,
    by_rank: Projected,
}

impl Series {
    pub(super) fn of(values: &[f64]) -> Series {
        Series { by_value: Projected::of(values), by_rank: Projected::of(&ranks(values)) }
    }

    /// The correlation of what is left of both; `None` where nothing is left of one.
    pub(super) fn correlation(&self, of: &Series, lag: usize) -> Option<Correlation> {
        let pearson = self.by_value.cosine(&of.by_value)?;
        let spearman = self.by_rank.cosine(&of.by_rank)?;
        Some(Correlation { score: (pearson + spearman) / 2.0, pearson, spearman, lag, granger: None })
    }

    /// By how much more than in independent intervals the correlation of both differs from 0 by chance, at least 1: what lasts for some intervals,
    /// in this series and in what it leaves of `other`, counts once (Bartlett 1935, for series whose persistence falls geometrically).
    pub(super) fn spread(&self, other: &Series) -> f64 {
        let mut left = other.by_value.clone();
        left.lose(&self.by_value);
        let both = (self.by_value.persistence() * left.persistence()).clamp(0.0, PERSISTENCE_MAX);
        ((1.0 + both) / (1.0 - both)).sqrt()
    }

    pub(super) fn lose(&mut self, other: &Series) {
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

    /// The least that is told from rounding, squared.
    pub(super) fn rounding(&self) -> f64 {
        (NEGLIGIBLE * self.length).powi(2)
    }

    /// The correlation of what is left of it with itself an interval later; 0 if nothing is.
    fn persistence(&self) -> f64 {
        let later = self.values.get(1..).unwrap_or(&[]);
        self.square().map_or(0.0, |square| dot(later, &self.values) / square)
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

/// As far as both go.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
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
        assert_eq!((same.square(), same.cosine(&y), same.persistence()), (None, None, 0.0));
        y.lose(&same);
        assert_eq!(y.values, [1.0, -2.0, 1.0]);
    }

    #[test]
    fn changes_levels_and_what_is_between() {
        assert_eq!(quasi_differences(&[1.0, 3.0, 2.0], 1.0), [2.0, -1.0]);
        assert_eq!(quasi_differences(&[1.0, 3.0, 2.0], 0.0), [3.0, 2.0]);
        assert_eq!(quasi_differences(&[1.0, 3.0, 2.0], 0.5), [2.5, 0.5]);
        assert!(quasi_differences(&[1.0], 0.5).is_empty());
    }

    #[test]
    fn what_lasts_counts_once() {
        // About their mean 0: (-1, -1, 1, 1) keeps (1 - 1 + 1) / 4 of itself, (-1, 1, -1, 1) goes back and forth.
        let (lasts, turns) = (Series::of(&[-1.0, -1.0, 1.0, 1.0]), Series::of(&[-1.0, 1.0, -1.0, 1.0]));
        assert_eq!(lasts.by_value.persistence(), 0.25);
        assert_eq!(turns.by_value.persistence(), -0.75);
        // What it leaves of 3 times itself and of (-1, 0, 0, 1), which is half of it and (-1, 1, -1, 1) / 2: nothing, and what turns.
        for (other, spread) in [([-3.0, -3.0, 3.0, 3.0], 1.0), ([-1.0, 0.0, 0.0, 1.0], 1.0)] {
            assert_eq!(lasts.spread(&Series::of(&other)), spread, "{other:?}");
        }
        // Of a slope a turn at its first third leaves what lasts nearly as well; never more than the most.
        let slope = Series::of(&(0..1_000).map(f64::from).collect::<Vec<_>>());
        let step = Series::of(&(0..1_000).map(|at| f64::from(u8::from(at > 333))).collect::<Vec<_>>());
        assert!((step.spread(&slope) - (1.95_f64 / 0.05).sqrt()).abs() < 1e-9);
        assert_eq!(turns.spread(&lasts), 1.0);
    }
}
