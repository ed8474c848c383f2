//! `forebay sim` and `forebay repro`: what they print, that a seed repeats it, and what is said of scenarios that cannot be.

use crate::support::{args, assert_nests, fail, file, folder, json, run, succeed};
use forebay_prerequisite::programs;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const SIM: &str = "forebay.sim/1";

/// A minute of a volume on two servers, with a controller.
const SMALL: &str = r#"name = "small"
about = "A minute."
duration = "60s"
measure_from = "30s"
cache = { memory = "64MiB", interval = "5s" }

[[origin]]
name = "array"
type = "servers"
servers = 2
service = "10ms"

[[volume]]
name = "db"
size = "1GiB"
load = [{ arrivals = "poisson", rate = 150, theta = 1.0, working_set = "16MiB" }]

[[objective]]
volume = "db"
latency = "8ms"
window = "5s"
"#;

/// Instructions of the test profile for each request of it, at most: 5 in 100 more than 6,438, which were counted; where nothing is compiled incrementally they are some 300 fewer.
const INSTRUCTIONS_MAX: u64 = 6_760;

/// Two hours of virtual time are to pass in 20 s. How long they take depends on the machine and on what else it does; what is counted does not.
#[test]
fn a_request_costs_a_simulation_no_more_instructions_than_it_did() {
    if !programs("instructions of a simulation", &["valgrind"], false) {
        return;
    }
    let folder = folder();
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/benches/two-hours.toml");
    let two_hours = std::fs::read_to_string(bench).unwrap();
    let scenario = file(&folder, "busy.toml", two_hours.replace("7200s", "20s").replace("600s\"", "10s\""));
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", env!("CARGO_BIN_EXE_forebay"), "sim"])
        .arg(&scenario)
        .args(["--seed", "1", "--json"])
        .output()
        .expect("valgrind runs");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    let counted = told.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    let outcome: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let requests = outcome["requests"].as_u64().expect("a number");
    let each = counted.expect("callgrind says what it counted") / requests;
    println!("{each} instructions for each of {requests} requests");
    assert!(
        each <= INSTRUCTIONS_MAX,
        "{each} instructions a request, at most {INSTRUCTIONS_MAX} expected: what has become dearer?"
    );
}

#[test]
fn help_says_what_they_do_and_lists_their_options() {
    let text = succeed(["sim", "--help"]);
    for word in ["virtual time", "--seed", "--json", "--report", "SCENARIO", "docs/reference/scenario.md"] {
        assert!(text.contains(word), "`{word}` in {text}");
    }
    assert!(succeed(["repro", "--help"]).contains("hybrid-store"));
    let text = succeed(["repro", "hybrid-store", "--help"]);
    for word in ["--quick", "--scale", "--seed", "--json", "--report", "[default: 4]", "8 and 3 ms"] {
        assert!(text.contains(word), "`{word}` in {text}");
    }
    assert_eq!(fail(["sim"]).0, 2);
    assert_eq!(fail(["repro", "hybrid-store", "--scale", "0"]).0, 2);
    assert_eq!(fail(["repro", "hybrid-store", "--duration", "1s"]).0, 2);
}

#[test]
fn a_scenario_may_come_from_standard_input() {
    let folder = folder();
    let path = file(&folder, "small.toml", SMALL);
    let piped = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["sim", "-"])
        .stdin(std::fs::File::open(&path).unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), succeed(args(&[&"sim", &path])));
}

