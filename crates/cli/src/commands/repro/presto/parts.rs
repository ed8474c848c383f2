//! The rows of the evaluation: each is independent of the others, and they run on as many threads as there are processors.

use crate::commands::repro::jobs::side_by_side;
use crate::output::say;
use forebay_control::prewarm::{Heuristic, Sight};
use forebay_sim::presto::{
    Entry, Experiment, FAILURE, Failed, Goal, HORIZON, Load, Loading, Metric, Part, Plan, Run, SECONDS,
    SYN6GB_ROWS, SYN6GB_VOLUMES, SpanWeights, Way, runtime_working_set, wss80,
};
use forebay_units::Nanos;
use forebay_workload::presto::{SYN4GB, SYN6GB, SynVolume};
use serde::Serialize;
use std::time::Instant;

/// The layout of the JSON.
const SCHEMA: &str = "forebay.repro-presto/1";
/// Accesses between snapshots where a table does not vary it.
const SNAPSHOT_EVERY: usize = 100_000;
/// How long the slides' volumes are run by themselves for their wss80.
const WSS80_SPAN: Nanos = Nanos::secs(14_400);

/// Which volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Set {
    Syn6gb,
    Syn4gb,
}

impl Set {
    fn volumes(self) -> &'static [SynVolume] {
        match self {
            Set::Syn6gb => &SYN6GB,
            Set::Syn4gb => &SYN4GB,
        }
    }

    fn capacity(self) -> u64 {
        match self {
            Set::Syn6gb => 6 << 30,
            Set::Syn4gb => 4 << 30,
        }
    }
}

/// Everything that was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    pub(super) set: Set,
    pub(super) seed: u64,
    pub(super) cache_bytes: u64,
    /// Accesses until the failure, and snapshots taken until then by accesses between them: how many, and objects in the last.
    pub(super) accesses: usize,
    pub(super) snapshots: Vec<Snapshots>,
    pub(super) volumes: Vec<VolumeFound>,
    pub(super) rows: Vec<Row>,
    /// None with `--quick`.
    pub(super) verdicts: Vec<Verdict>,
}

/// Held against what is wanted, for what was to be maximised, at 100 MiB/s.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) aim: Aim,
    /// Of the shares of the way to the bound, the least, and at which limit; a third is wanted.
    pub(super) gap_closed_least: f64,
    pub(super) at_limit_percent: u32,
    /// With a quarter of the cache, less k-Recent with half of it; 0 is wanted.
    pub(super) quarter_above_half: f64,
    /// The most that a larger limit takes away; 0.002 is allowed.
    pub(super) more_is_worse_by: f64,
    /// Seconds until 95 % of a warm node's ratio, with all of the cache, and cold. By latency nobody asked.
    pub(super) warm_after_s: Option<u32>,
    pub(super) cold_after_s: Option<u32>,
}

/// A series of snapshots, and what it costs the node that takes it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Snapshots {
    pub(super) every_accesses: usize,
    pub(super) count: usize,
    pub(super) objects_last: u64,
    /// As plain bitmaps of all objects, as the slides have them.
    pub(super) bytes_each: u64,
    /// The last one as the daemon writes it (without scores).
    pub(super) encoded_bytes_last: u64,
}

/// A volume.
#[derive(Clone, Debug, Serialize)]
pub(super) struct VolumeFound {
    pub(super) id: u16,
    pub(super) iops: u16,
    /// MiB; none if 2,900 are too few.
    pub(super) wss80_mib: Option<u32>,
    pub(super) runtime_wss_mib: f64,
    pub(super) published_iops: Option<f64>,
    pub(super) published_wss80_mib: Option<u32>,
    pub(super) published_runtime_wss_mib: Option<f64>,
}

/// Hit ratios by one metric.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ratios {
    /// Since the failure, at the end of the first second, and its mean over the seconds of 5, 15 and 30 minutes.
    pub(super) first_second: f64,
    pub(super) mean_5min: f64,
    pub(super) mean_15min: f64,
    pub(super) mean_30min: f64,
    /// Of all accesses of the first 5 minutes.
    pub(super) window_5min: f64,
    /// Seconds until the ratio of the last 10 s first is 95 % of that of a node that did not fail.
    pub(super) warm_after_s: Option<u32>,
}

