//! Models of workloads that are known, and of those that leave something to be desired.

use super::*;
use crate::compare::{DeviceLayout, Measured, Verdict, compare, curve_error};
use crate::parametric::{Load, Pattern, Requests, Rhythm, Specification};
use forebay_trace::{Request, ThreadNumber, VolumeIndex};
use forebay_units::Nanos;

fn load(volume: u32, pattern: Pattern, rate: f64) -> Load {
    Load {
        volume,
        offset: 0,
        bytes: 256 << 20,
        rate,
        rhythm: Rhythm::Poisson,
        diurnal: None,
        pattern,
        sizes: vec![(3.0, 4_096), (1.0, 16_384)],
        // Requests overlap whole or not at all.
        align: 16_384,
        reads: 0.7,
        from: Nanos::ZERO,
        until: Nanos::MAX,
    }
}

fn trace(loads: Vec<Load>, seconds: u64) -> Vec<Request> {
    let volumes = vec![String::new(); 200];
    let duration = Nanos::secs(seconds);
    Requests::new(Specification { volumes, loads, presto: Vec::new(), duration }, 3).collect()
}

fn fit(requests: &[Request], options: FitOptions) -> Model {
    let mut fitter = ModelFitter::new(options);
    requests.chunks(1_000).for_each(|batch| fitter.requests(batch).unwrap());
    fitter.finish().unwrap()
}

/// A model with one of everything and no windows; for tests of parts.
pub(super) fn empty_model() -> Model {
    let one = trace(vec![load(0, Pattern::Uniform, 100.0)], 1)[..1].to_vec();
    Model { windows: Vec::new(), ..fit(&one, fast()) }
}

fn fast() -> FitOptions {
    FitOptions { level: Some(2), steps: Some(STEPS_MAX), ..FitOptions::default() }
}

fn generate(model: &Model, options: GenerateOptions) -> Vec<Request> {
    let mut generator = Generator::new(model, &options).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while generator.next_batch(&mut batch) > 0 {
        all.extend_from_slice(&batch);
    }
    all
}

fn seeded(seed: u64) -> GenerateOptions {
    GenerateOptions { seed, ..GenerateOptions::default() }
}

fn measured(requests: &[Request]) -> Measured {
    let mut measured = Measured::new();
    measured.requests(requests);
    measured.finish();
    measured
}

fn known() -> Vec<Request> {
    trace(vec![load(0, Pattern::Zipf(1.0), 60.0), load(1, Pattern::Sequential, 40.0)], 300)
}

/// All metrics of the paper's table within the bounds of `compare`, and the curve within `curve`.
fn assert_alike(original: &[Request], synthetic: &[Request], bounds: [(&str, f64); 6], curve: f64) {
    assert_eq!(synthetic.len(), original.len());
    assert!(synthetic.is_sorted_by_key(|request| request.time));
    let [a, b] = [measured(original), measured(synthetic)];
    let found = compare(&a, &b, [[None; 2]; 2]);
    for (metric, bound) in bounds {
        let deviation = found.deviation(metric).unwrap();
        assert!(deviation.abs() <= bound, "{metric} {deviation}");
    }
    assert!(found.rows.iter().all(|row| row.verdict == Verdict::NotJudged), "five minutes are not judged");
    let error = curve_error(a.curve(), b.curve(), a.footprint_blocks());
    assert!(error < curve, "{error}");
}

