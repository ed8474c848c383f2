//! The case study with real processes: a storage side with emulated disks that is watched, permanent proxies, and `forebay control`, which starts and stops
//! appliances while clients read and write.
//!
//! A period has the phases of the paper's main workload, a spike, a calm, a peak, a calm, and takes five quarters of a minute; it is played four times, unless told otherwise, so that
//! the peak is known to return. What the peak reads is larger than the zones in which heat is tracked. All numbers of the scene are ours.

use crate::failure::{Context, Failure};
use crate::interrupt;
use crate::output::{Output, say};
use forebay_actuate::api::ApiAddress;
use forebay_actuate::{Control, Deadline};
use forebay_nbd::Uri;
use forebay_origin::{NbdOrigin, NbdOriginOptions, Origin};
use forebay_replay::{AfterWait, Content, Due, Load, PlayOptions, PlayReport, Player, Shadow};
use forebay_serve::status::Explanation;
use forebay_trace::{Operation, ThreadNumber};
use forebay_units::{ByteRange, Bytes, Nanos, mix64};
use forebay_workload::{ZipfRanks, exponential, random};
use serde::Serialize;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The seconds of a period at which the spike, the calm after it, the peak and the period end.
const PHASES_S: [u64; 4] = [2, 25, 60, 75];
/// Requests per second of the main workload in these phases, and of the reader all along.
const RATES: [f64; 4] = [760.0, 60.0, 950.0, 60.0];
const READER_RATE: f64 = 300.0;
/// What the main workload reads at its peak, of which the Zipf distribution has this exponent; what the reader reads.
const PEAK_SET: u64 = 8 << 20;
const THETA: f64 = 0.3;
const VOLUME_BYTES: u64 = 512 << 20;
const WRITE_SHARE: f64 = 0.05;
/// Mean latency promised to the main workload in windows of a second.
const LATENCY_MAX: Nanos = Nanos::millis(14);
/// Windows in a row that make a violation.
const SUSTAINED: usize = 5;
const OUTSTANDING_MAX: usize = 512;
const BLOCK: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(30);
const QEMU: &str = "qemu-system-x86_64";
const WORKLOADS: [&str; 2] = ["usr-1", "reader"];

/// One peak.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Peak {
    /// Its number, from 1.
    pub(super) period: u64,
    /// Seconds of the peak that missed the objective, as clients saw them.
    pub(super) bad_seconds: u64,
    /// Seconds from the first bad second of the first sustained violation to the first of five good ones; absent where nothing was sustained.
    pub(super) to_conformance_s: Option<u64>,
    /// Whether a sustained violation did not end with conformance before the peak did.
    pub(super) unmended: bool,
    /// Whether the appliance was there before the peak began.
    pub(super) ready_before: bool,
    /// Seconds from the spike to the peak that missed the objective; fewer in a row than make a violation are to cause nothing.
    pub(super) bad_seconds_of_the_spike: u64,
    /// Appliances started from the beginning of the period to that of its peak's calm, by second.
    pub(super) started_at_s: Vec<f64>,
}

/// What was found; schema `forebay.repro.dynamite.live/1`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    seed: u64,
    period_s: u64,
    latency_bound_s: f64,
    /// Mean latency of the main workload second by second, absent without requests.
    latency_s: Vec<Option<f64>>,
    pub(super) peaks: Vec<Peak>,
    /// What was decided, at which second.
    decisions: Vec<(f64, String)>,
    requests: u64,
    errors: u64,
    wrong_reads: u64,
    /// The first of them.
    wrong: Vec<String>,
    /// Longest latency of any request: what a switch of the route cost at most.
    longest_s: f64,
}

