//! What it is worth to have something loaded that is visited at some rate.

/// Expected misses that are spared by loading something, for any rate of its visits.
///
/// Visits come at random at a constant rate. Loaded or not, after its first visit it is cached; so loading spares the first miss only,
/// and the earlier that comes, the more it weighs: the sum over seconds s of `weight(s)` x rate x exp(-rate x s). Ours.
#[derive(Clone, Debug)]
pub struct Benefit {
    /// At rates of 2^(-MIN_LOG + i / STEPS) per second.
    table: Vec<f64>,
}

/// Steps per factor of two.
const STEPS: f64 = 8.0;
/// Rates below 2^-30 per second (one visit in 34 years) are as good as none; above 2^10 they are all the same.
const LOG_MIN: f64 = -30.0;
const LOG_MAX: f64 = 10.0;

impl Benefit {
    /// For so many seconds as there are `weights`, each what a spared miss of that second counts.
    pub fn new(weights: &[f64]) -> Benefit {
        let entries = ((LOG_MAX - LOG_MIN) * STEPS) as usize + 1;
        let table = (0..entries)
            .map(|entry| {
                let rate = (LOG_MIN + entry as f64 / STEPS).exp2();
                // The chance that the first visit falls into second s: exp(-rate s) - exp(-rate (s + 1)).
                let kept = (-rate).exp();
                let first = -(-rate).exp_m1();
                let (mut none_yet, mut sum) = (1.0, 0.0);
                for weight in weights {
                    sum += weight * none_yet * first;
                    none_yet *= kept;
                }
                sum
            })
            .collect();
        Benefit { table }
    }

    /// At a rate per second; 0 for rates that are not above 0. It grows with the rate.
    pub fn at(&self, rate: f64) -> f64 {
        if rate <= 0.0 || !rate.is_finite() {
            return 0.0;
        }
        let place = (rate.log2().clamp(LOG_MIN, LOG_MAX) - LOG_MIN) * STEPS;
        let low = (place as usize).min(self.table.len() - 2);
        let share = place - low as f64;
        self.table[low] * (1.0 - share) + self.table[low + 1] * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_chance_of_a_visit_where_all_seconds_count_the_same() {
        let benefit = Benefit::new(&[1.0; 300]);
        for rate in [1e-6, 3e-4, 0.002, 0.01, 0.3] {
            let expected = 1.0 - f64::exp(-rate * 300.0);
            assert!(
                (benefit.at(rate) / expected - 1.0).abs() < 0.005,
                "{rate}: {} {expected}",
                benefit.at(rate)
            );
        }
        assert_eq!((benefit.at(0.0), benefit.at(-1.0), benefit.at(f64::NAN)), (0.0, 0.0, 0.0));
        assert!((benefit.at(1e9) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn early_seconds_count_what_they_weigh() {
        // Two seconds of weights 3 and 1, a rate of ln 2: half the first visits in the first, a quarter in the second: 1.75.
        let benefit = Benefit::new(&[3.0, 1.0]);
        assert!((benefit.at(f64::ln(2.0)) - 1.75).abs() < 0.01);
        let rates: Vec<f64> =
            (0..400).map(|step| benefit.at((f64::from(step) / 10.0 - 30.0).exp2())).collect();
        assert!(rates.is_sorted());
    }
}