/// A tenth of the volume takes nine tenths of the requests: seeks are as short as the ranges tell, so that finer ranges make the simulated
/// disk faster until they know the hot tenth.
#[test]
fn the_level_is_the_first_that_leaves_the_disk_as_fast_as_the_one_before() {
    let hotspots = Pattern::Hotspots(vec![(9.0, 0.1), (1.0, 0.9)]);
    let hot = trace(vec![Load { bytes: 32 << 30, ..load(0, hotspots, 60.0) }], 200);
    let even = trace(vec![load(0, Pattern::Uniform, 60.0)], 200);
    let [hot, even] = [hot, even].map(|requests| fit(&requests, FitOptions::default()));
    for model in [&hot, &even] {
        assert!(
            model.levels.iter().all(|level| level.iops > 10.0 && level.iops < 1_000.0),
            "{:?}",
            model.levels
        );
        assert_eq!(model.levels.last().map(|level| level.level), Some(model.level));
        let steps: Vec<f64> =
            model.levels.windows(2).map(|pair| (pair[1].iops / pair[0].iops - 1.0).abs()).collect();
        assert!(steps[1..steps.len() - 1].iter().all(|step| *step >= 0.02), "{steps:?}");
    }
    assert!(hot.levels[1].iops > 1.02 * hot.levels[0].iops, "{:?}", hot.levels);
    assert!(even.level < 5, "{:?}", even.levels);
}

/// 30,000 requests, all of which the windows hold: the bounds are those of `compare`.
#[test]
fn a_known_workload_comes_out_again() {
    let original = known();
    let model = fit(&original, fast());
    assert!(model.check().is_ok());
    let synthetic = generate(&model, seeded(1));
    let bounds = [
        ("read-write", 0.5),
        ("random", 1.38),
        ("sizes", 0.33),
        ("iops", 0.1),
        ("inter-arrival", 0.1),
        ("thread-weights", 0.05),
    ];
    assert_alike(&original, &synthetic, bounds, 0.01);
    // The paper's chain alone knows no reuse.
    let [a, plain] =
        [&original, &generate(&model, GenerateOptions { fidelity: Fidelity::Plain, ..seeded(1) })]
            .map(|requests| measured(requests));
    let error = curve_error(a.curve(), plain.curve(), a.footprint_blocks());
    assert!(error > 0.1, "{error}");
    // Another seed gives another trace of the same intensity, the same seed the same.
    let others: Vec<Vec<Request>> = (2..6).map(|seed| generate(&model, seeded(seed))).collect();
    assert!(others.iter().any(|other| *other != synthetic));
    assert!(others.iter().all(|other| other.len() == synthetic.len()));
    assert_eq!(generate(&model, seeded(1)), synthetic);
}

/// A quarter of the requests are in windows: what lies between is played by those around it. The bounds are what that reaches, not what is wanted: they catch a
/// script that is broken.
#[test]
fn a_known_workload_comes_out_again_from_a_part_of_it() {
    let original = known();
    let model = fit(&original, FitOptions { steps: Some(7_500), ..fast() });
    let steps: usize = model.windows.iter().map(|window| window.steps.len()).sum();
    assert!(steps <= 7_680, "{steps}");
    let bounds = [
        ("read-write", 3.0),
        // In so small a volume other plays of a window find no free areas, and a scan that runs into another one's blocks is torn.
        ("random", 25.0),
        ("sizes", 3.0),
        ("iops", 0.1),
        ("inter-arrival", 0.1),
        ("thread-weights", 4.0),
    ];
    assert_alike(&original, &generate(&model, seeded(1)), bounds, 0.1);
}

