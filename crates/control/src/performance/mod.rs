//! What every workload on an origin gets, as a function of the load that the caches leave to the origin.
//!
//! The origin is `servers` equal queues, first come first served, requests spread evenly (spindles of a stripe,
//! channels of an SSD). Open workloads send at their rate; closed ones keep a number of requests outstanding, so that
//! a faster origin is also asked for more. One waiting time `W` is common to all, as [`infer`] has it
//! for whoever knows latencies alone ([`predict_each`]: one for each closed workload, for whoever knows the services):
//!
//! ```text
//! W = sum over workloads of  rate * k * (W * S + S^2 * (1 + cv2) / 2) / servers     k = (N-1)/N if closed, 1 if open
//! ```
//!
//! Requests in bursts are taken for batches that come independently: a request waits besides for half of those that come with it, and
//! queues are longer by as much (Burke, Operations Research 23(4), 1975).
//!
//! For one open workload this is Pollaczek and Khinchine's formula; for closed ones it is mean value analysis with
//! Schweitzer's estimate of the queue that an arrival finds (exact for one workload of exponential service on balanced
//! queues; both are tested), but never less than what keeps all of them within the servers' time. It is *not* a model
//! of an elevator, a stripe's request splitting or an array cache: these appear only through the service times, which are inverted from what was observed ([`infer`]). What a request
//! waits for beside the servers (overlapping writes that wait for one another, reads that join a fill under way) is no
//! work: it stretches or shortens the request's own latency by a factor and loads nobody. Where a
//! number is ours its comment says so. The shape `h * L_cache + (1 - h) * L_origin(load that is left)` is ours; closed and mixed queues: Reiser and Lavenberg, JACM 27(2), 1980.

mod chance;
mod inference;
mod latency;
mod predictor;

pub use chance::{Chance, Spread};
pub use inference::{Inferred, ObservedLoad, Service, fit_servers, infer};
pub use predictor::{Predictor, predict, predict_each};

use crate::objective::{Objective, Operations, Statistic, Target};
use latency::{Kind, Queued};

/// The utilisation by open workloads up to which the stationary formula is used (ours): beyond it queues do not
/// settle within an objective's window.
const OPEN_UTILISATION_MAX: f64 = 0.98;
/// Servers that are busier than this have a backlog, and how long it is says nothing of other loads (ours).
pub(crate) const OVERLOADED: f64 = 0.95;
/// The shortest latency that the model knows, in seconds.
const LATENCY_MIN_S: f64 = 1e-6;

/// The queueing form of an origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OriginModel {
    /// How many requests are served at once; at least 1, not necessarily whole where it was fitted.
    pub servers: f64,
    /// Squared coefficient of variation of the service times: 0 constant, 1 exponential.
    pub service_cv2: f64,
}

impl OriginModel {
    /// What is left of a service that an arrival finds under way, over the mean of its square per mean.
    fn residual(&self) -> f64 {
        (1.0 + self.service_cv2) / 2.0
    }
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// At this rate per second, whatever the answers take.
    Open {
        /// Requests per second.
        rate: f64,
    },
    /// So many are outstanding at all times; each is followed by the next after a thinking time.
    Closed {
        /// Requests outstanding.
        outstanding: f64,
        /// Thinking time in seconds.
        think: f64,
    },
}

/// A workload as the model sees it. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkloadModel {
    /// How requests come.
    pub demand: Demand,
    /// Variance over mean of how many requests of an open workload come in a short while: 1 where they come independently
    /// (Poisson), more where they come in bursts. What is below 1 counts as 1.
    pub dispersion: f64,
    /// Share of reads among the requests, 0 to 1.
    pub read_share: f64,
    /// Share of the reads that the cache answers, 0 to 1.
    pub hit_ratio: f64,
    /// Latency of such a read.
    pub hit_latency: f64,
    /// Time of a server that a read takes at the origin.
    pub read_service: f64,
    /// Time of a server that each access of a write takes at the origin.
    pub write_service: f64,
    /// Accesses that a write takes at the origin; 1 where `write_service` is of all of it. They keep so many servers
    /// busy, and follow one another in [`write_phases`](Self::write_phases).
    pub write_accesses: f64,
    /// Latency of a read at the origin over its wait and service: 1 where it waits for the servers alone.
    pub read_stretch: f64,
    /// The same of a write: above 1 where writes wait for one another.
    pub write_stretch: f64,
    /// Squared coefficient of variation of the latency at the origin as observed. `None`: from the model.
    pub latency_cv2: Option<f64>,
    /// Bytes of an average read.
    pub read_bytes: f64,
    /// Bytes of an average write.
    pub write_bytes: f64,
}

