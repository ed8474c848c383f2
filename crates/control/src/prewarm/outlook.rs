//! What it is worth, at any second after a failure, to load something, and from which chance of being visited on.
//!
//! What is loaded spares its first miss. What is not may still be loaded later, when clients' accesses tell that it is about to be visited, and
//! costs its bytes only then; or it is visited untold. With a price for loading, that is a small problem of optimal stopping for each rate of visits, solved from the
//! end of the span backwards: load when what is spared beyond what waiting would spare is worth the price beyond what waiting would pay. Ours.

use super::Foretold;

/// Rates are told apart by quarters of a factor of two, from 2^-24 per second (one visit in half a year) to 2^2.
const STEPS: f64 = 4.0;
const LOG_MIN: f64 = -24.0;
const LOG_MAX: f64 = 2.0;
/// Seconds between two bars.
const SECONDS: usize = 10;
/// A chance that nothing has.
const NEVER: f32 = 2.0;

/// A rate of visits, as far as bars tell rates apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateClass(u8);

impl RateClass {
    /// Of so many visits per second.
    pub fn of(rate: f64) -> RateClass {
        RateClass(Outlook::entry(rate).round() as u8)
    }
}

/// What a chance is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// The price alone, in every second alike, as if what waits were never told and what is loaded were never visited later. Better where the limit leaves room for nearly everything, and the rate decides.
    Near,
    /// What it would spare later, and what waiting would. Better where bytes are short.
    Ahead,
}

/// What loading is worth, for one volume and one price.
#[derive(Clone, Debug)]
pub struct Outlook {
    /// By rate: what loading at the failure spares beyond what waiting would, per byte beyond what waiting would load.
    worth: Vec<f64>,
    /// By rate, then by tenth second: the chance from which on it is loaded.
    bars: Vec<f32>,
    steps: usize,
    after: f32,
}

/// What is known of something at a second: the weight that is spared if it is loaded, and if it is waited for; and what waiting loads.
#[derive(Clone, Copy, Default)]
struct Ahead {
    loaded: f64,
    waiting: f64,
    paid: f64,
}

impl Outlook {
    /// For so many seconds as there are `weights`, each what a spared miss of that second counts, in a volume whose visits are `foretold` so well. `price` is what loading must spare.
    /// Cost: `O(seconds)` for each of 105 rates.
    pub fn new(weights: &[f64], foretold: &Foretold, price: f64, sight: Sight) -> Outlook {
        let entries = ((LOG_MAX - LOG_MIN) * STEPS) as usize + 1;
        let steps = weights.len().div_ceil(SECONDS);
        let mut outlook = Outlook {
            worth: Vec::with_capacity(entries),
            bars: vec![NEVER; entries * steps],
            steps,
            after: price as f32,
        };
        for entry in 0..entries {
            let rate = (LOG_MIN + entry as f64 / STEPS).exp2();
            let mut ahead = Ahead::default();
            for (second, weight) in weights.iter().enumerate().rev() {
                let bar = match sight {
                    Sight::Near => price,
                    Sight::Ahead => bar(ahead, *weight, price),
                };
                outlook.bars[entry * steps + second / SECONDS] = bar as f32;
                ahead = before(ahead, *weight, rate, foretold.per_visit(bar));
            }
            outlook.worth.push(match sight {
                Sight::Near => ahead.loaded,
                Sight::Ahead => (ahead.loaded - ahead.waiting) / (1.0 - ahead.paid).max(1e-9),
            });
        }
        outlook
    }

    fn entry(rate: f64) -> f64 {
        (rate.max(1e-300).log2().clamp(LOG_MIN, LOG_MAX) - LOG_MIN) * STEPS
    }

    /// What it is worth to load at the failure what is visited at this rate per second; 0 for rates that are not above 0.
    pub fn worth(&self, rate: f64) -> f64 {
        if rate <= 0.0 || !rate.is_finite() {
            return 0.0;
        }
        let place = Outlook::entry(rate);
        let low = (place as usize).min(self.worth.len() - 2);
        let share = place - low as f64;
        self.worth[low] * (1.0 - share) + self.worth[low + 1] * share
    }

    /// The chance (0 to 1) of being visited at once from which on it is worth the price to load, in second `second`, what is visited so often. After the span: the price itself.
    pub fn bar(&self, second: usize, rate: RateClass) -> f32 {
        match second / SECONDS < self.steps {
            true => self.bars[usize::from(rate.0) * self.steps + second / SECONDS],
            false => self.after,
        }
    }
}

/// The chance from which on loading now is better than waiting: chance x weight + (1 - chance) x (loaded - waiting + price x paid) is the price.
fn bar(ahead: Ahead, weight: f64, price: f64) -> f64 {
    let later = ahead.loaded - ahead.waiting + price * ahead.paid;
    if later >= price {
        0.0
    } else if weight <= price {
        f64::from(NEVER)
    } else {
        (price - later) / (weight - later)
    }
}

