//! `forebay replay`: a trace issued at its times against a real target, and how faithfully that was done.

mod recording;
mod show;
mod target;

use crate::failure::{Context, Failure};
use crate::input::{self, InputArgs};
use crate::interrupt;
use crate::output::{OutputArgs, count, say};
use crate::whole::{ANY, whole};
use forebay_origin::Origin;
use forebay_replay::{
    AddressMap, Content, CountsAhead, Feed, Fit, Pace, PlayError, PlayReport, Player, Progress, ReplayError,
    ReplayOptions, Schedule, ScheduleCounts, ScheduleOptions, Shadow, Survey, WholeSeconds, replay,
};
use forebay_trace::{TraceError, VolumeIndex};
use forebay_units::Nanos;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use recording::Recording;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use target::Target;

/// Issue the requests of a trace against a volume, at their times.
///
/// An open loop unless told otherwise: no request waits for the answer of another, up to a bound on requests in flight. Every
/// run says how faithful it was: by how much requests were issued too late, how many hit the bound, and how much longer it took
/// than recorded. Ends with status 1 if a request was answered with an error, a byte was wrong, or the run was given up.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Where to: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, either with `nbds` for TLS, a file, or a block device
    ///
    /// An NBD export is written to without further questions if the trace writes.
    #[arg(long, value_name = "TARGET")]
    to: String,

    #[command(flatten)]
    timing: TimingArgs,

    #[command(flatten)]
    placing: PlacingArgs,

    #[command(flatten)]
    issuing: IssuingArgs,

    #[command(flatten)]
    output: OutputArgs,

    /// Print a row for each interval too; JSON always has them
    #[arg(long, help_heading = "Output")]
    per_interval: bool,

    /// The length of an interval [range: 100ms or longer]
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval, help_heading = "Output")]
    interval: Nanos,
}

/// When.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "When requests are issued")]
struct TimingArgs {
    /// `open`: at their times, whatever became of those before; `closed`: likewise, but a wait for room moves all later ones, so that
    /// the recorded gaps stay; `fast`: as soon as there is room
    #[arg(long, value_enum, default_value_t = PaceArg::Open)]
    pace: PaceArg,

    /// Divide the recorded times by this: 10 plays an hour in 6 minutes [range: above 0]
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = parse_factor)]
    speed: f64,

    /// Divide the gaps between requests by this, and take as long as without: above 1 the trace begins again at its end, below
    /// 1 its end is not reached [range: above 0]
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = parse_factor)]
    intensity: f64,

    /// Issue so many requests per second, evenly, whatever was recorded; needed where a trace has no times [range: above 0]
    #[arg(long, value_name = "N", value_parser = parse_factor, conflicts_with_all = ["speed", "intensity"])]
    rate: Option<f64>,

    /// Times in whole seconds: `spread` the requests of a second evenly over it, or take them `as-is`, all at its start
    #[arg(long, value_name = "HOW", default_value_t = WholeSeconds::Spread)]
    whole_seconds: WholeSeconds,

    /// Issue nothing after this time, as in `60s`; in an open loop nothing that is due after it [default: to the trace's end]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
}

/// Where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Where requests go")]
struct PlacingArgs {
    /// Play this volume of the trace only; may be repeated [default: all, laid one after the other]
    #[arg(long, value_name = "NAME")]
    volume: Vec<String>,

    /// A target smaller than the trace: `wrap` (addresses modulo its size), `scale` (addresses times its share, in 4KiB) or `refuse`
    #[arg(long, value_name = "HOW", default_value_t = Fit::Wrap)]
    fit: Fit,

    /// Leave out writes and discards
    #[arg(long)]
    reads_only: bool,

    /// Write to a file that holds data, or to a block device
    #[arg(long)]
    yes_overwrite: bool,

    /// Write content that says where it belongs, and check every byte of it that is read later
    ///
    /// Writes to sectors that are being written are held back. Costs 16 KiB of memory for each MiB written to.
    #[arg(long)]
    verify: bool,

    /// Makes the content of writes [range: 0 to 2^64 - 1; default: from the clock]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY))]
    seed: Option<u64>,
}

/// How.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "How requests are issued")]
struct IssuingArgs {
    /// Requests in flight at most [range: 1 to 65536; default: open 1024, closed and fast 16]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=65_536))]
    outstanding: Option<u32>,