impl WorkloadModel {
    /// Shares of all requests: (hits, misses, writes).
    fn shares(&self) -> (f64, f64, f64) {
        let hits = self.read_share * self.hit_ratio;
        (hits, self.read_share - hits, 1.0 - self.read_share)
    }

    fn read_latency(&self, wait: f64) -> f64 {
        ((self.read_service + wait) * self.read_stretch).max(LATENCY_MIN_S)
    }

    /// How many accesses of a write follow one another (ours): up to two are made at once, as mirrors do; of more,
    /// those that read come before those that write, as RAID 5 does. Less than one: some writes make none.
    fn write_phases(&self) -> f64 {
        if self.write_accesses > 2.0 { 2.0 } else { self.write_accesses.min(1.0) }
    }

    fn write_latency(&self, wait: f64) -> f64 {
        (self.write_phases() * (self.write_service + wait) * self.write_stretch).max(LATENCY_MIN_S)
    }

    /// Requests per second where each origin request waits `wait` seconds.
    fn rate(&self, wait: f64) -> f64 {
        match self.demand {
            Demand::Open { rate } => rate,
            Demand::Closed { outstanding, think } => outstanding / self.cycle(think, wait),
        }
    }

    /// The time between two requests of a client that thinks for `think` seconds, where each origin request waits `wait` seconds, which it is linear in.
    fn cycle(&self, think: f64, wait: f64) -> f64 {
        let (hits, misses, writes) = self.shares();
        let cycle = think
            + hits * self.hit_latency
            + misses * self.read_latency(wait)
            + writes * self.write_latency(wait);
        cycle.max(LATENCY_MIN_S)
    }

    /// The share of its own requests that an arriving request of it can find in the queue.
    fn others(&self) -> f64 {
        match self.demand {
            Demand::Open { .. } => 1.0,
            Demand::Closed { outstanding, .. } => ((outstanding - 1.0) / outstanding.max(1e-9)).max(0.0),
        }
    }

    /// Seconds of servers for an average request.
    fn work(&self) -> f64 {
        let (_, misses, writes) = self.shares();
        misses * self.read_service + writes * self.write_accesses * self.write_service
    }

    /// What a request waits for those that come with it, at one of `servers`, in seconds: of requests in batches as many come
    /// with each as the dispersion is above 1, half of them before it; the cache answers some, the others spread evenly.
    fn burst(&self, servers: f64) -> f64 {
        match self.demand {
            Demand::Open { .. } => (self.dispersion - 1.0).max(0.0) * self.work() / servers / 2.0,
            Demand::Closed { .. } => 0.0,
        }
    }

    /// Squared seconds of its services, for an average request.
    fn squared_work(&self) -> f64 {
        let (_, misses, writes) = self.shares();
        misses * self.read_service.powi(2) + writes * self.write_accesses * self.write_service.powi(2)
    }
}

/// What one workload gets. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Requests served per second.
    pub rate: f64,
    /// Share of hits, misses and writes among them.
    pub shares: (f64, f64, f64),
    /// Mean latency of hits.
    pub hit_latency: f64,
    /// Mean latency of reads that miss.
    pub miss_latency: f64,
    /// Mean latency of writes.
    pub write_latency: f64,
    /// Squared coefficient of variation of the latencies at the origin.
    pub latency_cv2: f64,
    /// How reads that miss and writes are served there; `None` where their latencies are known by their variation alone.
    queued: Option<[Queued; 2]>,
    /// Bytes of an average read.
    pub read_bytes: f64,
    /// Bytes of an average write.
    pub write_bytes: f64,
}

impl Prediction {
    /// The kinds of requests that `operations` names.
    fn kinds(&self, operations: Operations) -> [Kind; 3] {
        let (hits, misses, writes) = self.shares;
        let reads = f64::from(u8::from(operations != Operations::Writes));
        let writing = f64::from(u8::from(operations != Operations::Reads));
        let [read, written] = self.queued.map_or([None; 2], |queued| queued.map(Some));
        let kind = |weight, mean, cv2, queued| Kind { weight, mean, cv2, queued };
        [
            kind(hits * reads, self.hit_latency, 0.25, None),
            kind(misses * reads, self.miss_latency, self.latency_cv2, read),
            kind(writes * writing, self.write_latency, self.latency_cv2, written),
        ]
    }

    /// Mean latency of `operations`; 0 where there are none.
    pub fn mean_latency(&self, operations: Operations) -> f64 {
        let kinds = self.kinds(operations);
        let weight: f64 = kinds.iter().map(|kind| kind.weight).sum();
        if weight <= 0.0 {
            0.0
        } else {
            kinds.iter().map(|kind| kind.weight * kind.mean).sum::<f64>() / weight
        }
    }