/// Requests anywhere, of which a few thousand tell all; and a loop, of which any part that is left out is missed.
#[test]
fn as_few_steps_are_held_as_will_do() {
    let options = FitOptions { steps: None, ..fast() };
    let even = trace(vec![Load { bytes: 64 << 30, ..load(0, Pattern::Uniform, 100.0) }], 150);
    let model = fit(&even, options);
    let held = model.steps_held();
    // What is held comes last, and fewer were not enough.
    let as_few = |model: &Model| {
        let held = model.steps_held();
        let (last, others) = model.steps.split_last().unwrap();
        assert!(last.is_taken() && last.steps == held, "{:?}", model.steps);
        assert!(others.iter().all(|trial| trial.is_taken() == (trial.steps > held)), "{:?}", model.steps);
    };
    as_few(&model);
    // 4,096 are too few, and not all of 8,192 are needed.
    assert!((1 << 12..1 << 13).contains(&held) && held != 1 << 12, "{held}");
    // As it lies between doubled numbers, the studies were compared too.
    assert!(model.steps.last().unwrap().rows.iter().any(|row| row.metric == "rearranged"));
    let stood_for: u64 = model.windows.iter().map(|window| window.stands_for).sum();
    assert_eq!(stood_for, even.len() as u64);
    // Seeds that the choice has not seen.
    for seed in 1..4 {
        let bounds = [
            ("read-write", 0.5),
            ("random", 1.38),
            ("sizes", 0.33),
            ("iops", 1.0),
            ("inter-arrival", 3.1),
            ("thread-weights", 0.05),
        ];
        assert_alike(&even, &generate(&model, seeded(seed)), bounds, 0.02);
    }
    let text = serde_json::to_string(&model).unwrap();
    let back: Model = serde_json::from_str(&text).unwrap();
    assert_eq!(back.steps.len(), model.steps.len());
    let turns = trace(vec![Load { bytes: 8 << 20, ..load(0, Pattern::Sequential, 100.0) }], 60);
    let model = fit(&turns, options);
    as_few(&model);
    assert_eq!(model.steps_held(), turns.len() as u64);
    // Numbers between the last of those that are doubled, and all, were tried too.
    assert!(model.steps.len() > 2, "{:?}", model.steps);
}

#[test]
fn intensity_and_duration_are_what_was_asked_for() {
    let model = fit(&trace(vec![load(0, Pattern::Uniform, 100.0)], 60), fast());
    let rate = |options: GenerateOptions| {
        let all = generate(&model, options);
        (all.len() as f64 / all[all.len() - 1].time.as_secs_f64(), all[all.len() - 1].time.as_secs_f64())
    };
    let original = model.about.requests as f64 / model.about.seconds;
    for (duration, intensity) in [(7, 1.0), (60, 2.0), (200, 1.0), (30, 0.5)] {
        let options = GenerateOptions {
            duration: Some(Nanos::secs(duration)),
            intensity: Some(intensity),
            ..seeded(1)
        };
        let (found, span) = rate(options);
        assert!((found / (original * intensity) - 1.0).abs() < 0.01, "{duration} s x {intensity}: {found}");
        assert!((span / duration as f64 - 1.0).abs() < 0.02, "{span} of {duration} s");
    }
    assert_eq!(generate(&model, GenerateOptions { requests: Some(77), ..seeded(1) }).len(), 77);
}

#[test]
fn a_model_survives_its_file() {
    let original = trace(vec![load(0, Pattern::Zipf(0.8), 100.0)], 60);
    let model = fit(&original, fast());
    let text = serde_json::to_string(&model).unwrap();
    let back: Model = serde_json::from_str(&text).unwrap();
    assert!(back.check().is_ok());
    assert_eq!((&back.windows, &back.states), (&model.windows, &model.states));
    assert!(text.len() < 40 * original.len(), "{} bytes", text.len());
    assert_eq!(generate(&back, seeded(4)).len(), original.len());
    // Ranges start at multiples of their size; nothing else is a place.
    let step = model.states.iter().map(|state| state.bytes).max().unwrap();
    assert!(model.states.iter().all(|state| state.first_byte % step == 0));
    // Another seed puts the same workload at other places: a volume of one range is moved as a whole.
    let first = |seed| generate(&model, seeded(seed))[0].offset;
    assert!((2..20).any(|seed| first(seed) != first(1)));
}

