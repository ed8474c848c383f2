//! What loads ask of devices, request by request, held against what those can do, before the run and after it. What passes links, media and workers is in
//! [`super::lanes`].
//!
//! Refused is what nothing could serve; flagged is what can be run and should be known. It is *not* a prediction: queues and caches are the
//! run's. Invariant: what is refused could not be served, on average, by any order of the queues and any cache: it lasts to the end of the run, or more
//! would wait than may.

use super::arithmetic::{Capacity, Part, all_in_one_place, each_costs};
use super::backlog::{Excess, Phase, excesses};
use super::held::percent;
use super::{Flag, LoadTable, OriginTable, Popularity, Scenario, ScenarioError, Sizing, VolumeTable};
use crate::load::{REPEAT_AFTER_MIN, Traces, beginning};
use crate::outcome::IntervalRow;
use crate::simulation::Requests;
use forebay_units::{Bytes, Nanos};

/// Closed loops that could ask for more requests than this are flagged: the run may take a quarter of an hour, or be ended (ours).
const CLOSED_REQUESTS_MAX: f64 = 1e9;

/// So many requests must wait at the end of a run to be spoken of (ours).
const UNANSWERED_MIN: u64 = 16;

/// The share of them that must have come to wait in the second half (ours): a load that is too much all the time adds half of them there.
const UNANSWERED_GROWTH_MIN: f64 = 0.25;

impl LoadTable {
    /// Bytes of one drawn request.
    pub(super) fn request_bytes(&self, volume: &VolumeTable) -> u64 {
        self.request_size.map_or(volume.block_size().bytes(), Bytes::get)
    }
}

pub(super) fn done_by(served_by: Option<Nanos>) -> String {
    match served_by {
        Some(at) => format!("the last of it is done at {at} at the earliest"),
        None => "some of it still does when the run ends".to_owned(),
    }
}

/// What it adds to a refusal of loads that end before the run does.
pub(super) fn would_be_shed(until: Nanos, waiting: &str, held_max: &str) -> String {
    format!(
        "; by {until} {waiting} would wait, and no more than {held_max} may (`outstanding_max`): a shorter time, a lower rate, or a larger `outstanding_max`"
    )
}

/// A rate in words: to the whole, where that says enough.
pub(super) fn per_second(rate: f64) -> String {
    if rate >= 10.0 || rate == 0.0 { format!("{rate:.0}") } else { format!("{rate:.2}") }
}

/// Two rates, one of which is above the other, in words that say so: with more digits where rounding would make them alike.
pub(super) fn told_apart(rates: [f64; 2]) -> [String; 2] {
    let as_they_are = |told: &[String; 2]| {
        let [one, other] = [&told[0], &told[1]].map(|text| text.parse().unwrap_or(f64::NAN));
        one.total_cmp(&other) == rates[0].total_cmp(&rates[1])
    };
    let with_digits = (1..=17).map(|digits| rates.map(|rate| format!("{rate:.digits$}")));
    std::iter::once(rates.map(per_second))
        .chain(with_digits)
        .find(as_they_are)
        .unwrap_or_else(|| rates.map(|rate| rate.to_string()))
}

pub(super) fn begins_too_late(from: Nanos, end: Nanos) -> String {
    format!("it begins at {from}, and the run ends at {end}")
}

impl Scenario {
    /// Whether any of a volume's reads may be answered without its origin.
    pub(super) fn may_be_cached(&self, volume: &VolumeTable) -> bool {
        if volume.tier.is_some() {
            return true;
        }
        match (self.cache.sizing, volume.cache) {
            (_, Some(cache)) => cache > Bytes::ZERO,
            (Sizing::Fixed, None) => self.cache.shared && self.cache.memory > Bytes::ZERO,
            (Sizing::Control | Sizing::Eafc, None) => volume.may_cache && self.cache.memory > Bytes::ZERO,
        }
    }