    /// The latency that `percentile` per cent of `operations` do not exceed: hits, misses and writes mixed, each
    /// with the gamma distribution of its mean and variance, or by how it is served where that is known (ours; exact for one exponential kind). 0 where there are none.
    pub fn percentile_latency(&self, percentile: f64, operations: Operations) -> f64 {
        let kinds = self.kinds(operations);
        let weight: f64 = kinds.iter().map(|kind| kind.weight).sum();
        if weight <= 0.0 {
            return 0.0;
        }
        let wanted = (percentile / 100.0).clamp(0.0, 0.999_999) * weight;
        let below = |t: f64| kinds.iter().map(|kind| kind.weight * kind.share_below(t)).sum::<f64>();
        let slowest = kinds
            .iter()
            .filter(|kind| kind.weight > 0.0)
            .fold(LATENCY_MIN_S, |slow, kind| slow.max(kind.mean));
        let (mut low, mut high) = (0.0, slowest * 64.0);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if below(middle) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// The number that `objective` is about, in its unit.
    pub fn value(&self, objective: &Objective) -> f64 {
        let (hits, misses, writes) = self.shares;
        let (reads, writes) = match objective.operations() {
            Operations::Reads => (hits + misses, 0.0),
            Operations::Writes => (0.0, writes),
            Operations::All => (hits + misses, writes),
        };
        match objective.target {
            Target::Latency { statistic: Statistic::Mean, operations, .. } => self.mean_latency(operations),
            Target::Latency { statistic: Statistic::Percentile(percentile), operations, .. } => {
                self.percentile_latency(percentile, operations)
            }
            Target::IopsFloor { .. } => self.rate * (reads + writes),
            Target::BandwidthFloor { .. } => {
                self.rate * (reads * self.read_bytes + writes * self.write_bytes)
            }
        }
    }
}

/// What an origin's workloads get together.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginPrediction {
    /// Mean wait of a request at the origin, in seconds.
    pub wait: f64,
    /// Share of the servers' time that is asked for; above 1 the origin is overloaded.
    pub utilisation: f64,
    /// One per workload, in their order.
    pub workloads: Vec<Prediction>,
}