/// A workload that lies elsewhere in its range, so many whole areas further that their numbers modulo 15 are the same, is the same model, to the byte: it does not tell where
/// in the range that was. And no number of it is an address, in bytes, sectors or blocks, but for ends and ranges in whole MiB.
#[test]
fn where_in_its_range_a_workload_lies_is_not_told() {
    let hot = trace(vec![load(0, Pattern::Zipf(0.8), 100.0)], 60);
    let far = 1 << 44;
    let shifted = |areas: u64| {
        let mut requests = hot.clone();
        // A range has a 16th of the volume, so that all lies in one, except the last request.
        for request in &mut requests {
            request.offset += far + areas * (64 << 20) + 5 * 512;
        }
        requests.last_mut().unwrap().offset = 2 * far - 16_384;
        requests
    };
    let text = |requests: &[Request]| serde_json::to_string(&fit(requests, fast())).unwrap();
    let model = text(&shifted(0));
    assert_eq!(model, text(&shifted(15)));
    assert_eq!(model, text(&shifted(3_000)));
    assert_ne!(model, text(&shifted(1)), "numbers of areas modulo 15 are told");
    let numbers = model
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|number| number.parse::<u64>().ok());
    // The least address in blocks of 4 KiB is 2^32; no count and no time is as long.
    for number in numbers.filter(|&number| number >= far >> 12) {
        assert!(number.is_multiple_of(1 << 20), "{number}");
    }
}

#[test]
fn models_that_do_not_hold_together_are_refused_by_field() {
    let model = fit(&trace(vec![load(0, Pattern::Uniform, 100.0)], 10), fast());
    let at = |area, sectors| Whereabouts::At { area, sectors, used: Use::New };
    let broken = |change: &dyn Fn(&mut Model)| {
        let mut model = model.clone();
        change(&mut model);
        Generator::new(&model, &seeded(1)).unwrap_err().to_string()
    };
    for (change, wanted) in [
        (
            &(|m: &mut Model| m.schema = "x".into()) as &dyn Fn(&mut Model),
            "`schema` is `x`: expected `forebay.model/7`",
        ),
        (&|m| m.transitions[0].to = 999_999, "`transitions[0]` is 999999"),
        (&|m| m.about.seconds = f64::NAN, "`about.seconds` is NaN"),
        (&|m| m.states[0].volume = 3, "`states[0].volume` is 3: expected an index below 1"),
        (&|m| m.kinds.clear(), "`kinds` is a list of 0"),
        (&|m| m.transitions.clear(), "without requests"),
        (&|m| m.phases[0].gaps.long_from_us = -1.0, "`phases[0].gaps.hyper_exponential` is -1"),
        (&|m| m.kinds[0].sectors = vec![(9, 1)], "`kinds[0].sectors` is 9"),
        (&|m| m.windows.clear(), "`windows` is a list of 0"),
        (&|m| m.windows[0].steps[1].at = at(99, 0), "`windows[0].steps[1]` is 99: expected an index below"),
        (
            &|m| m.windows[0].steps[1].at = at(0, 1 << 17),
            "`windows[0].steps[1]` is 131072: expected a sector",
        ),
        (
            &|m| m.windows[0].steps[0].at = Whereabouts::On { is_new: true },
            "`windows[0].steps[0]` is without",
        ),
        (&|m| m.windows[0].steps.clear(), "`windows[0].steps` is a list of 0"),
        (&|m| m.windows[0].stands_for = 0, "`windows[0].stands_for` is 0"),
        (&|m| m.thread_weights = vec![0.5, 1.5], "`thread_weights[1]` is 1.5"),
        (&|m| m.windows[0].threads = vec![(1, 9)], "`windows[0].threads[0]` is 1: expected an index below 1"),
        (&|m| m.windows[0].threads = vec![(0, 9)], "`windows[0].threads` is of 9 steps: expected"),
        (&|m| m.areas[0].state = 99, "`areas[0]` is 99"),
        (&|m| m.areas[0].lane = 15, "`areas[0]` is 15: expected a lane below 15"),
        (&|m| m.area_bytes = 3, "`area_bytes` is 3"),
    ] {
        let message = broken(change);
        assert!(message.contains(wanted), "{message}");
    }
    for options in [
        GenerateOptions { intensity: Some(0.0), ..seeded(1) },
        GenerateOptions { rate: Some(-1.0), ..seeded(1) },
    ] {
        assert!(matches!(Generator::new(&model, &options), Err(GenerateError::Option { .. })));
    }
}

