//! `forebay generate` and `forebay model`: from a specification to a trace, to a model, to a trace again, to the table that sets the two
//! side by side; and what is said of specifications, traces and models that are not as they should be.

use crate::support::{args, fail, file, folder, json, msr, run, succeed, unread};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const COMPARE: &str = "forebay.model-compare/1";
const INFO: &str = "forebay.trace-info/1";

/// Two volumes: a hot set of reads and writes, and a scan.
const SPECIFICATION: &str = r#"
duration = "60s"

[[volume]]
name = "database"
size = "1GiB"

[[volume.load]]
rate = 60
pattern = "zipf"
theta = 0.9
range = "64MiB"
sizes = [[3, "4KiB"], [1, "16KiB"]]
reads = 0.7

[[volume]]
name = "archive"
size = "1GiB"

[[volume.load]]
rate = 20
arrivals = "constant"
pattern = "sequential"
sizes = [[1, "64KiB"]]
"#;

/// The trace of a specification, in `folder`.
fn generated(folder: &tempfile::TempDir, name: &str, specification: &str, options: &[&str]) -> PathBuf {
    let spec = file(folder, &format!("{name}.toml"), specification);
    let trace = folder.path().join(format!("{name}.fbt"));
    let mut all = args(&[&"generate", &spec, &"-o", &trace]);
    all.extend(options.iter().map(Into::into));
    succeed(all);
    trace
}

/// The model of a trace, in `folder`, and what was said while it was fitted.
fn fitted(folder: &tempfile::TempDir, name: &str, trace: &Path, options: &[&str]) -> (PathBuf, String) {
    let model = folder.path().join(format!("{name}.json"));
    let mut all = args(&[&"model", &"fit", &trace, &"-o", &model]);
    all.extend(options.iter().map(Into::into));
    let output = run(all);
    let words = String::from_utf8(output.stderr).expect("words are UTF-8");
    assert!(output.status.success(), "{words}");
    (model, words)
}

fn read(model: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(model).expect("the model was written")).expect("a model is JSON")
}

fn info(trace: &Path) -> Value {
    json(INFO, args(&[&"trace", &"info", &"--json", &trace]))
}

/// The row of a metric.
fn row<'a>(comparison: &'a Value, metric: &str) -> &'a Value {
    let rows = comparison["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["metric"] == metric).unwrap_or_else(|| panic!("no row `{metric}`"))
}

