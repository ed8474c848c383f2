//! What is promised, held against what loads ask and what devices can do, before the run.
//!
//! Flagged is a promise that says nothing, as it cannot be missed or is never judged, or that cannot be kept. It is *not* a prediction: what queues and caches
//! make of a promise is the run's. Invariant: what is said to be out of reach is out of reach of any order of the queues and any cache.

use super::arithmetic::all_in_one_place;
use super::least::{Least, Varies};
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
            let Ok(objective) = table.objective() else { continue };
            let stands = table.from..until;
            if let Some(message) = self.below_origin(volume, &objective, &stands) {
                flag("latency", message);
            }
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

    /// What is wrong with a latency that requests which no cache answers do not have even where nothing waits.
    fn below_origin(
        &self,
        volume: &VolumeTable,
        objective: &Objective,
        stands: &Range<Nanos>,
    ) -> Option<String> {
        let Target::Latency { statistic, at_most, operations } = objective.target else { return None };
        let window = objective.in_whole(self.cache.interval).window;
        // The load under which it could be kept is the one that counts; under those of which nothing is counted nothing is judged.
        let mut easiest: Option<Counted> = None;
        for load in self.loads_within(volume, stands) {
            let counted = self.counted(volume, load, operations, window)?;
            let is_easier = |other: &Counted| counted.least(statistic) < other.least(statistic);
            if !counted.classes.is_empty() && easiest.as_ref().is_none_or(is_easier) {
                easiest = Some(counted);
            }
        }
        let easiest = easiest?;
        let (hit, least) = (self.hit_least(volume), easiest.least(statistic));
        let (statistic, reachable, told) = match statistic {
            Statistic::Mean => ("mean".to_owned(), hit + least, String::new()),
            // Judged by what a histogram tells of it.
            Statistic::Percentile(percentile) => {
                let reachable = LatencyHistogram::told(hit + least);
                let told = match reachable > hit + least {
                    true => format!(", which is told as {reachable}"),
                    false => String::new(),
                };
                (format!("p{percentile}"), reachable, told)
            }
        };
        if at_most >= reachable || least == Nanos::ZERO {
            return None;
        }
        let origin = &self.origin[self.origin_of(volume)?];
        let (name, share) = (&volume.name, easiest.reaching());
        let (whom, what) = match self.may_be_cached(volume) {
            true if share < 1.0 => {
                let share = 100.0 * share;
                (format!("no cache answers the writes, {share:.0} % of what is asked of `{name}`"), "write")
            }
            true => (format!("no cache answers writes of `{name}`"), "write"),
            false => (format!("no cache may hold any of `{name}`"), "request"),
        };
        let random = if easiest.is_random { "random " } else { "" };
        let takes = easiest.takes(objective, least);
        Some(format!(
            "{whom}, and a {random}{what} takes origin `{}` {takes} without a queue, and {} on the way{told}: a {statistic} of {at_most} cannot be kept",
            origin.name,
            hit + easiest.way,
        ))
    }

    /// What an objective counts of a load, and what that takes at least; `None` where nobody can tell how much of it reaches the origin.
    fn counted(
        &self,
        volume: &VolumeTable,
        load: &LoadTable,
        operations: Operations,
        window: Nanos,
    ) -> Option<Counted> {
        let origin = &self.origin[self.origin_of(volume)?];
        let is_random = is_random(load);
        // A cache may answer reads, and a tier either; writes are written through.
        let reads_reach = !self.may_be_cached(volume);
        let writes_reach = !self.writes_may_be_taken(volume);
        let bytes = match load.arrivals {
            ArrivalKind::Trace => 1,
            _ => load.request_bytes(volume),
        };
        // By way of a tier each chunk goes by itself.
        let piece = if volume.tier.is_some() { 1 } else { bytes };
        let least = |writes: bool| origin.least(piece, writes, is_random);
        let mut counted = Counted { classes: Vec::new(), way: origin.way(bytes), is_random };
        let shares = match (load.arrivals, operations) {
            (ArrivalKind::Idle, _) => return Some(counted),
            // Recorded are reads or writes, nobody knows here how many of them.
            (ArrivalKind::Trace, Operations::Reads) => (1.0, 0.0),
            (ArrivalKind::Trace, Operations::Writes) => (0.0, 1.0),
            (ArrivalKind::Trace, Operations::All) if !reads_reach || !writes_reach => return None,
            (ArrivalKind::Trace, Operations::All) if least(true).mean() < least(false).mean() => (0.0, 1.0),
            (ArrivalKind::Trace, Operations::All) => (1.0, 0.0),
            (_, Operations::Reads) => (f64::from(u8::from(load.read_share > 0.0)), 0.0),
            (_, Operations::Writes) => (0.0, f64::from(u8::from(load.read_share < 1.0))),
            (_, Operations::All) => (load.read_share, 1.0 - load.read_share),
        };
        let group = origin.disks();
        for (share, writes, reaches) in [(shares.0, false, reads_reach), (shares.1, true, writes_reach)] {
            if share > 0.0 {
                let least = least(writes);
                let of_load = share_of(if writes { Operations::Writes } else { Operations::Reads }, load);
                let by_chance = load.rate.map_or(1.0, |rate| chance(rate * of_load * window.as_secs_f64()));
                let uneven = match least.varies {
                    Varies::Turn(turn) => {
                        let track = group.disk.rate_outer_bytes_s as f64 * turn.as_secs_f64();
                        let tracks = load.span_bytes(volume) as f64 / f64::from(group.spindles) / track;
                        DEVIATIONS_MAX / 2.0 * load.places(volume).met_again().sqrt() + 1.0 / tracks
                    }
                    _ => 0.0,
                };
                counted.classes.push(Class { share, reaches, least, chance: by_chance + uneven });
            }
        }
        Some(counted)
    }
}