#[test]
fn a_trace_without_times_gives_a_model_without_times() {
    let mut original = trace(vec![load(0, Pattern::Uniform, 100.0)], 10);
    original.iter_mut().for_each(|request| request.time = Nanos::ZERO);
    let model = fit(&original, fast());
    assert!(!model.about.timed && model.about.seconds == 0.0);
    let asked = |duration, requests, rate| {
        Generator::new(&model, &GenerateOptions { duration, requests, rate, ..seeded(1) })
    };
    assert!(matches!(asked(Some(Nanos::secs(1)), None, None), Err(GenerateError::NoTimes)));
    assert_eq!(asked(Some(Nanos::secs(2)), None, Some(50.0)).unwrap().remaining(), 100);
    let all = generate(&model, GenerateOptions { requests: Some(10), rate: Some(100.0), ..seeded(1) });
    assert_eq!(all[9].time.0 / 1_000_000, 100);
    assert!(generate(&model, seeded(1)).iter().all(|request| request.time == Nanos::ZERO));
}

#[test]
fn whole_seconds_stay_whole_and_steps_back_are_counted() {
    let mut original = trace(vec![load(0, Pattern::Uniform, 100.0)], 60);
    original.iter_mut().for_each(|request| request.time.0 -= request.time.0 % 1_000_000_000);
    let model = fit(&original, fast());
    assert_eq!((model.about.resolution_ns, model.about.stepped_back), (1_000_000_000, 0));
    let synthetic = generate(&model, seeded(1));
    assert!(synthetic.iter().all(|request| request.time.0 % 1_000_000_000 == 0));
    assert_eq!(synthetic.len(), original.len());
    original.swap(0, 5_000);
    original.swap(10, 3_000);
    let model = fit(&original, fast());
    assert!(model.about.stepped_back > 0);
    let synthetic = generate(&model, seeded(1));
    assert!(synthetic.is_sorted_by_key(|request| request.time) && synthetic.len() == original.len());
}

#[test]
fn a_single_request_and_none_at_all() {
    assert_eq!(ModelFitter::new(fast()).finish(), Err(FitError::NoRequests));
    let one = trace(vec![load(0, Pattern::Uniform, 100.0)], 1)[..1].to_vec();
    let model = fit(&one, FitOptions::default());
    let synthetic = generate(&model, seeded(1));
    assert_eq!(
        (synthetic.len(), synthetic[0].length, synthetic[0].operation),
        (1, one[0].length, one[0].operation)
    );
}

