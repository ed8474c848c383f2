//! `forebay status`: how the volumes of a running daemon do, once or live.

pub(crate) mod client;
mod screen;

use super::reserve;
use crate::document::read_text;
use crate::failure::{Context, Failure};
use crate::output::{Output, OutputArgs, bytes, say};
use client::Server;
use forebay_actuate::api::ApiAddress;
use forebay_report::Table;
use forebay_serve::config::{Config, HTTP_DEFAULT};
use forebay_serve::status::{
    ControllerState, ControllerStatus, DrainStatus, DrainedWhat, ObjectiveStatus, PlacementStatus,
    PrewarmStatus, Status, VolumeStatus,
};
use forebay_units::{Bytes, Secret};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a daemon answers.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Daemon")]
pub(crate) struct ServerArgs {
    /// Where it answers: ADDRESS:PORT or unix:PATH [default: 127.0.0.1:9809]
    #[arg(long, value_name = "ADDRESS")]
    server: Option<ApiAddress>,
    /// The file that holds the token which is asked for over TCP (`http.token`), in its first line
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    token_file: Option<PathBuf>,
    /// Ask the daemon that was started with this configuration
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    config: Option<PathBuf>,
}

impl ServerArgs {
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        let Some(path) = &self.config else {
            let address = self.server.clone().unwrap_or(ApiAddress::Tcp(HTTP_DEFAULT));
            let token = self.token_file.as_deref().map(token_of).transpose()?;
            return Ok(Server::new(address, token));
        };
        let config = Config::read_alone(path).map_err(|error| Failure::new(error.to_string()))?;
        match (config.http.socket, config.http.listen) {
            (Some(socket), _) => Ok(Server::unix(&socket)),
            (None, Some(address)) if address.port() != 0 => {
                Ok(Server::new(ApiAddress::Tcp(address), config.http.token))
            }
            _ => Err(Failure::new(format!("`{}` says of no place where the daemon answers", path.display()))
                .with_hint("set `http.listen` to a port or `http.socket` to a path")),
        }
    }
}

/// Nobody has so long a token (ours).
const TOKEN_FILE_BYTES_MAX: Bytes = Bytes(1 << 16);

fn token_of(path: &Path) -> Result<Secret, Failure> {
    let text = read_text(path, TOKEN_FILE_BYTES_MAX).context("the token")?;
    let token = Secret::new(text.lines().next().unwrap_or_default());
    token.ok_or_else(|| Failure::new(format!("`{}` holds no token in its first line", path.display())))
}

/// Show how the volumes of a running daemon do.
///
/// At a terminal it stays and shows changes as they come; `q` ends it. Otherwise it prints a table once.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Stay and show changes, also where standard output is no terminal (a table each time), and while the daemon is started anew
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print a table once, also at a terminal
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    once: bool,
    /// How often to look while staying, in seconds, from 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// Shows the state once or until told otherwise.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let server = args.server.server()?;
    let get = || server.get::<Status>("/api/v1/status");
    if args.output.json {
        let mut output = Output::new();
        output.json(&get()?)?;
        return output.finish();
    }
    let at_terminal = std::io::stdout().is_terminal();
    if at_terminal && !args.once {
        // The first answer is waited for before the screen is taken: a daemon that is not there is told in words.
        let first = get()?;
        return screen::show(&server.to_string(), first, get, args.interval);
    }
    let show = |status: &Status| {
        let mut output = Output::new();
        print(&mut output, status)?;
        output.finish()
    };
    // A daemon that is not there at all is no daemon that comes back.
    show(&get()?)?;
    if !args.watch {
        return Ok(());
    }
    let tell = |reason: &str| say(format_args!("{reason}; it is asked again"));
    Err(follow(|| std::thread::sleep(args.interval), get, show, tell))
}