/// What prewarming was to maximise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aim {
    LookUps,
    Both,
    Latency,
}

impl Aim {
    const ALL: [Aim; 3] = [Aim::LookUps, Aim::Both, Aim::Latency];

    fn goal(self) -> Goal {
        let (metric, span) = match self {
            Aim::LookUps => (Metric::LookUps, SpanWeights::Cumulative),
            Aim::Both => (Metric::Both, SpanWeights::Window),
            Aim::Latency => (Metric::Latency, SpanWeights::Cumulative),
        };
        Goal { metric, span, horizon: HORIZON }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Aim::LookUps => "look-ups",
            Aim::Both => "both objects",
            Aim::Latency => "latency",
        }
    }

    /// The figure that it is judged by.
    pub(super) fn of(self, row: &Row) -> f64 {
        match self {
            Aim::LookUps => row.look_ups.mean_5min,
            Aim::Both => row.both.window_5min,
            Aim::Latency => row.latency.mean_5min,
        }
    }
}

/// A node that took over.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// Of which table.
    pub(super) part: &'static str,
    pub(super) who: String,
    /// What it was to maximise, where it could be told.
    pub(super) aim: Option<Aim>,
    pub(super) snapshot_every: Option<usize>,
    pub(super) limit_percent: u32,
    /// None: all at once.
    pub(super) rate_mib_per_s: Option<u32>,
    /// The slides' columns.
    pub(super) published: Option<[f64; 4]>,
    pub(super) look_ups: Ratios,
    pub(super) both: Ratios,
    pub(super) latency: Ratios,
    pub(super) prewarmed_bytes: u64,
    pub(super) prewarm_s: u32,
    pub(super) missed_bytes: u64,
    /// What the rehearsal chose.
    pub(super) plan: Option<PlanFound>,
    /// The share of the way from the best of the slides' four scores to the one who knows the future, by what it was to maximise.
    pub(super) gap_closed: Option<f64>,
    /// Per second, look-ups found of those since the failure.
    pub(super) series: Vec<f64>,
}

/// A plan.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PlanFound {
    limit_share: f64,
    order_share: f64,
    price: f64,
    looks_ahead: bool,
}

impl From<Plan> for PlanFound {
    fn from(plan: Plan) -> PlanFound {
        PlanFound {
            limit_share: plan.limit_share,
            order_share: plan.order_share,
            price: plan.price,
            looks_ahead: plan.sight == Sight::Ahead,
        }
    }
}

/// Titles of the parts that are not the slides'.
pub(super) const REFERENCE: &str = "Not prewarmed";
pub(super) const OWN_PARTITION: &str = "Where prewarmed objects enter";

#[derive(Clone, Copy)]
struct Job {
    part: &'static str,
    way: Way,
    limit_percent: u32,
    rate: Option<u32>,
    entry: Entry,
    published: Option<[f64; 4]>,
}