#[test]
fn a_specification_becomes_a_trace_a_model_and_a_trace_again() {
    let folder = folder();
    let original = generated(&folder, "original", SPECIFICATION, &["--seed", "3"]);
    let described = info(&original);
    assert_eq!(described["volume_names"], json!(["database", "archive"]));
    // 60 and 20 a second for a minute: 4,800, of which the Poisson part deviates by 60 (one standard deviation).
    let requests = described["requests"].as_u64().unwrap();
    assert!(requests.abs_diff(4_800) < 300, "{requests}");
    assert!((described["duration_s"].as_f64().unwrap() - 60.0).abs() < 1.0);
    // The same seed gives the same file, another one another.
    let again = generated(&folder, "again", SPECIFICATION, &["--seed", "3"]);
    let other = generated(&folder, "other", SPECIFICATION, &["--seed", "4"]);
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    assert!(bytes(&original) == bytes(&again) && bytes(&original) != bytes(&other));

    let (model, words) = fitted(&folder, "model", &original, &["--level", "2"]);
    assert!(words.contains("level 2, ") && words.contains(" states, "), "{words}");
    let value = read(&model);
    assert_eq!((&value["about"]["requests"], &value["about"]["timed"]), (&json!(requests), &json!(true)));
    assert_eq!(value["volumes"].as_array().unwrap().len(), 2);
    assert!(
        !std::fs::read_to_string(&model).unwrap().contains("database"),
        "a model has no names of volumes"
    );

    // What is there is kept, unless it is to be replaced: the trace itself, too.
    let fit_over = |file: &Path| args(&[&"model", &"fit", &original, &"--level", &"2", &"-o", &file]);
    for file in [&original, &model] {
        let before = bytes(file);
        let (status, words) = fail(fit_over(file));
        assert!(status == 1 && words.contains("exists\nhint: replace it with --force"), "{words}");
        assert!(bytes(file) == before);
    }
    let before = bytes(&model);
    std::fs::write(&model, "{}").unwrap();
    succeed(fit_over(&model).into_iter().chain(["--force".into()]));
    assert!(bytes(&model) == before);

    let [svg, html] = ["states.svg", "model.html"].map(|name| folder.path().join(name));
    let shown = succeed(args(&[
        &"model",
        &"show",
        &model,
        &"--transitions",
        &"3",
        &"--svg",
        &svg,
        &"--report",
        &html,
    ]));
    // A window in words: its steps, one after the other.
    let window = succeed(args(&[&"model", &"show", &model, &"--window", &"1"]));
    let window = window.split_once("Window 1, after 256 requests").unwrap().1;
    assert!(window.contains("used before") && window.contains("area "), "{window}");
    assert_eq!(
        window.lines().filter(|line| line.contains(" write ") || line.contains(" read ")).count(),
        256
    );
    let (status, words) = fail(args(&[&"model", &"show", &model, &"--window", &"999999"]));
    assert!(status == 2 && words.contains("--window is 999999: expected 0 to "), "{words}");
    let listed = shown.split("inter-arrival").last().unwrap();
    assert!(shown.contains("States") && shown.contains("phase 0"), "{shown}");
    assert_eq!(listed.lines().filter(|line| line.ends_with(" ms")).count(), 3, "{shown}");
    crate::support::assert_nests(&std::fs::read_to_string(&svg).unwrap());
    // Also where nobody reads the tables.
    std::fs::remove_file(&svg).unwrap();
    assert_eq!(unread(args(&[&"model", &"show", &model, &"--svg", &svg])), 0);
    assert!(svg.exists());
    assert!(std::fs::read_to_string(&html).unwrap().contains("State diagram"));

    let synthetic = folder.path().join("synthetic.fbt");
    let generate = args(&[&"model", &"generate", &model, &"--seed", &"7", &"-o", &synthetic]);
    succeed(&generate);
    let described = info(&synthetic);
    assert_eq!(described["requests"], requests);
    assert_eq!(described["volume_names"], json!(["volume-0", "volume-1"]));
    let (status, words) = fail(&generate);
    assert!(status == 1 && words.contains("exists\nhint: replace it with --force"), "{words}");
    let spec = folder.path().join("original.toml");
    let (status, words) = fail(args(&[&"generate", &spec, &"--duration", &"0s", &"-o", &"none.fbt"]));
    assert!(status == 1 && words.contains("the span of the trace is 0s"), "{words}");
    let written = bytes(&synthetic);
    succeed(generate.iter().cloned().chain(["--force".into()]));
    assert!(bytes(&synthetic) == written, "the same seed gives the same trace");

    let comparison = json(COMPARE, args(&[&"model", &"compare", &"--json", &original, &synthetic]));
    // A minute is not judged, so nothing is beyond its bound.
    assert_eq!((&comparison["judged"], &comparison["within"]), (&json!(false), &json!(true)));
    assert!(comparison["rows"].as_array().unwrap().iter().all(|row| row["verdict"] == "not-judged"));
    assert!(row(&comparison, "iops")["deviation"].as_f64().unwrap().abs() < 0.1, "{comparison}");
    assert!(row(&comparison, "read-write")["deviation"].as_f64().unwrap().abs() < 0.5, "{comparison}");
    let table = succeed(args(&[&"model", &"compare", &original, &synthetic]));
    assert!(table.contains("too short to be judged") && table.contains("hit-ratio-curve"), "{table}");
}

