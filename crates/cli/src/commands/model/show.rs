//! `forebay model show`: a model for people.

use crate::failure::Failure;
use crate::output::{self, bytes, count, say, writable, write_file, write_report};
use crate::whole::{ANY, whole};
use forebay_report::{Arrow, Diagram, Report, State, Table};
use forebay_units::Nanos;
use forebay_workload::model::{Model, PlainTransition, Use, Whereabouts, plain_transitions};
use std::path::PathBuf;

/// Show a model: its states and transitions, and what it knows beyond them.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The model, as `forebay model fit` wrote it; `-` for standard input
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// How many transitions are shown, the likeliest first
    #[arg(long, value_name = "N", value_parser = whole::<usize>(ANY), default_value_t = 20)]
    transitions: usize,

    /// Show the steps of this window in words too: which request comes after which time, where, and when that was used before [range: 0 to
    /// one less than the model has]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(ANY))]
    window: Option<usize>,

    /// Draw the state diagram into this SVG file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    svg: Option<PathBuf>,

    /// Write tables and state diagram to this self-contained HTML file
    #[arg(long, value_name = "FILE", value_parser = writable(), help_heading = "Output")]
    report: Option<PathBuf>,
}

/// States of a diagram; the busiest, as more are not seen apart.
const STATES_DRAWN: usize = 32;

pub(crate) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let model = super::read(&args.model)?;
    let transitions = plain_transitions(&model);
    let tables: Vec<Table> = [
        Some(about(&model)),
        tried(&model),
        Some(states(&model, &transitions)),
        Some(listed(&model, &transitions, args.transitions)),
        args.window.map(|number| window(&model, number)).transpose()?,
    ]
    .into_iter()
    .flatten()
    .collect();
    output::show(
        |output| {
            for (at, table) in tables.iter().enumerate() {
                if at > 0 {
                    output.line("")?;
                }
                output.table(table)?;
            }
            Ok(())
        },
        || {
            let diagram = diagram(&model, &transitions);
            if let Some(path) = &args.svg {
                write_file(path, &diagram.to_svg())?;
                say(format_args!("state diagram written to {}", path.display()));
            }
            write_report(args.report.as_ref(), || {
                let subtitle = format!("{} requests in {}", count(model.about.requests), span(&model));
                let report = Report::new("Model of a workload", subtitle).diagram(diagram);
                tables.iter().fold(report, |report, table| report.table(table.clone()))
            })
        },
    )
}

fn span(model: &Model) -> String {
    if model.about.timed {
        Nanos::from_secs_f64(model.about.seconds).to_string()
    } else {
        "no time".to_owned()
    }
}

fn about(model: &Model) -> Table {
    let mut table = Table::new(["what", ">value", "remark"]).with_caption("Model");
    let about = &model.about;
    table.push(["requests".to_owned(), count(about.requests), format!("in {}", span(model))]);
    table.push([
        "volumes".to_owned(),
        count(model.volumes.len() as u64),
        shares_words(model.volumes.iter().map(|volume| volume.weight)),
    ]);
    let threads = match model.thread_weights.is_empty() {
        true => ("-".to_owned(), "the trace records none".to_owned()),
        false => {
            (count(model.thread_weights.len() as u64), shares_words(model.thread_weights.iter().copied()))
        }
    };
    table.push(["threads".to_owned(), threads.0, threads.1]);
    let levels: Vec<String> =
        model.levels.iter().map(|level| format!("{}: {:.0}/s", level.level, level.iops)).collect();
    table.push(["level".to_owned(), model.level.to_string(), levels.join(", ")]);
    table.push(["states".to_owned(), count(model.states.len() as u64), String::new()]);
    table.push(["types and sizes".to_owned(), count(model.kinds.len() as u64), String::new()]);
    for (at, phase) in model.phases.iter().enumerate() {
        let h2 = &phase.gaps.hyper_exponential;
        let share = phase.requests as f64 / about.requests.max(1) as f64 * 100.0;
        let remark = format!(
            "inter-arrival {:.3} ms, and {:.3} ms for {:.1} % of the requests; long after long {:.2}, after short {:.2}",
            h2.short_us / 1e3,
            h2.long_us / 1e3,
            h2.long * 100.0,
            h2.long_after_long,
            h2.long_after_short
        );
        table.push([format!("phase {at}"), format!("{share:.1} %"), remark]);
    }
    table.push([
        "footprint".to_owned(),
        bytes(about.footprint_blocks.saturating_mul(model.block_bytes)),
        String::new(),
    ]);
    let steps = model.steps_held();
    table.push([
        "windows".to_owned(),
        count(model.windows.len() as u64),
        format!(
            "with {:.1} % of the requests, in {} areas of {}",
            steps as f64 / about.requests.max(1) as f64 * 100.0,
            count(model.areas.len() as u64),
            bytes(model.area_bytes)
        ),
    ]);
    if steps == about.requests {
        let remark = "every request of the trace, with its time and, moved, its place".to_owned();
        table.push(["held whole".to_owned(), count(steps), remark]);
    }
    table
}

/// Which numbers of steps were tried, and how far what they generated was from the trace.
fn tried(model: &Model) -> Option<Table> {
    let mut table =
        Table::new([">steps", "taken", "deviations and their bounds"]).with_caption("Choice of the steps");
    for trial in &model.steps {
        let words: Vec<String> = trial
            .rows
            .iter()
            .map(|row| format!("{} {} ({})", row.metric, row.deviation, row.bound))
            .collect();
        let taken = if trial.is_taken() { "yes" } else { "no" };
        table.push([count(trial.steps), taken.to_owned(), words.join(", ")]);
    }
    (!model.steps.is_empty()).then_some(table)
}