/// All rows that are to be run.
fn jobs(set: Set, quick: bool) -> Vec<Job> {
    let reference =
        |way| Job { part: REFERENCE, way, limit_percent: 0, rate: None, entry: Entry::Head, published: None };
    let mut jobs = vec![reference(Way::Warm), reference(Way::Cold)];
    let size = |limit_percent: u32, way: Way, entry: Entry| Job {
        part: Part::SizeLimit.title(),
        way,
        limit_percent,
        rate: Some(100),
        entry,
        published: None,
    };
    if quick {
        let ideal = Job {
            part: Part::ScoreSmall.title(),
            rate: Some(50),
            ..size(10, Way::Ideal(Aim::LookUps.goal()), Entry::Tail)
        };
        jobs.push(ideal);
    } else {
        for percent in [5, 10, 25, 50, 75, 100] {
            // What takes longest first.
            for aim in Aim::ALL {
                jobs.push(size(percent, Way::Learnt(aim.goal()), Entry::Tail));
            }
            for aim in Aim::ALL {
                jobs.push(size(percent, Way::Ideal(aim.goal()), Entry::Tail));
            }
            jobs.push(size(percent, Way::Scored(Heuristic::FrequencyPerByte, SNAPSHOT_EVERY), Entry::Tail));
            jobs.push(size(
                percent,
                Way::Scored(Heuristic::Decayed { half_life: 9.0 }, SNAPSHOT_EVERY),
                Entry::Tail,
            ));
            // k-Recent is the slides' own row.
            for heuristic in Heuristic::PUBLISHED.into_iter().skip(1) {
                jobs.push(size(percent, Way::Scored(heuristic, SNAPSHOT_EVERY), Entry::Head));
            }
        }
        for entry in [Entry::Head, Entry::Tail, Entry::OwnPartition] {
            for heuristic in [Heuristic::Recent, Heuristic::FrequencyPerByte] {
                jobs.push(Job {
                    part: OWN_PARTITION,
                    ..size(75, Way::Scored(heuristic, SNAPSHOT_EVERY), entry)
                });
            }
        }
    }
    for row in SYN6GB_ROWS {
        if quick && row.part != Part::ScoreSmall {
            continue;
        }
        jobs.push(Job {
            part: row.part.title(),
            way: row.way(),
            limit_percent: row.limit_percent,
            rate: row.rate,
            entry: Entry::Head,
            published: (set == Set::Syn6gb).then_some(row.columns),
        });
    }
    jobs
}

/// Runs everything.
pub(super) fn run(set: Set, seed: u64, quick: bool) -> Found {
    let began = Instant::now();
    let tell = |what: &str| say(format_args!("{:>5.0} s  {what}", began.elapsed().as_secs_f64()));
    let end = FAILURE.saturating_add(Nanos::secs(u64::from(SECONDS)));
    let experiment = Experiment::new(Load::generate(set.volumes(), seed, end), set.capacity(), FAILURE);
    let intervals: &[usize] = if quick { &[SNAPSHOT_EVERY] } else { &[10_000, 50_000, SNAPSHOT_EVERY] };
    let failed = experiment.fail(intervals);
    tell("the node has failed");
    let jobs = jobs(set, quick);
    let runs = side_by_side(jobs.len(), |at| {
        let job = &jobs[at];
        let how = Loading {
            limit: set.capacity() / 100 * u64::from(job.limit_percent),
            rate: job.rate.map(|rate| u64::from(rate) << 20),
            entry: job.entry,
        };
        let run = failed.run(job.way, how);
        if matches!(job.way, Way::Learnt(_)) {
            tell(&format!("rehearsed and run: {}, {} %", name(job).0, job.limit_percent));
        }
        run
    });
    let warm = &runs[0].1;
    let mut rows: Vec<Row> = jobs.iter().zip(&runs).map(|(job, run)| row(job, run, warm)).collect();
    close_gaps(&mut rows);
    let verdicts = Aim::ALL.into_iter().filter_map(|aim| verdict(&rows, aim)).collect();
    let volumes = if quick { Vec::new() } else { volumes(set, seed) };
    Found {
        schema: SCHEMA,
        set,
        seed,
        cache_bytes: set.capacity(),
        accesses: failed.source(SNAPSHOT_EVERY).accesses,
        snapshots: intervals.iter().map(|&every| snapshots(&failed, every)).collect(),
        volumes,
        rows,
        verdicts,
    }
}

fn snapshots(failed: &Failed<'_>, every: usize) -> Snapshots {
    let snapshots = &failed.source(every).snapshots;
    Snapshots {
        every_accesses: every,
        count: snapshots.len(),
        objects_last: snapshots.last().map_or(0, forebay_sim::presto::Snapshot::count),
        bytes_each: snapshots.last().map_or(0, |snapshot| snapshot.words.len() as u64 * 8),
        encoded_bytes_last: snapshots.last().map_or(0, forebay_sim::presto::Snapshot::encoded_bytes),
    }
}

