//! Fit, generate, compare: one trace of the validation.

use crate::failure::Failure;
use crate::input;
use forebay_trace::{ReadOptions, TraceReader};
use forebay_units::Nanos;
use forebay_workload::compare::{Comparison, Device, DeviceLayout, LatencyTrial, Measured, compare};
use forebay_workload::model::{
    Fidelity, FitOptions, GenerateOptions, Generator, LevelIops, Model, ModelFitter,
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
    /// Difference of the IOPS of two seeds in per cent of the first.
    pub(super) run_to_run: f64,
    /// From the whole model.
    pub(super) model: Comparison,
    /// From the paper's chain alone.
    pub(super) plain: Comparison,
    /// From a chain without ranges: what a generator without locality knows.
    pub(super) without_locality: Comparison,
}

/// Validates the trace at `path`; the inner error says why it is left out.
pub(super) fn validate(path: &Path, name: String, seed: u64) -> Result<Result<TraceFound, String>, Failure> {
    let mut original = Measured::new();
    let mut fitters = [
        ModelFitter::new(FitOptions::default()),
        ModelFitter::new(FitOptions { level: Some(0), ..FitOptions::default() }),
    ];
    let mut reader = open(path)?;
    if !reader.format().has_time() {
        return Ok(Err("the format has no times".to_owned()));
    }
    let mut batch = Vec::new();
    while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
        original.requests(&batch);
        for fitter in &mut fitters {
            fitter.requests(&batch)?;
        }
    }
    original.finish();
    if original.requests < REQUESTS_LEAST {
        return Ok(Err(format!("{} requests are too few", original.requests)));
    }
    if original.span == Nanos::ZERO {
        return Ok(Err("all requests have one time".to_owned()));
    }
    let [fitter, without] = fitters;
    let (model, without) = (fitter.finish()?, without.finish()?);
    let against = |model: &Model, fidelity, seed| against(path, &original, model, fidelity, seed);
    let (whole, iops) = against(&model, Fidelity::Full, seed)?;
    let (_, iops_again) = against(&model, Fidelity::Full, seed + 1)?;
    let (plain, _) = against(&model, Fidelity::Plain, seed)?;
    let (without_locality, _) = against(&without, Fidelity::Plain, seed)?;
    Ok(Ok(TraceFound {
        name,
        requests: original.requests,
        seconds: original.span.as_secs_f64(),
        level: model.level,
        levels: model.levels.clone(),
        model_bytes: serde_json::to_string(&model)?.len(),
        run_to_run: (iops_again / iops - 1.0) * 100.0,
        model: whole,
        plain,
        without_locality,
    }))
}

fn open(path: &Path) -> Result<TraceReader, Failure> {
    TraceReader::open(input::open(&[path.to_path_buf()])?, &ReadOptions::default())
        .map_err(input::trace_failure)
}

/// Generates from a model and compares with the original; also the generated IOPS.
fn against(
    path: &Path,
    original: &Measured,
    model: &Model,
    fidelity: Fidelity,
    seed: u64,
) -> Result<(Comparison, f64), Failure> {
    let options = GenerateOptions { seed, fidelity, ..GenerateOptions::default() };
    let mut batch = Vec::new();
    let mut synthetic = Measured::new();
    let mut generator = Generator::new(model, &options)?;
    while generator.next_batch(&mut batch) > 0 {
        synthetic.requests(&batch);
    }
    synthetic.finish();
    let layout = DeviceLayout::of(&[original, &synthetic]);
    let mut latencies = [[None; 2]; 2];
    for (device, latencies) in [Device::Disks, Device::Flash].into_iter().zip(&mut latencies) {
        let mut trial = LatencyTrial::new(device, &layout, original)?;
        let mut reader = open(path)?;
        while reader.next_batch(&mut batch).map_err(input::trace_failure)? > 0 {
            trial.requests(&batch);
        }
        latencies[0] = trial.finish();
        // The same seed gives the same requests again.
        let mut trial = LatencyTrial::new(device, &layout, &synthetic)?;
        let mut generator = Generator::new(model, &options)?;
        while generator.next_batch(&mut batch) > 0 {
            trial.requests(&batch);
        }
        latencies[1] = trial.finish();
    }
    let iops = synthetic.iops().unwrap_or(0.0);
    Ok((compare(original, &synthetic, latencies), iops))
}
