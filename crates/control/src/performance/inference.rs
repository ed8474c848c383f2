//! The model inverted: which waiting time, service times and number of servers explain what was observed.
//!
//! It is *not* a fit of the model's form: that is [`super::predict`]'s, and these numbers reproduce what was seen under it.

use super::{LATENCY_MIN_S, OVERLOADED, OriginModel};

/// The most that servers can be busy, as a share of their time: what was observed was served.
const BUSY_MAX: f64 = 0.98;
/// How much longer than the quickest read a write is served at most, where the origin does not say how busy it is (ours: a
/// write to a group with parity costs four times a read). What lies beyond is taken for waiting, as of writes that overlap.
/// Of reads nothing follows from what is quicker: writes that the origin's own cache takes, or reads that it answers, are
/// a hundred times as quick as reads of its disks.
const WRITE_RATIO_MAX: f64 = 4.0;
/// Waits among which [`infer`] looks for the least.
const WAITS_TRIED: u32 = 64;

/// What was observed of one workload at its origin over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObservedLoad {
    /// Reads per second that reached the origin.
    pub read_rate: f64,
    /// Their mean latency in seconds.
    pub read_latency: f64,
    /// Writes per second.
    pub write_rate: f64,
    /// Their mean latency in seconds.
    pub write_latency: f64,
    /// Requests that it kept outstanding, if it is a closed loop.
    pub outstanding: Option<f64>,
}

/// What one workload's requests take of the servers, and what else they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Service {
    /// Seconds of a server for a read; the write's where none was seen, 0 where neither was.
    pub read: f64,
    /// Seconds of a server for a write, likewise.
    pub write: f64,
    /// [`WorkloadModel::read_stretch`]; 1 where no read was seen.
    pub read_stretch: f64,
    /// [`WorkloadModel::write_stretch`]; 1 where no write was seen.
    pub write_stretch: f64,
}

/// Service times that make the model reproduce an observation exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// Mean wait at the origin, in seconds.
    pub wait: f64,
    /// One per workload.
    pub services: Vec<Service>,
}

/// One kind of request that was seen at an origin: the reads, or the writes, of one workload.
#[derive(Clone, Copy)]
struct Kind {
    rate: f64,
    latency: f64,
    /// Share of its own requests that an arriving one can find.
    others: f64,
    is_write: bool,
}

/// The kinds of requests that were seen at an origin, the shortest latency first.
struct Kinds {
    kinds: Vec<Kind>,
    /// Seconds of servers per second that they can have taken at most.
    work_max: f64,
    /// Longest service over that of the quickest kind.
    ratio_max: f64,
    /// The latency of the quickest read (of the quickest write where none was seen), where it says how long writes are served at most.
    quickest_read: Option<f64>,
}

impl Kinds {
    fn new(origin: &OriginModel, observed: &[ObservedLoad], utilisation: Option<f64>) -> Kinds {
        let mut kinds = Vec::with_capacity(observed.len() * 2);
        for load in observed {
            let others = load.outstanding.map_or(1.0, |count| ((count - 1.0) / count.max(1e-9)).max(0.0));
            for (rate, latency, is_write) in
                [(load.read_rate, load.read_latency, false), (load.write_rate, load.write_latency, true)]
            {
                if rate > 0.0 {
                    kinds.push(Kind { rate, latency, others, is_write });
                }
            }
        }
        kinds.sort_by(|a, b| a.latency.total_cmp(&b.latency));
        // Behind a long queue what is left of a latency beyond the wait is mostly error.
        let latency_ratio = match (kinds.first(), kinds.last()) {
            (Some(quickest), Some(slowest)) if quickest.latency > 0.0 => slowest.latency / quickest.latency,
            _ => f64::INFINITY,
        };
        let quickest_read = kinds.iter().find(|kind| !kind.is_write).or(kinds.first());
        let quickest_read = quickest_read.map(|kind| kind.latency);
        Kinds {
            quickest_read: quickest_read.filter(|_| utilisation.is_none()),
            kinds,
            work_max: origin.servers.max(1.0) * utilisation.unwrap_or(BUSY_MAX).clamp(0.01, BUSY_MAX),
            ratio_max: match utilisation {
                Some(busy) if busy >= OVERLOADED => latency_ratio,
                _ => f64::INFINITY,
            },
        }
    }

