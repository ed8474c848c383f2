//! How far windows deviate by chance from what is predicted of them.
//!
//! A window's mean over a queue deviates by more than the number of its requests says, since who waits makes others
//! wait. Times are in seconds.

use super::latency::Kind;
use super::{Demand, OPEN_UTILISATION_MAX, OriginModel, OriginPrediction, Prediction, WorkloadModel};
use super::{Predictor, normal_share_below};
use crate::objective::{Objective, Operations, Statistic, Target};

/// The utilisation from which the formula counts (ours): it has the utilisation in a denominator.
const UTILISATION_MIN: f64 = 0.01;
/// How much further or nearer shares of requests are asked for, to find how steep their distribution is (ours).
const STEP: f64 = 0.2;
/// The largest deviation of a logarithm that is told (ours): where hardly a request lies near a percentile, a step of
/// it says nothing of how wide the gap is.
const DEVIATION_MAX: f64 = 2.0;

/// What chance does to the windows of an origin.
///
/// The mean wait of `n` successive requests of an M/M/1 queue has the variance `W^2 (2 / u + (3 - u)^2 / (1 - u)^2) / n`
/// for a utilisation `u` and a mean wait `W` (Daley, Biometrika 55(3), 1968, in terms of `W`). It is multiplied by
/// `(1 + cv2) / 2` for other service times, as in heavy traffic (Whitt, Management Science 35(11), 1989); what the
/// number of requests explains is taken off, since it is known of a window; and it is bounded by what it is in windows
/// that are short beside the time for which a queue remembers (both ours).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    seconds: f64,
    servers: f64,
    service_cv2: f64,
    /// Requests that open workloads leave to the origin in a window.
    accesses: f64,
    /// Variance of the mean wait of all of these, and of the wait of a single one; what comes with it is left out.
    wait_variance: f64,
    wait_variance_single: f64,
    /// How much a longer service lengthens the waits of those that follow: the covariance over its variance.
    followed_by: f64,
}

impl Chance {
    /// Of windows of `seconds` in which `origin` serves `workloads` as `predict` has it. `O(workloads)`.
    pub fn new(
        origin: &OriginModel,
        workloads: &[WorkloadModel],
        predicted: &OriginPrediction,
        seconds: f64,
    ) -> Chance {
        let open = Predictor::new(*origin, workloads.to_vec()).open_load();
        let servers = origin.servers.max(1.0);
        let (mut accesses, mut known, mut together) = (0.0, 0.0, 0.0);
        for (workload, got) in workloads.iter().zip(&predicted.workloads) {
            if let Demand::Open { .. } = workload.demand {
                let (_, misses, writes) = got.shares;
                let read = if workload.read_share > 0.0 { misses / workload.read_share } else { 0.0 };
                let left = got.rate * seconds * (misses + writes);
                accesses += left;
                together += left * (left_dispersion(workload, got, servers) - 1.0);
                known += got.rate * seconds * (misses * read + writes);
            }
        }
        let none = Chance {
            seconds,
            servers,
            service_cv2: origin.service_cv2,
            accesses: 0.0,
            wait_variance: 0.0,
            wait_variance_single: 0.0,
            followed_by: 0.0,
        };
        if accesses <= 0.0 {
            return none;
        }
        let busy = open.utilisation.clamp(UTILISATION_MIN, OPEN_UTILISATION_MAX);
        let idle = (1.0 - busy).powi(2);
        let all =
            (origin.residual() + together / accesses / 2.0) * (2.0 / busy + (3.0 - busy).powi(2) / idle);
        let unexplained = (all - known / accesses / idle).max(all * 0.1) / accesses;
        let single = (2.0 - busy) / busy;
        // The variance of a mean over a window, of a process whose correlation falls exponentially.
        let memory = unexplained / (2.0 * single);
        let averaged = 2.0 * memory * (1.0 - memory * -(-1.0 / memory).exp_m1());
        let squared = open.wait().powi(2);
        Chance {
            accesses,
            wait_variance: squared * single * averaged.min(1.0),
            wait_variance_single: squared * single,
            followed_by: 4.0 * busy / idle,
            ..none
        }
    }

