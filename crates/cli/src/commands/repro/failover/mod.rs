//! `forebay repro failover`: a daemon is killed under load, another takes its volume over, with snapshots and without, second by second.
//!
//! It is here and not in the demonstration because it is a measurement: both ways are repeated, one after the other. It is not in `repro presto`
//! because nothing of it is simulated.

mod outcome;
mod scene;
mod show;

use crate::commands::repro::telling::tell;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{OutputArgs, say, writable};
use crate::whole::{ANY, whole};
use outcome::Outcome;
use scene::{Begins, Scene, Setup};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Kill a daemon under load, and compare who takes over with its snapshots and who begins with a cold cache.
///
/// A volume on emulated disks is served by a daemon with a cache that keeps snapshots, and is killed with SIGKILL under load. Then others take the volume over, each a
/// process of its own: by turns with a copy of the snapshots and without. Each time the same requests are made, and what is read is compared with what it must be.
/// The report has hit ratio and latency second by second. Takes about six minutes in real time, a quarter of one with --quick, and 300 MB of disk.
#[derive(Debug, clap::Args)]
pub(crate) struct FailoverArgs {
    /// A small volume, one takeover of each kind, some seconds: to see that it works
    #[arg(long)]
    quick: bool,

    /// Takeovers of each kind [default: 3; with --quick 1] [range: 1 to 50]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=50))]
    repeats: Option<u64>,

    /// Chooses contents and requests [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report with plots to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

/// How long each part lasts, in seconds.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    warm: u64,
    after: u64,
}

pub(crate) fn run(args: &FailoverArgs) -> Result<(), Failure> {
    let seed = args.seed;
    let (setup, lengths) = if args.quick {
        let setup = Setup {
            volume_bytes: 32 << 20,
            cache_bytes: 12 << 20,
            hot_bytes: 8 << 20,
            requests_per_s: 400.0,
            seed,
        };
        (setup, Lengths { warm: 6, after: 3 })
    } else {
        let setup = Setup {
            volume_bytes: 256 << 20,
            cache_bytes: 64 << 20,
            hot_bytes: 24 << 20,
            requests_per_s: 400.0,
            seed,
        };
        (setup, Lengths { warm: 60, after: 45 })
    };
    let repeats = args.repeats.unwrap_or(if args.quick { 1 } else { 3 });
    let stop = interrupt::watch()?;
    let mut scene = Scene::new(setup)?;
    let kept = scene.snapshots("snapshots", None)?;
    say(format_args!("the first daemon serves for {} s, and is killed", lengths.warm));
    let first = scene.start(Begins::FromSnapshots, &kept)?;
    let first = scene.play(first, 0, lengths.warm, true, &stop)?;
    let mut taken = Vec::new();
    for repeat in 0..repeats {
        // By turns, so that whatever drifts is shared.
        let mut ways = [Begins::FromSnapshots, Begins::Cold];
        ways.rotate_left((repeat % 2) as usize);
        for begins in ways {
            if stop.load(Ordering::Relaxed) {
                say("interrupted: everything was stopped and removed");
                return Err(Failure::silent(130));
            }
            say(match begins {
                Begins::Cold => "another takes over, cold",
                Begins::FromSnapshots => "another takes over, with snapshots",
            });
            let copy = scene.snapshots(&format!("copy-{repeat}-{begins:?}"), Some(&kept))?;
            let serving = scene.start(begins, &copy)?;
            taken.push((begins, scene.play(serving, 1 + repeat, lengths.after, false, &stop)?));
        }
    }
    let outcome = Outcome::of(setup, lengths.warm, &first, &taken);
    let told = tell(&outcome, &args.output, args.report.as_ref(), show::print, show::report);
    match outcome.failure() {
        None => told,
        Some(failure) => Err(Failure::new(failure)),
    }
}