    /// Threads that issue, each with connections of its own [range: 1 to 64]
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u16>(1..=64))]
    threads: u16,

    /// Issue all requests of a recorded thread by the same one, those of thread N by the N-th, and so on in turn; the
    /// trace has to record threads
    #[arg(long)]
    by_thread: bool,

    /// NBD connections of each thread, where the server allows more than one [range: 1 to 16]
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole::<u16>(1..=16))]
    connections: u16,

    /// Who reads and writes a file or block device: `io_uring`, `threads`, or io_uring where the system has it (`auto`)
    #[arg(long, value_enum, value_name = "WHO", default_value_t = target::Engine::Auto)]
    engine: target::Engine,

    /// PEM file with the certificates of those that an `nbds` target must be certified by; required for one unless its URI has `tls-verify-peer=no`
    #[arg(long, value_name = "FILE")]
    tls_authorities: Option<PathBuf>,

    /// PEM file with the certificate to show an `nbds` target that asks for one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,

    /// PEM file with its key
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Give up when no request has succeeded for so long [range: 10ms or longer]
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_patience)]
    give_up_after: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PaceArg {
    Open,
    Closed,
    Fast,
}

impl TimingArgs {
    /// Whether requests are issued by recorded times.
    fn goes_by_times(&self) -> bool {
        self.rate.is_none() && self.pace != PaceArg::Fast
    }

    /// Refuses times for what is played without regard to them.
    fn check(&self) -> Result<(), Failure> {
        let given = if self.rate.is_some() {
            "--rate"
        } else if self.speed != 1.0 {
            "--speed"
        } else {
            return Ok(());
        };
        if self.pace != PaceArg::Fast {
            return Ok(());
        }
        let why = format!("{given} says when requests are issued, and --pace fast is without regard to time");
        Err(Failure::usage(why).with_hint(format!("leave out {given}, or --pace fast")))
    }
}

impl PaceArg {
    fn word(self) -> &'static str {
        match self {
            PaceArg::Open => "open",
            PaceArg::Closed => "closed",
            PaceArg::Fast => "fast",
        }
    }
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err("expected a number above 0".to_owned()) }
}

fn parse_at_least(text: &str, least: Nanos) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    if time >= least { Ok(time) } else { Err(format!("expected {least} or longer")) }
}

fn parse_interval(text: &str) -> Result<Nanos, String> {
    parse_at_least(text, Nanos::millis(100))
}

fn parse_patience(text: &str) -> Result<Nanos, String> {
    parse_at_least(text, Nanos::millis(10))
}