    /// When any load of these volumes takes the place of another, within the run.
    pub(super) fn changes_of_load<'a>(&self, volumes: impl Iterator<Item = &'a VolumeTable>) -> Vec<Nanos> {
        let mut instants: Vec<Nanos> = volumes
            .flat_map(|volume| volume.load.iter().map(|load| load.from))
            .filter(|from| *from < self.duration)
            .collect();
        instants.sort_unstable();
        instants.dedup();
        instants
    }

    /// The open loop of each volume at an instant: place of the volume, number of the load, both, and requests per second.
    pub(super) fn open_at(
        &self,
        at: Nanos,
    ) -> impl Iterator<Item = (usize, usize, &VolumeTable, &LoadTable, f64)> {
        self.volume.iter().enumerate().filter_map(move |(place, volume)| {
            let (number, load) = volume.load.iter().enumerate().rev().find(|(_, load)| load.from <= at)?;
            Some((place, number, volume, load, load.rate?))
        })
    }

    /// How much of the time from `from` to `until` the sums and windows of whole control intervals are of.
    pub(super) fn in_whole_intervals(&self, from: Nanos, until: Nanos) -> Nanos {
        let interval = self.cache.interval.0.max(1);
        let last = until.0.div_ceil(interval).min(self.duration.0 / interval);
        Nanos(last.saturating_sub(from.0.div_ceil(interval)) * interval)
    }

    /// When the first window begins that counts, of windows that follow each other from the first whole control interval on.
    pub(super) fn first_window(&self, from: Nanos, window: Nanos) -> Nanos {
        let interval = self.cache.interval.0.max(1);
        let first = from.0.div_ceil(interval).saturating_mul(interval);
        let before = self.measure_from.0.saturating_sub(first).div_ceil(window.0.max(1));
        Nanos(first.saturating_add(before.saturating_mul(window.0)))
    }

    /// Plans for a time that the run does not reach, and a run that nothing is told of.
    pub(super) fn flag_times(&self, flags: &mut Vec<Flag>) {
        let (interval, end) = (self.cache.interval, self.duration);
        if self.in_whole_intervals(self.measure_from, end) == Nanos::ZERO {
            let from = self.measure_from;
            let message = format!(
                "no whole control interval of {interval} lies between {from} and the end of the run at {end}: sums are of nothing"
            );
            flags.push(Flag { key: "measure_from".to_owned(), message });
        }
        let loads = self.volume.iter().enumerate().flat_map(|(place, volume)| {
            let from = volume.load.iter().map(|load| load.from).enumerate();
            from.map(move |(number, from)| (format!("volume[{place}].load[{number}].from"), from))
        });
        let hangs = self.origin.iter().enumerate().flat_map(|(place, origin)| {
            let from = origin.hangs.iter().map(|hang| hang.from).enumerate();
            from.map(move |(number, from)| (format!("origin[{place}].hangs[{number}].from"), from))
        });
        let late = loads.chain(hangs).filter(|(_, from)| *from >= end);
        flags.extend(late.map(|(key, from)| Flag { key, message: begins_too_late(from, end) }));
    }

    /// Closed loops that hits could make run for very long.
    pub(super) fn flag_closed_loops(&self, flags: &mut Vec<Flag>) {
        for (place, volume) in self.volume.iter().enumerate() {
            for (number, load) in volume.load.iter().enumerate() {
                let Some(clients) = load.clients.filter(|_| self.may_be_cached(volume)) else { continue };
                let span = self.end_of_load(volume, number).saturating_since(load.from);
                let least = self.hit_least(volume) + load.think.unwrap_or(Nanos::ZERO);
                let requests = f64::from(clients) * span.as_secs_f64() / least.as_secs_f64();
                if requests > CLOSED_REQUESTS_MAX {
                    let message = format!(
                        "were all of them hits, {clients} clients that wait {least} for every answer would ask {requests:.1e} times within \
                         {span}: the run may take long, and is ended after so many events as no experiment needs"
                    );
                    flags.push(Flag { key: format!("volume[{place}].load[{number}].clients"), message });
                }
            }
        }
    }

    /// Traces that ask for more random requests than their devices serve in turn. What is sequential in them is not told apart.
    pub(crate) fn flag_traces(&self, traces: &Traces, flags: &mut Vec<Flag>) {
        for ((place, number), requests) in traces {
            let volume = &self.volume[*place];
            let load = &volume.load[*number];
            let requests = &requests[beginning(requests, load.trace_from)..];
            let key = format!("volume[{place}].load[{number}].trace");
            let last = requests.iter().map(|request| request.at).max();
            let (Some(first), Some(last)) = (requests.first(), last) else {
                let message = format!("nothing was recorded from {} on", load.trace_from);
                flags.push(Flag { key, message });
                continue;
            };
            let mut latest = first.at;
            let back = requests.iter().filter(|request| {
                latest = latest.max(request.at);
                request.at < latest
            });
            let back = back.count();
            if back > 0 {
                let message = format!(
                    "{back} of {} requests were recorded before one that stands ahead of them: each comes together with that one",
                    requests.len()
                );
                flags.push(Flag { key: key.clone(), message });
            }
            let span = last.saturating_since(first.at).as_secs_f64() / load.speed;
            let end = self.end_of_load(volume, *number);
            let comes = first.at.saturating_since(load.trace_from).as_secs_f64() / load.speed;
            if load.from < end && comes >= end.saturating_since(load.from).as_secs_f64() {
                let message = format!(
                    "its first request comes {comes:.3} s after {}, and the load ends at {end}: nothing is asked; `trace_from` says from when on it is played",
                    load.from
                );
                flags.push(Flag { key, message });
                continue;
            }
            if span <= 0.0 {
                // A round begins where the load does.
                if load.repeat && comes < REPEAT_AFTER_MIN.as_secs_f64() {
                    let count = requests.len() as f64;
                    let round = comes + REPEAT_AFTER_MIN.as_secs_f64();
                    let message = format!(
                        "{count} requests without a span of time between them begin again {REPEAT_AFTER_MIN} after each other: {:.0} requests/s, \
                         which nobody recorded; a trace that is repeated should span some time",
                        count / round
                    );
                    flags.push(Flag { key: format!("volume[{place}].load[{number}].repeat"), message });
                }
                continue;
            }
            let Some(origin) = self.origin_of(volume).map(|at| &self.origin[at]) else { continue };
            let count = requests.len() as f64;
            let writes = requests.iter().filter(|request| request.writes).count() as f64 / count;
            let bytes = requests.iter().map(|request| f64::from(request.length)).sum::<f64>() / count;
            let rate = count / span;
            let capacity = origin.capacity(&[Part { rate, bytes: bytes as u64, writes }]);
            if rate > capacity.typical {
                let message = format!(
                    "{count} requests within {span:.3} s are {rate:.0}/s of {:.1} KiB, {:.0} % of them writes; origin `{}` serves about {:.0} random \
                     ones in turn ({})",
                    bytes / 1024.0,
                    100.0 * writes,
                    origin.name,
                    capacity.typical,
                    capacity.said(),
                );
                flags.push(Flag { key, message });
            }
        }
    }

    /// Compares what open loops ask of an origin with what it can serve, load by load.
    pub(super) fn check_rates(&self, origin: usize, flags: &mut Vec<Flag>) -> Result<(), ScenarioError> {
        let members: Vec<(usize, &VolumeTable)> = self
            .volume
            .iter()
            .enumerate()
            .filter(|(_, volume)| self.origin_of(volume) == Some(origin))
            .collect();
        let origin = &self.origin[origin];
        let instants = self.changes_of_load(members.iter().map(|(_, volume)| *volume));
        // What no cache takes, phase by phase: that alone may be refused, and only the whole of the run tells.
        let (mut phases, mut forced_of): (Vec<Phase>, Vec<(String, Capacity, String)>) =
            (Vec::new(), Vec::new());
        let mut avoidable = Vec::new();
        for (place_in_time, at) in instants.iter().copied().enumerate() {
            let until = instants.get(place_in_time + 1).copied().unwrap_or(self.duration);
            let span = until.saturating_since(at);
            let (mut held_max, mut by_caches) = (0.0, 0.0);
            let mut loops: Vec<(usize, usize, Random)> = Vec::new();
            // What reaches it whatever is cached, of each loop.
            let mut forced: Vec<Vec<Part>> = Vec::new();
            for &(place, volume) in &members {
                let Some((number, load)) =
                    volume.load.iter().enumerate().rev().find(|(_, load)| load.from <= at)
                else {
                    continue;
                };
                // What is sequential costs what has to move next to nothing but its bytes, which are counted elsewhere.
                let is_cheap = load.popularity == Popularity::Sequential && origin.favours_sequential();
                let Some(rate) = load.rate.filter(|_| !is_cheap) else {
                    continue;
                };
                let cached = self.may_be_cached(volume);
                let asked = Random {
                    bytes: load.request_bytes(volume),
                    reads: rate * load.read_share,
                    writes: rate * (1.0 - load.read_share),
                    reads_may_hit: cached,
                    writes_may_hit: cached && self.writes_may_be_taken(volume),
                };
                let parts =
                    asked.forced(self.held_in_any_case(volume, load, span), volume.block_size().bytes());
                if parts.iter().any(|part| part.rate > 0.0) {
                    held_max += f64::from(load.outstanding_max);
                }
                by_caches += asked.reads * self.held(volume, load, span).by_cache
                    + if asked.writes_may_hit { asked.writes } else { 0.0 };
                forced.push(parts);
                loops.push((place, number, asked));
            }
            let reaching =
                |hits: f64| loops.iter().map(|(.., asked)| asked.reaching(hits)).collect::<Vec<Part>>();
            let rate = |hits: f64| reaching(hits).iter().map(|part| part.rate).sum::<f64>();
            let busy = |hits: f64| rate(hits) / origin.capacity(&reaching(hits)).typical;
            let (unavoidable, unavoidable_busiest) = (rate(1.0), busiest_of(origin, &loops, &forced));
            let parts = forced.concat();
            let forced_rate = parts.iter().map(|part| part.rate).sum::<f64>();
            let forced = origin.capacity(&parts);
            let before = phases.last().map_or(0.0, |phase| phase.at_most);
            phases.push(Phase {
                from: at,
                until,
                asked: forced_rate,
                // Where nobody asks, what waits is served as when it came.
                at_most: if forced_rate > 0.0 { forced.at_most } else { before },
                held_max,
            });
            let key_of = |at: Option<(usize, usize)>| match at {
                Some((place, number)) => format!("volume[{place}].load[{number}].rate"),
                None => String::new(),
            };
            let cached = |at: Option<(usize, usize)>| match at {
                Some((place, number)) => self.in_brackets(place, number, span),
                None => String::new(),
            };
            forced_of.push((key_of(unavoidable_busiest), forced, cached(unavoidable_busiest)));
            let all = origin.capacity(&reaching(0.0));
            if rate(0.0) > all.typical {
                let parts: Vec<Vec<Part>> =
                    loops.iter().map(|(.., asked)| vec![asked.reaching(0.0)]).collect();
                let busiest = busiest_of(origin, &loops, &parts);
                let (needed, with_one) = with_a_cache(rate(0.0), unavoidable, busy);
                let too_few = match by_caches / rate(0.0) {
                    share if share < needed => {
                        format!(
                            ", and caches can answer {} of them at most{}",
                            percent(share),
                            cached(busiest)
                        )
                    }
                    _ => String::new(),
                };
                let message = format!(
                    "from {at} on {:.0} random requests/s are asked of origin `{}`, which serves about {:.0} of \
                     them in turn ({}): without a cache requests wait and are shed at the volumes' maximum; {with_one}{too_few}",
                    rate(0.0),
                    origin.name,
                    all.typical,
                    all.said(),
                );
                // Where no cache takes any, all that can be said is what is said of those.
                let has_more = rate(0.0) > forced_rate;
                avoidable.push((place_in_time, has_more, Flag { key: key_of(busiest), message }));
            }
        }
        let found = excesses(&phases);
        for (place, excess) in &found {
            let forced = &forced_of[*place];
            flags.push(too_many(&origin.name, forced, &phases[*place], *excess)?);
        }
        let is_told = |place: usize| found.iter().any(|(other, _)| *other == place);
        let untold = avoidable.into_iter().filter(|(place, has_more, _)| *has_more || !is_told(*place));
        flags.extend(untold.map(|(.., flag)| flag));
        Ok(())
    }
}