/// Shows what `get` answers behind each `pause`; why it ends. A daemon that does not answer, as while it is started anew, is told once for each reason, and asked again.
fn follow<T>(
    mut pause: impl FnMut(),
    mut get: impl FnMut() -> Result<T, Failure>,
    mut show: impl FnMut(&T) -> Result<(), Failure>,
    mut tell: impl FnMut(&str),
) -> Failure {
    let mut told: Option<String> = None;
    loop {
        pause();
        match get() {
            Ok(answer) => {
                told = None;
                if let Err(failure) = show(&answer) {
                    return failure;
                }
            }
            Err(failure) if told.as_deref() == Some(failure.message()) => {}
            Err(failure) => {
                tell(failure.message());
                told = Some(failure.message().to_owned());
            }
        }
    }
}

fn print(output: &mut Output, status: &Status) -> Result<(), Failure> {
    output.line(headline(status))?;
    if let Some(line) = how_files_are_read(status) {
        output.line(line)?;
    }
    for line in on_flash(status) {
        output.line(line)?;
    }
    if let Some(line) = snapshots(status) {
        output.line(line)?;
    }
    for line in loading(status) {
        output.line(line)?;
    }
    for reservation in &status.reservations {
        output.line(reserve::words(reservation, status.at_unix_ms))?;
    }
    for line in drained(status).into_iter().chain(troubles(status)) {
        output.line(line)?;
    }
    output.line("")?;
    let mut table = Table::new(HEADINGS);
    for volume in &status.volumes {
        for row in rows(volume) {
            table.push(row);
        }
    }
    output.table(&table)
}

pub(super) const HEADINGS: [&str; 9] =
    ["volume", "state", "objective", "now", "conforming", "IOPS", "hit ratio", "cache used", "of quota"];

/// The daemon in a line.
pub(super) fn headline(status: &Status) -> String {
    let controller = decides(&status.controller, status.at_unix_ms);
    format!(
        "forebay {}, up {}, {controller}; {} of {} cache granted, {} used{}",
        status.version,
        span(status.uptime_s.round()),
        bytes(status.cache.granted_bytes),
        bytes(status.cache.capacity_bytes),
        bytes(status.cache.used_bytes),
        clients(status),
    )
}

/// How many clients it has, for the end of a line; nothing of a controller of volumes that others serve, who do not say.
fn clients(status: &Status) -> String {
    if !serves(status) {
        return String::new();
    }
    format!("; {} client{}", status.connections, if status.connections == 1 { "" } else { "s" })
}

/// Whether it serves volumes, as all do that listen, or only controls those that others serve.
pub(super) fn serves(status: &Status) -> bool {
    !status.listen.is_empty()
}

/// Whether a controller decides, in a few words.
pub(super) fn decides(controller: &ControllerStatus, now_unix_ms: i64) -> String {
    match (controller.state, controller.switched_at_unix_ms) {
        (ControllerState::Running, _) => {
            format!("controller decides every {}", span(controller.interval_s))
        }
        (ControllerState::Disabled, Some(at)) => {
            let since_s = now_unix_ms.saturating_sub(at).max(0) as f64 / 1e3;
            format!("controller paused for {}", span(since_s.round().max(1.0)))
        }
        (ControllerState::Disabled, None) => "controller off".to_owned(),
        (ControllerState::Dead, _) => "controller dead, to be started again".to_owned(),
    }
}

/// How files are read and written, in a line; nothing of a controller, which does neither.
fn how_files_are_read(status: &Status) -> Option<String> {
    let engine = Some(&status.io.engine).filter(|engine| !engine.is_empty())?;
    Some(match &status.io.reason {
        None => format!("io: {engine}"),
        Some(reason) => format!("io: {engine} ({reason})"),
    })
}