/// Processes that end with the run.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The loads of one workload.
fn requests(main: bool, periods: u64, seed: u64) -> Vec<Due> {
    let mut random = random(mix64(seed ^ u64::from(main)));
    let mut state = mix64(seed ^ if main { 77 } else { mix64(77) });
    let mut unit = move || {
        state = state.wrapping_add(1);
        (mix64(state) >> 11) as f64 / (1u64 << 53) as f64
    };
    let ranks = ZipfRanks::new(PEAK_SET / BLOCK, THETA);
    let (mut all, mut at_s) = (Vec::new(), 0.0);
    let period_s = PHASES_S[3] as f64;
    loop {
        let in_period = at_s % period_s;
        let phase = PHASES_S.iter().position(|end| in_period < *end as f64).unwrap_or(3);
        let rate = if main { RATES[phase] } else { READER_RATE };
        at_s += exponential(1.0 / rate, &mut random);
        if at_s >= periods as f64 * period_s {
            return all;
        }
        let anywhere = (unit() * (VOLUME_BYTES / BLOCK) as f64) as u64;
        // The hot blocks lie together; in the calm it reads elsewhere, as the paper's does.
        let block = match (main, RATES[phase] > 100.0) {
            (true, true) => ranks.next(&mut random) - 1,
            _ => anywhere,
        };
        let operation = if main && unit() < WRITE_SHARE { Operation::Write } else { Operation::Read };
        let at = Nanos::from_secs_f64(at_s);
        all.push(Due {
            at,
            operation,
            range: ByteRange::new(block * BLOCK, BLOCK),
            thread: ThreadNumber::UNKNOWN,
        });
    }
}

fn spawn(folder: &Path, command: &str, file: &str) -> Result<Child, Failure> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let log = fs::File::create(folder.join(format!("{command}-{file}.log"))).context("cannot make a log")?;
    Command::new(program)
        .args([command, &folder.join(file).display().to_string()])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context(format_args!("`forebay {command}` cannot be started"))
}