#[test]
fn what_is_generated_has_the_span_and_the_intensity_asked_for() {
    let folder = folder();
    let original = generated(&folder, "original", SPECIFICATION, &[]);
    let (model, _) = fitted(&folder, "model", &original, &["--level", "1", "--volume", "archive"]);
    assert_eq!(read(&model)["about"]["requests"], 1_199, "one every 50 ms, the first after 50 ms");
    let synthetic = folder.path().join("synthetic.csv");
    let made = |options: &[&str]| {
        let mut all =
            args(&[&"model", &"generate", &model, &"-o", &synthetic, &"--format", &"msr", &"--force"]);
        all.extend(options.iter().map(Into::into));
        succeed(all);
        let described = info(&synthetic);
        (described["requests"].as_u64().unwrap(), described["duration_s"].as_f64().unwrap())
    };
    let (requests, seconds) = made(&["--intensity", "2"]);
    assert!(requests == 1_199 && (seconds - 30.0).abs() < 0.5, "{requests} in {seconds} s");
    let (requests, seconds) = made(&["--duration", "5min"]);
    assert!(requests.abs_diff(6_000) < 10 && (seconds - 300.0).abs() < 3.0, "{requests} in {seconds} s");
    // Twice the model's 20 a second, and of these a half.
    for (options, count, span) in [
        (&["--rate", "40"][..], 1_199, 30.0),
        (&["--rate", "40", "--duration", "5min"], 12_000, 300.0),
        (&["--rate", "40", "--intensity", "0.5"], 1_199, 60.0),
        (&["--rate", "40", "--plain", "--requests", "600"], 600, 15.0),
    ] {
        let (requests, seconds) = made(options);
        let spread = if options.contains(&"--plain") { 0.2 } else { 0.01 };
        assert!(
            requests.abs_diff(count) < 10 && (seconds / span - 1.0).abs() < spread,
            "{requests} in {seconds} s"
        );
    }
    let rate = args(&[&"model", &"generate", &model, &"--format", &"msr", &"--rate", &"1e9"]);
    let (status, words) = fail(rate);
    assert!(
        status == 1 && words.contains("rate is 1000000000: expected 0.000001 to 1000000 times"),
        "{words}"
    );
    assert_eq!(made(&["--requests", "17"]).0, 17);
    let (requests, _) = made(&["--plain"]);
    assert_eq!(requests, 1_199);
    // Standard output, for a pipe.
    let all = args(&[&"model", &"generate", &model, &"--requests", &"5", &"--format", &"msr"]);
    assert_eq!(succeed(all).lines().count(), 5);
    let (status, words) =
        fail(args(&[&"model", &"generate", &model, &"--format", &"msr", &"--intensity", &"0"]));
    assert!(status == 1 && words.contains("intensity is 0: expected 0.000001 to 1000000"), "{words}");
    let (status, words) = fail(args(&[&"model", &"fit", &original, &"-o", &"-", &"--volume", &"tape"]));
    assert!(status == 1 && words.contains("the trace has no volume `tape`\nhint: "), "{words}");
}

#[test]
fn a_judged_row_beyond_its_bound_ends_with_status_1() {
    let folder = folder();
    // 170 a second for ten minutes and a bit: just enough to be judged.
    let long = |reads: &str| {
        "duration = \"601s\"\n[[volume]]\nname = \"a\"\nsize = \"1GiB\"\n[[volume.load]]\nrate = 170\narrivals = \"constant\"\n\
         pattern = \"uniform\"\nrange = \"16MiB\"\nsizes = [[1, \"4KiB\"]]\nreads = "
            .to_owned()
            + reads
    };
    let original = generated(&folder, "original", &long("0.5"), &["--seed", "1"]);
    let alike = generated(&folder, "alike", &long("0.5"), &["--seed", "2"]);
    let apart = generated(&folder, "apart", &long("0.6"), &["--seed", "2"]);
    let comparison = json(COMPARE, args(&[&"model", &"compare", &"--json", &original, &alike]));
    assert_eq!((&comparison["judged"], &comparison["within"]), (&json!(true), &json!(true)), "{comparison}");
    let output = run(args(&[&"model", &"compare", &"--json", &original, &apart]));
    assert_eq!(output.status.code(), Some(1));
    let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&comparison["judged"], &comparison["within"]), (&json!(true), &json!(false)));
    assert_eq!(row(&comparison, "read-write")["verdict"], "beyond");
    // So it does where nobody reads what is printed any more.
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(args(&[&"model", &"compare", &original, &apart]))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!((row(&comparison, "read-write")["deviation"].as_f64().unwrap() - 10.0).abs() < 1.0);
    assert_eq!(row(&comparison, "iops")["verdict"], "within");
    // Also where nobody reads the rows.
    assert_eq!(unread(args(&[&"model", &"compare", &original, &apart])), 1);
}