/// What is on flash, in a line for the device and for each volume; nothing without.
fn on_flash(status: &Status) -> Vec<String> {
    let Some(device) = &status.flash else { return Vec::new() };
    let (taken, capacity) = (bytes(device.taken_bytes), bytes(device.capacity_bytes));
    let mut lines = vec![format!("flash `{}`: {taken} of {capacity} taken", device.path)];
    for volume in &status.volumes {
        if let Some(flash) = &volume.flash {
            let looked = flash.hits + flash.misses;
            let ratio = if looked == 0 { 0.0 } else { flash.hits as f64 / looked as f64 };
            lines.push(format!(
                "  volume `{}`: {} of {} on flash, which had {:.1}% of the blocks that memory did not",
                volume.name,
                bytes(flash.used_bytes),
                bytes(flash.quota_bytes),
                ratio * 100.0
            ));
            lines.extend(volume.placement.as_ref().map(|placement| format!("    {}", placed(placement))));
        }
    }
    lines
}

/// How flash is placed, in a line.
pub(super) fn placed(placement: &PlacementStatus) -> String {
    let threshold = match placement.threshold {
        Some(count) if placement.admission == "adaptive" => format!(" (now {count})"),
        _ => String::new(),
    };
    // The others move what is read, as it is read.
    let is_paced = placement.admission == "adaptive" || placement.admission.starts_with("threshold");
    let pace = match is_paced {
        true => format!("; at most {}/s", bytes(placement.bytes_per_second)),
        false => String::new(),
    };
    let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    format!(
        "placed by {}{threshold}: {} of {} chunks of {}, which {:.1}% of the misses in memory met; {} moved, {} displaced, {} left, {} put off{pace}",
        placement.admission,
        placement.placed_chunks,
        placement.capacity_chunks,
        bytes(placement.chunk_bytes),
        share(placement.read_hits, placement.reads),
        placement.promotions,
        placement.displaced,
        placement.left,
        placement.deferred,
    )
}

/// What is loaded, in a line each.
fn loading(status: &Status) -> Vec<String> {
    let running = |volume: &VolumeStatus| {
        let prewarm = volume.prewarm.as_ref().filter(|prewarm| prewarm.running)?;
        Some(format!("volume `{}` is {}", volume.name, warming(prewarm)))
    };
    status.volumes.iter().filter_map(running).collect()
}

/// A warm-up that goes on, in a line.
pub(super) fn warming(prewarm: &PrewarmStatus) -> String {
    let source = prewarm.source.as_ref().map_or(String::new(), |source| format!(" from {source}"));
    let end = match prewarm.ends_in_s {
        Some(seconds) => format!(", done in about {}", span(seconds.ceil())),
        None => String::new(),
    };
    format!(
        "warming up{source}: {} of {} left, {} loaded{end}",
        bytes(prewarm.remaining_bytes),
        bytes(prewarm.total_bytes),
        bytes(prewarm.loaded_bytes)
    )
}

/// Hosts and volumes that are drained, in a line each.
pub(super) fn drained(status: &Status) -> Vec<String> {
    let each = |of: &DrainStatus| {
        let (what, free) = match of.what {
            DrainedWhat::Host => ("host", "nothing is on it, and it may be removed from the file"),
            DrainedWhat::Volume => ("volume", "it has no appliance, and may be removed from the file"),
        };
        match &of.left {
            None => format!("{what} `{}` is drained: {free}", of.name),
            Some(left) => format!("{what} `{}` is being drained: {left}", of.name),
        }
    };
    status.drained.iter().map(each).collect()
}

/// Snapshots of what caches hold, in a line; nothing where none are kept.
fn snapshots(status: &Status) -> Option<String> {
    let kept = status.snapshots.as_ref()?;
    let refused = match kept.refused {
        0 => String::new(),
        refused => format!(", {refused} refused"),
    };
    Some(format!("snapshots `{}`: {} taken, {} used{refused}", kept.directory, kept.taken, kept.used))
}

/// Flushes that take so long are told of (ours).
const SLOW_FLUSH_S: f64 = 0.1;