    /// The longest service time that can be, where requests wait `wait` seconds: with longer ones the servers would have
    /// been busier than they were or can be. What takes longest is cut first, since that is what waits for something else.
    fn longest(&self, wait: f64) -> f64 {
        let mut left: f64 = self.kinds.iter().map(|kind| kind.rate).sum();
        let mut work = 0.0;
        // The level at which `rate` requests that are served for `service`, and all that take longer, are cut; `None` if they are not.
        let mut cut = |rate: f64, service: f64| {
            let level = (work + service * left > self.work_max).then(|| (self.work_max - work) / left);
            work += service * rate;
            left -= rate;
            level
        };
        let write_max = self.write_max(wait);
        let is_limited = |kind: &Kind| kind.is_write && beyond(kind.latency, wait) > write_max;
        // They are all served alike, and so are one kind among those that are served as they seem.
        let mut limited: f64 = self.kinds.iter().filter(|kind| is_limited(kind)).map(|kind| kind.rate).sum();
        let shortest = self.kinds.first().map_or(f64::INFINITY, |kind| beyond(kind.latency, wait));
        let none = shortest * self.ratio_max;
        for kind in self.kinds.iter().filter(|kind| !is_limited(kind)) {
            let service = beyond(kind.latency, wait);
            if limited > 0.0
                && write_max <= service
                && let Some(level) = cut(std::mem::take(&mut limited), write_max)
            {
                return level.min(none);
            }
            if let Some(level) = cut(kind.rate, service) {
                return level.min(none);
            }
        }
        let last = (limited > 0.0).then(|| cut(limited, write_max)).flatten();
        last.map_or(none, |level| level.min(none))
    }

    /// The longest service time of writes, where requests wait `wait` seconds.
    fn write_max(&self, wait: f64) -> f64 {
        self.quickest_read.map_or(f64::INFINITY, |latency| WRITE_RATIO_MAX * beyond(latency, wait))
    }

    /// How long a request of a kind is served that takes `latency`, where nothing is served for longer than `longest`.
    fn service(&self, latency: f64, is_write: bool, wait: f64, longest: f64) -> f64 {
        let most = if is_write { longest.min(self.write_max(wait)) } else { longest };
        beyond(latency, wait).min(most)
    }

    /// The wait that these services at these rates lead to, where requests already wait `wait`.
    fn implied(&self, wait: f64, residual: f64) -> f64 {
        let longest = self.longest(wait);
        let queued = |kind: &Kind| {
            let service = self.service(kind.latency, kind.is_write, wait, longest);
            kind.others * kind.rate * (service * wait + service * service * residual)
        };
        self.kinds.iter().map(queued).sum()
    }
}

/// What is left of a latency beyond the wait; a thousandth at least.
fn beyond(latency: f64, wait: f64) -> f64 {
    (latency - wait).max(latency * 1e-3)
}

/// Inverts the model: which waiting time, and so which service times, explain these latencies at these rates.
///
/// Latency is wait plus service, and the wait follows from rates and services, so there is one equation for the wait.
/// Servers that were busy for `utilisation` of their time (`None`: unknown, hence at most 98 %) cannot have worked longer:
/// what a kind of request takes beyond that is its own waiting, and becomes its stretch. The rule is ours.
/// Cost is `O(n log n)`, and `O(n)` times a hundred.
pub fn infer(origin: &OriginModel, observed: &[ObservedLoad], utilisation: Option<f64>) -> Inferred {
    let servers = origin.servers.max(1.0);
    let residual = (1.0 + origin.service_cv2) / 2.0;
    let kinds = Kinds::new(origin, observed, utilisation);
    // The least wait that explains itself: with services that may be cut there can be others, at which the quickest kind
    // of request takes no work at all.
    let longest = kinds.kinds.last().map_or(0.0, |kind| kind.latency);
    let (mut low, mut high) = (0.0, longest);
    for step in 1..WAITS_TRIED {
        let wait = longest * f64::from(step) / f64::from(WAITS_TRIED);
        if kinds.implied(wait, residual) / servers <= wait {
            high = wait;
            break;
        }
        low = wait;
    }
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if kinds.implied(middle, residual) / servers > middle {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut wait = high;
    let longest = kinds.longest(wait);
    if let Some(&Kind { latency: quickest, .. }) = kinds.kinds.first()
        && longest < beyond(quickest, wait)
        && utilisation.is_none_or(|busy| busy >= OVERLOADED)
    {
        // Everything takes longer than the servers can have worked: a backlog, which all share.
        wait = quickest - longest;
    }
    let of = |rate: f64, latency: f64, is_write: bool| {
        (rate > 0.0).then(|| {
            let service = kinds.service(latency, is_write, wait, longest);
            (service, latency / (wait + service).max(LATENCY_MIN_S))
        })
    };
    let services = observed
        .iter()
        .map(|load| {
            let read = of(load.read_rate, load.read_latency, false);
            let write = of(load.write_rate, load.write_latency, true);
            Service {
                read: read.or(write).map_or(0.0, |read| read.0),
                write: write.or(read).map_or(0.0, |write| write.0),
                read_stretch: read.map_or(1.0, |read| read.1),
                write_stretch: write.map_or(1.0, |write| write.1),
            }
        })
        .collect();
    Inferred { wait, services }
}

/// The numbers of servers that [`fit_servers`] tries.
const SERVERS_TRIED: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0];