/// The disks are as large as the larger trace needs, so that an original is slower beside a small trace than beside a large one, unless their size is given.
#[test]
fn several_traces_are_compared_on_the_same_disks() {
    let folder = folder();
    let spread = |reach: u64| -> Vec<_> {
        let place = |at: u64| at * 7_919 % 997 * (reach / 1_000) / 4096 * 4096;
        (0..1_000).map(|at| (at * 500_000, 0, true, place(at), 4096)).collect()
    };
    let trace = |name: &str, reach| file(&folder, name, msr(&spread(reach)));
    let (original, large) = (trace("original.csv", 1 << 30), trace("large.csv", 1 << 40));
    let latency = |other: &Path, options: &[&str]| {
        let mut all = args(&[&"model", &"compare", &"--json", &original, &other]);
        all.extend(options.iter().map(Into::into));
        let comparison = json(COMPARE, all);
        let found = row(&comparison, "latency")["original"].as_str().unwrap().to_owned();
        (comparison["device_capacity_bytes"].as_u64().unwrap(), found)
    };
    let [beside_itself, beside_large] = [&original, &large].map(|other| latency(other, &[]));
    assert!(beside_itself.0 <= 1 << 30 && beside_large.0 > 1 << 39, "{beside_itself:?} {beside_large:?}");
    assert_ne!(beside_itself.1, beside_large.1);
    let fixed = [&original, &large].map(|other| latency(other, &["--device-capacity", "10GiB"]));
    assert_eq!((fixed[0].0, &fixed[0].1), (10 << 30, &fixed[1].1));
    assert!(fixed[0].1 != beside_itself.1 && fixed[0].1 != beside_large.1, "{fixed:?}");
    // Smaller than the trace: what lies beyond wraps around.
    assert_eq!(latency(&large, &["--device-capacity", "256MiB"]).0, 256 << 20);
    for wrong in ["1KiB", "2000TiB", "much"] {
        let (status, words) =
            fail(args(&[&"model", &"compare", &original, &large, &"--device-capacity", &wrong]));
        assert!(status == 2 && words.contains("--device-capacity"), "{words}");
    }
}

#[test]
fn a_trace_without_times_gives_a_model_without_times() {
    let folder = folder();
    let blocks: Vec<u8> = (0..3_000u32).flat_map(|at| (at * 37 % 500).to_le_bytes()).collect();
    let trace = file(&folder, "blocks.u32", blocks);
    let (model, words) = fitted(&folder, "model", &trace, &["--format", "lbn-u32le"]);
    assert!(words.contains("the trace has no times") && words.contains("--requests or --rate"), "{words}");
    assert_eq!(read(&model)["about"]["timed"], false);
    // Those that have times that tell nothing are told apart: the first request an hour ahead, and all at once.
    for (first, expected) in
        [(36_000_000_000, "300 of 301 step back"), (0, "all requests of the trace have the same time")]
    {
        let at = if first > 0 { 10_000 } else { 0 };
        let requests = (0..300).map(|number| (number * at, 0, true, number * 4096, 4096));
        let requests: Vec<_> = [(first, 0, true, 0, 4096)].into_iter().chain(requests).collect();
        let trace = file(&folder, "untimed.csv", msr(&requests));
        let (_, words) = fitted(&folder, "untimed", &trace, &["--force"]);
        assert!(words.contains(expected) && !words.contains("the trace has no times"), "{words}");
    }
    let synthetic = folder.path().join("synthetic.fbt");
    let with = |options: &[&str]| {
        let mut all = args(&[&"model", &"generate", &model, &"-o", &synthetic, &"--force"]);
        all.extend(options.iter().map(Into::into));
        all
    };
    succeed(with(&[]));
    assert_eq!(info(&synthetic)["requests"], 3_000);
    assert_eq!(info(&synthetic)["duration_s"].as_f64().unwrap_or(0.0), 0.0);
    let all = args(&[&"model", &"compare", &"--json", &"--format", &"lbn-u32le", &trace, &synthetic]);
    let comparison = json(COMPARE, all);
    for metric in ["inter-arrival", "iops", "latency", "latency-flash", "inter-arrival-times"] {
        assert_eq!(row(&comparison, metric)["deviation"], Value::Null, "{metric}");
    }
    assert!(row(&comparison, "hit-ratio-curve")["deviation"].is_f64());
    succeed(with(&["--rate", "100", "--duration", "10s"]));
    assert_eq!(info(&synthetic)["requests"], 1_000);
    let (status, words) = fail(with(&["--duration", "10s"]));
    assert!(status == 1 && words.contains("give a rate or a number of requests"), "{words}");
}