/// Which load keeps an origin busiest by these parts of each, by place of the volume and number of the load.
fn busiest_of(
    origin: &OriginTable,
    loops: &[(usize, usize, Random)],
    parts: &[Vec<Part>],
) -> Option<(usize, usize)> {
    let busy =
        |parts: &[Part]| parts.iter().map(|part| part.rate).sum::<f64>() / origin.capacity(parts).typical;
    let each = loops.iter().zip(parts).map(|((place, number, _), parts)| (busy(parts), *place, *number));
    let busiest = each.reduce(|most, next| if next.0 > most.0 { next } else { most });
    busiest.map(|(_, place, number)| (place, number))
}

/// What is said of a phase in which more requests reach an origin, whatever is cached, than it serves.
fn too_many(
    origin: &str,
    (key, forced, cached): &(String, Capacity, String),
    phase: &Phase,
    excess: Excess,
) -> Result<Flag, ScenarioError> {
    let (at, until) = (phase.from, phase.until);
    let [asked, at_most] = told_apart([phase.asked, phase.at_most]);
    if let Excess::Queued { waiting, served_by } = excess {
        let served = match served_by {
            Some(at) => format!("the last of them is served at {at} at the earliest"),
            None => "some of them still do when the run ends".to_owned(),
        };
        let message = format!(
            "from {at} to {until} {asked} requests/s reach origin `{origin}` whatever is cached, and {} at {} each serve {at_most} at most{}{}{cached}: {} of them \
             wait by then, and {served}",
            forced.who(),
            forced.service,
            all_in_one_place(forced.at_most / forced.typical),
            each_costs(forced.accesses),
            per_second(waiting),
        );
        return Ok(Flag { key: key.clone(), message });
    }
    let lost = match excess {
        Excess::Shed { waiting } => {
            let [waiting, held] = told_apart([waiting, phase.held_max]);
            would_be_shed(until, &waiting, &held)
        }
        _ => String::new(),
    };
    Err(ScenarioError::Overload {
        key: key.clone(),
        origin: origin.into(),
        unavoidable: phase.asked,
        at,
        servers: forced.who().into(),
        service: forced.service,
        accesses: forced.accesses,
        times: forced.at_most / forced.typical,
        at_most: forced.at_most,
        remark: format!("{cached}{lost}").into(),
    })
}

