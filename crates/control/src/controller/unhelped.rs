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

/// Mean violations without help, by how many requests arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Unhelped(Vec<(f64, f64)>);

impl Unhelped {
    fn at(rate: f64) -> usize {
        ((rate.max(1.0).ln() / ALIKE.ln()) as usize).min(RATES - 1)
    }

    /// Adds an interval in which `rate` requests per second arrived.
    pub(super) fn see(&mut self, rate: f64, violation: f64) {
        if self.0.is_empty() {
            self.0 = vec![(0.0, 0.0); RATES];
        }
        let (seen, mean) = &mut self.0[Self::at(rate)];
        *seen = (*seen + 1.0).min(MEMORY);
        *mean += (violation - *mean) / *seen;
    }

    /// The mean violation at such a rate; `None` where it was not seen often enough.
    pub(super) fn violation(&self, rate: f64) -> Option<f64> {
        self.0.get(Self::at(rate)).filter(|(seen, _)| *seen >= SEEN_MIN).map(|(_, mean)| *mean)
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
            (0..3).for_each(|_| volume.unhelped.see(100.0, 9.0));
            volume.stake = Some(Stake::new(64, 1_024, 0));
            known
        };
        assert_eq!([5, 5, 50].map(&mut known_after), [(None, false), (Some(9.0), true), (None, false)]);
    }

    #[test]
    fn like_rates_are_averaged_and_others_are_not() {
        let mut unhelped = Unhelped::default();
        assert_eq!(unhelped.violation(100.0), None);
        [2.0, 4.0].into_iter().for_each(|violation| unhelped.see(100.0, violation));
        assert_eq!(unhelped.violation(100.0), None);
        unhelped.see(105.0, 6.0);
        assert_eq!(unhelped.violation(102.0), Some(4.0));
        assert_eq!(unhelped.violation(300.0), None);
        // Old ones fade.
        (0..1_000).for_each(|_| unhelped.see(100.0, 0.0));
        assert!(unhelped.violation(100.0).is_some_and(|mean| mean < 1e-6));
        for rate in [0.0, 1e-9, 1e12, f64::INFINITY] {
            unhelped.see(rate, 1.0);
        }
    }
}
