//! Fit, generate, compare: one trace of the validation.

use super::studies::{Studies, Study};
use crate::failure::Failure;
use crate::input;
use forebay_trace::{ReadOptions, Request, TraceReader};
use forebay_units::Nanos;
use forebay_workload::compare::{Comparison, Device, DeviceLayout, LatencyTrial, Measured, compare};
use forebay_workload::model::{
    Fidelity, FitOptions, GenerateOptions, Generator, LevelIops, Model, ModelFitter, StepsTrial,
};
use serde::Serialize;
use std::path::Path;

/// Fewest requests of a trace that is looked at.
const REQUESTS_LEAST: u64 = 1_000;

/// Everything found; what `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    schema: &'static str,
    pub(super) seed: u64,
    pub(super) traces: Vec<TraceFound>,
    /// Files that were left out, and why.
    pub(super) left_out: Vec<(String, String)>,
}

impl Found {
    pub(super) fn new(seed: u64) -> Found {
        Found { schema: "forebay.repro-dcio/1", seed, traces: Vec::new(), left_out: Vec::new() }
    }
}

/// A trace.
#[derive(Debug, Serialize)]
pub(super) struct TraceFound {
    pub(super) name: String,
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) level: u32,
    pub(super) levels: Vec<LevelIops>,
    pub(super) model_bytes: usize,
    /// Requests that the model holds, and how their number was chosen.
    pub(super) steps_held: u64,
    pub(super) steps: Vec<StepsTrial>,
    /// Difference of the IOPS of two seeds in per cent of the first.
    pub(super) run_to_run: f64,
    /// From the whole model.
    pub(super) model: Comparison,
    /// From the paper's chain alone.
    pub(super) plain: Comparison,
    /// From a chain without ranges: what a generator without locality knows.
    pub(super) without_locality: Comparison,
    /// The case studies, from the original and from the whole model.
    pub(super) studies: Studies,
}

/// Where requests come from, as often as they are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requests<'a> {
    /// A trace.
    File(&'a Path),
    /// A model: the same options give the same requests each time.
    Model(&'a Model, GenerateOptions),
}

impl Requests<'_> {
    /// Gives all requests to `take`, batch by batch.
    pub(super) fn play(&self, mut take: impl FnMut(&[Request])) -> Result<(), Failure> {
        let mut batch = Vec::new();
        match self {
            Requests::File(path) => {
                let mut reader = open(path)?;
                while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
                    take(&batch);
                }
            }
            Requests::Model(model, options) => {
                let mut generator = Generator::new(model, options)?;
                while generator.next_batch(&mut batch) > 0 {
                    take(&batch);
                }
            }
        }
        Ok(())
    }

    fn measured(&self) -> Result<Measured, Failure> {
        let mut measured = Measured::new();
        self.play(|batch| measured.requests(batch))?;
        measured.finish();
        Ok(measured)
    }

    /// The mean latency on a device.
    fn latency(&self, mut trial: LatencyTrial) -> Result<Option<Nanos>, Failure> {
        self.play(|batch| trial.requests(batch))?;
        Ok(trial.finish())
    }
}

fn open(path: &Path) -> Result<TraceReader, Failure> {
    TraceReader::open(input::open(&[path.to_path_buf()])?, &ReadOptions::default())
        .map_err(input::trace_failure)
}

/// Validates the trace at `path`; the inner error says why it is left out.
pub(super) fn validate(path: &Path, name: String, seed: u64) -> Result<Result<TraceFound, String>, Failure> {
    if !open(path)?.format().has_time() {
        return Ok(Err("the format has no times".to_owned()));
    }
    let file = Requests::File(path);
    let original = file.measured()?;
    if original.requests < REQUESTS_LEAST {
        return Ok(Err(format!("{} requests are too few", original.requests)));
    }
    if original.span == Nanos::ZERO {
        return Ok(Err("all requests have one time".to_owned()));
    }
    let fit = |options| -> Result<Model, Failure> {
        let mut fitter = ModelFitter::new(options);
        let mut fitted = Ok(());
        file.play(|batch| {
            if fitted.is_ok() {
                fitted = fitter.requests(batch);
            }
        })?;
        fitted?;
        Ok(fitter.finish()?)
    };
    let model = fit(FitOptions::default())?;
    // Its chain is all that is generated from.
    let without = fit(FitOptions { level: Some(0), steps: Some(1), ..FitOptions::default() })?;
    let options = |fidelity, seed| GenerateOptions { seed, fidelity, ..GenerateOptions::default() };
    let generated = Requests::Model(&model, options(Fidelity::Full, seed));
    let synthetic = generated.measured()?;
    let again = Requests::Model(&model, options(Fidelity::Full, seed + 1)).measured()?;
    let plain = Requests::Model(&model, options(Fidelity::Plain, seed));
    let without_locality = Requests::Model(&without, options(Fidelity::Plain, seed));
    let (whole, latencies) = against(file, &original, generated, &synthetic)?;
    let layout = DeviceLayout::of(&[&original, &synthetic]);
    let cache_blocks = forebay_workload::study::scaled_cache_blocks(original.footprint_blocks());
    let studied = |requests, measured, latency: Option<Nanos>| {
        latency.map(|before| Study::of(requests, &layout, measured, cache_blocks, before)).transpose()
    };
    let studies = Studies {
        cache_blocks,
        original: studied(file, &original, latencies[0])?,
        synthetic: studied(generated, &synthetic, latencies[1])?,
    };
    let [plain, without_locality] =
        [plain, without_locality].map(|of| against(file, &original, of, &of.measured()?));
    let (iops, iops_again) = (synthetic.iops().unwrap_or(0.0), again.iops().unwrap_or(0.0));
    Ok(Ok(TraceFound {
        name,
        requests: original.requests,
        seconds: original.span.as_secs_f64(),
        level: model.level,
        levels: model.levels.clone(),
        model_bytes: serde_json::to_string(&model)?.len(),
        steps_held: model.steps_held(),
        steps: model.steps.clone(),
        run_to_run: (iops_again / iops - 1.0) * 100.0,
        model: whole,
        plain: plain?.0,
        without_locality: without_locality?.0,
        studies,
    }))
}

/// Compares what was generated with the original; also the latencies of both on disks.
fn against(
    file: Requests<'_>,
    original: &Measured,
    generated: Requests<'_>,
    synthetic: &Measured,
) -> Result<(Comparison, [Option<Nanos>; 2]), Failure> {
    let layout = DeviceLayout::of(&[original, synthetic]);
    let mut latencies = [[None; 2]; 2];
    for (device, latencies) in [Device::Disks, Device::Flash].into_iter().zip(&mut latencies) {
        latencies[0] = file.latency(LatencyTrial::new(device, &layout, original)?)?;
        latencies[1] = generated.latency(LatencyTrial::new(device, &layout, synthetic)?)?;
    }
    Ok((compare(original, synthetic, latencies), latencies[0]))
}