fn volumes(set: Set, seed: u64) -> Vec<VolumeFound> {
    side_by_side(set.volumes().len(), |at| {
        let volume = set.volumes()[at];
        let published =
            SYN6GB_VOLUMES.iter().find(|published| set == Set::Syn6gb && published.id == volume.id);
        VolumeFound {
            id: volume.id,
            iops: volume.iops,
            wss80_mib: wss80(&Load::generate(&[volume], seed, WSS80_SPAN)),
            runtime_wss_mib: runtime_working_set(&Load::generate(&[volume], seed, FAILURE)),
            published_iops: published.map(|published| published.iops),
            published_wss80_mib: published.map(|published| published.wss80),
            published_runtime_wss_mib: published.map(|published| published.runtime_wss),
        }
    })
}

/// Who prewarms, and for what.
fn name(job: &Job) -> (String, Option<Aim>) {
    let aim = |goal: Goal| Aim::ALL.into_iter().find(|aim| aim.goal() == goal);
    let entry = match job.entry {
        Entry::Head => "",
        Entry::Tail => ", at the tail",
        Entry::OwnPartition => ", partition of its own",
    };
    match job.way {
        Way::Cold => ("cold".to_owned(), None),
        Way::Warm => ("did not fail".to_owned(), None),
        Way::Decided(_) => ("the daemon".to_owned(), None),
        Way::Scored(heuristic, _) => (format!("{}{entry}", heuristic.name()), None),
        Way::Learnt(goal) => ("Forebay".to_owned(), aim(goal)),
        Way::Fixed(goal) => ("Forebay, fixed order".to_owned(), aim(goal)),
        Way::Ideal(goal) => ("knows the future".to_owned(), aim(goal)),
    }
}

fn row(job: &Job, (plan, run): &(Option<Plan>, Run), warm: &Run) -> Row {
    let ratios = |metric: Metric| {
        let [first_second, mean_5min, mean_15min, mean_30min] = metric.columns(run);
        Ratios {
            first_second,
            mean_5min,
            mean_15min,
            mean_30min,
            window_5min: metric.window(&run.seconds[..HORIZON as usize]),
            warm_after_s: metric.reaches(&run.seconds, 0.95 * metric.window(&warm.seconds)),
        }
    };
    let (who, aim) = name(job);
    Row {
        part: job.part,
        who,
        aim,
        snapshot_every: if let Way::Scored(_, every) = job.way { Some(every) } else { None },
        limit_percent: job.limit_percent,
        rate_mib_per_s: job.rate,
        published: job.published,
        look_ups: ratios(Metric::LookUps),
        both: ratios(Metric::Both),
        latency: ratios(Metric::Latency),
        prewarmed_bytes: run.prewarmed_bytes,
        prewarm_s: run.prewarm_seconds,
        missed_bytes: run.missed_bytes,
        plan: plan.map(PlanFound::from),
        gap_closed: None,
        series: Metric::LookUps.cumulative(&run.seconds),
    }
}

/// What Forebay's row lies between: the best of the slides' scores and the one who knows the future, by what it was to maximise. `None` for other rows.
pub(super) fn best_and_bound(rows: &[Row], row: &Row) -> Option<(f64, f64)> {
    let aim = row.aim.filter(|_| row.who == "Forebay")?;
    let same =
        || rows.iter().filter(|other| other.part == row.part && other.limit_percent == row.limit_percent);
    let slides = Heuristic::PUBLISHED.map(Heuristic::name);
    let best = same()
        .filter(|other| slides.contains(&other.who.as_str()))
        .map(|other| aim.of(other))
        .fold(0.0, f64::max);
    let bound = same().find(|other| other.who == "knows the future" && other.aim == Some(aim))?;
    Some((best, aim.of(bound)))
}