#[test]
fn times_in_whole_seconds_stay_so_and_steps_back_are_counted() {
    let folder = folder();
    // A second has ten requests; every hundredth steps back by two seconds.
    let requests: Vec<_> = (0..1_000u64)
        .map(|at| {
            (
                (at / 10 + 2 - if at % 100 == 99 { 2 } else { 0 }) * 10_000_000,
                0,
                at % 2 == 0,
                at % 70 * 4096,
                4096,
            )
        })
        .collect();
    let trace = file(&folder, "seconds.csv", msr(&requests));
    let (model, words) = fitted(&folder, "model", &trace, &[]);
    assert!(
        words.contains("all times are multiples of 1s:") && words.contains("10 requests step back"),
        "{words}"
    );
    let about = &read(&model)["about"];
    assert_eq!((&about["resolution_ns"], &about["stepped_back"]), (&json!(1_000_000_000), &json!(10)));
    let synthetic = folder.path().join("synthetic.csv");
    succeed(args(&[&"model", &"generate", &model, &"--format", &"msr", &"-o", &synthetic]));
    let text = std::fs::read_to_string(&synthetic).unwrap();
    let times: Vec<u64> = text.lines().map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert!(times.len() == 1_000 && times.is_sorted());
    assert!(times.iter().all(|time| (time - times[0]).is_multiple_of(10_000_000)), "{times:?}");
    // What steps back counts as arriving with the request before it, in either trace.
    let comparison = json(COMPARE, args(&[&"model", &"compare", &"--json", &trace, &synthetic]));
    for metric in ["iops", "inter-arrival"] {
        assert!(row(&comparison, metric)["deviation"].as_f64().unwrap().abs() < 1.0, "{comparison}");
    }
}

/// Four processes, three of which take turns: their weights are in statistics and model, go through conversion, and come out of `generate`; numbers of processes go nowhere.
#[test]
fn threads_are_kept_where_the_trace_has_them() {
    let folder = folder();
    let line = |at: u64| {
        let process = 987_654_321 + if at < 100 { 3 } else { [0, 1, 0, 2][at as usize % 4] };
        format!("{} {process} postgres {} 8 W 8 0 b5e9f4\n", at * 1_000_000, at * 77 % 5_000 * 8)
    };
    let original = file(&folder, "mail.fiu", (0..2_000).map(line).collect::<String>());
    let stats = |trace: &Path| json("forebay.trace-stats/1", args(&[&"trace", &"stats", &"--json", &trace]));
    let threads = stats(&original)["threads"].clone();
    assert_eq!(threads, json!({"count": 4, "known_share": 1.0, "weights": [0.475, 0.2375, 0.2375, 0.05]}));
    let converted = folder.path().join("mail.fbt");
    succeed(args(&[&"trace", &"convert", &original, &"-o", &converted]));
    assert_eq!(stats(&converted)["threads"], threads);
    let lost =
        run(args(&[&"trace", &"convert", &original, &"--to", &"msr", &"-o", &folder.path().join("x.csv")]));
    let words = String::from_utf8(lost.stderr).unwrap();
    assert!(words.contains("2,000 requests lose their thread"), "{words}");

    let (model, _) = fitted(&folder, "model", &converted, &[]);
    assert_eq!(read(&model)["thread_weights"], json!([0.05, 0.475, 0.2375, 0.2375]));
    let text = std::fs::read_to_string(&model).unwrap();
    assert!(
        !text.contains("9876543") && !text.contains("postgres"),
        "neither numbers of processes nor names"
    );
    let shown = succeed(args(&[&"model", &"show", &model]));
    assert!(shown.contains("5.0 %, 47.5 %, 23.8 %, 23.8 %"), "{shown}");
    for plain in [&[][..], &["--plain"]] {
        let synthetic = folder.path().join("synthetic.fbt");
        let mut all = args(&[&"model", &"generate", &model, &"-o", &synthetic, &"--force"]);
        all.extend(plain.iter().map(Into::into));
        succeed(all);
        let comparison = json(COMPARE, args(&[&"model", &"compare", &"--json", &original, &synthetic]));
        let weights = row(&comparison, "thread-weights");
        assert_eq!(weights["measure"], "largest over the threads");
        assert!(
            weights["deviation"].as_f64().unwrap() < if plain.is_empty() { 1e-9 } else { 0.5 },
            "{weights}"
        );
    }

    let target = file(&folder, "target", vec![0; 1 << 20]);
    let replay = |trace: &Path, options: &[&str]| {
        let mut all = args(&[&"replay", &trace, &"--to", &target, &"--yes-overwrite", &"--by-thread"]);
        all.extend(options.iter().map(Into::into));
        all
    };
    succeed(replay(&converted, &["--threads", "2", "--pace", "fast"]));
    let without = file(&folder, "none.csv", msr(&[(0, 0, true, 0, 4096)]));
    let (status, words) = fail(replay(&without, &[]));
    assert!(status == 2 && words.contains("the trace records no threads"), "{words}");
}