/// The standard normal distribution function (Abramowitz and Stegun 7.1.26: error at most 1.5e-7).
pub(crate) fn normal_share_below(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let erf = 1.0 - poly * (-x * x).exp();
    if z >= 0.0 { (1.0 + erf) / 2.0 } else { (1.0 - erf) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Nanos;

    pub(super) fn reader(demand: Demand, hit_ratio: f64) -> WorkloadModel {
        WorkloadModel {
            demand,
            dispersion: 1.0,
            read_share: 1.0,
            hit_ratio,
            hit_latency: 100e-6,
            read_service: 0.010,
            write_service: 0.010,
            write_accesses: 1.0,
            read_stretch: 1.0,
            write_stretch: 1.0,
            latency_cv2: None,
            read_bytes: 4096.0,
            write_bytes: 4096.0,
        }
    }

    pub(super) fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected.abs() * 1e-4, "found {found}, expected {expected}");
    }

    #[test]
    fn one_open_workload_is_pollaczek_and_khinchine() {
        // 50/s x 10 ms = 0.5. Exponential: 10 / (1 - 0.5) = 20 ms. Constant: 10 + 0.5 * 10 / (2 * 0.5) = 15 ms.
        let load = [reader(Demand::Open { rate: 50.0 }, 0.0)];
        let exponential = predict(&OriginModel { servers: 1.0, service_cv2: 1.0 }, &load);
        near(exponential.workloads[0].miss_latency, 0.020);
        near(exponential.utilisation, 0.5);
        near(
            predict(&OriginModel { servers: 1.0, service_cv2: 0.0 }, &load).workloads[0].miss_latency,
            0.015,
        );
        // Four spindles with 200/s are each one with 50/s.
        let four = predict(
            &OriginModel { servers: 4.0, service_cv2: 1.0 },
            &[reader(Demand::Open { rate: 200.0 }, 0.0)],
        );
        near(four.workloads[0].miss_latency, 0.020);
    }

    #[test]
    fn bursts_are_batches() {
        // Batches of two, 25/s of 10 ms each: variance over mean 2. M^X/D/1: Pollaczek and Khinchine's 5 ms of wait at 0.5,
        // and (2 - 1) * 10 / (2 * (1 - 0.5)) = 10 ms for those that come together: 10 + 5 + 10 = 25 ms.
        let burst =
            |rate, hit_ratio| WorkloadModel { dispersion: 2.0, ..reader(Demand::Open { rate }, hit_ratio) };
        let one = OriginModel { servers: 1.0, service_cv2: 0.0 };
        near(predict(&one, &[burst(50.0, 0.0)]).workloads[0].miss_latency, 0.025);
        // A cache that answers half of the reads leaves half of the batches' dispersion: 100/s, 10 + 5 + 5 ms.
        near(predict(&one, &[burst(100.0, 0.5)]).workloads[0].miss_latency, 0.020);
        // So do two servers.
        let two = OriginModel { servers: 2.0, service_cv2: 0.0 };
        near(predict(&two, &[burst(100.0, 0.0)]).workloads[0].miss_latency, 0.020);
        // A neighbour whose requests come alone finds longer queues, and waits for none that come with it: at 0.25 each,
        // (5 ms * 0.5 + 10 / 2 ms * 0.25) / (1 - 0.5) = 7.5 ms of wait.
        let both = predict(&one, &[burst(25.0, 0.0), reader(Demand::Open { rate: 25.0 }, 0.0)]);
        near(both.workloads[1].miss_latency, 0.0175);
        near(both.workloads[0].miss_latency, 0.0225);
        // Loops wait for answers: nothing of them comes together.
        let closed = Demand::Closed { outstanding: 4.0, think: 0.0 };
        let looped = WorkloadModel { dispersion: 9.0, ..reader(closed, 0.0) };
        assert_eq!(predict(&one, &[looped]), predict(&one, &[reader(closed, 0.0)]));
    }

    #[test]
    fn one_closed_workload_is_the_balanced_network() {
        // 16 outstanding on 4 queues of 10 ms: latency 10 * (1 + 15 / 4) = 47.5 ms, rate 16 / 47.5 ms = 336.8/s.
        let closed = Demand::Closed { outstanding: 16.0, think: 0.0 };
        let predicted = predict(&OriginModel { servers: 4.0, service_cv2: 1.0 }, &[reader(closed, 0.0)]);
        near(predicted.workloads[0].miss_latency, 0.0475);
        near(predicted.workloads[0].rate, 16.0 / 0.0475);
        // One outstanding never waits for itself.
        let single = Demand::Closed { outstanding: 1.0, think: 0.0 };
        near(
            predict(&OriginModel { servers: 4.0, service_cv2: 1.0 }, &[reader(single, 0.0)]).workloads[0]
                .rate,
            100.0,
        );
    }

    #[test]
    fn closed_loops_are_served_by_no_more_than_there_is() {
        for cv2 in [0.0, 0.3, 1.0] {
            for servers in [1.0, 3.0] {
                for clients in 1..=32 {
                    let outstanding = f64::from(clients);
                    let origin = OriginModel { servers, service_cv2: cv2 };
                    let alone = [reader(Demand::Closed { outstanding, think: 0.0 }, 0.0)];
                    let predicted = predict(&origin, &alone);
                    let rate = predicted.workloads[0].rate;
                    assert!(
                        rate <= servers / 0.010 * (1.0 + 1e-9),
                        "{clients} on {servers}, cv2 {cv2}: {rate}"
                    );
                    assert!(predicted.utilisation <= 1.0 + 1e-9, "{clients} on {servers}, cv2 {cv2}");
                    if cv2 == 1.0 {
                        // Balanced queues of exponential service: N / (N + servers - 1) of them are busy.
                        near(rate, outstanding / (outstanding + servers - 1.0) * servers / 0.010);
                    }
                    // With an open neighbour, a second loop, and hits in half of its reads.
                    let mixed = [
                        alone[0],
                        reader(Demand::Open { rate: 40.0 }, 0.0),
                        reader(Demand::Closed { outstanding: 2.0, think: 0.0 }, 0.5),
                    ];
                    let utilisation = predict(&origin, &mixed).utilisation;
                    assert!(utilisation <= 1.0 + 1e-9, "{clients} on {servers}, cv2 {cv2}: {utilisation}");
                }
            }
        }
        // Two of constant 12 ms on one server: each waits for the other. 24 ms, 83.33/s; without the bound 97.6/s.
        let two = WorkloadModel {
            read_service: 0.012,
            ..reader(Demand::Closed { outstanding: 2.0, think: 0.0 }, 0.0)
        };
        let predicted = predict(&OriginModel { servers: 1.0, service_cv2: 0.0 }, &[two]);
        near(predicted.workloads[0].rate, 83.333_3);
        near(predicted.workloads[0].miss_latency, 0.024);
    }

    #[test]
    fn the_accesses_of_a_write_load_servers_by_their_number_and_last_two_phases_at_most() {
        // 2/s of 10 ms on 5 servers: the wait is below a tenth of a ms. One access, both halves of a mirror at once, and
        // of RAID 5 two that read and then two that write, as the simulator has them.
        let origin = OriginModel { servers: 5.0, service_cv2: 0.0 };
        for (write_accesses, latency) in [(1.0, 0.010), (2.0, 0.010), (4.0, 0.020), (6.0, 0.020)] {
            let writer =
                WorkloadModel { read_share: 0.0, write_accesses, ..reader(Demand::Open { rate: 2.0 }, 0.0) };
            let predicted = predict(&origin, &[writer]);
            near(predicted.utilisation, 2.0 * 0.010 * write_accesses / 5.0);
            let found = predicted.workloads[0].write_latency;
            assert!((latency..latency * 1.02).contains(&found), "{write_accesses}: {found}");
        }
        // Of writes that make an access half of the time, the mean is half of it.
        let half = WorkloadModel {
            read_share: 0.0,
            write_accesses: 0.5,
            ..reader(Demand::Closed { outstanding: 1.0, think: 0.0 }, 0.0)
        };
        near(predict(&origin, &[half]).workloads[0].write_latency, 0.005);
    }

    #[test]
    fn a_cached_neighbour_shortens_the_queue_for_everybody() {
        let origin = OriginModel { servers: 4.0, service_cv2: 0.3 };
        let victim = reader(Demand::Open { rate: 100.0 }, 0.0);
        let rates: Vec<(f64, f64)> = [0.0, 0.5, 0.9]
            .iter()
            .map(|&hit_ratio| {
                let closed = reader(Demand::Closed { outstanding: 16.0, think: 0.0 }, hit_ratio);
                let predicted = predict(&origin, &[victim, closed]);
                (predicted.workloads[0].miss_latency, predicted.workloads[1].rate)
            })
            .collect();
        // The closed neighbour runs faster with its cache, so half of its hits relieve the victim by little; nine
        // tenths relieve it by more. The neighbour's own rate rises throughout.
        assert!(rates[0].0 > rates[1].0 && rates[1].0 > rates[2].0, "{rates:?}");
        assert!(rates[0].1 < rates[1].1 && rates[1].1 < rates[2].1, "{rates:?}");
        assert!(rates[1].1 * 0.5 > rates[0].1 * 0.5, "{rates:?}");
    }

    #[test]
    fn an_overloaded_origin_gives_finite_and_rising_latencies() {
        let origin = OriginModel { servers: 1.0, service_cv2: 1.0 };
        let latency =
            |rate| predict(&origin, &[reader(Demand::Open { rate }, 0.0)]).workloads[0].miss_latency;
        assert!(
            latency(97.0) < latency(99.0) && latency(99.0) < latency(150.0) && latency(150.0).is_finite()
        );
        let served = predict(&origin, &[reader(Demand::Open { rate: 200.0 }, 0.0)]).workloads[0].rate;
        near(served, 98.0);
    }

    #[test]
    fn percentiles_of_an_exponential_and_of_a_mixture() {
        let origin = OriginModel { servers: 1.0, service_cv2: 1.0 };
        // An M/M/1 latency is exponential: p99 = mean * ln 100 = 20 ms * 4.605.
        let all_missing = predict(&origin, &[reader(Demand::Open { rate: 50.0 }, 0.0)]).workloads[0];
        let p99 = all_missing.percentile_latency(99.0, Operations::All);
        assert!((p99 / (0.020 * 100f64.ln()) - 1.0).abs() < 0.02, "{p99}");
        // With nine hits in ten the median is a hit and the 99th percentile is the 90th of the misses.
        let mostly = predict(&origin, &[reader(Demand::Open { rate: 50.0 }, 0.9)]).workloads[0];
        assert!(mostly.percentile_latency(50.0, Operations::All) < 200e-6);
        let p90_of_misses = mostly.miss_latency * 10f64.ln();
        let p99 = mostly.percentile_latency(99.0, Operations::Reads);
        assert!((p99 / p90_of_misses - 1.0).abs() < 0.03, "{p99} {p90_of_misses}");
        assert_eq!(mostly.percentile_latency(99.0, Operations::Writes), 0.0);
        let objective = Objective::mean_latency(Nanos::millis(2), Operations::All);
        near(mostly.value(&objective), 0.9 * 100e-6 + 0.1 * mostly.miss_latency);
    }
}
