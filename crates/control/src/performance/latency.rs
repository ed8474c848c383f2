//! How the latencies of one kind of request are distributed, of which means and variances are predicted.
//!
//! It is *not* how means deviate from window to window: that is [`super::chance`]'s.

use super::{LATENCY_MIN_S, normal_share_below};

/// The reads that hit, those that miss, or the writes of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    /// Their share of all requests.
    pub(super) weight: f64,
    /// Their mean latency in seconds.
    pub(super) mean: f64,
    /// Its squared coefficient of variation; without meaning where they are `queued`.
    pub(super) cv2: f64,
    /// Where they are answered behind a queue of which more is known.
    pub(super) queued: Option<Queued>,
}

/// A service behind a queue: some wait, and some do not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Queued {
    /// Mean time of the service in seconds; all beyond it is waiting.
    pub(super) served: f64,
    /// Its squared coefficient of variation.
    pub(super) service_cv2: f64,
    /// The share that waits; above 0.
    pub(super) waiting: f64,
}

impl Kind {
    /// The share of them that take at most `t` seconds: of a gamma distribution, or of what [`Queued`] says.
    pub(super) fn share_below(&self, t: f64) -> f64 {
        match self.queued {
            None => gamma_share_below(t, self.mean, self.cv2),
            Some(queued) => queued.share_below(t, self.mean),
        }
    }
}

impl Queued {
    /// Who finds the server idle is served at once, and the wait of the others deviates as an exponential one, which is what the mean wait and its variance in an
    /// M/M/1 queue come to. A service takes no less than what of it does not vary; the rest is a gamma distribution (ours; exact for M/M/1 but for the sum of two exponential times,
    /// and of constant service within .02 of the exact one at its 50th, 90th and 99th percentile from a utilisation of .3 to .8).
    fn share_below(&self, t: f64, mean: f64) -> f64 {
        let least = self.served * (1.0 - self.service_cv2.sqrt()).max(0.0);
        let beyond = |wait: f64| {
            let varying = self.served - least + wait;
            if varying <= self.served * 1e-9 {
                return f64::from(u8::from(t >= least));
            }
            let variance = self.served.powi(2) * self.service_cv2 + wait.powi(2);
            gamma_share_below(t - least, varying, (variance / varying.powi(2)).clamp(0.01, 4.0))
        };
        let wait = (mean - self.served).max(0.0) / self.waiting;
        (1.0 - self.waiting) * beyond(0.0) + self.waiting * beyond(wait)
    }
}

/// The share of a gamma distribution with this mean and squared coefficient of variation that lies below `t`, by
/// Wilson and Hilferty's cube root (PNAS 17, 1931): within .01 for variations up to 1.
fn gamma_share_below(t: f64, mean: f64, cv2: f64) -> f64 {
    if t <= 0.0 {
        return 0.0;
    }
    let ninth = cv2 / 9.0; // the shape is 1 / cv2
    normal_share_below(((t / mean.max(LATENCY_MIN_S)).cbrt() - (1.0 - ninth)) / ninth.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Crommelin's series for the sojourn in an M/D/1 queue of 10 ms (Post Office Electrical Engineers' Journal 26, 1934).
    fn of_constant_service(t: f64, busy: f64) -> f64 {
        let service = 0.010;
        let waited = t - service;
        if waited < 0.0 {
            return 0.0;
        }
        let mut sum = 0.0;
        let mut factorial = 1.0;
        for number in 0..=(waited / service) as i32 {
            factorial *= f64::from(number.max(1));
            let left = busy / service * (waited - f64::from(number) * service);
            sum += (-left).powi(number) / factorial * left.exp();
        }
        (1.0 - busy) * sum
    }

    fn queued(service_cv2: f64, busy: f64) -> Kind {
        let served = 0.010;
        let mean = served + busy * served * (1.0 + service_cv2) / 2.0 / (1.0 - busy);
        let queued = Queued { served, service_cv2, waiting: busy };
        Kind { weight: 1.0, mean, cv2: f64::NAN, queued: Some(queued) }
    }

    #[test]
    fn shares_are_those_of_queues_that_are_known() {
        for busy in [0.3, 0.5, 0.8] {
            // Nobody is answered before a service is over, and who finds nobody there exactly then.
            let constant = queued(0.0, busy);
            assert_eq!(constant.share_below(0.0099), 0.0);
            assert!((constant.share_below(0.010) - (1.0 - busy)).abs() < 0.01);
            for t in (10..=120).map(|number| f64::from(number) * 1e-3) {
                let (found, expected) = (constant.share_below(t), of_constant_service(t, busy));
                assert!((found - expected).abs() < 0.07, "{busy}, {t}: {found}, {expected}");
                if expected > 0.88 {
                    assert!((found - expected).abs() < 0.03, "{busy}, {t}: {found}, {expected}");
                }
            }
            let exponential = queued(1.0, busy);
            for share in [0.5, 0.9, 0.95, 0.99, 0.999] {
                let t = -exponential.mean * f64::ln(1.0 - share);
                let found = exponential.share_below(t);
                assert!((found - share).abs() < 0.006, "{busy}, {share}: {found}");
            }
        }
    }

    #[test]
    fn shares_rise_and_end_at_all() {
        for service_cv2 in [0.0, 0.2, 1.0, 3.0] {
            for busy in [0.05, 0.5, 0.98] {
                let kind = queued(service_cv2, busy);
                let shares: Vec<f64> =
                    (0..400).map(|number| kind.share_below(f64::from(number) * kind.mean / 20.0)).collect();
                assert!(shares.is_sorted(), "{service_cv2}, {busy}");
                assert!(
                    shares[0] == 0.0 && *shares.last().unwrap() > 0.995,
                    "{service_cv2}, {busy}: {:?}",
                    shares.last()
                );
            }
        }
    }
}
