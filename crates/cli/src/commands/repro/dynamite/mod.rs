//! `forebay repro dynamite`: the case study of the Dynamite paper, on virtual time.

mod live;
mod parts;
mod show;

use crate::commands::repro::telling::tell;
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, writable};
use crate::whole::{ANY, whole};
use forebay_sim::dynamite::{Setup, Stage};
use std::path::PathBuf;

/// Run the case study of "Responding Rapidly to Service Level Violations Using Virtual Appliances" (Dynamite, 2012) again, on virtual time.
///
/// A load with the phases of the trace USR-1 (a spike, a calm, a peak of 27 minutes, a calm) and a random reader share 11 disks in RAID 4
/// that can serve either of them alone. Figure 5: each alone, both, and a cache that is made after seven minutes of violation, at Forebay's own
/// pace, or before the peak because it came in two periods before; the first and the last with and without loading hot zones beforehand, `reactive` without
/// the daemon's refusals to load what may be cold soon or lies scattered. Figure 6: who
/// interferes with whom. Figure 7: miss ratio curves, exact and as the daemon estimates them. The paper's times are printed beside ours. The trace itself is
/// not used: what stands in for it, and what else is ours, is said. Making a virtual machine takes no time here. Everything is simulated; a seed
/// repeats it.
#[derive(Debug, clap::Args)]
pub(crate) struct DynamiteArgs {
    /// Make minutes, intervals and working sets this much shorter and smaller [range: 1 to 10]
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=10))]
    hurry: u32,

    /// Without the courses that take three periods: seconds instead of minutes
    #[arg(long)]
    quick: bool,

    /// Also the least caches that would have done, with hindsight, beside those that were given: some eighty more runs of each course with a
    /// cache; and the same for Forebay's own pace with other disks and other popularities
    #[arg(long)]
    sizes: bool,

    /// With real processes and emulated disks instead: five minutes, in which the peak comes four times, or fewer (`--periods`)
    #[arg(long, conflicts_with_all = ["hurry", "quick", "sizes", "report"])]
    live: bool,

    /// Periods of the live run, of 75 s each [range: 1 to 4; peaks are foreseen from the third on]
    #[arg(long, value_name = "N", requires = "live", default_value_t = 4, value_parser = whole::<u64>(1..=4))]
    periods: u64,

    /// Appliances of the live run as virtual machines by QEMU, from the image in this folder (`make appliance-image`); processes unless set
    #[arg(long, value_name = "FOLDER", requires = "live")]
    image: Option<PathBuf>,

    /// Chooses everything random [range: 0 to 2^64 - 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(ANY), default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    output: OutputArgs,

    /// Write a self-contained HTML report with plots to this file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

pub(crate) fn run(args: &DynamiteArgs) -> Result<(), Failure> {
    if args.live {
        let found = live::run(args.seed, args.periods, args.image.as_deref())?;
        let mut output = Output::new();
        if args.output.json {
            output.json(&found)?;
        } else {
            live::print(&found, &mut output)?;
        }
        return output.finish();
    }
    let setup = Setup { stage: Stage::Paper, hurry: args.hurry, seed: args.seed };
    let found = parts::run(&setup, args.quick, args.sizes)?;
    tell(&found, &args.output, args.report.as_ref(), show::print, show::report)
}
