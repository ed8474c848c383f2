//! Burstiness: how counts of arrivals vary, by the length of the window that they are counted in.
//!
//! The index of dispersion for counts is variance over mean of the arrivals per window: 1 at every scale for a Poisson
//! process, growing with the scale where arrivals are correlated. The Hurst exponent says how fast: H = 0.5 without long memory, towards
//! 1 with it. It is estimated by the aggregated variance method (Taqqu, Teverovsky and Willinger, "Estimators for long-range
//! dependence: an empirical study", Fractals 1995): the variance of the mean arrival rate over windows of length m falls as
//! m^(2H - 2), so a straight line is fitted to its logarithm. The method is known to err low where H is large and the trace short.

use crate::statistics::line;
use forebay_units::Nanos;
use serde::Serialize;

/// The shortest window: 1 ms (ours).
pub const BASE: Nanos = Nanos::millis(1);

/// Scales, each twice the one before: up to 2^40 ms, 35 years.
const LEVELS: usize = 41;

/// A dispersion is told where at least so many windows were counted (ours).
const WINDOWS_MIN: u64 = 16;

/// The Hurst exponent is fitted over windows with at least this many arrivals on average, since below it only chance is seen (ours),
const ARRIVALS_MIN: f64 = 4.0;
/// at least so many windows,
const FIT_WINDOWS_MIN: u64 = 32;
/// and at least so many scales.
const FIT_SCALES_MIN: usize = 5;

/// How bursty arrivals are.
#[derive(Clone, Debug, Serialize)]
pub struct Burstiness {
    /// Ascending by scale; scales without enough windows are left out.
    pub dispersion: Vec<Dispersion>,
    /// The Hurst exponent; `None` where there are too few arrivals or scales to tell.
    pub hurst: Option<f64>,
    /// How well a straight line fits, from 0 to 1; `None` with it.
    pub hurst_r_squared: Option<f64>,
    /// The shortest and the longest window that it was fitted over, in seconds.
    pub hurst_scales_s: Option<(f64, f64)>,
}

/// Variation of the arrivals per window of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Dispersion {
    /// Length of a window, in seconds.
    pub window_s: f64,
    /// Windows counted.
    pub windows: u64,
    /// Variance over mean of the arrivals per window.
    pub index: f64,
}

#[derive(Clone, Copy, Default)]
struct Level {
    /// The first half of a window of the next level.
    half: Option<u64>,
    windows: u64,
    sum: f64,
    squares: f64,
}

/// Counts arrivals at all scales at once: each window of a level is the sum of two of the level below, so that an arrival costs
/// two levels on average and a silence as many levels as it is long in powers of two.
pub struct BurstCounter {
    levels: [Level; LEVELS],
    /// The open window of the lowest level, and its arrivals.
    window: u64,
    arrivals: u64,
}

impl Default for BurstCounter {
    fn default() -> BurstCounter {
        BurstCounter::new()
    }
}

impl BurstCounter {
    /// Without arrivals.
    pub fn new() -> BurstCounter {
        BurstCounter { levels: [Level::default(); LEVELS], window: 0, arrivals: 0 }
    }

    /// One arrival, so long after the first; ascending.
    pub fn arrive(&mut self, since_start: Nanos) {
        let window = since_start.0 / BASE.0;
        if window > self.window {
            self.count(self.arrivals);
            self.silence(0, window - self.window - 1);
            self.window = window;
            self.arrivals = 0;
        }
        self.arrivals += 1;
    }

    /// One window of the lowest level with this many arrivals.
    pub fn count(&mut self, arrivals: u64) {
        self.close(0, arrivals);
    }

    /// A window of `level` is over.
    fn close(&mut self, mut level: usize, mut count: u64) {
        while level < LEVELS {
            let state = &mut self.levels[level];
            state.windows += 1;
            state.sum += count as f64;
            state.squares += count as f64 * count as f64;
            match state.half.take() {
                None => {
                    state.half = Some(count);
                    return;
                }
                Some(half) => count += half,
            }
            level += 1;
        }
    }

    /// So many windows of `level` without an arrival.
    fn silence(&mut self, mut level: usize, mut windows: u64) {
        while windows > 0 && level < LEVELS {
            if self.levels[level].half.is_some() {
                self.close(level, 0);
                windows -= 1;
            }
            // Zeros add to neither sum; of an odd number the last opens a window of the next level.
            let state = &mut self.levels[level];
            state.windows += windows;
            if windows % 2 == 1 {
                state.half = Some(0);
            }
            windows /= 2;
            level += 1;
        }
    }

    /// What was counted; `None` where not even the shortest windows are enough. The open window is not whole, and left out.
    pub fn finish(self) -> Option<Burstiness> {
        let mut dispersion = Vec::new();
        let (mut points, mut scales) = (Vec::new(), Vec::new());
        for (index, level) in self.levels.iter().enumerate() {
            let windows = level.windows as f64;
            let mean = level.sum / windows;
            if level.windows < WINDOWS_MIN || mean == 0.0 {
                continue;
            }
            let variance = (level.squares / windows - mean * mean).max(0.0);
            let window_s = BASE.as_secs_f64() * (1u64 << index) as f64;
            dispersion.push(Dispersion { window_s, windows: level.windows, index: variance / mean });
            if mean >= ARRIVALS_MIN && level.windows >= FIT_WINDOWS_MIN && variance > 0.0 {
                // The variance of the mean rate over the window.
                scales.push(window_s);
                points.push((window_s.ln(), (variance / (window_s * window_s)).ln()));
            }
        }
        let fit = if points.len() < FIT_SCALES_MIN { None } else { line(&points) };
        (!dispersion.is_empty()).then(|| Burstiness {
            dispersion,
            hurst: fit.map(|(slope, _)| (1.0 + slope / 2.0).clamp(0.0, 1.0)),
            hurst_r_squared: fit.map(|(_, r_squared)| r_squared),
            hurst_scales_s: fit.map(|_| (scales[0], scales[scales.len() - 1])),
        })
    }
}
