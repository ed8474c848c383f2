//! What is promised, held against what loads ask and what devices can do, before the run.
//!
//! Flagged is a promise that says nothing, as it cannot be missed or is never judged, or that cannot be kept. It is *not* a prediction: what queues and caches
//! make of a promise is the run's. Invariant: what is said to be out of reach is out of reach of any order of the queues and any cache.

use super::arithmetic::all_in_one_place;
use super::rates::{Random, begins_too_late, per_second, told_apart};
use super::{ArrivalKind, Flag, LoadTable, OriginKind, Popularity, Promise, Scenario, VolumeTable};
use forebay_control::{Objective, Operations, Statistic, Target};
use forebay_units::{Bytes, Nanos};
use forebay_workload::LatencyHistogram;
use std::ops::Range;

/// How much more than on average servers whose times vary may do in a window: 1,000 requests a window vary by 3 % (ours).
const BY_CHANCE: f64 = 0.1;
/// So many deviations more than on average are asked of no window, of as many as a run has (ours).
const DEVIATIONS_MAX: f64 = 6.0;

/// Whether the requests of a load are drawn, and not one behind the other.
fn is_random(load: &LoadTable) -> bool {
    let is_drawn = !matches!(load.arrivals, ArrivalKind::Trace | ArrivalKind::Idle);
    is_drawn && load.popularity != Popularity::Sequential
}

/// The share of a load's requests that an objective counts.
fn share_of(operations: Operations, load: &LoadTable) -> f64 {
    match operations {
        Operations::Reads => load.read_share,
        Operations::Writes => 1.0 - load.read_share,
        Operations::All => 1.0,
    }
}

fn in_words(operations: Operations) -> &'static str {
    match operations {
        Operations::Reads => "reads",
        Operations::Writes => "writes",
        Operations::All => "requests",
    }
}

impl Scenario {
    /// Objectives that say nothing: their time or their windows lie outside the run, or nobody asks for so much.
    pub(super) fn flag_objectives(&self, flags: &mut Vec<Flag>) {
        for Promise { key: owner, table, .. } in &self.promises() {
            let mut flag = |key: &str, message: String| {
                flags.push(Flag { key: format!("{owner}.{key}"), message });
            };
            let until = table.until.unwrap_or(self.duration).min(self.duration);
            let window = table
                .objective()
                .map_or(Nanos::ZERO, |objective| objective.in_whole(self.cache.interval).window);
            let measured = self.in_whole_intervals(self.first_window(table.from, window), until);
            if table.from >= self.duration {
                flag("from", begins_too_late(table.from, self.duration));
            } else if measured < window {
                flag(
                    "window",
                    format!(
                        "no window of {window} can end within the {measured} of whole control intervals in which it stands and is measured"
                    ),
                );
            }
            let Some(volume) = self.volume.iter().find(|volume| volume.name == table.volume) else {
                continue;
            };
            if let Some(message) =
                table.objective().ok().and_then(|objective| self.below_origin(volume, &objective))
            {
                flag("latency", message);
            }
            let Ok(objective) = table.objective() else { continue };
            let stands = table.from..until;
            let floor = self
                .floor_of_nobody(volume, &objective, &stands)
                .or_else(|| Some(("iops", self.floor_beyond_origin(volume, &objective, &stands)?)));
            if let Some((key, message)) = floor {
                flag(key, message);
            }
        }
    }

    /// What is wrong with a floor of more than all that is asked of a volume while it stands, by its key.
    fn floor_of_nobody(
        &self,
        volume: &VolumeTable,
        objective: &Objective,
        stands: &Range<Nanos>,
    ) -> Option<(&'static str, String)> {
        let (floor, operations, is_bytes) = match objective.target {
            Target::IopsFloor { at_least, operations } => (at_least, operations, false),
            Target::BandwidthFloor { at_least, operations } => (at_least, operations, true),
            Target::Latency { .. } => return None,
        };
        let window_s = objective.in_whole(self.cache.interval).window.as_secs_f64();
        // What is asked per second: on average, and at most in a window.
        let asked = |load: &LoadTable| {
            let share = share_of(operations, load);
            let rate = match load.arrivals {
                ArrivalKind::Poisson | ArrivalKind::Constant => load.rate?,
                ArrivalKind::Idle => 0.0,
                // As much as is answered, or as a trace says.
                _ => return None,
            };
            let is_by_chance = load.arrivals == ArrivalKind::Poisson || (share > 0.0 && share < 1.0);
            let mean = rate * share;
            let more = if is_by_chance { DEVIATIONS_MAX * (mean / window_s).sqrt() } else { 0.0 };
            let bytes = if is_bytes { load.request_bytes(volume) as f64 } else { 1.0 };
            Some((mean * bytes, (mean + more) * bytes))
        };
        let (mean, most) = self.loads_within(volume, stands).map(asked).try_fold(
            (0.0, 0.0),
            |(mean, most): (f64, f64), asked| {
                let asked = asked?;
                Some((mean.max(asked.0), most.max(asked.1)))
            },
        )?;
        let what = in_words(operations);
        let name = &volume.name;
        let (key, message) = if is_bytes {
            let (mean, floor) = (Bytes(mean as u64), Bytes(floor as u64));
            (
                "bandwidth_per_second",
                format!(
                    "nobody asks `{name}` for {what} of more than {mean} per second: a floor of {floor} cannot be missed"
                ),
            )
        } else {
            let [mean, floor] = told_apart([mean, floor]);
            (
                "iops",
                format!(
                    "nobody asks `{name}` for more than {mean} {what}/s: a floor of {floor} cannot be missed"
                ),
            )
        };
        // Shares of a rate are rounded.
        (floor > most * (1.0 + 1e-9)).then_some((key, message))
    }