/// The first of some shares.
fn shares_words(shares: impl ExactSizeIterator<Item = f64>) -> String {
    let all = shares.len();
    let shown: Vec<String> = shares.take(4).map(|share| format!("{:.1} %", share * 100.0)).collect();
    if all > shown.len() { shown.join(", ") + ", ..." } else { shown.join(", ") }
}

/// The share of requests in each state.
fn shares(model: &Model, transitions: &[PlainTransition]) -> Vec<f64> {
    let mut shares = vec![0.0; model.states.len()];
    transitions.iter().for_each(|row| shares[row.to as usize] += row.probability);
    shares
}

fn name(model: &Model, state: u32) -> String {
    let range = &model.states[state as usize];
    let volume = if model.volumes.len() > 1 { format!("{}:", range.volume) } else { String::new() };
    format!("{volume}{}", bytes(range.first_byte))
}

fn states(model: &Model, transitions: &[PlainTransition]) -> Table {
    let mut table = Table::new(["state", ">volume", ">from", ">size", ">requests"]).with_caption("States");
    let shares = shares(model, transitions);
    let mut order: Vec<usize> = (0..model.states.len()).collect();
    order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
    for &at in order.iter().take(STATES_DRAWN) {
        let state = &model.states[at];
        table.push([
            at.to_string(),
            state.volume.to_string(),
            bytes(state.first_byte),
            bytes(state.bytes),
            format!("{:.1} %", shares[at] * 100.0),
        ]);
    }
    table
}

fn listed(model: &Model, transitions: &[PlainTransition], most: usize) -> Table {
    let mut table = Table::new([
        "from",
        "to",
        ">probability",
        ">reads",
        ">random",
        ">size",
        ">of them",
        ">inter-arrival",
    ])
    .with_caption("Transitions");
    for row in transitions.iter().take(most) {
        table.push([
            name(model, row.from),
            name(model, row.to),
            format!("{:.2} %", row.probability * 100.0),
            format!("{:.0} %", row.reads * 100.0),
            format!("{:.0} %", row.random * 100.0),
            bytes(row.size.0),
            format!("{:.0} %", row.size.1 * 100.0),
            format!("{:.3} ms", row.gap_us / 1e3),
        ]);
    }
    table
}

/// The steps of a window.
fn window(model: &Model, number: usize) -> Result<Table, Failure> {
    let Some(window) = model.windows.get(number) else {
        let most = model.windows.len() - 1;
        return Err(Failure::usage(format!(
            "--window is {number}: expected 0 to {most}, as the model has no others"
        )));
    };
    let plays = if window.stands_for == window.steps.len() as u64 {
        "itself".to_owned()
    } else {
        format!("{} requests", count(window.stands_for))
    };
    let caption = format!("Window {number}, after {} requests; it stands for {plays}", count(window.after));
    let mut table =
        Table::new([">step", ">after", "type", ">size", "where", "used before"]).with_caption(caption);
    let ago =
        |ago: u64| if ago == 1 { "1 request ago".to_owned() } else { format!("{} requests ago", count(ago)) };
    for (at, step) in window.steps.iter().enumerate() {
        let kind = &model.kinds[step.kind as usize];
        let (place, used) = match step.at {
            Whereabouts::On { is_new } => ("on".to_owned(), if is_new { "no" } else { "yes" }.to_owned()),
            Whereabouts::At { area, sectors, used } => {
                let used = match used {
                    Use::New => "no".to_owned(),
                    Use::Again(requests) => ago(requests),
                    Use::Inside(requests) => format!("inside of others, {}", ago(requests)),
                };
                (format!("area {area}, sector {sectors}"), used)
            }
        };
        let operation = format!("{:?}", kind.operation).to_lowercase();
        table.push([
            at.to_string(),
            Nanos(step.gap_ns).to_string(),
            operation,
            bytes(kind.bytes),
            place,
            used,
        ]);
    }
    Ok(table)
}

fn diagram(model: &Model, transitions: &[PlainTransition]) -> Diagram {
    let shares = shares(model, transitions);
    let mut drawn: Vec<usize> = (0..model.states.len()).collect();
    drawn.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
    drawn.truncate(STATES_DRAWN);
    drawn.sort_unstable();
    let place = |state: u32| drawn.binary_search(&(state as usize)).ok();
    let arrows = transitions
        .iter()
        .filter_map(|row| {
            let detail = format!(
                "{} to {}: {:.2} %, {:.0} % reads, {:.0} % random, {} ({:.0} %), {:.3} ms",
                name(model, row.from),
                name(model, row.to),
                row.probability * 100.0,
                row.reads * 100.0,
                row.random * 100.0,
                bytes(row.size.0),
                row.size.1 * 100.0,
                row.gap_us / 1e3
            );
            Some(Arrow { from: place(row.from)?, to: place(row.to)?, share: row.probability, detail })
        })
        .collect();
    let states = drawn.iter().map(|&at| State { label: name(model, at as u32), share: shares[at] }).collect();
    Diagram { title: format!("State diagram, level {}", model.level), states, arrows }
}