#[test]
fn a_single_request_many_volumes_and_only_writes() {
    let folder = folder();
    let regenerated = |name: &str, requests: &[(u64, u32, bool, u64, u64)]| {
        let trace = file(&folder, &format!("{name}.csv"), msr(requests));
        let (model, _) = fitted(&folder, name, &trace, &[]);
        let synthetic = folder.path().join(format!("{name}.fbt"));
        succeed(args(&[&"model", &"generate", &model, &"-o", &synthetic]));
        (info(&synthetic), json(COMPARE, args(&[&"model", &"compare", &"--json", &trace, &synthetic])))
    };
    let (one, comparison) = regenerated("one", &[(0, 0, true, 4096, 8192)]);
    assert_eq!((&one["requests"], &one["reads"], &one["bytes_read"]), (&json!(1), &json!(1), &json!(8192)));
    assert_eq!(row(&comparison, "iops")["deviation"], Value::Null);
    let (_, words) = fitted(&folder, "again", &folder.path().join("one.csv"), &[]);
    assert!(words.contains("a single request has no time between requests"), "{words}");

    // Volume v has one request in ten that a uniform spread would give it, and more the higher its number.
    let requests: Vec<_> = (0..5_050u64)
        .map(|at| (at * 10_000, ((8 * at + 1).isqrt() as u32 - 1) / 2, at % 3 == 0, at * 7 % 90 * 4096, 4096))
        .collect();
    let (hundred, comparison) = regenerated("hundred", &requests);
    assert_eq!((&hundred["volumes"], &hundred["requests"]), (&json!(100), &json!(5_050)));
    assert!(row(&comparison, "thread-weights")["deviation"].as_f64().unwrap() < 0.3, "{comparison}");

    let requests: Vec<_> = (0..2_000).map(|at| (at * 10_000, 0, false, at * 13 % 400 * 4096, 4096)).collect();
    let (writes, comparison) = regenerated("writes", &requests);
    assert_eq!((&writes["reads"], &writes["writes"]), (&json!(0), &json!(2_000)));
    assert_eq!(row(&comparison, "read-write")["deviation"], 0.0);

    let none = file(&folder, "none.csv", "");
    let (status, words) = fail(args(&[&"model", &"fit", &none, &"-o", &"-"]));
    assert!(status == 1 && words.contains("none.csv"), "{words}");
}

#[test]
fn models_that_are_none_are_refused_by_file_and_field() {
    let folder = folder();
    let original = generated(&folder, "original", SPECIFICATION, &["--duration", "5s"]);
    let (model, _) = fitted(&folder, "model", &original, &["--level", "1"]);
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut value = read(&model);
        change(&mut value);
        let path = file(&folder, "broken.json", value.to_string());
        let (status, words) = fail(args(&[&"model", &"show", &path]));
        assert_eq!(status, 1, "{words}");
        assert!(words.contains("broken.json`"), "{words}");
        words
    };
    let words = broken(&|model| model["schema"] = json!("forebay.model/0"));
    assert!(
        words.contains("has schema `forebay.model/0`: expected `")
            && words.contains("\nhint: fit the model again"),
        "{words}"
    );
    let words = broken(&|model| model["schema"] = json!("forebay.model/3"));
    assert!(words.contains("expected `forebay.model/7` or `forebay.model/6`"), "{words}");
    let words = broken(&|model| *model = json!({}));
    assert!(words.contains("has no `schema`"), "{words}");
    let words = broken(&|model| model["colour"] = json!(1));
    assert!(words.contains("is no model: unknown field `colour`"), "{words}");
    let words = broken(&|model| model["states"][0]["volume"] = json!(9));
    assert!(words.contains("`states[0].volume` is 9: expected an index below 2"), "{words}");
    let words = broken(&|model| model["windows"] = json!([]));
    assert!(words.contains("`windows` is a list of 0"), "{words}");
    let prose = file(&folder, "prose.json", "Not a model.");
    let (_, words) = fail(args(&[&"model", &"generate", &prose]));
    assert!(
        words.contains("prose.json` is no model") && words.contains("hint: docs/reference/model.md"),
        "{words}"
    );
}