    /// How the number that `objective` is about is distributed over such windows of `workload`, for which `got` is
    /// predicted.
    pub fn spread(&self, workload: &WorkloadModel, got: &Prediction, objective: &Objective) -> Spread {
        let value = got.value(objective);
        match objective.target {
            Target::Latency { statistic: Statistic::Mean, operations, .. } => {
                let squared = self.mean(workload, got, operations);
                Spread { median: value / (1.0 + squared).sqrt(), ..Spread::even(value, squared) }
            }
            Target::Latency { statistic: Statistic::Percentile(percentile), operations, .. } => {
                self.percentile(workload, got, operations, percentile / 100.0, value)
            }
            // What an open workload asks for is known; a loop is answered as often as answers are fast.
            Target::IopsFloor { .. } | Target::BandwidthFloor { .. } => match workload.demand {
                Demand::Open { .. } => Spread::even(value, 0.0),
                Demand::Closed { .. } => Spread::even(value, self.mean(workload, got, Operations::All)),
            },
        }
    }

    /// Variance of the mean latency over its square; 0 where there are no such requests.
    fn mean(&self, workload: &WorkloadModel, got: &Prediction, operations: Operations) -> f64 {
        let mean = got.mean_latency(operations);
        let [hits, misses, writes] = got.kinds(operations);
        let (hit, miss) = (hits.mean, misses.mean);
        let [hits, misses, writes] = [hits, misses, writes].map(|kind| kind.weight);
        let (requests, all) = (got.rate * self.seconds * (hits + misses + writes), hits + misses + writes);
        if requests <= 0.0 || mean <= 0.0 {
            return 0.0;
        }
        // Reads that hit in place of others that miss.
        let found = hits * misses / (hits + misses).max(f64::MIN_POSITIVE) / all * (miss - hit).powi(2);
        (self.at_origin(workload, got, operations) + found / requests) / mean.powi(2)
    }

    /// Variance of what the origin adds to the mean latency of all requests.
    fn at_origin(&self, workload: &WorkloadModel, got: &Prediction, operations: Operations) -> f64 {
        let [hits, misses, writes] = got.kinds(operations);
        let (miss, write) = (misses.mean, writes.mean);
        let [hits, misses, writes] = [hits, misses, writes].map(|kind| kind.weight);
        let all = hits + misses + writes;
        let (misses, writes) = (misses / all, writes / all);
        let requests = got.rate * self.seconds * all;
        let own = requests * (misses + writes);
        if own <= 0.0 {
            return 0.0;
        }
        let phases = workload.write_phases();
        let (read, written) = match workload.demand {
            Demand::Open { .. } => (workload.read_service, phases * workload.write_service),
            // What a loop waits for is served as well.
            Demand::Closed { .. } => (miss, write),
        };
        let mut serving = (misses * read.powi(2) + writes * written.powi(2)) * self.service_cv2 / requests;
        let mut waiting = self.wait_variance;
        if let Demand::Open { .. } = workload.demand {
            let among = (own / self.accesses.max(own)).min(1.0);
            serving *= 1.0 + self.followed_by * among * (misses + writes);
            // Its own requests are a sample of all that wait.
            waiting += self.wait_variance_single * (1.0 - among) / own;
        }
        // Places in batches deviate as much as their mean, and batches in their sizes as well.
        let batches = own / left_dispersion(workload, got, self.servers);
        let bursts = 2.0 * workload.burst(self.servers).powi(2) / batches.max(1.0);
        let waits = misses * workload.read_stretch + writes * phases * workload.write_stretch;
        waits.powi(2) * (waiting.min(self.wait_variance_single) + bursts) + serving
    }