/// What a replay came to.
struct Outcome<'a> {
    args: &'a ReplayArgs,
    format: &'static str,
    target: String,
    target_bytes: u64,
    extent_bytes: u64,
    outstanding_max: usize,
    survey: Survey,
    counts: ScheduleCounts,
    /// What was prepared ahead when the run was over before its load.
    not_issued: u64,
    seed: u64,
    interrupted: bool,
    report: PlayReport,
}

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    if args.placing.verify && args.issuing.threads > 1 {
        return Err(Failure::usage("one thread must know of all writes to verify them")
            .with_hint("leave out --threads, or --verify"));
    }
    args.timing.check()?;
    let mut recording = Recording::new(&args.input)?;
    let mut reader = recording.open()?;
    let survey = survey(&mut reader)?;
    check_times(args, &survey, reader.format().has_time())?;
    let only = chosen_volumes(args, reader.volumes())?;
    if args.issuing.by_thread && !survey.has_threads {
        return Err(Failure::usage("the trace records no threads, so there is nothing to go by")
            .with_hint("leave out --by-thread: requests are dealt out in turn"));
    }
    let (format, volumes) = (reader.format().name(), reader.volumes().len());
    drop(reader);

    let writes = if args.placing.reads_only { 0 } else { survey.changes(only.as_deref()) };
    let outstanding = args
        .issuing
        .outstanding
        .map_or(if args.timing.pace == PaceArg::Open { 1024 } else { 16 }, |outstanding| {
            outstanding as usize
        });
    let target = Target::parse(&args.to)?;
    target.check_consent(writes, args.placing.yes_overwrite)?;
    let origins: Vec<Arc<dyn Origin>> = target.open(&target::Opening {
        threads: usize::from(args.issuing.threads),
        connections: usize::from(args.issuing.connections),
        outstanding_max: outstanding,
        read_only: writes == 0,
        give_up_after: args.issuing.give_up_after,
        authorities: args.issuing.tls_authorities.clone(),
        identity: args.issuing.tls_certificate.clone().zip(args.issuing.tls_key.clone()),
        engine: args.issuing.engine,
    })?;
    let traits = origins[0].traits();
    if traits.read_only && writes > 0 {
        return Err(Failure::new(format!("{} is read-only, and the trace writes", origins[0].describe()))
            .with_hint("leave out what writes with --reads-only"));
    }
    let unit = u64::from(traits.block_size_min).max(if args.placing.verify { 512 } else { 1 });
    let map = AddressMap::new(&survey, only.as_deref(), traits.size_bytes, unit, args.placing.fit)
        .context(format_args!("cannot replay to {}", origins[0].describe()))?;
    let extent_bytes = map.extent_bytes();
    let is_fast = args.timing.pace == PaceArg::Fast;
    let options = ScheduleOptions {
        speed: args.timing.speed,
        intensity: args.timing.intensity,
        rate: args.timing.rate,
        // Without regard to the recorded times there is nothing to spread, and how long it takes is seen while it is played.
        whole_seconds: if is_fast { WholeSeconds::AsIs } else { args.timing.whole_seconds },
        reads_only: args.placing.reads_only,
        no_discards: args.placing.verify || !traits.can_trim,
        duration: args.timing.duration.filter(|_| !is_fast),
        request_bytes_max: u64::from(traits.request_bytes_max) / unit * unit,
    };
    say_what_is_done(args, &survey, &map, volumes, &origins[0]);
    let schedule = Schedule::new(&survey, map, options);
    let planned = schedule.planned(&survey);

    let seed = args.placing.seed.unwrap_or_else(seed_from_clock);
    let progress = Arc::new(Progress::default());
    let mut players: Vec<(Player, Arc<dyn Origin>)> = origins
        .into_iter()
        .enumerate()
        .map(|(index, origin)| {
            let player = if args.placing.verify {
                let shadow = Shadow::over_unknown(Content::new(seed), origin.traits().size_bytes);
                Player::new(shadow).with_progress(Arc::clone(&progress))
            } else {
                Player::unchecked(seed.wrapping_add(index as u64), Arc::clone(&progress))
            };
            (player, origin)
        })
        .collect();
    let replay_options = ReplayOptions {
        pace: match args.timing.pace {
            PaceArg::Open => Pace::Open,
            PaceArg::Closed => Pace::Closed,
            PaceArg::Fast => Pace::Fast,
        },
        by_thread: args.issuing.by_thread,
        outstanding_max: outstanding,
        interval: args.interval.into(),
        duration: args.timing.duration.map(Duration::from),
        give_up_after: args.issuing.give_up_after.into(),
    };
    let stop = interrupt::watch()?;
    let mut ahead = CountsAhead::default();
    let feed = |feed: &mut Feed<'_>| feed_trace(&mut recording, schedule, &mut ahead, &progress, feed);
    let report =
        watched(&progress, planned, survey.playable(), || replay(&mut players, feed, replay_options, &stop));
    let report = report.map_err(|error| match error {
        ReplayError::Play(PlayError::Empty) => Failure::new("nothing of the trace is left to play")
            .with_hint("`forebay trace info` says what is in it"),
        error => Failure::from(error),
    })?;
    let outcome = Outcome {
        args,
        format,
        target: players[0].1.describe(),
        target_bytes: traits.size_bytes,
        extent_bytes,
        outstanding_max: outstanding,
        survey,
        counts: ahead.until(progress.issued()),
        not_issued: ahead.prepared() - progress.issued(),
        seed,
        interrupted: stop.load(Ordering::Relaxed),
        report,
    };
    // The status says what came of it, also where nobody reads the report.
    let printed = show::print(&outcome);
    verdict(&outcome).and(printed)
}

/// What ends the command with a failure, after everything was shown.
fn verdict(outcome: &Outcome<'_>) -> Result<(), Failure> {
    let report = &outcome.report;
    if report.wrong_count > 0 {
        let first =
            report.wrong.first().map_or(String::new(), |wrong| format!("{:?}: {}", wrong.range, wrong.found));
        return Err(Failure::new(format!(
            "{} reads returned wrong bytes, first {first}",
            count(report.wrong_count)
        )));
    }
    if let Some(gave_up) = &report.gave_up {
        let cause =
            report.first_error.as_ref().map_or(String::new(), |error| format!("; first error: {error}"));
        return Err(Failure::new(format!("given up: {gave_up}{cause}")));
    }
    if report.errors > 0 {
        let first = report.first_error.as_deref().unwrap_or("not kept");
        return Err(Failure::new(format!(
            "{} requests were answered with an error; first: {first}",
            count(report.errors)
        )));
    }
    if outcome.interrupted {
        return Err(Failure::silent(130));
    }
    Ok(())
}

fn survey(reader: &mut forebay_trace::TraceReader) -> Result<Survey, Failure> {
    let mut survey = Survey::new();
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        survey.add(&batch);
    }
    input::tell_early(reader);
    Ok(survey)
}