/// Three threads on one volume, of which one scans: numbers that a trace gives them, and that some requests have none, make no difference.
#[test]
fn threads_keep_their_weights_and_what_is_theirs() {
    let mut original = known();
    for (at, request) in original.iter_mut().enumerate() {
        let zipf = [0, 7, 7, 7, 9][at % 5];
        request.thread = ThreadNumber(if request.volume.0 == 0 { zipf } else { 30 });
        request.volume = VolumeIndex(0);
    }
    let numbers: std::collections::BTreeSet<u16> = original.iter().map(|request| request.thread.0).collect();
    assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [0, 7, 9, 30]);
    let model = fit(&original, fast());
    let share = |thread| {
        original.iter().filter(|request| request.thread.0 == thread).count() as f64 / original.len() as f64
    };
    assert_eq!(model.thread_weights, [share(7), share(9), share(30)]);
    let text = serde_json::to_string(&model).unwrap();
    let model: Model = serde_json::from_str(&text).unwrap();
    let apart = |synthetic: &[Request]| {
        let found = compare(&measured(&original), &measured(synthetic), [[None; 2]; 2]);
        let row = found.rows.iter().find(|row| row.metric == "thread-weights").unwrap();
        assert_eq!(row.measure, "largest over the threads");
        row.deviation.unwrap()
    };
    let whole = generate(&model, seeded(1));
    assert_eq!(apart(&whole), 0.0);
    let wanted = original.iter().map(|request| {
        [0, 1, 2, 3][match request.thread.0 {
            0 => 0,
            7 => 1,
            9 => 2,
            _ => 3,
        }]
    });
    assert!(wanted.eq(whole.iter().map(|request| request.thread.0)), "each request has its own thread");
    // Drawn, by the paper's chain; from a quarter of the windows; and none at all.
    let plain = generate(&model, GenerateOptions { fidelity: Fidelity::Plain, ..seeded(1) });
    assert!(apart(&plain) < 0.05, "{}", apart(&plain));
    let part = generate(&fit(&original, FitOptions { steps: Some(7_500), ..fast() }), seeded(1));
    assert!(apart(&part) < 1.0, "{}", apart(&part));
    let without: Vec<Request> =
        whole.iter().map(|request| Request { thread: ThreadNumber::UNKNOWN, ..*request }).collect();
    assert!(apart(&without) > 30.0, "{}", apart(&without));
    // Without threads a volume is one, and the file is that of version 4.
    let model = fit(&without, fast());
    let text = serde_json::to_string(&model).unwrap();
    assert!(!text.contains("thread"), "a model without threads says nothing of them");
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    older["schema"] = "forebay.model/4".into();
    for (paper, window) in older["windows"].as_array_mut().unwrap().iter_mut().zip(&model.windows) {
        let rows: Vec<Vec<i64>> = window.steps.iter().map(row_of_version_5).collect();
        *paper = serde_json::json!({ "stands_for": window.stands_for, "steps": rows });
    }
    let state = |state: u32| if state == ANY { -1 } else { i64::from(state) };
    let row = |row: &Transition| {
        let link = ["jump", "follow", "resume", "again", "along"][row.link as usize];
        serde_json::json!([state(row.from), -1, state(row.to), row.kind, link, row.requests, row.gap_us])
    };
    older["phases"][0]["transitions"] = model.transitions.iter().map(row).collect();
    for field in ["gaps_ns", "place_sectors", "places", "transitions"] {
        older.as_object_mut().unwrap().remove(field);
    }
    let older: Model = serde_json::from_value(older).unwrap();
    assert_eq!(generate(&older, seeded(1)), generate(&model, seeded(1)));
}

/// A step as files of versions 4 and 5 have it.
fn row_of_version_5(step: &Step) -> Vec<i64> {
    let mut row = vec![step.kind.into(), step.gap_ns as i64];
    match step.at {
        Whereabouts::On { is_new } => row.extend((!is_new).then_some(-1)),
        Whereabouts::At { area, sectors, used } => {
            row.extend([i64::from(area), i64::from(sectors)]);
            match used {
                Use::New => {}
                Use::Inside(ago) => row.extend([-1, ago as i64]),
                Use::Again(ago) => row.push(ago as i64),
            }
        }
    }
    row
}

#[test]
fn a_hundred_volumes_keep_their_weights() {
    let loads = (0..100).map(|volume| load(volume, Pattern::Uniform, 1.0 + f64::from(volume))).collect();
    let original = trace(loads, 5);
    let model = fit(&original, fast());
    assert_eq!(model.volumes.len(), 100);
    let (a, b) = (measured(&original), measured(&generate(&model, seeded(1))));
    let found = compare(&a, &b, [[None; 2]; 2]);
    assert!(found.deviation("thread-weights").unwrap() < 0.3, "{:?}", found.deviation("thread-weights"));
    let mut fitter = ModelFitter::new(fast());
    let far = Request { volume: VolumeIndex(5_000), ..original[0] };
    assert_eq!(fitter.requests(&[far]), Err(FitError::TooManyVolumes { max: 4_096 }));
}