/// What a person should look after, in a line each.
pub(super) fn troubles(status: &Status) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(panic) = &status.controller.last_panic {
        lines.push(format!(
            "! controller restarted {} times, last after: {panic}",
            status.controller.restarts
        ));
    }
    if let Some(trouble) = &status.journal_trouble {
        lines.push(format!("! nothing is decided or begun: the journal is not written: {trouble}"));
    }
    if let Some(trouble) = &status.reservations_trouble {
        lines.push(format!("! no reservation stands: {trouble}"));
    }
    if let Some(trouble) = status.snapshots.as_ref().and_then(|kept| kept.trouble.as_ref()) {
        lines.push(format!("! snapshots, which are tried again: {trouble}"));
    }
    if let Some(kept) = status.snapshots.as_ref().filter(|kept| kept.failed > 0) {
        let snapshots = if kept.failed == 1 { "snapshot" } else { "snapshots" };
        lines.push(format!("! {} {snapshots} could not be taken: the log says why", kept.failed));
    }
    if let Some(trouble) = status.flash.as_ref().and_then(|flash| flash.trouble.as_ref()) {
        let on_it: Vec<String> = (status.volumes.iter())
            .filter(|volume| volume.flash.is_some())
            .map(|volume| format!("`{}`", volume.name))
            .collect();
        lines.push(format!("! flash of {}: {trouble}", on_it.join(", ")));
    }
    if let Some(trouble) = &status.history.trouble {
        lines.push(format!(
            "! history is not kept as it should be ({} rows lost): {trouble}",
            status.history.rows_lost
        ));
    }
    for volume in &status.volumes {
        if let Some(mean_s) = volume.flush_latency.mean_s.filter(|mean_s| *mean_s >= SLOW_FLUSH_S) {
            let mean = span(mean_s);
            lines.push(format!("! flushes of `{}` took {mean} on average in the last interval", volume.name));
        }
        match (&volume.origin.reason, &*volume.origin.state) {
            (Some(reason), "unknown") => {
                lines.push(format!("! how `{}` does is not known: {reason}", volume.name));
            }
            (Some(reason), state) => {
                lines.push(format!("! origin of `{}` is {state}: {reason}", volume.name));
            }
            (None, _) => {}
        }
        if volume.errors_per_s > 0.0 {
            lines.push(format!(
                "! volume `{}` answers {:.1} requests/s with an error",
                volume.name, volume.errors_per_s
            ));
        }
        if volume.refused_bytes > 0 {
            let (quota, has) = (bytes(volume.quota_bytes), bytes(volume.quota_bytes - volume.refused_bytes));
            lines.push(format!(
                "! the system refuses the cache of `{}` more memory: {has} of {quota}, until its size is set again",
                volume.name
            ));
        }
        if let Some(flash) = volume.flash.filter(|flash| flash.damaged + flash.write_errors > 0) {
            lines.push(format!(
                "! flash of `{}`: {} blocks were not what was written or could not be read, {} segments could not be written",
                volume.name, flash.damaged, flash.write_errors
            ));
        }
        if volume.origin.in_doubt_bytes > 0 {
            lines.push(format!(
                "! volume `{}` has {} with writes of unknown outcome: further writes there fail until the origin has settled them, or `forebay route {} --to URI --settled`, asked of whoever has that origin, with the URI that it has, says that it cannot apply them any more",
                volume.name,
                bytes(volume.origin.in_doubt_bytes),
                volume.name
            ));
        }
    }
    lines
}

