//! `forebay model fit`: a trace becomes a model.

use crate::failure::{Context, Failure};
use crate::input::{self, InputArgs};
use crate::output::{count, say, write_file};
use crate::trace_file;
use crate::whole::whole;
use forebay_trace::{Format, Request, TraceReader, VolumeIndex};
use forebay_units::BlockSize;
use forebay_workload::model::{FitOptions, Model, ModelFitter};
use std::collections::HashMap;
use std::path::PathBuf;

/// Fit a model to a trace.
///
/// The hierarchical Markov model of "Storage I/O Generation and Replay for Datacenter Applications" (2011), with the intensity over time
/// and windows of requests beyond it: documented JSON, with no name of a volume and no address of the trace but ranges and places within areas that
/// are moved. One pass, in memory that does not grow with the trace's length. Of the windows as few are kept as will do, and
/// the command says how many that are, and warns where the model holds every request of the trace. Requests whose time steps back count as arriving with the one before them.
#[derive(Debug, clap::Args)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    input: InputArgs,

    /// The file to write the model to, `-` for standard output; must not exist unless --force
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// Fit only to this volume, by its name in the trace; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    volume: Vec<String>,

    /// Split each volume in 4^LEVEL ranges [range: 0 to 5; default: the first level at which the IOPS of a simulated disk
    /// change by less than 2 %]
    #[arg(long, value_name = "LEVEL", value_parser = whole::<u32>(0..=5))]
    level: Option<u32>,

    /// Kinds of time at most, each with inter-arrival times of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<u32>(1..=16))]
    phases: u32,

    /// Transitions that are kept apart at most; rarer ones are summed
    #[arg(long, value_name = "N", default_value_t = 8_192, value_parser = whole::<u32>(1..=1_000_000))]
    transitions: u32,

    /// Requests that are kept as steps of windows at most, 2 to 6 bytes of model each [range: 256 to 100000000; default: the
    /// fewest with which what is generated keeps every row of `forebay model compare` within 70 % of its bound, tried on two seeds; at most 524288]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(256..=100_000_000))]
    steps: Option<u32>,
}

pub(crate) fn run(args: &FitArgs) -> Result<(), Failure> {
    trace_file::check_replacing(&args.output, args.force)?;
    let options = FitOptions {
        level: args.level,
        phases_max: args.phases as usize,
        transitions_max: args.transitions as usize,
        steps: args.steps.map(|steps| steps as usize),
        ..FitOptions::default()
    };
    let mut reader = input::open_trace(&args.input, BlockSize::DEFAULT)?;
    let model = fit(&mut reader, options, &args.volume)?;
    let mut text = serde_json::to_string(&model).context("the model cannot be written as JSON")?;
    text = lines(&text);
    if args.output.as_os_str() == "-" {
        let mut output = crate::output::Output::new();
        output.text(&text)?;
        output.finish()?;
    } else {
        write_file(&args.output, &text)?;
    }
    tell(&model, text.len(), reader.format());
    Ok(())
}

/// Fits a model to what `reader` yields, of the volumes named only if any are.
pub(crate) fn fit(
    reader: &mut TraceReader,
    options: FitOptions,
    volumes: &[String],
) -> Result<Model, Failure> {
    let mut fitter = ModelFitter::new(options);
    let mut batch = Vec::new();
    // Numbers of the chosen volumes, in the order in which they appear.
    let mut chosen: HashMap<VolumeIndex, Option<VolumeIndex>> = HashMap::new();
    let mut found = 0;
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        if !volumes.is_empty() {
            batch.retain_mut(|request: &mut Request| {
                let number = chosen.entry(request.volume).or_insert_with(|| {
                    let wanted = volumes.iter().any(|name| name == reader.volume_name(request.volume));
                    found += u32::from(wanted);
                    wanted.then(|| VolumeIndex(found - 1))
                });
                request.volume = number.unwrap_or_default();
                number.is_some()
            });
        }
        fitter.requests(&batch)?;
    }
    if let Some(name) = volumes.iter().find(|name| !reader.volumes().contains(name)) {
        return Err(Failure::new(format!("the trace has no volume `{name}`"))
            .with_hint("`forebay trace info` lists the volumes"));
    }
    Ok(fitter.finish()?)
}

/// JSON with the entries of its top level, and of its lists, on lines of their own: readable, and no larger than it must be.
fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 20);
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for character in text.chars() {
        out.push(character);
        if in_text {
            in_text = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        match character {
            '"' => in_text = true,
            '{' | '[' => {
                depth += 1;
                if depth <= 2 {
                    out.push('\n');
                }
            }
            '}' | ']' => depth -= 1,
            ',' if depth <= 2 => out.push('\n'),
            _ => {}
        }
    }
    out.push('\n');
    out
}

/// Says what was fitted, and what was not.
fn tell(model: &Model, bytes: usize, format: Format) {
    let about = &model.about;
    say(format_args!(
        "{} requests: level {}, {} states, {} phases, {} bytes",
        count(about.requests),
        model.level,
        count(model.states.len() as u64),
        model.phases.len(),
        count(bytes as u64)
    ));
    tell_steps(model);
    if about.requests == 1 {
        say(
            "a single request has no time between requests: generating more of it takes --requests or --rate",
        );
    } else if !about.timed {
        say(format_args!(
            "{}: the model has no times, and generating from it takes --requests or --rate",
            why_untimed(model, format)
        ));
    } else if about.resolution_ns >= 1_000_000_000 {
        say(format_args!(
            "all times are multiples of {}: so are those that the model generates",
            forebay_units::Nanos(about.resolution_ns)
        ));
    }
    if about.stepped_back > 0 {
        say(format_args!("{} requests step back in time", count(about.stepped_back)));
    }
}

/// Why a model of several requests has no times.
fn why_untimed(model: &Model, format: Format) -> String {
    let (requests, back) = (count(model.about.requests), count(model.about.stepped_back));
    if !format.has_time() {
        format!("the trace has no times (the format {format} records none)")
    } else if model.about.stepped_back > 0 {
        format!(
            "no request comes later than the first one: {back} of {requests} step back, and count as arriving with the one before (sort \
             the trace by time, or cut off what stands too early in it)"
        )
    } else {
        "all requests of the trace have the same time".to_owned()
    }
}

/// Says how much of the trace the windows hold, and why.
fn tell_steps(model: &Model) {
    let (steps, requests) = (model.steps_held(), model.about.requests);
    if steps < requests {
        let share = steps as f64 / requests as f64 * 100.0;
        say(format_args!("windows hold {} of the requests, {share:.0} %", count(steps)));
    }
    match model.steps.last() {
        Some(trial) if trial.is_taken() => say(format_args!(
            "with so many, what it generates is like the trace: {}",
            super::nearest_to_its_bound(trial)
        )),
        Some(trial) if trial.steps == steps => say(format_args!(
            "no number of steps makes what it generates like the trace in all: {}",
            super::nearest_to_its_bound(trial)
        )),
        Some(trial) => say(format_args!(
            "fewer are too few: with {}, {}",
            count(trial.steps),
            super::nearest_to_its_bound(trial)
        )),
        None => {}
    }
    if steps == requests && requests > 1 {
        say(
            "warning: the model holds every request of the trace, with its time and, moved, its place; who must not learn when somebody read how much must not get it (--steps makes it coarser)",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_where_lists_do_and_change_nothing_else() {
        let text = r#"{"a":[[1,2],{"b":"x,[\"y"}],"c":3}"#;
        let broken = lines(text);
        assert_eq!(broken.replace('\n', ""), text);
        assert_eq!(broken.lines().count(), 5, "{broken}");
    }
}