    /// The share of requests that a percentile leaves out deviates, and so do the latencies at the origin.
    fn percentile(
        &self,
        workload: &WorkloadModel,
        got: &Prediction,
        operations: Operations,
        share: f64,
        value: f64,
    ) -> Spread {
        let kinds = got.kinds(operations);
        let all: f64 = kinds.iter().map(|kind| kind.weight).sum();
        let requests = got.rate * self.seconds * all;
        if requests <= 0.0 || value <= 0.0 {
            return Spread::even(value, 0.0);
        }
        let [_, misses, writes] = kinds;
        let origin = (misses.weight * misses.mean + writes.weight * writes.mean) / all;
        let scale =
            if origin > 0.0 { self.at_origin(workload, got, operations) / origin.powi(2) } else { 0.0 };
        // Requests that are slow together say less: by the root of how much less they say of the mean (ours).
        let alone = got.latency_cv2 / (requests * (misses.weight + writes.weight) / all).max(1.0);
        let together = (scale / alone.max(f64::MIN_POSITIVE)).max(1.0).sqrt();
        // No more of them than there are: the slowest of a window is its 100th percentile.
        let most = 1.0 - 0.5 / requests.max(1.0);
        let value = if share > most { got.percentile_latency(most * 100.0, operations) } else { value };
        let share = share.min(most);
        let of_share = (share * (1.0 - share) / requests * together).sqrt();
        let toward = |step: f64| {
            let at = value * f64::exp(step);
            let between = |kinds: &[Kind]| {
                let below = |t: f64| got_below(kinds, t) / all;
                (below(at) - below(value)).abs()
            };
            let (near, near_origin) = (between(&kinds), between(&[misses, writes]));
            let by_share = of_share * STEP / near.max(f64::MIN_POSITIVE);
            let by_scale = scale * (near_origin / near.max(f64::MIN_POSITIVE)).powi(2);
            (by_share.powi(2) + by_scale).sqrt().min(DEVIATION_MAX)
        };
        let (above, below) = (toward(STEP), toward(-STEP));
        // Of what is skewed more than half lies below the mean.
        Spread { median: value / (1.0 + above.powi(2)).sqrt(), above, below }
    }
}

/// The dispersion of what a workload leaves to one of `servers`, at least 1.
fn left_dispersion(workload: &WorkloadModel, got: &Prediction, servers: f64) -> f64 {
    let (_, misses, writes) = got.shares;
    1.0 + (workload.dispersion - 1.0).max(0.0) * (misses + writes) / servers
}

/// The weight of requests of these kinds that take no longer than `t`.
fn got_below(kinds: &[Kind], t: f64) -> f64 {
    kinds.iter().map(|kind| kind.weight * kind.share_below(t)).sum()
}

/// How a number is distributed over windows: its logarithm is normal, with a deviation of its own on each side of the
/// median. Both are 0 where nothing is left to chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half of the windows are below it; in the unit of the number.
    pub median: f64,
    /// Standard deviation of the logarithm above the median.
    pub above: f64,
    /// Standard deviation of the logarithm below the median.
    pub below: f64,
}

impl Spread {
    /// About `median`, with the relative variance `squared`.
    fn even(median: f64, squared: f64) -> Spread {
        let deviation = squared.ln_1p().sqrt().min(DEVIATION_MAX);
        Spread { median, above: deviation, below: deviation }
    }