/// Says of Forebay's rows how far they go from the best of the slides' scores to the bound.
fn close_gaps(rows: &mut [Row]) {
    let closed = |row: &Row| {
        let (best, bound) = best_and_bound(rows, row)?;
        (bound > best).then(|| (row.aim.map_or(0.0, |aim| aim.of(row)) - best) / (bound - best))
    };
    let gaps: Vec<Option<f64>> = rows.iter().map(closed).collect();
    rows.iter_mut().zip(gaps).for_each(|(row, gap)| row.gap_closed = gap);
}

fn verdict(rows: &[Row], aim: Aim) -> Option<Verdict> {
    let ours: Vec<&Row> =
        rows.iter().filter(|row| row.gap_closed.is_some() && row.aim == Some(aim)).collect();
    let least = ours.iter().min_by(|a, b| a.gap_closed.partial_cmp(&b.gap_closed).expect("numbers"))?;
    let quarter = ours.iter().find(|row| row.limit_percent == 25)?;
    let half = rows.iter().find(|row| {
        row.part == Part::SizeLimit.title()
            && row.limit_percent == 50
            && row.who == Heuristic::Recent.name()
            && row.rate_mib_per_s == Some(100)
    })?;
    let after = |row: &Row| match aim {
        Aim::LookUps => row.look_ups.warm_after_s,
        Aim::Both => row.both.warm_after_s,
        Aim::Latency => row.latency.warm_after_s,
    };
    Some(Verdict {
        aim,
        gap_closed_least: least.gap_closed?,
        at_limit_percent: least.limit_percent,
        quarter_above_half: aim.of(quarter) - aim.of(half),
        more_is_worse_by: most_lost(ours.iter().map(|row| aim.of(row))),
        warm_after_s: ours.last().and_then(|row| after(row)),
        cold_after_s: rows.iter().find(|row| row.who == "cold").and_then(after),
    })
}

/// The most that a later value falls short of one before it; 0 if none does.
fn most_lost(values: impl Iterator<Item = f64>) -> f64 {
    let (_, lost) = values
        .fold((f64::MIN, 0.0), |(most, lost): (f64, f64), value| (most.max(value), lost.max(most - value)));
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reaches_the_bound_or_passes_it_has_gone_all_the_way_from_the_best_of_the_slides() {
        let ratios = |mean: f64| Ratios {
            first_second: mean,
            mean_5min: mean,
            mean_15min: mean,
            mean_30min: mean,
            window_5min: mean,
            warm_after_s: None,
        };
        let row = |who: &str, aim: Option<Aim>, mean: f64| Row {
            part: Part::SizeLimit.title(),
            who: who.to_owned(),
            aim,
            snapshot_every: None,
            limit_percent: 10,
            rate_mib_per_s: Some(100),
            published: None,
            look_ups: ratios(mean),
            both: ratios(0.0),
            latency: ratios(0.0),
            prewarmed_bytes: 0,
            prewarm_s: 0,
            missed_bytes: 0,
            plan: None,
            gap_closed: None,
            series: Vec::new(),
        };
        let found = |ours: f64| {
            let mut rows = [
                row(Heuristic::PUBLISHED[0].name(), None, 0.5),
                row(Heuristic::PUBLISHED[1].name(), None, 0.25),
                row("knows the future", Some(Aim::LookUps), 0.75),
                row("Forebay", Some(Aim::LookUps), ours),
            ];
            close_gaps(&mut rows);
            (rows[3].gap_closed, best_and_bound(&rows, &rows[3]), rows[2].gap_closed)
        };
        let of = Some((0.5, 0.75));
        assert_eq!(found(0.625), (Some(0.5), of, None));
        assert_eq!(found(0.75), (Some(1.0), of, None));
        assert_eq!(found(0.875), (Some(1.5), of, None));
    }

    #[test]
    fn what_is_lost_in_small_steps_is_lost_all_the_same() {
        let lost = |values: &[f64]| most_lost(values.iter().copied());
        assert_eq!((lost(&[]), lost(&[0.5]), lost(&[0.5, 0.5, 0.75])), (0.0, 0.0, 0.0));
        // An eighth and another eighth; what is found again later does not make up for it.
        assert_eq!(lost(&[0.5, 0.75, 0.625, 0.5, 0.875]), 0.25);
    }
}
