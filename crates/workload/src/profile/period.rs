//! Whether load comes and goes with the hour and the day.
//!
//! Requests per bin are cut to a whole number of periods; the power of the load at the period (one term of a periodogram) is held
//! against the mean power at frequencies near it. Where the load has no period, the ratio is about distributed as F(2, 2n) with n neighbours, whatever slow
//! trend it has, which says how likely it is to be seen without a period (a standard test on the periodogram, Brockwell and Davis, "Time
//! Series: Theory and Methods", section 10.2; the choice of neighbours is ours).

use serde::Serialize;
use std::f64::consts::TAU;

/// The periods that are looked for, in seconds: an hour and a day.
const PERIODS_S: [(&str, f64); 2] = [("hour", 3_600.0), ("day", 86_400.0)];

/// A period is judged where the trace holds it so often,
const CYCLES_MIN: usize = 3;
/// and a bin is at most this share of it (ours).
const BINS_PER_PERIOD_MIN: f64 = 6.0;

/// From this confidence on it is a period.
pub const CONFIDENCE_MIN: f64 = 0.99;

/// How far from the period's frequency, in cycles per trace, its neighbours are (ours).
const NEIGHBOURS: std::ops::RangeInclusive<usize> = 2..=6;

/// What is known of one period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Periodicity {
    /// `hour` or `day`.
    pub period: &'static str,
    /// Its length in seconds.
    pub period_s: f64,
    /// How often the trace holds it.
    pub cycles: usize,
    /// Share of the variance of the load (requests per bin) that a wave of this period explains.
    pub variance_share: f64,
    /// 1 less the chance that a load without this period shows as much of it. It says nothing of how much of the load comes and goes,
    /// which is `variance_share`.
    pub confidence: f64,
    /// Whether it is a period: `confidence` is [`CONFIDENCE_MIN`] or more. Of what is less nothing is known.
    pub found: bool,
}

/// Judges the load `counts`, requests per bin of `bin_s` seconds. Periods that the trace is too short for, or the bins too coarse, are
/// left out.
pub fn find(counts: &[f64], bin_s: f64) -> Vec<Periodicity> {
    PERIODS_S
        .iter()
        .filter_map(|(period, period_s)| {
            let per_period = period_s / bin_s;
            let cycles = (counts.len() as f64 / per_period) as usize;
            if cycles < CYCLES_MIN || per_period < BINS_PER_PERIOD_MIN {
                return None;
            }
            let (variance_share, confidence) =
                judge(&counts[..(cycles as f64 * per_period) as usize], cycles)?;
            let found = confidence >= CONFIDENCE_MIN;
            Some(Periodicity { period, period_s: *period_s, cycles, variance_share, confidence, found })
        })
        .collect()
}

/// The share of the variance at `cycles` per series, and how sure it is; `None` if the load is constant.
fn judge(counts: &[f64], cycles: usize) -> Option<(f64, f64)> {
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
    if variance <= f64::EPSILON * mean * mean {
        return None;
    }
    let power = |frequency: usize| {
        let step = TAU * frequency as f64 / counts.len() as f64;
        let (mut real, mut imaginary) = (0.0, 0.0);
        for (at, count) in counts.iter().enumerate() {
            let (sine, cosine) = (step * at as f64).sin_cos();
            real += (count - mean) * cosine;
            imaginary += (count - mean) * sine;
        }
        // Such that the powers at all frequencies up to half the number of bins add up to the variance.
        2.0 * (real * real + imaginary * imaginary) / counts.len() as f64
    };
    let below = NEIGHBOURS.filter_map(|away| cycles.checked_sub(away)).filter(|frequency| *frequency > 0);
    let above = NEIGHBOURS.map(|away| cycles + away).filter(|frequency| 2 * frequency < counts.len());
    // Multiples of the frequency are part of the same period's shape.
    let near: Vec<f64> = below.chain(above).filter(|frequency| frequency % cycles != 0).map(&power).collect();
    let own = power(cycles);
    let around = near.iter().sum::<f64>() / near.len().max(1) as f64;
    let ratio = if around > 0.0 { own / around } else { f64::INFINITY };
    // The mean of so few neighbours is itself by chance: the ratio of an exponential to the mean of n is F(2, 2n).
    let count = near.len() as f64;
    let chance = (1.0 + ratio / count).powf(-count);
    Some((own / variance, 1.0 - chance))
}