/// How much larger than on average a share may be of so many requests: six deviations of one half, the share that varies most, and of six deviations fewer
/// requests.
fn chance(requests: f64) -> f64 {
    let few = requests - DEVIATIONS_MAX * requests.sqrt();
    if few > 0.0 { DEVIATIONS_MAX / 2.0 / few.sqrt() } else { 1.0 }
}

/// Reads or writes of a load.
struct Class {
    /// Of what is counted.
    share: f64,
    /// Whether each of them goes to the origin.
    reaches: bool,
    /// What it takes there.
    least: Least,
    /// By how much the share that takes no longer than something may be larger in a window than on average.
    chance: f64,
}

/// What an objective counts of a load.
struct Counted {
    classes: Vec<Class>,
    /// To the origin and back.
    way: Nanos,
    is_random: bool,
}

impl Counted {
    /// The share that reaches the origin.
    fn reaching(&self) -> f64 {
        self.classes.iter().filter(|class| class.reaches).map(|class| class.share).sum()
    }

    /// The least that a statistic of it comes to, besides a hit.
    fn least(&self, statistic: Statistic) -> Nanos {
        let there = self.classes.iter().filter(|class| class.reaches);
        match statistic {
            Statistic::Mean => {
                let each = |class: &Class| class.share * (self.way + class.least.mean()).as_secs_f64();
                Nanos::from_secs_f64(there.map(each).sum())
            }
            Statistic::Percentile(percentile) => {
                let most = there.map(|class| self.way + class.least.most()).max().unwrap_or(Nanos::ZERO);
                let (mut too_short, mut enough) = (0, most.0);
                while too_short < enough {
                    let middle = too_short + (enough - too_short) / 2;
                    match self.may_be(percentile, Nanos(middle)) {
                        true => enough = middle,
                        false => too_short = middle + 1,
                    }
                }
                Nanos(enough)
            }
        }
    }

    /// Whether a percentile may be no more than `latency` besides a hit.
    fn may_be(&self, percentile: f64, latency: Nanos) -> bool {
        let within = |class: &Class| match class.reaches {
            true if latency < self.way + class.least.sure => 0.0,
            true if class.least.varies == Varies::Not => class.share,
            true => class.share * (class.least.within(latency - self.way) + class.chance).min(1.0),
            false => class.share,
        };
        let within: f64 = self.classes.iter().map(within).sum();
        // Where none is within it, none is by chance. Of the others as many as a percentile leaves out may be longer, and by chance a few more.
        within > 0.0 && 1.0 - within <= (1.0 + BY_CHANCE) * (1.0 - percentile / 100.0)
    }

    /// What those that reach the origin take there, in words; `least` is that of the objective's statistic.
    fn takes(&self, objective: &Objective, least: Nanos) -> String {
        let Target::Latency { statistic, .. } = objective.target else { return String::new() };
        match statistic {
            Statistic::Mean => {
                let each = least.as_secs_f64() / self.reaching().max(f64::MIN_POSITIVE);
                let varies = self.classes.iter().any(|class| class.least.varies != Varies::Not);
                let on_average = if self.is_random || varies { " on average" } else { "" };
                format!("{}{on_average}", Nanos::from_secs_f64(each).saturating_since(self.way))
            }
            Statistic::Percentile(percentile) => {
                let there = least.saturating_since(self.way);
                let is_sure = |class: &Class| class.least.sure == there;
                let varied = self.classes.iter().filter(|class| class.reaches && class.least.most() > there);
                match varied.max_by_key(|class| class.least.most()) {
                    Some(class) if !self.classes.iter().any(is_sure) => {
                        format!("{}, and at p{percentile} {there} at least,", class.least.said())
                    }
                    _ => there.to_string(),
                }
            }
        }
    }
}