impl Requests {
    /// What the run had to shed of those of volume number `place`, whose origin this is, with the arithmetic.
    pub(crate) fn flag_shed(&self, place: usize, origin: &OriginTable) -> Option<Flag> {
        let Requests { sent, answered, shed } = self;
        (*shed > 0).then(|| {
            let why = match origin.hangs.is_empty() {
                true => "the run asked for more than could be served".to_owned(),
                false => format!("origin `{}` hung, or the run asked for more than could be served", origin.name),
            };
            let message = format!(
                "{shed} requests were shed at the maximum outstanding, and {answered} of the {sent} that were sent were answered: {why}"
            );
            Flag { key: format!("volume[{place}]"), message }
        })
    }

    /// What of volume number `place` waits at the end, more than at half time and longer than an interval, where nothing was shed: no latency
    /// tells of it, since those are of what was answered. Arithmetic beforehand does not see every such load.
    pub(crate) fn flag_unanswered(
        &self,
        place: usize,
        rows: &[IntervalRow],
        interval: Nanos,
    ) -> Option<Flag> {
        let waiting = self.sent - self.answered;
        let half = &rows[rows.len() / 2..];
        let seconds = half.len() as f64 * interval.as_secs_f64();
        let answered = half.iter().map(|row| row.iops).sum::<f64>() * interval.as_secs_f64();
        let came = half.iter().map(|row| row.arrivals_per_second).sum::<f64>() * interval.as_secs_f64();
        let behind = waiting as f64 > answered / seconds * interval.as_secs_f64();
        let grows = came - answered > waiting as f64 * UNANSWERED_GROWTH_MIN;
        (self.shed == 0 && waiting >= UNANSWERED_MIN && behind && grows).then(|| {
            let message = format!(
                "{waiting} of the {} requests that were sent had no answer when the run ended, and ever more waited: {:.0}/s came in the second half, \
                 and {:.0}/s were answered; the latencies are of these alone",
                self.sent,
                came / seconds,
                answered / seconds,
            );
            Flag { key: format!("volume[{place}]"), message }
        })
    }
}