/// What is known a second earlier, where so many visits and tellings per visit are of a chance for which it is loaded.
fn before(ahead: Ahead, weight: f64, rate: f64, (told, tellings): (f64, f64)) -> Ahead {
    let visited = -(-rate).exp_m1();
    let loaded = (1.0 - visited) * ahead.loaded + visited * weight;
    // Untold visits end the waiting, and so do tellings, of which some are of a visit.
    let (untold, telling) = (rate * (1.0 - told), rate * tellings);
    let ends = untold + telling;
    let ended = -(-ends).exp_m1();
    let by_telling = if ends > 0.0 { ended * telling / ends } else { 0.0 };
    let true_share = if tellings > 0.0 { told / tellings } else { 0.0 };
    Ahead {
        loaded,
        waiting: (1.0 - ended) * ahead.waiting
            + by_telling * (true_share * weight + (1.0 - true_share) * ahead.loaded),
        paid: (1.0 - ended) * ahead.paid + by_telling,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every visit is told with 0.5, and another zone besides.
    fn half_told() -> Foretold {
        let mut foretold = Foretold::new(2);
        for round in 0..300 {
            foretold.tell(0, 0.5, round * 10_000);
            foretold.tell(1, 0.5, round * 10_000);
            foretold.visit(0, round * 10_000 + 5);
        }
        foretold
    }

    #[test]
    fn it_is_the_chance_of_a_visit_where_nothing_is_foretold_and_all_seconds_count_the_same() {
        let outlook = Outlook::new(&[1.0; 300], &Foretold::new(0), 0.3, Sight::Ahead);
        for rate in [1e-5, 3e-4, 0.002, 0.01, 0.3] {
            let expected = 1.0 - f64::exp(-rate * 300.0);
            assert!((outlook.worth(rate) / expected - 1.0).abs() < 0.01, "{rate}: {}", outlook.worth(rate));
        }
        assert_eq!((outlook.worth(0.0), outlook.worth(-1.0), outlook.worth(f64::NAN)), (0.0, 0.0, 0.0));
        let early = Outlook::new(&[3.0, 1.0], &Foretold::new(0), 0.3, Sight::Ahead);
        // At ln 2 per second: half the first visits in the first second, a quarter in the next: 3 / 2 + 1 / 4.
        assert!((early.worth(f64::ln(2.0)) - 1.75).abs() < 0.03, "{}", early.worth(f64::ln(2.0)));
    }

    #[test]
    fn what_is_told_in_time_need_not_be_loaded_beforehand() {
        let untold = Outlook::new(&[1.0; 300], &Foretold::new(0), 0.3, Sight::Ahead);
        let told = Outlook::new(&[1.0; 300], &half_told(), 0.3, Sight::Ahead);
        // All visits are told and half of what is told comes: a third of an object waits for each visit that is spared less. Where nothing is told, half of this rate's zones are visited.
        let rate = 0.001;
        assert!(told.worth(rate) < 0.6 * untold.worth(rate), "{} {}", told.worth(rate), untold.worth(rate));
        // And as bytes are dear, nothing is loaded at that chance: then nothing is foretold.
        let dear = Outlook::new(&[1.0; 300], &half_told(), 0.9, Sight::Ahead);
        assert!((dear.worth(rate) / untold.worth(rate) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_chance_is_held_against_the_price_less_what_would_be_spared_anyway() {
        let weights: Vec<f64> = (0..40).map(|second| if second < 20 { 2.0 } else { 0.5 }).collect();
        let ahead = Outlook::new(&weights, &Foretold::new(0), 0.4, Sight::Ahead);
        assert_eq!(ahead.bar(40, RateClass::of(0.1)), 0.4, "after the span");
        // Without looking ahead: the price, and the order of what is never told.
        let near = Outlook::new(&weights, &half_told(), 0.4, Sight::Near);
        assert_eq!([0, 35, 40].map(|second| near.bar(second, RateClass::of(0.1))), [0.4; 3]);
        assert_eq!(near.worth(0.01), ahead.worth(0.01));
        // What is never visited else needs the price by the weight; what is visited for certain needs no chance. At the end nothing is left to spare: in the last second 0.4 of 0.5.
        assert!((ahead.bar(0, RateClass::of(1e-7)) - 0.2).abs() < 0.01);
        assert_eq!(ahead.bar(0, RateClass::of(1.0)), 0.0);
        assert!(ahead.bar(35, RateClass::of(1e-7)) > 0.79);
        assert!(ahead.bar(10, RateClass::of(0.001)) < ahead.bar(10, RateClass::of(0.0001)));
    }
}
