//! `forebay model compare`: two traces side by side.

use crate::failure::Failure;
use crate::input::{self, ReadingArgs};
use crate::output::{self, OutputArgs};
use forebay_report::Table;
use forebay_trace::TraceReader;
use forebay_units::{BlockSize, Bytes, ParseBytesError};
use forebay_workload::compare::{
    Comparison, Device, DeviceLayout, LatencyTrial, Measured, Row, Verdict, compare,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Compare a synthetic trace with its original.
///
/// The validation table of "Storage I/O Generation and Replay for Datacenter Applications" (2011), and what it leaves out, with a verdict
/// per row. Originals of fewer than 100,000 requests or less than ten minutes are reported and not judged. Both files are read twice.
/// Volumes are matched by how busy they are. Exits with status 1 if a judged row is beyond its bound.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// The original trace
    #[arg(value_name = "ORIGINAL")]
    original: PathBuf,

    /// The synthetic trace
    #[arg(value_name = "SYNTHETIC")]
    synthetic: PathBuf,

    /// Size of the simulated disks, all ten together, so that several pairs of traces are compared on the same ones; addresses beyond it wrap around [default:
    /// what the larger of both traces needs; range: 1MiB to 1024TiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    device_capacity: Option<Bytes>,

    #[command(flatten)]
    reading: ReadingArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The least and the most that simulated disks hold.
const CAPACITIES: [Bytes; 2] = [Bytes(1 << 20), Bytes(1 << 50)];

/// A size that the simulated disks can have.
fn parse_capacity(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: ParseBytesError| error.to_string())?;
    let [least, most] = CAPACITIES;
    if !(least..=most).contains(&bytes) {
        return Err(format!("expected {least} to {most}"));
    }
    Ok(bytes)
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct CompareJson<'a> {
    schema: &'static str,
    within: bool,
    device_capacity_bytes: u64,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let open = |path: &Path, original: bool| -> Result<TraceReader, Failure> {
        if path.as_os_str() == "-" {
            return Err(Failure::usage("traces are read twice, which standard input cannot be"));
        }
        // How to read is about the original; what was generated says what it is.
        let reading = if original { args.reading.options(BlockSize::DEFAULT) } else { Default::default() };
        TraceReader::open(input::open(&[path.to_path_buf()])?, &reading).map_err(input::trace_failure)
    };
    let original = measure(&mut open(&args.original, true)?)?;
    let synthetic = measure(&mut open(&args.synthetic, false)?)?;
    let mut layout = DeviceLayout::of(&[&original, &synthetic]);
    if let Some(Bytes(bytes)) = args.device_capacity {
        layout = layout.on(bytes);
    }
    let mut latencies = [[None; 2]; 2];
    for (device, latencies) in [Device::Disks, Device::Flash].into_iter().zip(&mut latencies) {
        latencies[0] =
            latency(&mut open(&args.original, true)?, LatencyTrial::new(device, &layout, &original)?)?;
        latencies[1] =
            latency(&mut open(&args.synthetic, false)?, LatencyTrial::new(device, &layout, &synthetic)?)?;
    }
    let comparison = compare(&original, &synthetic, latencies);
    output::show(
        |output| {
            if !args.output.json {
                return output.table(&table(&comparison));
            }
            output.json(&CompareJson {
                schema: "forebay.model-compare/1",
                within: comparison.within(),
                device_capacity_bytes: layout.capacity_bytes(),
                comparison: &comparison,
            })
        },
        || if comparison.within() { Ok(()) } else { Err(Failure::silent(1)) },
    )
}

/// Measures a trace, without a device.
pub(crate) fn measure(reader: &mut TraceReader) -> Result<Measured, Failure> {
    let mut measured = Measured::new();
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        measured.requests(&batch);
    }
    input::tell_early(reader);
    measured.finish();
    Ok(measured)
}

fn latency(
    reader: &mut TraceReader,
    mut trial: LatencyTrial,
) -> Result<Option<forebay_units::Nanos>, Failure> {
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        trial.requests(&batch);
    }
    Ok(trial.finish())
}

/// The rows for people.
pub(crate) fn table(comparison: &Comparison) -> Table {
    let caption = match comparison.judged {
        true => "Synthetic beside original",
        false => "Synthetic beside original: too short to be judged",
    };
    let mut table =
        Table::new(["metric", "original", "synthetic", ">deviation", ">bound", "verdict", "measure"])
            .with_caption(caption);
    for row in &comparison.rows {
        let bound = row.bound.map_or_else(|| "-".to_owned(), |bound| with_unit(row, bound));
        let verdict = match row.verdict {
            Verdict::Within => "within",
            Verdict::Beyond => "BEYOND",
            Verdict::NotJudged => "not judged",
        };
        table.push([
            row.metric.to_owned(),
            row.original.clone(),
            row.synthetic.clone(),
            deviation(row),
            bound,
            verdict.to_owned(),
            row.measure.to_owned(),
        ]);
    }
    table
}

/// The deviation of a row with its unit.
pub(crate) fn deviation(row: &Row) -> String {
    row.deviation.map_or_else(|| "-".to_owned(), |deviation| with_unit(row, deviation))
}

fn with_unit(row: &Row, value: f64) -> String {
    match row.unit {
        "" => format!("{value:.4}"),
        unit => format!("{value:.2} {unit}"),
    }
}