fn wait_for(path: &Path) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    while !path.exists() {
        if Instant::now() > until {
            return Err(Failure::new(format!("`{}` does not come", path.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Writes what the processes are started with; appliances are virtual machines where there is an `image` for them, processes else.
fn configure(folder: &Path, image: Option<&Path>) -> Result<(), Failure> {
    let path = |name: &str| folder.join(name).display().to_string();
    // Machines reach this one over TCP only.
    let port = match image {
        Some(_) => Some(free_port().context("no port is free for the storage side")?),
        None => None,
    };
    let tcp = port.map_or(String::new(), |port| format!(", \"tcp:127.0.0.1:{port}\""));
    let mut watch = format!(
        "listen = [\"unix:{}\"{tcp}]\nleases.path = \"{}\"\nhttp.listen = \"off\"\nhttp.socket = \"{}\"\ncontrol.interval = \"1s\"\n\
         [[disk_group]]\nname = \"disks\"\nspindles = 4\ndisk = \"15000rpm\"\ndisk_capacity = \"1GiB\"\n",
        path("watch.sock"),
        path("leases.json"),
        path("watch-http.sock")
    );
    let mut proxy = format!(
        "listen = [\"unix:{}\"]\nroutes.path = \"{}\"\nsuccession.path = \"{}\"\nhttp.listen = \"off\"\nhttp.socket = \"{}\"\ncontrol.enabled = false\n",
        path("proxy.sock"),
        path("routes.json"),
        path("succession.json"),
        path("proxy-http.sock")
    );
    let mut control = format!(
        "socket = \"control.sock\"\nstate = \"state\"\ninterval = \"1s\"\nhistory = \"history.db\"\n\
         control.violation = {{ windows = {SUSTAINED}, nonconforming = {SUSTAINED} }}\n\
         control.foresight = {{ bucket_intervals = 5, lead_buckets = 2 }}\n\
         control.removal = {{ sustained = 5 }}\n\
         [[host]]\nname = \"h1\"\nmemory = \"{}\"\n{}\
         [[objective]]\nvolume = \"{}\"\nlatency = \"{LATENCY_MAX}\"\n",
        if image.is_some() { "1GiB" } else { "512MiB" },
        image.map_or(String::new(), |image| {
            format!("provider = {{ type = \"qemu\", image = {:?} }}\n", image.display().to_string())
        }),
        WORKLOADS[0]
    );
    for name in WORKLOADS {
        let size = Bytes(VOLUME_BYTES);
        watch += &format!(
            "[[volume]]\nname = \"{name}\"\norigin = {{ type = \"disk-group\", group = \"disks\", memory = \"{size}\" }}\n"
        );
        let uri = Uri::unix(folder.join("watch.sock"), name);
        proxy += &format!(
            "[[volume]]\nname = \"{name}\"\ncache = \"0\"\norigin = {{ type = \"nbd\", uri = \"{uri}\" }}\n"
        );
        let uri = port.map_or(uri, |port| Uri::tcp("127.0.0.1", port, name));
        control += &format!(
            "[[volume]]\nname = \"{name}\"\nhome = \"h1\"\norigin = \"{uri}\"\nwatch = \"unix:{}\"\nroute = {{ type = \"proxy\", server = \"unix:{}\" }}\n",
            path("watch-http.sock"),
            path("proxy-http.sock")
        );
    }
    for (name, text) in [("watch.toml", watch), ("proxy.toml", proxy), ("control.toml", control)] {
        fs::write(folder.join(name), text).context(format_args!("cannot write `{name}`"))?;
    }
    Ok(())
}

fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Says what is missing for machines.
fn check_machines(image: &Path) -> Result<(), Failure> {
    for file in ["vmlinuz", "initramfs"] {
        if !image.join(file).is_file() {
            let made = "expected those that `make appliance-image` makes, in target/appliance-image";
            return Err(Failure::new(format!("no `{file}` in `{}`: {made}", image.display())));
        }
    }
    let asked = Command::new(QEMU).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("`{QEMU} --version` fails ({status})"))),
        Err(error) => Err(Failure::new(format!("`{QEMU}` cannot be run: {error}"))),
    }
}

/// Runs everything: five minutes for four periods.
pub(super) fn run(seed: u64, periods: u64, image: Option<&Path>) -> Result<Found, Failure> {
    image.map_or(Ok(()), check_machines)?;
    let folder = tempfile::Builder::new().prefix("forebay-dynamite-").tempdir();
    let folder = folder.context("cannot make a folder for the run")?;
    let at = folder.path();
    let image = image.map(fs::canonicalize).transpose().context("the image is not there")?;
    configure(at, image.as_deref())?;
    let mut processes = Processes(Vec::new());
    processes.0.push(spawn(at, "watch", "watch.toml")?);
    wait_for(&at.join("watch.sock"))?;
    processes.0.push(spawn(at, "serve", "proxy.toml")?);
    wait_for(&at.join("proxy.sock"))?;
    processes.0.push(spawn(at, "control", "control.toml")?);
    wait_for(&at.join("control.sock"))?;
    let seconds = PHASES_S[3];
    let many = if periods == 1 { "period of" } else { "periods of" };
    say(format_args!("{periods} {many} {seconds} s played with real processes"));
    let connect = |name: &str| -> Result<Arc<dyn Origin>, Failure> {
        let uri = Uri::unix(at.join("proxy.sock"), name);
        let origin =
            NbdOrigin::connect(&uri, NbdOriginOptions { connections: 1, ..NbdOriginOptions::default() });
        Ok(Arc::new(origin.context(format_args!("cannot connect to `{name}`"))?))
    };
    let connections = [connect(WORKLOADS[0])?, connect(WORKLOADS[1])?];
    let duration = Duration::from_secs(periods * PHASES_S[3]);
    let mut options = PlayOptions::for_duration(duration, Duration::from_secs(1));
    options.start = Some(Instant::now());
    let began_unix_ms = unix_ms();
    let stop = interrupt::watch()?;
    let reports = std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .iter()
            .enumerate()
            .map(|(index, connection)| {
                let stop = &*stop;
                scope.spawn(move || {
                    let content = Content::new(mix64(seed ^ index as u64));
                    let mut player = Player::new(Shadow::over_unknown(content, VOLUME_BYTES));
                    let mut due = requests(index == 0, periods, seed).into_iter();
                    let load = Load::Open {
                        requests: &mut due,
                        outstanding_max: OUTSTANDING_MAX,
                        after_wait: AfterWait::CatchUp,
                    };
                    player.play(connection, load, options, stop)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("players do not panic")).collect::<Vec<_>>()
    });
    let reports: Vec<PlayReport> =
        reports.into_iter().collect::<Result<_, _>>().context("the load cannot be played")?;
    let control = Control { address: ApiAddress::Unix(at.join("control.sock")), token: None };
    let deadline = Deadline::after(PATIENCE);
    let explained: Explanation = control
        .ask("GET", &format!("/api/v1/explain/{}", WORKLOADS[0]), "", deadline)
        .context("the controller does not tell what it decided")?;
    // Whatever serves yet is ended with its folder.
    let found = judge((seed, periods), &reports, &explained, began_unix_ms);
    end_appliances(at);
    Ok(found)
}

/// Ends what was started for this run and serves yet.
fn end_appliances(folder: &Path) {
    let marker = folder.join("state").display().to_string();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&marker)
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn judge(
    (seed, periods): (u64, u64),
    reports: &[PlayReport],
    explained: &Explanation,
    began_unix_ms: i64,
) -> Found {
    let main = &reports[0];
    let latency_s: Vec<Option<f64>> = (main.intervals.iter())
        .map(|interval| {
            let mut all = interval.reads.clone();
            all.merge(&interval.writes);
            all.mean().map(Nanos::as_secs_f64)
        })
        .collect();
    let bad = |second: u64| {
        latency_s.get(second as usize).copied().flatten().is_some_and(|mean| mean > LATENCY_MAX.as_secs_f64())
    };
    let at_s = |unix_ms: i64| (unix_ms - began_unix_ms) as f64 / 1e3;
    let decisions: Vec<(f64, String)> = (explained.decisions.iter())
        .map(|dated| (at_s(dated.at_unix_ms), dated.decision.summary.clone()))
        .collect();
    let of_kind = |kind| {
        let of = move |dated: &&forebay_serve::DatedDecision| dated.decision.kind == kind;
        explained.decisions.iter().filter(of).map(|dated| at_s(dated.at_unix_ms)).collect::<Vec<f64>>()
    };
    let placed = of_kind(forebay_control::DecisionKind::CacheInPlace);
    let gone = of_kind(forebay_control::DecisionKind::OriginalRoute);
    let started = of_kind(forebay_control::DecisionKind::HostChosen);
    let peaks = (0..periods)
        .map(|period| {
            let from = period * PHASES_S[3];
            let (peak, until) = (from + PHASES_S[1], from + PHASES_S[2]);
            // What ends only with the peak is not mended: the calm behind it is always good.
            let violated = first_in_a_row(peak..until, bad);
            let kept = violated.and_then(|second| first_in_a_row(second..until, |at| !bad(at)));
            let before = peak as f64;
            let placed_before = placed.iter().filter(|at| **at < before).count();
            let gone_before = gone.iter().filter(|at| **at < before).count();
            Peak {
                period: period + 1,
                bad_seconds: (peak..until).filter(|second| bad(*second)).count() as u64,
                to_conformance_s: violated.zip(kept).map(|(violated, kept)| kept - violated),
                unmended: violated.is_some() && kept.is_none(),
                ready_before: placed_before > gone_before,
                bad_seconds_of_the_spike: (from..peak).filter(|second| bad(*second)).count() as u64,
                started_at_s: started
                    .iter()
                    .copied()
                    .filter(|at| (from as f64..until as f64).contains(at))
                    .collect(),
            }
        })
        .collect();
    let longest = reports.iter().flat_map(|report| [report.reads.max(), report.writes.max()]).flatten().max();
    Found {
        schema: "forebay.repro.dynamite.live/1",
        seed,
        period_s: PHASES_S[3],
        latency_bound_s: LATENCY_MAX.as_secs_f64(),
        latency_s,
        peaks,
        decisions,
        requests: reports.iter().map(|report| report.requests).sum(),
        errors: reports.iter().map(|report| report.errors).sum(),
        wrong_reads: reports.iter().map(|report| report.wrong_count).sum(),
        wrong: reports
            .iter()
            .flat_map(|report| report.wrong.iter().map(|wrong| wrong.found.clone()))
            .collect(),
        longest_s: longest.map_or(0.0, Nanos::as_secs_f64),
    }
}

/// The first of as many `seconds` in a row as make a violation, all of which are so.
fn first_in_a_row(seconds: Range<u64>, is: impl Fn(u64) -> bool) -> Option<u64> {
    let row = |from: u64| from..from + SUSTAINED as u64;
    seconds.clone().find(|&from| row(from).end <= seconds.end && row(from).all(&is))
}

/// Prints what was found.
pub(super) fn print(found: &Found, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!(
        "main workload: mean latency of at most {:.0} ms promised in windows of 1 s; {SUSTAINED} in a row are a violation",
        found.latency_bound_s * 1e3
    ))?;
    output.line(format_args!("period  bad seconds  to conformance  ready before  spike  started at"))?;
    for peak in &found.peaks {
        let to = match (peak.to_conformance_s, peak.unmended) {
            (Some(seconds), _) => format!("{seconds} s"),
            (None, true) => "not mended".to_owned(),
            (None, false) => "no violation".to_owned(),
        };
        let started: Vec<String> = peak.started_at_s.iter().map(|at| format!("{at:.1} s")).collect();
        output.line(format_args!(
            "{:>6}  {:>11}  {to:>14}  {:>12}  {:>5}  {}",
            peak.period,
            peak.bad_seconds,
            if peak.ready_before { "yes" } else { "no" },
            peak.bad_seconds_of_the_spike,
            started.join(", ")
        ))?;
    }
    output.line(format_args!(
        "{} requests, {} errors, {} wrong reads; the longest took {:.0} ms",
        found.requests,
        found.errors,
        found.wrong_reads,
        found.longest_s * 1e3
    ))?;
    for wrong in &found.wrong {
        output.line(format_args!("wrong: {wrong}"))?;
    }
    for (at_s, decision) in &found.decisions {
        output.line(format_args!("{at_s:>6.1} s  {decision}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_only_with_the_peak_is_not_mended() {
        // A peak from second 10 to 30; what is good from then on says nothing of it.
        let kept_from = |good: u64| {
            let bad = |second: u64| second < good;
            let violated = first_in_a_row(10..30, bad);
            (violated, violated.and_then(|second| first_in_a_row(second..30, |at| !bad(at))))
        };
        assert_eq!(kept_from(14), (None, None));
        assert_eq!(kept_from(15), (Some(10), Some(15)));
        assert_eq!(kept_from(25), (Some(10), Some(25)));
        assert_eq!(kept_from(26), (Some(10), None));
    }

    #[test]
    fn what_one_workload_reads_says_nothing_of_what_the_other_does() {
        let (main, reader) = (requests(true, 1, 5), requests(false, 1, 5));
        assert!(main.len() > 20_000 && reader.len() > 20_000);
        // Each request of the main workload takes two draws, one of the reader's one.
        let alike = main.iter().zip(reader.iter().step_by(2));
        let alike = alike.filter(|(main, reader)| main.range.offset == reader.range.offset).count();
        assert!(alike < 20, "{alike} requests read the same block of both volumes");
    }
}