    /// The share of the windows in which the number is at most `value`.
    pub fn share_at_most(&self, value: f64) -> f64 {
        let deviation = if value > self.median { self.above } else { self.below };
        if deviation <= 0.0 {
            return f64::from(u8::from(self.median <= value));
        }
        normal_share_below((value / self.median).ln() / deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{predict_each, tests::reader};
    use super::*;
    use forebay_units::Nanos;
    use forebay_workload::{Random, exponential, random};

    /// Requests per second, hit ratio, server count, and variation of its services of 10 ms.
    type Case = (f64, f64, u32, f64);

    const SECONDS: f64 = 10.0;
    const WINDOWS: usize = 2_000;

    /// Uniform from 0 to below 1.
    fn unit(random: &mut Random) -> f64 {
        -(-exponential(1.0, random)).exp_m1()
    }

    /// Latencies by windows, of Poisson arrivals that are spread evenly over the servers.
    fn served((rate, hit_ratio, servers, cv2): Case, seed: u64) -> Vec<Vec<f64>> {
        let mut random = random(seed);
        let mut free = vec![0.0f64; servers as usize];
        let mut windows = vec![Vec::new(); WINDOWS];
        let mut at = 0.0;
        loop {
            at += exponential(1.0 / rate, &mut random);
            let Some(window) = windows.get_mut((at / SECONDS) as usize) else { return windows };
            let server = (unit(&mut random) * f64::from(servers)) as usize;
            let is_hit = unit(&mut random) < hit_ratio;
            let service = if cv2 > 0.0 { exponential(0.010, &mut random) } else { 0.010 };
            window.push(if is_hit {
                100e-6
            } else {
                free[server] = free[server].max(at) + service;
                free[server] - at
            });
        }
    }

    /// Shares of the windows that keep bounds about what is predicted of all, as told and as they were.
    fn shares(
        case: Case,
        objective: impl Fn(f64) -> Objective,
        of: impl Fn(&mut Vec<f64>) -> f64,
    ) -> Vec<(f64, f64)> {
        let (rate, hit_ratio, servers, service_cv2) = case;
        let origin = OriginModel { servers: f64::from(servers), service_cv2 };
        let foreseen = |rate: f64, objective: &Objective| {
            let workload = reader(Demand::Open { rate }, hit_ratio);
            let predicted = predict_each(&origin, &[workload]);
            let chance = Chance::new(&origin, &[workload], &predicted, SECONDS);
            chance.spread(&workload, &predicted.workloads[0], objective)
        };
        let any = objective(1.0);
        let level = foreseen(rate, &any).median;
        let windows: Vec<(Spread, f64)> = served(case, 9_731)
            .iter_mut()
            .skip(10)
            .map(|window| (foreseen(window.len() as f64 / SECONDS, &any), of(window)))
            .collect();
        let share =
            |of: &dyn Fn(&(Spread, f64)) -> f64| windows.iter().map(of).sum::<f64>() / windows.len() as f64;
        [0.8, 0.9, 1.0, 1.1, 1.25, 1.5]
            .map(|times| {
                let bound = level * times;
                let told = share(&|(spread, _)| spread.share_at_most(bound));
                (told, share(&|(_, number)| f64::from(u8::from(*number <= bound))))
            })
            .to_vec()
    }

    const CASES: [Case; 10] = [
        (20.0, 0.0, 1, 1.0),
        (60.0, 0.0, 1, 1.0),
        (80.0, 0.0, 1, 1.0),
        (90.0, 0.0, 1, 1.0),
        (80.0, 0.0, 1, 0.0),
        (120.0, 0.4, 1, 1.0),
        (300.0, 0.75, 1, 1.0),
        (300.0, 0.75, 1, 0.0),
        (320.0, 0.0, 4, 1.0),
        (240.0, 0.0, 4, 0.0),
    ];

    #[test]
    fn as_many_windows_keep_a_mean_as_is_told() {
        for case in CASES {
            let objective =
                |bound: f64| Objective::mean_latency(Nanos::from_secs_f64(bound), Operations::All);
            let shares =
                shares(case, objective, |window| window.iter().sum::<f64>() / window.len().max(1) as f64);
            for (told, kept) in &shares {
                assert!((told - kept).abs() < 0.1, "{case:?}: (told, kept) {shares:.3?}");
            }
        }
    }

    #[test]
    fn as_many_windows_keep_a_percentile_as_is_told() {
        let mut wrong = Vec::new();
        for percentile in [90.0, 99.0] {
            // Where services are constant the percentile itself is a tenth off, which many windows lie within. And one of few requests,
            // behind servers that are nine tenths busy, is not what half of the windows are below.
            for case in CASES.into_iter().filter(|&(rate, hit_ratio, servers, cv2)| {
                cv2 > 0.0 && rate * (1.0 - hit_ratio) / f64::from(servers) <= 80.0
            }) {
                let objective = |bound: f64| {
                    Objective::percentile_latency(percentile, Nanos::from_secs_f64(bound), Operations::All)
                };
                let shares = shares(case, objective, |window| {
                    window.sort_by(f64::total_cmp);
                    let rank = (percentile / 100.0 * window.len() as f64).ceil() as usize;
                    window.get(rank.max(1) - 1).copied().unwrap_or(0.0)
                });
                // Of a percentile that few requests of a window are beyond fewer windows are told than keep it.
                if shares.iter().any(|(told, kept)| !(-0.1..0.3).contains(&(kept - told))) {
                    wrong.push(format!("p{percentile} {case:?}: (told, kept) {shares:.3?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Where a window has less requests than leave one beyond it, a percentile is that of its slowest.
    #[test]
    fn of_the_slowest_request_no_percentile_is_beyond() {
        for (rate, hit_ratio, servers, service_cv2) in CASES {
            let origin = OriginModel { servers: f64::from(servers), service_cv2 };
            let workload = reader(Demand::Open { rate }, hit_ratio);
            let predicted = predict_each(&origin, &[workload]);
            let chance = Chance::new(&origin, &[workload], &predicted, SECONDS);
            let of = |percentile| {
                let objective = Objective::percentile_latency(percentile, Nanos::millis(50), Operations::All);
                chance.spread(&workload, &predicted.workloads[0], &objective)
            };
            assert_eq!(of(99.99), of(100.0));
        }
    }
}