/// Fits how many servers an origin has: with the right number, the service times inferred at different loads are
/// the same. `None` where the loads do not differ by half or fewer than eight intervals are known: then nothing can
/// be said. The rule and its limits are ours.
pub fn fit_servers(service_cv2: f64, history: &[Vec<ObservedLoad>]) -> Option<f64> {
    let load = |observed: &[ObservedLoad]| -> f64 {
        observed.iter().map(|load| load.read_rate + load.write_rate).sum()
    };
    let busy: Vec<&Vec<ObservedLoad>> = history.iter().filter(|observed| load(observed) > 0.0).collect();
    let (least, most) = busy.iter().fold((f64::INFINITY, 0.0f64), |(least, most), observed| {
        (least.min(load(observed)), most.max(load(observed)))
    });
    if busy.len() < 8 || most < 1.5 * least {
        return None;
    }
    let spread = |servers: f64| {
        let origin = OriginModel { servers, service_cv2 };
        let logs: Vec<f64> = busy
            .iter()
            .map(|observed| {
                let inferred = infer(&origin, observed, None);
                let work: f64 = observed
                    .iter()
                    .zip(&inferred.services)
                    .map(|(load, service)| load.read_rate * service.read + load.write_rate * service.write)
                    .sum();
                (work / load(observed)).max(1e-9).ln()
            })
            .collect();
        forebay_workload::statistics::variance(&logs).unwrap_or(f64::INFINITY)
    };
    SERVERS_TRIED
        .iter()
        .copied()
        .map(|servers| (spread(servers), servers))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|best| best.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::tests::{near, reader};
    use crate::performance::{Demand, WorkloadModel, predict};

    #[test]
    fn inference_inverts_prediction() {
        let origin = OriginModel { servers: 6.0, service_cv2: 0.3 };
        let workloads = [
            WorkloadModel {
                read_share: 0.7,
                read_service: 0.008,
                write_service: 0.012,
                ..reader(Demand::Open { rate: 150.0 }, 0.2)
            },
            reader(Demand::Closed { outstanding: 12.0, think: 0.0 }, 0.3),
        ];
        let predicted = predict(&origin, &workloads);
        let observed: Vec<ObservedLoad> = workloads
            .iter()
            .zip(&predicted.workloads)
            .map(|(workload, got)| ObservedLoad {
                read_rate: got.rate * got.shares.1,
                read_latency: got.miss_latency,
                write_rate: got.rate * got.shares.2,
                write_latency: got.write_latency,
                outstanding: match workload.demand {
                    Demand::Closed { outstanding, .. } => Some(outstanding),
                    Demand::Open { .. } => None,
                },
            })
            .collect();
        let inferred = infer(&origin, &observed, None);
        near(inferred.wait, predicted.wait);
        near(inferred.services[0].read, 0.008);
        near(inferred.services[0].write, 0.012);
        near(inferred.services[1].read, 0.010);
        for service in inferred.services {
            near(service.read_stretch, 1.0);
            near(service.write_stretch, 1.0);
        }
    }

    #[test]
    fn writes_that_wait_for_one_another_are_no_work() {
        // 300 reads/s and 100 writes/s of 8 ms on 4 servers are busy for 0.8. The writes overlap: each waits for five
        // others on average, so that clients see six times the latency of a read. Taken for service that would be
        // 100/s x 0.2 s = 20 servers.
        let origin = OriginModel { servers: 4.0, service_cv2: 0.3 };
        let read = WorkloadModel { read_service: 0.008, ..reader(Demand::Open { rate: 300.0 }, 0.0) };
        let write = WorkloadModel {
            read_share: 0.0,
            write_service: 0.008,
            write_stretch: 6.0,
            ..reader(Demand::Open { rate: 100.0 }, 0.0)
        };
        let seen = predict(&origin, &[read, write]);
        let load = ObservedLoad {
            read_rate: 300.0,
            read_latency: seen.workloads[0].miss_latency,
            write_rate: 100.0,
            write_latency: seen.workloads[1].write_latency,
            outstanding: None,
        };
        let inferred = infer(&origin, &[load], Some(seen.utilisation));
        near(inferred.services[0].read, 0.008);
        near(inferred.services[0].write, 0.008);
        near(inferred.services[0].write_stretch, 6.0);
        // An origin that does not say how busy it is leaves the writes up to four times the work of a read; what was
        // seen is reproduced all the same, and the servers are not busier than they can be.
        let guessed = infer(&origin, &[load], None).services[0];
        assert!(guessed.write <= 4.0 * guessed.read + 1e-9 && guessed.write_stretch > 1.5, "{guessed:?}");
        assert!(300.0 * guessed.read + 100.0 * guessed.write <= 4.0 * 0.98 + 1e-6, "{guessed:?}");
        let again = predict(
            &origin,
            &[WorkloadModel {
                demand: Demand::Open { rate: 400.0 },
                read_share: 0.75,
                read_service: guessed.read,
                write_service: guessed.write,
                read_stretch: guessed.read_stretch,
                write_stretch: guessed.write_stretch,
                ..read
            }],
        );
        assert!((again.workloads[0].miss_latency / load.read_latency - 1.0).abs() < 0.02, "{again:?}");
        assert!((again.workloads[0].write_latency / load.write_latency - 1.0).abs() < 0.02, "{again:?}");
    }

    #[test]
    fn slow_reads_beside_what_the_origin_takes_or_answers_at_once_are_work() {
        // A loop of four reads a disk in 8.2 ms, and a fifteenth of it are writes that the origin's own cache takes in 0.12 ms: 480/s x 8.2 ms are 3.9 of the 8
        // servers, so that most of that is work. Beside it another volume reads in 0.1 ms what that cache has.
        let origin = OriginModel { servers: 8.0, service_cv2: 0.3 };
        let load = ObservedLoad {
            read_rate: 480.0,
            read_latency: 0.0082,
            write_rate: 34.0,
            write_latency: 0.000_12,
            outstanding: Some(4.0),
        };
        let beside = ObservedLoad { read_rate: 100.0, read_latency: 0.000_1, ..ObservedLoad::default() };
        for observed in [&[load][..], &[ObservedLoad { write_rate: 0.0, ..load }, beside]] {
            let service = infer(&origin, observed, None).services[0];
            assert!((0.006..0.0082).contains(&service.read), "{service:?}");
            assert!((0.99..1.01).contains(&service.read_stretch), "{service:?}");
        }
    }

    #[test]
    fn behind_a_long_queue_a_small_difference_is_not_taken_for_work() {
        // Two disks are busy for 0.98 with 550 reads/s and 250 writes/s, all of 2.4 ms. Reads took 60 ms, writes 70 ms. Were
        // the difference all work, writes would take 7 ms and reads nothing: then no cache could help.
        let origin = OriginModel { servers: 2.0, service_cv2: 0.3 };
        let load = ObservedLoad {
            read_rate: 550.0,
            read_latency: 0.060,
            write_rate: 250.0,
            write_latency: 0.070,
            outstanding: None,
        };
        let service = infer(&origin, &[load], Some(0.98)).services[0];
        assert!(service.write <= service.read * 70.0 / 60.0 + 1e-9, "{service:?}");
        assert!((0.0019..0.0026).contains(&service.read), "{service:?}");
    }

    #[test]
    fn the_number_of_servers_is_found_from_differing_loads() {
        let history = |servers: f64, rates: std::ops::Range<u32>| -> Vec<Vec<ObservedLoad>> {
            let origin = OriginModel { servers, service_cv2: 0.3 };
            rates
                .map(|step| {
                    let rate = servers * (20.0 + 5.0 * f64::from(step));
                    let got = predict(&origin, &[reader(Demand::Open { rate }, 0.0)]).workloads[0];
                    vec![ObservedLoad {
                        read_rate: rate,
                        read_latency: got.miss_latency,
                        ..ObservedLoad::default()
                    }]
                })
                .collect()
        };
        for servers in [1.0, 4.0, 12.0] {
            assert_eq!(fit_servers(0.3, &history(servers, 0..12)), Some(servers));
        }
        assert_eq!(fit_servers(0.3, &vec![history(4.0, 0..1).remove(0); 20]), None); // one load says nothing
    }
}
