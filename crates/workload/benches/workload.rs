//! How fast models are fitted and traces generated. `--smoke` runs a hundredth of the work.
//!
//! Each line names the work and prints requests per second and a hash of the result, which must not differ between runs or machines.
//! The better of two runs is printed, in time on the processor where the system tells it (Linux), so that other processes disturb less.

use forebay_trace::Request;
use forebay_units::{Nanos, mix64};
use forebay_workload::model::{Fidelity, FitOptions, GenerateOptions, Generator, Model, ModelFitter};
use forebay_workload::parametric::{Load, Pattern, Requests, Rhythm, Specification};
use std::time::Instant;

/// A hot set that is read and written, a scan, and random reads, 1,000 a second.
fn trace(seconds: u64) -> Vec<Request> {
    let load = |volume, pattern, rate, bytes: u64, reads| Load {
        volume,
        offset: 0,
        bytes,
        rate,
        rhythm: Rhythm::Poisson,
        diurnal: None,
        pattern,
        sizes: vec![(3.0, 4_096), (1.0, 16_384)],
        align: 16_384,
        reads,
        from: Nanos::ZERO,
        until: Nanos::MAX,
    };
    let loads = vec![
        load(0, Pattern::Zipf(0.9), 600.0, 4 << 30, 0.6),
        load(1, Pattern::Sequential, 250.0, 16 << 30, 1.0),
        load(1, Pattern::Uniform, 150.0, 64 << 30, 1.0),
    ];
    let volumes = vec!["hot".to_owned(), "cold".to_owned()];
    let specification = Specification { volumes, loads, presto: Vec::new(), duration: Nanos::secs(seconds) };
    Requests::new(specification, 3).collect()
}

/// Seconds that this thread ran, or of the clock where the system does not tell.
struct Stopwatch {
    start: Instant,
    ran: Option<u64>,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { ran: Self::ran(), start: Instant::now() }
    }

    fn ran() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok()
    }

    fn seconds(&self) -> f64 {
        let elapsed = self.start.elapsed().as_secs_f64();
        let ran = self.ran.and_then(|before| Some((Self::ran()? - before) as f64 / 1e9));
        // What ran is told in ticks of some milliseconds: too coarse for short runs.
        ran.filter(|_| elapsed > 0.1).unwrap_or(elapsed)
    }
}

/// The best seconds of several runs, and the last result.
fn best<T>(runs: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let mut seconds = f64::INFINITY;
    let mut result = None;
    for _ in 0..runs {
        drop(result.take());
        let watch = Stopwatch::start();
        result = Some(run());
        seconds = seconds.min(watch.seconds());
    }
    (seconds, result.expect("there is at least one run"))
}

fn line(name: &str, requests: u64, seconds: f64, rest: &str, hash: u64) {
    println!("{name:<34} {:>9.2} M requests/s  {rest}  hash {hash:016x}", requests as f64 / seconds / 1e6);
}

fn hash_of(model: &Model) -> u64 {
    let text = serde_json::to_string(model).expect("a model is plain data");
    text.bytes().fold(0, |hash, byte| mix64(hash ^ u64::from(byte)))
}

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke" || argument == "--test");
    let (factor, runs) = if smoke { (100, 1) } else { (1, 2) };
    let requests = trace(2_000 / factor);
    for steps in [None, Some(1 << 15)] {
        let options = FitOptions { steps, ..FitOptions::default() };
        let (seconds, fitter) = best(runs, || {
            let mut fitter = ModelFitter::new(options);
            requests.chunks(4_096).for_each(|batch| fitter.requests(batch).expect("two volumes"));
            fitter
        });
        let watch = Stopwatch::start();
        let model = fitter.finish().expect("there are requests");
        let end = watch.seconds();
        let whole = requests.len() as f64 / (seconds + end) / 1e6;
        let rest = format!("and {end:.2} s at the end: {whole:.2} M/s in all");
        let named = steps.map_or("chosen".to_owned(), |steps: usize| steps.to_string());
        let name = format!("fit, {named} steps");
        line(&name, requests.len() as u64, seconds, &rest, hash_of(&model));

        for (name, fidelity) in [("generate", Fidelity::Full), ("generate, plain", Fidelity::Plain)] {
            let count = 5_000_000 / factor;
            let (seconds, hash) = best(runs, || {
                let options =
                    GenerateOptions { requests: Some(count), fidelity, ..GenerateOptions::default() };
                let mut generator = Generator::new(&model, &options).expect("the model is sound");
                let (mut batch, mut hash) = (Vec::new(), 0);
                while generator.next_batch(&mut batch) > 0 {
                    for request in &batch {
                        hash = mix64(hash ^ request.offset) ^ request.time.0;
                    }
                }
                hash
            });
            line(&format!("{name}, {named} steps"), count, seconds, "", hash);
        }
    }
}