#[test]
fn only_writes_and_what_has_no_bytes() {
    let mut original = trace(vec![Load { reads: 0.0, ..load(0, Pattern::Uniform, 100.0) }], 20);
    for request in original.iter_mut().step_by(10) {
        (request.operation, request.offset, request.length) = (Operation::Flush, 0, 0);
    }
    let synthetic = generate(&fit(&original, fast()), seeded(1));
    let flushes =
        |of: &[Request]| of.iter().filter(|r| r.operation == Operation::Flush && r.length == 0).count();
    assert!(flushes(&synthetic).abs_diff(flushes(&original)) < 10);
    assert!(synthetic.iter().all(|request| request.operation != Operation::Read));
}

/// Addresses up to the end of the number space: roots grow, cells stay in their tables.
#[test]
fn addresses_may_be_anywhere() {
    let mut original = trace(vec![load(0, Pattern::Uniform, 100.0)], 10);
    for (at, request) in original.iter_mut().enumerate() {
        request.offset = forebay_units::mix64(at as u64) >> (at % 60) & !4_095;
        request.offset = request.offset.min(u64::MAX - request.length);
    }
    let model = fit(&original, FitOptions { level: Some(5), ..FitOptions::default() });
    assert!(model.check().is_ok());
    let synthetic = generate(&model, seeded(1));
    assert!(synthetic.iter().all(|request| request.offset.checked_add(request.length).is_some()));
}

/// From the smallest root, of 4 MiB, to the largest at once, which is more than a cell has bits.
#[test]
fn a_range_may_grow_by_any_number_of_bits() {
    let mut original = trace(vec![load(0, Pattern::Uniform, 100.0)], 1);
    for (at, request) in original.iter_mut().enumerate() {
        request.offset = if at < 50 { 3 << 20 } else { 1 << 62 };
    }
    let model = fit(&original, FitOptions { level: Some(5), ..fast() });
    let firsts: Vec<u64> = model.states.iter().map(|state| state.first_byte).collect();
    assert_eq!(firsts, [0, 1 << 62]);
}

/// A flush lies at byte 0 in most formats, where nothing else of its volume need be: volume 1 has its data a tebibyte on.
#[test]
fn what_has_no_bytes_stays_in_its_volume() {
    let loads =
        vec![load(0, Pattern::Uniform, 100.0), Load { offset: 1 << 40, ..load(1, Pattern::Uniform, 100.0) }];
    let mut original = trace(loads, 20);
    for request in original.iter_mut().filter(|request| request.volume.0 == 1).skip(5).step_by(10) {
        (request.operation, request.offset, request.length) = (Operation::Flush, 0, 0);
    }
    let model = fit(&original, FitOptions { level: Some(5), ..fast() });
    let synthetic = generate(&model, seeded(1));
    let flushes = |of: &[Request]| -> Vec<u32> {
        of.iter().filter(|r| r.operation == Operation::Flush).map(|request| request.volume.0).collect()
    };
    assert_eq!(flushes(&synthetic), flushes(&original));
    // What follows on it in the order of areas has the choice of places that it had.
    let reads = synthetic.iter().filter(|request| request.volume.0 == 1 && request.length > 0);
    let distinct: std::collections::BTreeSet<u64> = reads.map(|request| request.offset >> 26).collect();
    assert!(distinct.len() >= 4, "{distinct:?}");
}