/// What a load asks of an origin at random.
pub(super) struct Random {
    /// Of each request.
    pub(super) bytes: u64,
    /// Per second.
    pub(super) reads: f64,
    /// Per second.
    pub(super) writes: f64,
    /// Whether a cache may answer reads.
    pub(super) reads_may_hit: bool,
    /// Whether something before the origin may take writes; a cache writes them through.
    pub(super) writes_may_hit: bool,
}

impl Random {
    /// What reaches the origin where a part of `hits` is answered before it, of what may be.
    pub(super) fn reaching(&self, hits: f64) -> Part {
        let left = |rate: f64, may_hit: bool| if may_hit { rate * (1.0 - hits) } else { rate };
        let (reads, writes) = (left(self.reads, self.reads_may_hit), left(self.writes, self.writes_may_hit));
        let rate = reads + writes;
        Part { rate, bytes: self.bytes, writes: if rate > 0.0 { writes / rate } else { 0.0 } }
    }

    /// What reaches the origin where no more than `held` of the reads are answered before it. What is left of a request that may be answered in part is a
    /// `block` at least.
    fn forced(&self, held: f64, block: u64) -> Vec<Part> {
        let reads = if self.reads_may_hit { self.reads * (1.0 - held) } else { self.reads };
        let writes = if self.writes_may_hit { 0.0 } else { self.writes };
        let read =
            Part { rate: reads, bytes: if self.reads_may_hit { block } else { self.bytes }, writes: 0.0 };
        vec![read, Part { rate: writes, bytes: self.bytes, writes: 1.0 }]
    }
}