/// 4 KiB and 16 KiB, of which either begins at any 4 KiB unless the specification says otherwise.
#[test]
fn random_requests_begin_at_multiples_of_the_smallest_size_or_of_align() {
    let folder = folder();
    for (name, align, wanted) in [("smallest", "", 4_096), ("told", "align = \"16KiB\"", 16_384)] {
        let options = ["--format", "msr"];
        let trace = generated(
            &folder,
            name,
            &SPECIFICATION.replace("reads = 0.7", &format!("reads = 0.7\n{align}")),
            &options,
        );
        let text = std::fs::read_to_string(trace).unwrap();
        let of_both: Vec<(u64, u64)> = text
            .lines()
            .filter(|line| line.contains(",database,"))
            .map(|line| {
                let mut fields = line.split(',').skip(4).map(|field| field.parse().unwrap());
                (fields.next().unwrap(), fields.next().unwrap())
            })
            .collect();
        for length in [4_096, 16_384] {
            let offsets: Vec<u64> =
                of_both.iter().filter(|found| found.1 == length).map(|found| found.0).collect();
            let least = offsets.iter().map(|offset| offset.trailing_zeros()).min().unwrap();
            assert_eq!(1u64 << least, wanted, "{name}, {length}");
        }
    }
}

#[test]
fn specifications_that_are_wrong_are_refused_by_line() {
    let folder = folder();
    for (from, to, wanted) in [
        ("rate = 60", "rate = -1", "line 9"),
        ("pattern = \"zipf\"", "pattern = \"zopf\"", "line 10"),
        ("theta = 0.9", "theta = 11", "theta is from 0 to 10"),
        ("reads = 0.7", "reads = 1.7", "the share of reads is from 0 to 1"),
        ("range = \"64MiB\"", "rang = \"64MiB\"", "unknown field `rang`"),
        ("reads = 0.7", "align = \"65MiB\"", "an alignment is 1 B to the range"),
        ("reads = 0.7", "align = \"0B\"", "an alignment is 1 B to the range"),
        (
            "reads = 0.7",
            "stride = \"8KiB\"",
            "`stride` has no effect here, expected only with the pattern `stride`",
        ),
        ("reads = 0.7", "hotspots = [[1, 0.5]]", "expected only with the pattern `hotspots`"),
        ("\"constant\"", "\"constant\"\ntheta = 0.9", "expected only with the pattern `zipf`"),
        (
            "\"constant\"",
            "\"constant\"\nalign = \"4KiB\"",
            "expected only with the pattern `uniform`, `zipf` or `hotspots`",
        ),
    ] {
        assert!(SPECIFICATION.contains(from));
        let spec = file(&folder, "spec.toml", SPECIFICATION.replace(from, to));
        let (status, words) = fail(args(&[&"generate", &spec]));
        assert!(status == 1 && words.contains("spec.toml`, line ") && words.contains(wanted), "{words}");
    }
    // Nothing that begins within the span is nothing to write.
    let late = SPECIFICATION.replace("rate = ", "from = \"60s\"\nrate = ");
    let (status, words) = fail(args(&[&"generate", &file(&folder, "late.toml", late)]));
    assert!(
        status == 1 && words.contains("the trace ends at 60s, and its first load begins at 60s"),
        "{words}"
    );
    // What is wrong is said before anything is written.
    let spec = file(&folder, "spec.toml", "");
    let target = folder.path().join("never.fbt");
    let (status, words) = fail(args(&[&"generate", &spec, &"-o", &target]));
    assert!(status == 1 && words.contains("missing field `volume`") && !target.exists(), "{words}");
}