#[test]
fn a_scenario_is_shown_as_table_json_and_report() {
    let folder = folder();
    let path = file(&folder, "small.toml", SMALL);
    let table = succeed(args(&[&"sim", &path]));
    assert!(table.contains("60 s of virtual time, seed 1") && table.contains("windows kept"), "{table}");
    let report = folder.path().join("out.html");
    let found = json(SIM, args(&[&"sim", &path, &"--json", &"--seed", &"7", &"--report", &report]));
    assert_eq!(
        (&found["scenario"], &found["seed"], &found["about"]),
        (&"small".into(), &7.into(), &"A minute.".into())
    );
    // Who wants the same events again is told what to build.
    let (version, commit) = (found["version"].as_str().expect("a version"), found["commit"].as_str());
    let named = match commit {
        Some(commit) => {
            assert!(commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{commit}");
            format!("{version} ({commit})")
        }
        None => version.to_owned(),
    };
    assert_eq!(succeed(["--version"]), format!("forebay {named}\n"));
    assert!(std::fs::read_to_string(&report).unwrap().contains(&format!("forebay {named}")));
    let db = &found["volumes"][0];
    assert_eq!(db["intervals"].as_array().unwrap().len(), 12);
    // 150/s over 30 s, within five standard deviations of a Poisson count.
    let arrivals = db["totals"]["arrivals"].as_f64().unwrap();
    assert!((arrivals - 4_500.0).abs() < 5.0 * 4_500f64.sqrt(), "{arrivals}");
    let windows = db["objectives"][0]["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 12);
    assert!(found["requests"].as_u64() >= found["answered"].as_u64());
    let html = std::fs::read_to_string(report).unwrap();
    assert!(
        html.contains("<svg") && html.contains("Simulation: small") && html.contains("db: "),
        "{}",
        html.len()
    );
}

#[test]
fn a_tier_is_in_the_report_as_in_the_table() {
    let folder = folder();
    let flash =
        "\n[[origin]]\nname = \"flash\"\ntype = \"ssd\"\nflash = { capacity = \"1GiB\", filled_share = 0 }\n";
    let tiered = SMALL
        .replace("cache =", "tier = { origin = \"flash\", size = \"8MiB\" }\ncache =")
        .replace("size = \"1GiB\"\n", "size = \"1GiB\"\norigin = \"array\"\ntier = {}\n");
    let path = file(&folder, "tier.toml", format!("{tiered}{flash}"));
    let report = folder.path().join("out.html");
    let printed = succeed(args(&[&"sim", &path, &"--report", &report]));
    let html = std::fs::read_to_string(report).unwrap();
    for found in [&printed, &html] {
        assert!(found.contains("brought in") && found.contains("adaptive"), "{found}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let folder = folder();
    let path = file(&folder, "small.toml", SMALL);
    let printed = |seed: &str| succeed(args(&[&"sim", &path, &"--json", &"--seed", &seed]));
    let (first, again, other) = (printed("3"), printed("3"), printed("4"));
    assert_eq!(first, again);
    let hash = |text: &str| serde_json::from_str::<Value>(text).unwrap()["hash"].clone();
    assert_ne!(hash(&first), hash(&other));
}

/// A hang of 500 s, of which latencies of 100 s and more are not told apart.
#[test]
fn percentiles_of_100_s_and_more_are_told_as_that() {
    let folder = folder();
    let hangs = SMALL
        .replace("\"60s\"", "\"600s\"")
        .replace("servers = 2", "servers = 2\nhangs = [{ from = \"40s\", for = \"500s\" }]")
        .replace("memory = \"64MiB\"", "memory = \"0B\"")
        .replace("rate = 150", "rate = 5");
    let path = file(&folder, "hangs.toml", hangs);
    let told = succeed(args(&[&"sim", &path]));
    assert!(told.lines().any(|line| line.matches(">100 s").count() == 2), "{told}");
    let latency = &json(SIM, args(&[&"sim", &path, &"--json"]))["volumes"][0]["totals"]["latency"];
    assert!(latency["mean_ms"].as_f64().is_some_and(|mean| mean > 100_000.0), "{latency}");
    assert!(latency["p95_ms"].is_null() && latency["p99_ms"].is_null(), "{latency}");
}

#[test]
fn bad_scenarios_are_refused_with_file_line_key_and_arithmetic() {
    let folder = folder();
    let refuse = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "{from}");
        let path = file(&folder, "bad.toml", SMALL.replace(from, to));
        let (status, words) = fail(args(&[&"sim", &path]));
        assert_eq!(status, 1, "{words}");
        assert!(words.starts_with("error: ") && words.contains("bad.toml`, line "), "{words}");
        words
    };
    // Lines are counted from 1.
    for (from, to, expected) in [
        ("servers = 2", "sarvers = 2", "line 10, `sarvers`: unknown field `sarvers`"),
        ("rate = 150", "rade = 150", "line 16, `load`: unknown field `rade`"),
        ("type = \"servers\"", "type = \"tape\"", "line 9, `type`: `tape`, expected one of"),
        ("servers = 2", "servers = 0", "line 10, `servers`: 0 is out of range, expected from 1 to 1024"),
        ("latency = \"8ms\"", "latency = \"8 parsecs\"", "line 20, `latency`"),
        ("duration = \"60s\"", "duration = \"1s\"", "line 3, `duration`: 1s is out of range"),
        ("volume = \"db\"", "volume = \"dc\"", "`dc` is no volume of this scenario"),
    ] {
        let words = refuse(from, to);
        assert!(words.contains(expected), "{words}");
    }
    // A load that no cache takes, beyond what the devices can ever serve.
    let words = refuse("rate = 150", "rate = 500, read_share = 0.5");
    assert!(
        words.contains("line 16") && words.contains("250 requests/s from 0s on reach it whatever is cached"),
        "{words}"
    );
    assert!(words.contains("2 at 10ms each serve 200 at most"), "{words}");
    let words =
        refuse("servers = 2", "servers = 2\nqueues = \"each\"\ndistribution = \"exponential\"\nraid = \"5\"");
    assert!(words.contains("`raid`") && words.contains("only with `type = \"disks\"`"), "{words}");
    // A span of time that is one.
    let words = refuse("duration = \"60s\"", "duration = \"1000000d\"");
    assert!(
        words.contains("line 3, `duration`: `1000000d` is too long: expected at most 2^64 - 1 ns"),
        "{words}"
    );
    // A seed that is none, and no advice that would not help.
    let path = file(&folder, "small.toml", SMALL);
    let (status, words) = fail(args(&[&"sim", &path, &"--seed", &"-1"]));
    assert!(status == 2 && words.contains("'-1' for '--seed <N>'") && !words.contains("-- -1"), "{words}");
    // An objective that is faster than anything.
    let words = refuse("latency = \"8ms\"", "latency = \"100us\"");
    assert!(
        words.contains("line 20, `latency`: 100us cannot be kept: a hit in the fastest tier takes 150us"),
        "{words}"
    );
    // A trace that is not there, and one that is none: told with who names it.
    let drawn = "arrivals = \"poisson\", rate = 150, theta = 1.0, working_set = \"16MiB\"";
    let words = refuse(drawn, "arrivals = \"trace\", trace = \"gone\"");
    assert!(
        words.contains("line 16") && words.contains("`volume[0].load[0].trace`: cannot open `"),
        "{words}"
    );
    file(&folder, "noise", [0x9c_u8, 0xff, 0, 3].repeat(100));
    let words = refuse(drawn, "arrivals = \"trace\", trace = \"noise\"");
    assert!(
        words.contains("no known trace format") && words.contains("hint: `forebay trace convert`"),
        "{words}"
    );
    let (status, words) = fail(args(&[&"sim", &folder.path().join("noise")]));
    assert!(status == 1 && words.contains("noise` is no text: found byte 0x9c at offset 0"), "{words}");
    // Less than an interval is the command's fault, and not the file's.
    let path = file(&folder, "short.toml", SMALL);
    let (status, words) = fail(args(&[&"sim", &path, &"--within", &"4s"]));
    assert!(status == 2 && words.contains("`--within` is 4s, expected one control interval"), "{words}");
    // A run that would never end.
    let words = refuse("rate = 150", "rate = 1e8");
    assert!(
        words.contains("can never serve")
            || words.contains("1e11 requests")
            || words.contains("out of range"),
        "{words}"
    );
    let words = refuse("duration = \"60s\"", "duration = \"1000000h\"");
    assert!(words.contains("one to 131,072 intervals"), "{words}");
}

#[test]
fn a_load_that_needs_a_cache_is_flagged_and_ends() {
    let folder = folder();
    let path = file(&folder, "flag.toml", SMALL.replace("rate = 150", "rate = 400, outstanding_max = 64"));
    let output = run(args(&[&"sim", &path, &"--json"]));
    assert!(output.status.success());
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        words.contains("note: `volume[0].load[0].rate`")
            && words.contains("at least 50 % of them must be hits"),
        "{words}"
    );
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    // What was shed while the cache was not there yet is told after the run.
    assert_eq!(found["flags"][0]["key"], "volume[0].load[0].rate");
}

/// All that `scenarios/` ships, each in a minute of virtual time: what is asked is answered, and what was promised is judged.
#[test]
fn every_shipped_scenario_runs_in_its_short_form() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let found = json(SIM, args(&[&"sim", &path, &"--within", &"60s", &"--json"]));
        let (requests, answered) = (found["requests"].as_u64().unwrap(), found["answered"].as_u64().unwrap());
        let name = path.display();
        assert!(found["seconds"].as_f64().unwrap() <= 60.0, "{name}");
        assert!(answered > 1_000 && requests - answered < 10_000, "{name}: {answered} of {requests}");
        for volume in found["volumes"].as_array().unwrap() {
            let asked: f64 =
                volume["intervals"].as_array().unwrap().iter().filter_map(|row| row["iops"].as_f64()).sum();
            assert!(asked > 0.0, "{name}: {}", volume["volume"]);
            for objective in volume["objectives"].as_array().unwrap() {
                assert!(!objective["windows"].as_array().unwrap().is_empty(), "{name}: {objective}");
            }
        }
        count += 1;
    }
    assert!(count >= 18, "{count} scenarios");
}