/// What a cache can do about `all` requests per second of which `unavoidable` ones reach devices whatever it holds: `busy` says how busy
/// those are where a part of the others is hits, and is above 1 where none is. With the least share of all that must be hits; 0 where that is of no use.
fn with_a_cache(all: f64, unavoidable: f64, busy: impl Fn(f64) -> f64) -> (f64, String) {
    if busy(1.0) > 1.0 {
        let said = format!(
            "no cache helps, as {unavoidable:.0} of them reach it whatever is cached (writes are written through, and some volumes may \
             not be cached)"
        );
        return (0.0, said);
    }
    // The parity disk of RAID 4 makes it no straight line.
    let (mut too_few, mut enough) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = (too_few + enough) / 2.0;
        *if busy(middle) > 1.0 { &mut too_few } else { &mut enough } = middle;
    }
    let may_hit = 1.0 - unavoidable / all;
    let of_these = match may_hit < 1.0 {
        true => format!(" ({:.0} % of those that a cache may answer)", 100.0 * enough),
        false => String::new(),
    };
    let needed = enough * may_hit;
    (needed, format!("with one, at least {:.0} % of them must be hits{of_these}", 100.0 * needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_differ_are_told_with_the_digits_that_differ() {
        let told = |one: f64, other: f64| told_apart([one, other]).join(" ");
        assert_eq!(told(262_144.0, 6_666.7), "262144 6667");
        assert_eq!(told(50.0, 49.63), "50.0 49.6");
        assert_eq!(told(10.0, 9.999), "10.000 9.999");
        assert_eq!(told(9.999, 10.0), "9.999 10.000");
        assert_eq!(told(9.5, 0.0), "9.50 0");
        assert_eq!(told(100.0, 100.0), "100 100");
        // What differs by the last bit does in words.
        let next = f64::from_bits(0.1f64.to_bits() + 1);
        let [one, other] = told_apart([next, 0.1]);
        let value = |text: &str| text.parse::<f64>().expect("a number");
        assert!(value(&one) > value(&other), "{one} {other}");
    }
}
