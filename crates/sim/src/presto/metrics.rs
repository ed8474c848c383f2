//! Hit ratios after a failure, each defined exactly.

use super::destination::{Run, Second};
use super::objects::{HM1_BYTES, HM3_BYTES};

/// What counts as a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Each look-up counts by itself, two per access: the original's.
    LookUps,
    /// An access is a hit if both of its objects are cached: else the client waits for a fetch.
    Both,
    /// The share of the waiting for fetches that is spared: a look-up weighs what its fetch takes, [`fetch_micros`].
    Latency,
}

/// Microseconds to fetch an object of `bytes` (ours: the slides have no cost of a miss): 500 for the way, and the bytes at 100 MB/s.
pub const fn fetch_micros(bytes: u64) -> u64 {
    500 + bytes / 100
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 3] = [Metric::LookUps, Metric::Both, Metric::Latency];

    /// What it is worth that an object of `bytes` is found. For [`Metric::Both`], half of what the pair is worth.
    pub fn worth(self, bytes: u64) -> f64 {
        match self {
            Metric::LookUps => 1.0,
            Metric::Both => 0.5,
            Metric::Latency => fetch_micros(bytes) as f64,
        }
    }

    /// What an HM1 and an HM3 object must be worth to be loaded, in hits, where a pair or an HM3 object must be worth `price`: the smaller by its bytes.
    pub fn prices(self, price: f64) -> [f64; 2] {
        let per_byte = |bytes| self.worth(bytes) / bytes as f64;
        match self {
            Metric::Both => [price, price],
            Metric::LookUps | Metric::Latency => [price * per_byte(HM3_BYTES) / per_byte(HM1_BYTES), price],
        }
    }

    /// What the hits of `second` count, and what they would if everything were a hit.
    fn of(self, second: &Second) -> (f64, f64) {
        let accesses = f64::from(second.accesses);
        let (hm1, hm3) = (f64::from(second.hm1), f64::from(second.hm3));
        match self {
            Metric::LookUps => (hm1 + hm3, 2.0 * accesses),
            Metric::Both => (f64::from(second.both), accesses),
            Metric::Latency => {
                let (first, third) = (fetch_micros(HM1_BYTES) as f64, fetch_micros(HM3_BYTES) as f64);
                (hm1 * first + hm3 * third, accesses * (first + third))
            }
        }
    }

    /// The ratio of a span of seconds; 0 if nothing was asked for.
    pub fn window(self, seconds: &[Second]) -> f64 {
        let (hits, all) = seconds
            .iter()
            .map(|second| self.of(second))
            .fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        if all > 0.0 { hits / all } else { 0.0 }
    }

    /// At the end of each second, the ratio of everything since the failure.
    pub fn cumulative(self, seconds: &[Second]) -> Vec<f64> {
        let mut sum = (0.0, 0.0);
        seconds
            .iter()
            .map(|second| {
                let of = self.of(second);
                sum = (sum.0 + of.0, sum.1 + of.1);
                if sum.1 > 0.0 { sum.0 / sum.1 } else { 0.0 }
            })
            .collect()
    }

    /// The slides' columns: the cumulative ratio after the first second, and its mean over the seconds of the first 5, 15 and 30 minutes.
    pub fn columns(self, run: &Run) -> [f64; 4] {
        let cumulative = self.cumulative(&run.seconds);
        let mean = |seconds: usize| {
            let counted = &cumulative[..seconds.min(cumulative.len())];
            if counted.is_empty() { 0.0 } else { counted.iter().sum::<f64>() / counted.len() as f64 }
        };
        [cumulative.first().copied().unwrap_or(0.0), mean(300), mean(900), mean(1_800)]
    }

    /// Seconds until the ratio of the last ten seconds first is `target`; `None` if it never is.
    pub fn reaches(self, seconds: &[Second], target: f64) -> Option<u32> {
        (1..=seconds.len())
            .find(|&end| end >= WINDOW && self.window(&seconds[end - WINDOW..end]) >= target)
            .map(|end| end as u32)
    }
}

/// Seconds of the window by which times to a target are told (ours).
const WINDOW: usize = 10;
