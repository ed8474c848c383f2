//! What a load has cost where no cache helped it: seen, not predicted.
//!
//! How long requests take at an origin that is nearly asked for more than it can serve hangs on a few per cent of its service time, and of an origin that a
//! cache hides that is not known so well: the model then says that without the cache it would be overloaded, where it was not before there was one. (Ours.)

/// Rates that differ by less than this factor are alike.
const ALIKE: f64 = 1.5;
/// How many different ones are kept: up to a million requests per second.
const RATES: usize = 35;
/// Intervals over which is averaged, and how many say something.
const MEMORY: f64 = 64.0;
const SEEN_MIN: f64 = 3.0;
/// What hangs is infinitely beyond its bound, and no mean.
const EXCESS_MAX: f64 = 100.0;

/// Windows without help, by how many requests arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Unhelped(Vec<Seen>);

/// What windows of like rates came to on average.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    violation: Mean,
    excess: Mean,
    /// What arrived at the neighbours' meanwhile.
    others: Mean,
}

/// A window without any cache: none that answers something, and none in which reads join others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uncached {
    /// The worst excess.
    pub(super) excess: f64,
    /// How many requests per second arrived at the other volumes of the origin.
    pub(super) others: f64,
}

/// The mean of the last ones, the older ones fading, and of how many.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    windows: f64,
    mean: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.windows = (self.windows + 1.0).min(MEMORY);
        self.mean += (value - self.mean) / self.windows;
    }

    fn known(self) -> Option<f64> {
        (self.windows >= SEEN_MIN).then_some(self.mean)
    }
}

impl Unhelped {
    fn at(rate: f64) -> usize {
        ((rate.max(1.0).ln() / ALIKE.ln()) as usize).min(RATES - 1)
    }

    /// Adds windows that ended with an interval in which `rate` requests per second arrived: the weighted violation of all, and what they say of no
    /// cache, where there was none.
    pub(super) fn see(&mut self, rate: f64, violation: f64, uncached: Option<Uncached>) {
        if self.0.is_empty() {
            self.0 = vec![Seen::default(); RATES];
        }
        let seen = &mut self.0[Self::at(rate)];
        seen.violation.add(violation);
        if let Some(Uncached { excess, others }) = uncached {
            seen.excess.add(excess.min(EXCESS_MAX));
            seen.others.add(others);
        }
    }

    /// The mean violation at such a rate; `None` where it was not seen often enough.
    pub(super) fn violation(&self, rate: f64) -> Option<f64> {
        self.0.get(Self::at(rate))?.violation.known()
    }

    /// The mean of the worst excesses without a cache at such a rate, likewise; `None` also where neighbours ask for less now, so that it may be gone.
    pub(super) fn excess(&self, rate: f64, others: f64) -> Option<f64> {
        let seen = self.0.get(Self::at(rate))?;
        let as_loud = ALIKE * others >= seen.others.mean;
        seen.excess.known().filter(|_| as_loud)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_promise_cost_is_forgotten() {
        use super::super::Controller;
        use super::super::contention::Stake;
        use crate::config::ControlConfig;
        use crate::inventory::{VolumeId, VolumeSpec};
        use crate::objective::{Objective, Operations};
        use forebay_units::{Bytes, Nanos};
        let mut controller =
            Controller::new(ControlConfig::default(), Bytes::mib(1), Vec::new(), Vec::new()).unwrap();
        let spec = |ms| VolumeSpec {
            objectives: vec![Objective::mean_latency(Nanos::millis(ms), Operations::All)],
            ..VolumeSpec::any()
        };
        let mut known_after = |ms| {
            controller.register(spec(ms)).unwrap();
            let volume = controller.volumes.get_mut(&VolumeId(1)).unwrap();
            let known = (volume.unhelped.violation(100.0), volume.stake.is_some());
            (0..3).for_each(|_| volume.unhelped.see(100.0, 9.0, None));
            volume.stake = Some(Stake::new(64, 1_024, 0));
            known
        };
        assert_eq!([5, 5, 50].map(&mut known_after), [(None, false), (Some(9.0), true), (None, false)]);
    }

    #[test]
    fn like_rates_are_averaged_and_others_are_not() {
        let mut unhelped = Unhelped::default();
        assert_eq!(unhelped.violation(100.0), None);
        let uncached = |excess| Some(Uncached { excess, others: 50.0 });
        unhelped.see(100.0, 2.0, uncached(2.0));
        unhelped.see(100.0, 0.0, uncached(-0.5));
        assert_eq!((unhelped.violation(100.0), unhelped.excess(100.0, 50.0)), (None, None));
        unhelped.see(105.0, 4.0, None);
        assert_eq!((unhelped.violation(102.0), unhelped.excess(102.0, 50.0)), (Some(2.0), None));
        unhelped.see(105.0, 2.0, uncached(f64::INFINITY));
        assert_eq!((unhelped.violation(102.0), unhelped.excess(102.0, 50.0)), (Some(2.0), Some(101.5 / 3.0)));
        assert_eq!((unhelped.violation(300.0), unhelped.excess(300.0, 50.0)), (None, None));
        // Neighbours that are quieter now may have been what it came of.
        assert_eq!(
            [30.0, 34.0, 90.0].map(|others| unhelped.excess(102.0, others).is_some()),
            [false, true, true]
        );
        // Old ones fade.
        (0..1_000).for_each(|_| unhelped.see(100.0, 0.0, None));
        assert!(unhelped.violation(100.0).is_some_and(|mean| mean < 1e-6));
        for rate in [0.0, 1e-9, 1e12, f64::INFINITY] {
            unhelped.see(rate, 1.0, uncached(1.0));
        }
    }
}
