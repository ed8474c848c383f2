//! Fits a model to each trace that is named, generates from it, and prints how far apart the two are.
//!
//! `cargo run -p forebay-workload --example fidelity -- TRACE...`; `STEPS=N` bounds the steps of the models, `SEED=N` is the first of three seeds, 1 unless given.

use forebay_trace::{ReadOptions, Request, Source, TraceReader};
use forebay_workload::compare::{Device, DeviceLayout, LatencyTrial, Measured, compare};
use forebay_workload::model::{Fidelity, FitOptions, GenerateOptions, Generator, ModelFitter};
use std::time::Instant;

fn read(path: &str) -> Vec<Request> {
    let file = std::fs::File::open(path).expect("the trace exists");
    let mut reader =
        TraceReader::open(vec![Source::new(path, file)], &ReadOptions::default()).expect("the trace opens");
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).expect("the trace is sound") > 0 {
        all.extend_from_slice(&batch);
    }
    all
}

fn measure(requests: &[Request]) -> Measured {
    let mut measured = Measured::new();
    measured.requests(requests);
    measured.finish();
    measured
}

fn main() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed: u64 = number("SEED").unwrap_or(1);
    for path in std::env::args().skip(1) {
        let original = read(&path);
        let begun = Instant::now();
        let steps = number("STEPS").map(|steps| steps as usize);
        let mut fitter = ModelFitter::new(FitOptions { steps, ..FitOptions::default() });
        for batch in original.chunks(4_096) {
            fitter.requests(batch).expect("few volumes");
        }
        let passed = begun.elapsed().as_secs_f64();
        let model = fitter.finish().expect("the trace has requests");
        let json = serde_json::to_string(&model).expect("a model is plain data");
        println!(
            "{path}: {} requests, fit {:.2} M/s and {:.2} s, {} KB, level {}, {} states, {} phases, placements {:?}",
            original.len(),
            original.len() as f64 / passed / 1e6,
            begun.elapsed().as_secs_f64() - passed,
            json.len() / 1_000,
            model.level,
            model.states.len(),
            model.phases.len(),
            model.placements,
        );
        for trial in &model.steps {
            let rows: Vec<String> = trial
                .rows
                .iter()
                .map(|row| format!("{} {:.3}/{}", row.metric, row.deviation, row.bound))
                .collect();
            println!("  {} steps: {}", trial.steps, rows.join(", "));
        }
        let measured = measure(&original);
        let full = (seed..seed + 3).map(|seed| (Fidelity::Full, seed));
        for (fidelity, seed) in std::iter::once((Fidelity::Plain, seed)).chain(full) {
            let options = GenerateOptions { seed, fidelity, ..GenerateOptions::default() };
            let begun = Instant::now();
            let mut generator = Generator::new(&model, &options).expect("the model is sound");
            let (mut all, mut batch) = (Vec::new(), Vec::new());
            while generator.next_batch(&mut batch) > 0 {
                all.extend_from_slice(&batch);
            }
            println!(
                "  {fidelity:?}, seed {seed}, {:.2} M/s",
                all.len() as f64 / begun.elapsed().as_secs_f64() / 1e6
            );
            let synthetic = measure(&all);
            let layout = DeviceLayout::of(&[&measured, &synthetic]);
            let latency = |device, requests: &[Request], measured: &Measured| {
                let mut trial = LatencyTrial::new(device, &layout, measured).expect("the device is sound");
                trial.requests(requests);
                trial.finish()
            };
            let latencies = [Device::Disks, Device::Flash]
                .map(|device| [latency(device, &original, &measured), latency(device, &all, &synthetic)]);
            for row in compare(&measured, &synthetic, latencies).rows {
                let deviation = row.deviation.map_or("-".to_owned(), |deviation| format!("{deviation:.4}"));
                println!(
                    "    {:20} {:40} {:40} {deviation:>9} {:7} {:?}",
                    row.metric, row.original, row.synthetic, row.unit, row.verdict
                );
            }
        }
    }
}