#[test]
fn the_validation_of_the_paper_runs_on_a_folder_of_traces() {
    let folder = folder();
    let traces = folder.path().join("traces");
    std::fs::create_dir(&traces).unwrap();
    let specification = SPECIFICATION.replace("reads = 0.7", "reads = 1.0");
    let trace = generated(&folder, "original", &specification, &[]);
    std::fs::rename(trace, traces.join("original.fbt")).unwrap();
    std::fs::write(traces.join("prose.txt"), "This is not a trace.\n").unwrap();
    std::fs::write(traces.join("few.csv"), msr(&[(0, 0, true, 0, 512)])).unwrap();
    let html = folder.path().join("report.html");
    let all = args(&[&"repro", &"dcio", &"--traces", &traces, &"--json", &"--report", &html]);
    let found = json("forebay.repro-dcio/1", &all);
    let left_out = found["left_out"].as_array().unwrap();
    assert_eq!((&left_out[0][0], &left_out[1][0]), (&json!("few.csv"), &json!("prose.txt")), "{left_out:?}");
    assert_eq!(left_out[0][1], "1 requests are too few");
    let trace = &found["traces"][0];
    assert_eq!((&trace["name"], found["traces"].as_array().unwrap().len()), (&json!("original.fbt"), 1));
    assert!(trace["run_to_run"].as_f64().unwrap().abs() < 1.0, "{trace}");
    for comparison in ["model", "plain", "without_locality"] {
        assert!(row(&trace[comparison], "hit-ratio-curve")["deviation"].is_f64(), "{comparison}");
    }
    // 64 MiB of a hot set and 64 KiB every 50 ms: the cache has 1.39 % of their blocks.
    let blocks = trace["studies"]["cache_blocks"].as_u64().unwrap();
    assert!((150..500).contains(&blocks), "{blocks}");
    for studied in ["original", "synthetic"] {
        let study = &trace["studies"][studied];
        let number = |path: &str| study.pointer(path).and_then(Value::as_f64).unwrap();
        for change in ["caching", "defragmentation"] {
            let [before, after, saved] =
                ["before_s", "after_s", "saved"].map(|field| number(&format!("/{change}/{field}")));
            assert!(before > 0.0 && (saved - (1.0 - after / before)).abs() < 1e-9, "{study}");
        }
        assert!(number("/read_hit_ratio") > 0.01 && number("/caching/saved") > 0.0, "{study}");
        let [recorded, rearranged] = [number("/sequential/0"), number("/sequential/1")];
        assert!((0.2..0.3).contains(&recorded) && (0.2..0.3).contains(&rearranged), "{study}");
    }
    let report = std::fs::read_to_string(&html).unwrap();
    assert!(report.contains("Case studies") && report.contains("Left out") && report.contains("table I"));
    std::fs::remove_file(traces.join("original.fbt")).unwrap();
    let (status, words) = fail(all);
    assert!(status == 1 && words.contains("holds no trace that a model can be fitted to"), "{words}");
}

/// Thirds that were rounded up, a hotspot without room for any request, and one that some fit in.
#[test]
fn hotspots_that_fill_the_volume_and_those_without_room() {
    let folder = folder();
    let clusters = |hotspots: &str, sizes: &str| {
        format!(
            "duration = \"20s\"\n[[volume]]\nname = \"a\"\nsize = \"4MiB\"\n[[volume.clusters]]\niops_mean = 50\n\
             cluster_max = 4\nstride_max = 8\nhotspots = {hotspots}\nsizes = {sizes}\n"
        )
    };
    let small = "[[1, \"4KiB\"]]";
    let thirds = "[[1, 0.3333335], [1, 0.3333335], [1, 0.3333335]]";
    let thirds = generated(&folder, "thirds", &clusters(thirds, small), &[]);
    assert!(info(&thirds)["requests"].as_u64().unwrap() > 800);
    // 20 s of 50.5 a second: no part of a request is lost.
    let half = clusters("[[1, 1.0]]", small).replace("iops_mean = 50", "iops_mean = 50.5");
    assert_eq!(info(&generated(&folder, "half", &half, &[]))["requests"], 1_010);
    let middle = "[[1, 0.5]]";
    let spec = file(&folder, "none.toml", clusters(middle, "[[1, \"4MiB\"]]"));
    let (status, words) = fail(args(&[&"generate", &spec]));
    assert!(status == 1 && words.contains("line 5, `[[volume.clusters]]`: no request fits"), "{words}");
    let some = generated(&folder, "some", &clusters(middle, "[[1, \"4MiB\"], [1, \"4KiB\"]]"), &[]);
    assert!(info(&some)["requests"].as_u64().unwrap() > 800);
}