    /// What is wrong with a floor of more requests than the origin ever serves of those that go with so many and that nothing before it answers.
    fn floor_beyond_origin(
        &self,
        volume: &VolumeTable,
        objective: &Objective,
        stands: &Range<Nanos>,
    ) -> Option<String> {
        let Target::IopsFloor { at_least: floor, operations } = objective.target else { return None };
        let origin = &self.origin[self.origin_of(volume)?];
        let cached = self.may_be_cached(volume);
        // The most of these requests per second with a load, and the capacity that bounds them.
        let most = |load: &LoadTable| {
            if !is_random(load) {
                return None;
            }
            let asked = Random {
                bytes: load.request_bytes(volume),
                reads: load.read_share,
                writes: 1.0 - load.read_share,
                reads_may_hit: cached,
                writes_may_hit: cached && self.writes_may_be_taken(volume),
            };
            let reaches = asked.reaching(1.0);
            let capacity = origin.capacity(&[reaches]);
            (reaches.rate > 0.0)
                .then(|| (capacity.at_most / reaches.rate * share_of(operations, load), reaches, capacity))
        };
        let loads = self.loads_within(volume, stands).map(most);
        // One load under which it can be kept is enough.
        let (most, reaches, capacity) = loads
            .reduce(|one, other| if one.as_ref()?.0 > other.as_ref()?.0 { one } else { other })
            .flatten()?;
        let whom = match reaches.rate < 1.0 {
            true => format!("no cache answers {:.0} % of what is asked of", 100.0 * reaches.rate),
            false => "no cache answers any of what is asked of".to_owned(),
        };
        let what = in_words(operations);
        // Of servers whose times vary it is what they do on average: in a window by chance more.
        let is_by_chance = origin.kind == OriginKind::Servers && !origin.takes_as_long();
        let at_most = if is_by_chance { most * (1.0 + BY_CHANCE) } else { most * (1.0 + 1e-9) };
        (floor > at_most).then(|| {
            format!(
                "{whom} `{}`, and origin `{}` serves at most {} of that a second ({}){}: a floor of {} {what}/s cannot be kept",
                volume.name,
                origin.name,
                per_second(capacity.at_most),
                capacity.said(),
                all_in_one_place(capacity.at_most / capacity.typical),
                per_second(floor),
            )
        })
    }

    /// The loads of a volume of which something lies within a span.
    fn loads_within<'a>(
        &'a self,
        volume: &'a VolumeTable,
        span: &'a Range<Nanos>,
    ) -> impl Iterator<Item = &'a LoadTable> {
        let there = move |(number, load): &(usize, &LoadTable)| {
            load.from < span.end && self.end_of_load(volume, *number) > span.start
        };
        volume.load.iter().enumerate().filter(there).map(|(_, load)| load)
    }

    /// What is wrong with a latency that random requests which no cache answers do not have even where nothing waits: a mean, or a percentile where all take as long.
    fn below_origin(&self, volume: &VolumeTable, objective: &Objective) -> Option<String> {
        let Target::Latency { statistic, at_most, operations } = objective.target else { return None };
        if !volume.load.iter().all(is_random) {
            return None;
        }
        // Writes are written through, unless a tier takes them. The load with the fewest is the one that could keep it.
        let is_cached = self.may_be_cached(volume);
        let writes = volume.load.iter().map(|load| 1.0 - load.read_share).fold(1.0, f64::min);
        let has_writes = volume.load.iter().any(|load| load.read_share < 1.0);
        let share = match operations {
            _ if !is_cached => 1.0,
            _ if self.writes_may_be_taken(volume) => 0.0,
            Operations::Writes => f64::from(u8::from(has_writes)),
            Operations::Reads => 0.0,
            Operations::All => writes,
        };
        let origin = &self.origin[self.origin_of(volume)?];
        let bytes = volume.load.iter().map(|load| load.request_bytes(volume)).min()?;
        let least = origin.random_least(bytes)?;
        let (hit, links) = (self.hit_least(volume), origin.link_latency + origin.link_latency);
        let (statistic, on_average, reachable) = match statistic {
            Statistic::Mean => (
                "mean".to_owned(),
                " on average",
                hit + Nanos::from_secs_f64(share * (least + links).as_secs_f64()),
            ),
            // Judged by what a histogram tells of it. Of the others as many as a percentile leaves out may be these.
            Statistic::Percentile(percentile)
                if origin.takes_as_long()
                    && (share >= 1.0 || share > (1.0 + BY_CHANCE) * (1.0 - percentile / 100.0)) =>
            {
                (format!("p{percentile}"), "", LatencyHistogram::told(hit + links + least))
            }
            Statistic::Percentile(_) => return None,
        };
        let (whom, what) = match is_cached {
            true if share < 1.0 => {
                (format!("no cache answers the writes, {:.0} % of what is asked of", 100.0 * share), "write")
            }
            true => ("no cache answers writes of".to_owned(), "write"),
            false => ("no cache may hold any of".to_owned(), "request"),
        };
        let way = hit + links;
        let told = match reachable > hit + links + least {
            true => format!(", which is told as {reachable}"),
            false => String::new(),
        };
        (at_most < reachable && share > 0.0).then(|| {
            format!(
                "{whom} `{}`, and a random {what} takes origin `{}` {least}{on_average} without a queue, and {way} on the way{told}: \
                 a {statistic} of {at_most} cannot be kept",
                volume.name, origin.name
            )
        })
    }
}