#[test]
fn shipped_scenarios_with_traces_run() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/demo.toml");
    let found = json(SIM, ["sim", root, "--json"]);
    let orders = &found["volumes"][0]["totals"];
    assert!(orders["misses"].as_u64().unwrap() > 1_000, "{orders}");
    // A trace that is not there is named with the key that asks for it.
    let folder = folder();
    let text = std::fs::read_to_string(root).unwrap();
    let path = file(&folder, "demo.toml", text);
    let (_, words) = fail(args(&[&"sim", &path]));
    assert!(words.contains("pgbench.fbt.zst"), "{words}");
}

#[test]
fn the_hybrid_store_evaluation_runs_quickly_and_repeats() {
    let folder = folder();
    let report = folder.path().join("hybrid-store.html");
    let command =
        args(&[&"repro", &"hybrid-store", &"--quick", &"--seed", &"2", &"--json", &"--report", &report]);
    let text = succeed(command.clone());
    let found: Value = serde_json::from_str(&text).expect("output is JSON");
    assert_eq!((&found["schema"], &found["seed"]), (&"forebay.repro-hybrid-store/1".into(), &2.into()));
    assert!(
        found["assumptions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|text| text.as_str().unwrap().starts_with("Ours: "))
    );
    let reading = &found["readings"][0];
    assert_eq!(reading["vanilla_bytes"], 70e9);
    // The paper's 15 and 36 GB, and what hindsight finds under LRU.
    let optima = reading["optima"].as_array().unwrap();
    for row in optima.iter().filter(|row| row["policy"] == "lru") {
        let (ours, paper) = (row["bytes"].as_f64().unwrap(), row["paper_bytes"].as_f64().unwrap());
        assert!((ours / paper - 1.0).abs() < 0.15, "{row}");
    }
    let laws: Vec<&str> =
        reading["laws"].as_array().unwrap().iter().map(|row| row["law"].as_str().unwrap()).collect();
    assert_eq!(laws[..4], ["vanilla LRU", "EAFC, max threshold", "EAFC, min-max range", "Forebay"]);
    assert_eq!(found["varying"][0]["rows"].as_array().unwrap().len(), 15);
    assert_eq!(found["inverted"].as_array().unwrap().len(), 8);
    let html = std::fs::read_to_string(report).unwrap();
    assert!(html.matches("<svg").count() >= 5 && html.contains("SLO-aware Hybrid Store"));
    let body = html.split("<body").nth(1).expect("a body");
    assert!(!body.is_empty());
    // What is drawn nests.
    let svg = html.find("<svg").unwrap();
    assert_nests(&html[svg..svg + html[svg..].find("</svg>").unwrap() + 6]);
    // Threads change nothing.
    assert_eq!(succeed(command), text);
}

#[test]
fn the_dynamite_case_study_runs_quickly_and_repeats() {
    let folder = folder();
    let report = folder.path().join("dynamite.html");
    let command = args(&[
        &"repro",
        &"dynamite",
        &"--quick",
        &"--hurry",
        &"10",
        &"--seed",
        &"2",
        &"--json",
        &"--report",
        &report,
    ]);
    let text = succeed(command.clone());
    let found: Value = serde_json::from_str(&text).expect("output is JSON");
    assert_eq!((&found["schema"], &found["seed"]), (&"forebay.repro-dynamite/1".into(), &2.into()));
    let courses = found["courses"].as_array().unwrap();
    let minutes = |course: &str| -> f64 {
        let course = courses.iter().find(|found| found["course"] == course).expect("a course");
        course["violated_min"].as_f64().unwrap()
    };
    // Each is served alone, both are not, and a cache mends most of it.
    assert!(minutes("alone-main") < 1.0 && minutes("alone-reader") < 1.0, "{courses:?}");
    assert!(minutes("co-located") > 20.0, "{courses:?}");
    assert!(minutes("reactive") < 20.0, "{courses:?}");
    let made =
        courses.iter().find(|found| found["course"] == "reactive").unwrap()["granted_min"].as_f64().unwrap();
    assert!((54.0..58.0).contains(&made), "seven minutes after the peak begins: {made}");
    // The estimate of the peak's curve is that of the daemon: near the exact one.
    for row in found["curves"][0].as_array().unwrap() {
        let gap = row["exact"].as_f64().unwrap() - row["estimated"].as_f64().unwrap();
        assert!(gap.abs() < 0.1, "{row}");
    }
    let html = std::fs::read_to_string(report).unwrap();
    assert!(html.matches("<svg").count() >= 5 && html.contains("Dynamite"));
    // Who is not there in a course has no line of noughts in it.
    let chart = |title: &str| html.split("<svg").find(|chart| chart.contains(title)).expect("a chart");
    let (main, reader) = (chart("Requests per second of usr-1"), chart("Requests per second of reader"));
    assert!(main.contains("usr-1 alone") && !main.contains("reader alone"));
    assert!(reader.contains("reader alone") && !reader.contains("usr-1 alone"));
    assert_eq!(succeed(command), text);
    assert_eq!(fail(["repro", "dynamite", "--hurry", "11"]).0, 2);
}

#[test]
fn a_scenario_without_an_end_is_refused_after_a_few_mebibytes() {
    let (status, words) = fail(["sim", "/dev/zero"]);
    assert!(status == 1 && words.contains("is too long: expected a text of at most 16MiB"), "{words}");
}

/// The first record is of 4 GiB, the second of less by a byte.
#[test]
fn a_recorded_request_too_long_to_be_simulated_is_told_with_its_file_and_record() {
    let folder = folder();
    let traced = SMALL.replace(
        "\"poisson\", rate = 150, theta = 1.0, working_set = \"16MiB\"",
        "\"trace\", trace = \"long.csv\"",
    );
    let path = file(&folder, "traced.toml", traced.replace("1GiB", "8GiB"));
    let record =
        |at: u64, bytes: u64| format!("{},hm,0,Read,4096,{bytes},100\n", 128_166_372_003_061_629 + at);
    file(&folder, "long.csv", format!("{}{}", record(0, 4096), record(1, 1 << 32)));
    let (status, words) = fail(args(&[&"sim", &path]));
    let wanted = "long.csv`: record 2 of the trace asks for 4294967296 bytes, and a request that is simulated for less than 4GiB: leave it out, or cut it \
                  into shorter ones";
    assert!(status == 1 && words.contains("`volume[0].load[0].trace`") && words.contains(wanted), "{words}");
}

#[test]
fn what_is_no_number_of_those_expected_is_told_which_are() {
    let refused = |more: [&str; 4]| {
        let (status, words) = fail(more);
        assert_eq!(status, 2, "{words}");
        words
    };
    for scale in ["1.5", "0", "25", "many"] {
        let words = refused(["repro", "hybrid-store", "--scale", scale]);
        assert!(words.contains("expected a whole number from 1 to 24"), "{words}");
    }
    let words = refused(["repro", "dynamite", "--seed", "18446744073709551616"]);
    assert!(words.contains("expected a whole number from 0 to 2^64 - 1"), "{words}");
    let words = refused(["repro", "dcio", "--seed", "18446744073709551615"]);
    assert!(words.contains("expected a whole number from 0 to 2^64 - 2"), "{words}");
}
