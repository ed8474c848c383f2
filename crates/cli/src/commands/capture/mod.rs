//! `forebay capture`: a volume served over NBD, with every request of its clients in a trace.
//!
//! The recorder is a layer between the data path and the origin. The volume has no cache, and a volume without a cache passes
//! every read through as it was asked for, so the trace holds the byte ranges of the clients. What differs from what clients
//! sent: a request longer than the origin takes is recorded in its parts; a request is widened to the origin's smallest unit
//! (one byte for files); a write that overlaps one in flight is recorded when it starts, after that one; requests that
//! are refused, and those about allocation, are not recorded.

mod command;
mod recorder;

use crate::failure::{Context, Failure};
use crate::output::{count, say};
use command::Running;
use forebay_appliance::{Appliance, ApplianceConfig, BoundAddress, Drained, ListenerConfig, VolumeConfig};
use forebay_nbd::Uri;
use forebay_origin::{FileOrigin, FileOriginOptions, NbdOrigin, NbdOriginOptions, Origin};
use forebay_units::Bytes;
use recorder::{Recorded, Recorder, Recording};
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often the command and the recorder are looked at, and so how late an end may be noticed.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For requests in flight at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Record what clients ask of a volume, as a trace.
///
/// Serves the volume over NBD and records every request: time, operation, bytes, latency.
///
/// Ends with COMMAND, whose exit status it passes on, or with Ctrl-C. COMMAND finds the volume in FOREBAY_NBD_URI and the unix
/// socket in FOREBAY_NBD_SOCKET. SIGUSR1 switches recording on, SIGUSR2 off, for what is not to be in the trace, as loading a
/// database. No data of the volume is recorded. The trace is never cut short in silence: a request that could not be
/// recorded makes it fail.
#[derive(Debug, clap::Args)]
pub(crate) struct CaptureArgs {
    /// Where the data lives: a file, a block device, or the URI of an NBD export
    #[arg(long, value_name = "FILE|URI")]
    origin: String,

    /// Make the file first, with this size [default: it must exist]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,

    /// Where to listen: `unix:PATH` or `tcp:ADDRESS:PORT` (loopback only) [default: a socket in a new folder]
    #[arg(long, value_name = "WHERE", value_parser = parse_listener)]
    listen: Option<ListenerConfig>,

    /// The name of the export, and of the volume in the trace; clients may leave it out
    #[arg(long, value_name = "NAME", default_value = "volume")]
    export: String,

    /// The trace to write, in Forebay's own format; compressed if the name ends in `.zst`; must not exist unless --force
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the trace if it exists
    #[arg(long)]
    force: bool,

    /// Record nothing until SIGUSR1
    #[arg(long)]
    start_paused: bool,

    /// What to run; the recording ends with it [default: wait for Ctrl-C]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn parse_listener(text: &str) -> Result<ListenerConfig, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(ListenerConfig::Unix { path: path.into() });
    }
    let address = text.strip_prefix("tcp:").and_then(|address| address.parse::<SocketAddr>().ok());
    address
        .map(|address| ListenerConfig::Tcp { address, allow_remote: false })
        .ok_or_else(|| "expected `unix:PATH` or `tcp:ADDRESS:PORT`, as in `tcp:127.0.0.1:10809`".into())
}