/// A volume as rows of the table: one per objective, the first with everything else.
pub(super) fn rows(volume: &VolumeStatus) -> Vec<[String; 9]> {
    let objective = |objective: Option<&ObjectiveStatus>| match objective {
        None => ["-".to_owned(), "-".to_owned(), "-".to_owned()],
        Some(objective) => [
            named(objective),
            objective.value.map_or("-".to_owned(), |value| quantity(value, &objective.unit)),
            objective.conforming_share.map_or("-".to_owned(), |share| {
                format!("{:.0}% of {:.0}%", share * 100.0, objective.conforming_share_target * 100.0)
            }),
        ],
    };
    let [words, now, conforming] = objective(volume.objectives.first());
    let mut rows = vec![[
        volume.name.clone(),
        volume.state.clone(),
        words,
        now,
        conforming,
        format!("{:.0}", volume.iops),
        volume.hit_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
        bytes(volume.used_bytes),
        bytes(volume.quota_bytes),
    ]];
    for further in volume.objectives.iter().skip(1) {
        let [words, now, conforming] = objective(Some(further));
        let empty = String::new;
        rows.push([empty(), empty(), words, now, conforming, empty(), empty(), empty(), empty()]);
    }
    rows
}

/// An objective in words, with the reservation that it is of.
pub(crate) fn named(objective: &ObjectiveStatus) -> String {
    match objective.reservation {
        None => objective.objective.clone(),
        Some(id) => format!("{} (reservation {id})", objective.objective),
    }
}

/// A number of an objective, in a unit that people read.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "s" => span(value),
        "bytes/s" => format!("{:.1} MB/s", value / 1e6),
        "requests/s" => format!("{value:.0}/s"),
        _ => format!("{value:.3} {unit}"),
    }
}

/// Seconds as people say them.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 172_800.0 => format!("{:.0} d", s / 86_400.0),
        s if s >= 7_200.0 => format!("{:.0} h", s / 3_600.0),
        s if s >= 300.0 => format!("{:.0} min", s / 60.0),
        s if s >= 1.0 => format!("{} s", (s * 10.0).round() / 10.0),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn numbers_are_said_in_units_that_fit() {
        assert_eq!(
            [span(0.00015), span(0.0042), span(12.0), span(3_000.0)],
            ["150 us", "4.20 ms", "12 s", "50 min"]
        );
        assert_eq!(quantity(1_834.4, "requests/s"), "1834/s");
        assert!(seconds("0").is_err() && seconds("2.5").is_ok());
    }

    #[test]
    fn who_serves_nobody_is_said_to_have_no_number_of_clients() {
        let mut status: Status = serde_json::from_str(include_str!("status-example.json")).unwrap();
        assert!(headline(&status).ends_with(" used; 2 clients"), "{}", headline(&status));
        status.listen.clear();
        assert!(headline(&status).ends_with(" used"), "{}", headline(&status));
    }

    #[test]
    fn flushes_that_take_long_are_told_of() {
        let mut status: Status = serde_json::from_str(include_str!("status-example.json")).unwrap();
        let told = |status: &Status| -> Vec<String> {
            troubles(status).into_iter().filter(|line| line.contains("flushes")).collect()
        };
        assert!(told(&status).is_empty(), "none was asked for");
        status.volumes[0].flush_latency.mean_s = Some(0.0999);
        assert!(told(&status).is_empty());
        status.volumes[0].flush_latency.mean_s = Some(0.25);
        let name = &status.volumes[0].name;
        let expected = format!("! flushes of `{name}` took 250.00 ms on average in the last interval");
        assert_eq!(told(&status), [expected]);
    }

    #[test]
    fn who_stays_stays_while_the_daemon_is_started_anew() {
        let mut answers = ["one", "gone", "gone", "another", "gone", "two", "three"].into_iter();
        let (shown, told) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let ended = follow(
            || (),
            || match answers.next().expect("it has ended before") {
                reason @ ("gone" | "another") => Err(Failure::new(reason)),
                answer => Ok(answer),
            },
            |answer| {
                shown.borrow_mut().push(*answer);
                if *answer == "three" { Err(Failure::reader_gone()) } else { Ok(()) }
            },
            |reason| told.borrow_mut().push(reason.to_owned()),
        );
        assert_eq!((ended.message(), shown.into_inner()), ("", vec!["one", "two", "three"]));
        // Once for each reason, not with each look.
        assert_eq!(told.into_inner(), ["gone", "another", "gone"]);
    }
}