/// More areas than are told apart: what has none of its own has one of its volume's.
#[test]
fn areas_are_shared_within_their_volume() {
    let mut original = trace(vec![load(0, Pattern::Uniform, 100.0)], 1_400);
    original.truncate(136_000);
    for (at, request) in (0u64..).zip(&mut original) {
        (request.volume.0, request.offset) = match at {
            0..134_000 => (0, at << 26),
            _ => ((at % 2 + 1) as u32, (at % 7) << 26),
        };
    }
    let model = fit(&original, FitOptions { level: Some(0), ..fast() });
    let of = |requests: &[Request]| -> Vec<u64> {
        measured(requests).volumes.iter().map(|volume| volume.0).collect()
    };
    assert_eq!(of(&generate(&model, seeded(1))), of(&original));
}

/// A discard may be longer than any other request: it counts as long as these may be. Nothing of it is in a cache.
#[test]
fn discards_of_whole_devices_are_no_work() {
    let mut original = trace(vec![load(0, Pattern::Uniform, 100.0)], 2);
    let footprint = |requests: &[Request]| measured(requests).footprint_blocks();
    let before = footprint(&original);
    for request in original.iter_mut().step_by(100) {
        (request.operation, request.offset, request.length) = (Operation::Discard, 0, 1 << 38);
    }
    assert!(footprint(&original) <= before, "{}", footprint(&original));
    let model = fit(&original, FitOptions { level: Some(2), ..FitOptions::default() });
    assert_eq!(model.check(), Ok(()));
    assert_eq!(generate(&model, seeded(1)).len(), original.len());
}

/// Extents are told apart by 52 bits of their offsets: a scan over the end of these stays in its volume, wherever a seed puts it.
#[test]
fn a_scan_may_pass_the_end_of_what_is_told_apart() {
    let original = trace(vec![load(0, Pattern::Sequential, 100.0)], 20);
    let mut model = fit(&original, fast());
    let end = 1u64 << 52;
    model.kinds.iter_mut().for_each(|kind| kind.bytes = 1 << 20);
    model.volumes[0].bytes = 2 * end;
    for state in &mut model.states {
        (state.first_byte, state.bytes) = (end - model.area_bytes, 2 * model.area_bytes);
    }
    let lane = (end / model.area_bytes - 1) % placement::LANES;
    model.areas.iter_mut().for_each(|area| area.lane = lane as u8);
    for seed in 0..100 {
        assert!(generate(&model, seeded(seed)).iter().all(|request| request.volume.0 == 0));
    }
}

/// Random reads of the last 4 MiB before 2^64, of a thousand places: as many are generated.
#[test]
fn places_at_the_end_of_numbers_are_told_apart() {
    let mut original = trace(vec![load(0, Pattern::Uniform, 100.0)], 60);
    for (at, request) in (0..).zip(&mut original) {
        request.length = 4_096;
        request.offset = u64::MAX - 4_095 - (1 + at * 389 % 1_000) * 4_096;
    }
    let distinct = |requests: &[Request]| {
        let mut offsets: Vec<u64> = requests.iter().map(|request| request.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets.len()
    };
    assert_eq!(distinct(&original), 1_000);
    assert_eq!(distinct(&generate(&fit(&original, fast()), seeded(1))), 1_000);
}

#[test]
fn a_scan_may_end_where_numbers_do() {
    let mut original = trace(vec![load(0, Pattern::Sequential, 100.0)], 20);
    for (at, request) in (0..).zip(&mut original) {
        request.length = 4_096;
        request.offset = ((u64::MAX - (4 << 20)) & !4_095).saturating_add(at % 2_000 * 4_096);
        request.offset = request.offset.min(u64::MAX - 4_096);
    }
    let found = measured(&original);
    assert_eq!(DeviceLayout::of(&[&found]).capacity_bytes(), 1 << 62, "no disk is larger");
    let model = fit(&original, fast());
    for seconds in [20, 50] {
        let duration = Some(Nanos::secs(seconds));
        let synthetic = generate(&model, GenerateOptions { duration, ..seeded(1) });
        assert!(synthetic.iter().all(|request| request.offset.checked_add(request.length).is_some()));
    }
}