/// Refuses an open loop over a trace that has no times.
fn check_times(args: &ReplayArgs, survey: &Survey, has_time: bool) -> Result<(), Failure> {
    let needs_times = args.timing.goes_by_times();
    let has_times = has_time && (survey.span() > Nanos::ZERO || survey.playable() <= 1);
    if survey.playable() == 0 {
        return Err(Failure::new("the trace holds no request that can be played"));
    }
    if needs_times && !has_times {
        let why =
            if has_time { "all requests of the trace have the same time" } else { "the trace has no times" };
        return Err(Failure::new(why).with_hint("say how fast with --rate N, or play it with --pace fast"));
    }
    Ok(())
}

/// The volumes that are to be played, where not all are.
fn chosen_volumes(args: &ReplayArgs, names: &[String]) -> Result<Option<Vec<VolumeIndex>>, Failure> {
    if args.placing.volume.is_empty() {
        return Ok(None);
    }
    let index = |wanted: &String| match names.iter().position(|name| name == wanted) {
        Some(index) => Ok(VolumeIndex(index as u32)),
        None => {
            let known: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
            let more = if names.len() > known.len() { ", ..." } else { "" };
            Err(Failure::usage(format!(
                "the trace has no volume `{wanted}`: it has {}{more}",
                known.join(", ")
            )))
        }
    };
    args.placing.volume.iter().map(index).collect::<Result<_, _>>().map(Some)
}

/// Says what is not as recorded, before anything is issued.
fn say_what_is_done(
    args: &ReplayArgs,
    survey: &Survey,
    map: &AddressMap,
    volumes: usize,
    origin: &Arc<dyn Origin>,
) {
    if volumes > 1 && args.placing.volume.is_empty() {
        say(format_args!("{} volumes are laid one after the other", count(volumes as u64)));
    }
    if map.is_fitted() {
        let (extent, size) = (map.extent_bytes(), origin.traits().size_bytes);
        let (extent, size) = (crate::output::bytes(extent), crate::output::bytes(size));
        say(format_args!(
            "the trace reaches {extent}, the target has {size}: addresses are changed by --fit {}",
            args.placing.fit
        ));
    }
    if args.timing.goes_by_times() && survey.has_whole_seconds() {
        say(format_args!(
            "times are whole seconds: requests of a second are taken by --whole-seconds {}",
            args.timing.whole_seconds
        ));
    }
    if survey.steps_back > 0 && args.timing.pace != PaceArg::Fast {
        say(format_args!(
            "{} requests stand behind later ones: they are issued in order of time",
            count(survey.steps_back)
        ));
    }
}

/// Reads the trace, as often as the schedule wants it, and hands on what is due; notes in `ahead` what was counted on the way.
fn feed_trace(
    recording: &mut Recording,
    mut schedule: Schedule,
    ahead: &mut CountsAhead,
    progress: &Progress,
    feed: &mut Feed<'_>,
) -> Result<(), TraceError> {
    let (mut batch, mut due) = (Vec::new(), Vec::new());
    loop {
        let mut reader = recording.reopen()?;
        while reader.next_batch(&mut batch)? > 0 {
            let prepared = ahead.prepared();
            for request in &batch {
                schedule.push(request, &mut due);
                ahead.note(prepared + due.len() as u64, schedule.counts());
            }
            ahead.forget(progress.issued());
            if !feed.hand_on(&mut due) {
                return Ok(());
            }
            if schedule.is_over() {
                break;
            }
        }
        let prepared = ahead.prepared();
        let goes_on = schedule.end_lap(&mut due);
        ahead.note(prepared + due.len() as u64, schedule.counts());
        if !feed.hand_on(&mut due) || !goes_on {
            return Ok(());
        }
    }
}

/// Runs `work` while a bar on a terminal's standard error shows how far it is.
fn watched<T: Send>(
    progress: &Progress,
    planned: Option<Nanos>,
    requests: u64,
    work: impl FnOnce() -> T + Send,
) -> T {
    let bar = ProgressBar::with_draw_target(Some(requests), ProgressDrawTarget::stderr());
    let template = "{bar:30} {percent:>3}%  {elapsed}  {msg}";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A bar that nobody sees costs no wake-ups.
        if !bar.is_hidden() {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let elapsed = bar.elapsed();
                    match planned {
                        Some(planned) if planned > Nanos::ZERO => {
                            bar.set_length(planned.0 / 1_000_000);
                            bar.set_position((elapsed.as_millis() as u64).min(planned.0 / 1_000_000));
                        }
                        _ => bar.set_position(progress.issued()),
                    }
                    let waiting = progress.issued().saturating_sub(progress.answered() + progress.errors());
                    bar.set_message(format!(
                        "{} issued, {} in flight, {} errors",
                        count(progress.issued()),
                        count(waiting),
                        count(progress.errors())
                    ));
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
        }
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        bar.finish_and_clear();
        result
    })
}

fn seed_from_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