pub(crate) fn run(args: &CaptureArgs) -> Result<(), Failure> {
    // Before any thread starts, so that no signal that asks for an end finds the default action.
    let mut signals = crate::interrupt::ends_and(&[SIGUSR1, SIGUSR2])?;
    let origin = open_origin(&args.origin, args.size)?;
    if is_same_file(Path::new(&args.origin), &args.output) {
        return Err(Failure::usage(format!(
            "`{}` is the volume: the trace would be written over it",
            args.output.display()
        )));
    }
    // It is synced at the end, and a FIFO would be waited for, deaf to signals, until somebody reads it.
    if std::fs::metadata(&args.output).is_ok_and(|metadata| !metadata.is_file()) {
        let shown = args.output.display();
        return Err(Failure::usage(format!("`{shown}` is no file, expected the name of one for the trace")));
    }
    let is_new = std::fs::symlink_metadata(&args.output).is_err();
    let folder = match &args.listen {
        Some(_) => None,
        None => Some(
            tempfile::Builder::new()
                .prefix("forebay-")
                .tempdir()
                .context("cannot make a folder for the socket")?,
        ),
    };
    let listener = match (&args.listen, &folder) {
        (Some(listener), _) => listener.clone(),
        (None, Some(folder)) => ListenerConfig::Unix { path: folder.path().join("nbd.sock") },
        (None, None) => unreachable!("a folder is made where no listener is named"),
    };
    let shown = args.output.display();
    let (recorder, recording) =
        Recorder::start(origin, &args.output, args.force, &args.export, !args.start_paused)
            .context(format_args!("cannot create `{shown}`"))?;
    let started = Appliance::start(ApplianceConfig {
        listeners: vec![listener],
        workers: 1,
        volumes: vec![VolumeConfig {
            locality: None,
            ..VolumeConfig::new(&*args.export, Arc::new(recorder))
        }],
        ..ApplianceConfig::default()
    });
    let appliance = match started {
        Ok(appliance) => appliance,
        Err(error) => {
            // An empty trace is in nobody's interest; if it cannot be removed it is only in the way. What was there before may be no file at all.
            if is_new {
                let _ = std::fs::remove_file(&args.output);
            }
            return Err(error.into());
        }
    };
    let address = appliance.listeners()[0].clone();
    let uri = match &address {
        BoundAddress::Unix(path) => Uri::unix(path, &*args.export),
        BoundAddress::Tcp(address) => Uri::tcp(address.ip().to_string(), address.port(), &*args.export),
    };
    say(format_args!("serving {uri}"));
    say(if args.start_paused { "recording is paused: SIGUSR1 starts it" } else { "recording" });

    let ended = follow(args, &uri, &address, &recording, &mut signals);

    if appliance.shutdown(DRAIN_TIMEOUT) == Drained::TimedOut {
        say("requests were still in flight after 10 s; they have no latency in the trace");
    }
    let recorded = recording.finish().context(format_args!("cannot write `{shown}`"))?;
    tell(&recorded, &args.output);
    let status = ended?;
    if recorded.dropped > 0 {
        return Err(Failure::new(format!(
            "{} requests are missing in `{shown}`: the disk or the machine was too slow to record them",
            count(recorded.dropped)
        )));
    }
    if status == 0 { Ok(()) } else { Err(Failure::silent(status)) }
}

/// Switches recording as signals ask, until the command ends or a signal asks for an end; the status to end with.
fn follow(
    args: &CaptureArgs,
    uri: &Uri,
    address: &BoundAddress,
    recording: &Recording,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut running = match args.command.split_first() {
        Some((program, rest)) => Some(Running::start(program, rest, uri, address)?),
        None => None,
    };
    loop {
        for signal in signals.pending() {
            match signal {
                SIGUSR1 | SIGUSR2 => {
                    recording.switch(signal == SIGUSR1);
                    say(if signal == SIGUSR1 { "recording" } else { "recording is paused" });
                }
                _ => match &mut running {
                    // The command decides when it is done; a second request is not waited for.
                    Some(running) => running.ask_to_end(signal),
                    None => return Ok(0),
                },
            }
        }
        if recording.has_failed() {
            // The command is ended with `running`; the recorder says why.
            return Ok(0);
        }
        if let Some(status) = running.as_mut().map(Running::status).transpose()?.flatten() {
            return Ok(status);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn tell(recorded: &Recorded, output: &Path) {
    say(format_args!(
        "{} requests of {:.1} s written to {}",
        count(recorded.requests),
        recorded.duration.as_secs_f64(),
        output.display()
    ));
    if recorded.errors > 0 {
        say(format_args!("{} of them were answered with an error", count(recorded.errors)));
    }
    if recorded.without_latency > 0 {
        say(format_args!("{} of them have no latency", count(recorded.without_latency)));
    }
}

/// Whether both paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    of(one).is_some_and(|one| of(other) == Some(one))
}

fn open_origin(origin: &str, size: Option<Bytes>) -> Result<Arc<dyn Origin>, Failure> {
    let scheme = origin.split_once("://").map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.starts_with("nbd")) {
        if size.is_some() {
            return Err(Failure::usage("--size makes a file, but the origin is an NBD export"));
        }
        let uri: Uri = origin.parse().context(format_args!("`{origin}`"))?;
        return Ok(Arc::new(NbdOrigin::connect(&uri, NbdOriginOptions::default())?));
    }
    let path = Path::new(origin);
    if let Some(size) = size {
        let file = File::options().write(true).create_new(true).open(path);
        let file = file.context(format_args!("cannot create `{origin}`")).map_err(|failure| {
            if path.exists() {
                failure.with_hint("leave --size out to use the file as it is")
            } else {
                failure
            }
        })?;
        file.set_len(size.0).context(format_args!("cannot give `{origin}` {size}"))?;
    }
    Ok(Arc::new(FileOrigin::open(path, FileOriginOptions::default())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_by_their_prefix() {
        assert_eq!(parse_listener("unix:/a b"), Ok(ListenerConfig::Unix { path: "/a b".into() }));
        let address = "127.0.0.1:0".parse().unwrap();
        assert_eq!(
            parse_listener("tcp:127.0.0.1:0"),
            Ok(ListenerConfig::Tcp { address, allow_remote: false })
        );
        for bad in ["", "unix:", "tcp:", "tcp:localhost", "/a", "http://a"] {
            assert!(parse_listener(bad).is_err(), "{bad}");
        }
    }
}
