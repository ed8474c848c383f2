//! `forebay plan`: numbers worked out by hand, the shipped example, and plan files that are refused before a trace is read.

use crate::support::{args, assert_nests, fail, file, folder, json, msr, recorded, succeed};
use std::path::{Path, PathBuf};

const PLAN: &str = "forebay.plan/1";

/// One disk with exponential service of 3 ms + 4 KiB at 4,096,000 B/s = 4 ms.
const ORIGIN: &str = r#"
chunk = "4KiB"
working_set_window = "60s"
[cache]
memory_latency = "100us"
[[origin]]
name = "disk"
servers = 1
positioning = "3ms"
transfer_per_second = "4096000"
service_cv2 = 1.0
"#;

/// 20,000 reads of a block, one every 10 ms: a cycle over 100 hot blocks, alternating with blocks never read again. No
/// read continues the one before.
fn hot_and_cold(folder: &tempfile::TempDir) {
    let reads: Vec<_> = (0..20_000u64)
        .map(|at| {
            let block = if at % 2 == 0 { at / 2 % 100 * 2 } else { 1_000_000 + at * 2 };
            (at * 100_000, 0, true, block * 4096, 4096)
        })
        .collect();
    file(folder, "hot.csv", msr(&reads));
}

fn plan_file(folder: &tempfile::TempDir, more: &str) -> PathBuf {
    file(folder, "plan.toml", ORIGIN.to_owned() + more)
}

/// One window of all of `hot_and_cold`: so little is left to chance that what comes out can be had by hand.
fn plan_of_one_window(folder: &tempfile::TempDir, more: &str) -> PathBuf {
    file(folder, "plan.toml", format!("window = \"200s\"\n{ORIGIN}{more}"))
}

fn near(found: &serde_json::Value, expected: f64) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{found} is not a number"));
    assert!((found / expected - 1.0).abs() < 1e-3, "{found} is not {expected}");
}

#[test]
fn one_volume_by_hand() {
    let folder = folder();
    hot_and_cold(&folder);
    let volume =
        "[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"4ms\"\n";
    let plan = json(PLAN, args(&[&"plan", &plan_of_one_window(&folder, volume), &"--json"]));
    let a = &plan["volumes"][0];
    near(&a["requests_per_second"], 100.0);
    // 10,000 cold blocks and 100 hot ones; in a minute 3,000 of the cold ones.
    assert_eq!(a["footprint_bytes"], 10_100 * 4096);
    assert_eq!(a["working_set_bytes"], 3_100 * 4096);
    // One server at 100/s and 4 ms is M/M/1 at 0.4: 4 ms / (1 - 0.4) = 6.667 ms.
    near(&plan["origins"][0]["utilisation"], 0.4);
    near(&a["without"]["latency_s"], 0.004 / 0.6);
    assert_eq!(a["objectives"][0]["without"]["met"], false);
    near(&a["objectives"][0]["without"]["excess"], 0.004 / 0.6 / 0.004 - 1.0);
    // Between two reads of a hot block lie 99 others and 100 cold ones, so that 200 blocks let all but the first touches of the
    // hot ones hit, and fewer none: misses are (10,000 + 100) / 20,000 = 0.505.
    assert_eq!(a["smallest_cache_bytes"], 200 * 4096);
    near(&a["miss_ratio"], 0.505);
    // The disk then sees 50.5/s: 0.495 * 0.1 ms + 0.505 * 4 ms / (1 - 0.202) = 2.5808 ms.
    near(&a["with"]["latency_s"], 0.495 * 0.0001 + 0.505 * 0.004 / 0.798);
    assert_eq!(a["objectives"][0]["with"]["met"], true);
    // 1 - 200 / 3,100.
    near(&a["saved_against_working_set"], 1.0 - 200.0 / 3_100.0);
    assert_eq!(plan["recommendation"]["total_bytes"], 200 * 4096);
    assert_eq!(plan["remedies"][0]["solutions"][0]["caches"][0]["bytes"], 200 * 4096);
    assert!(plan["within_budget"].is_null());
}

#[test]
fn reads_that_come_together_wait_for_one_another() {
    let folder = folder();
    // 100/s, one every 10 ms or ten every 100 ms. Of five instants of 20 ms (five services of 4 ms) one has ten then: variance
    // over mean 10^2 / 10 - 2 = 8.
    for (together, latency_ms) in [
        // M/M/1 at 0.4.
        (1, 4.0 / 0.6),
        // Half of the seven that come with each before it, and the queue longer by as much: 4 + (1.6 + 0.4 x 14) / 0.6 + 14.
        (10, 4.0 + (1.6 + 5.6) / 0.6 + 14.0),
    ] {
        let reads: Vec<_> =
            (0..20_000u64).map(|at| (at / together * together * 100_000, 0, true, at * 8192, 4096)).collect();
        file(&folder, "hot.csv", msr(&reads));
        let volume = "[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\n";
        let plan = json(PLAN, args(&[&"plan", &plan_of_one_window(&folder, volume), &"--json"]));
        near(&plan["volumes"][0]["without"]["latency_s"], latency_ms / 1e3);
    }
}

/// Of three readers side by side each goes on behind its own last read: after their first they need the disk's transfer alone, 1 ms.
#[test]
fn readers_side_by_side_need_no_positioning() {
    let folder = folder();
    let reads: Vec<_> = (0..20_000u64)
        .map(|at| (at * 100_000, 0, true, (at % 3 * 1_000_000 + at / 3) * 4096, 4096))
        .collect();
    file(&folder, "hot.csv", msr(&reads));
    let volume = "[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\n";
    let plan = json(PLAN, args(&[&"plan", &plan_of_one_window(&folder, volume), &"--json"]));
    // M/M/1 at 0.1.
    near(&plan["volumes"][0]["without"]["latency_s"], 0.001 / 0.9);
}

#[test]
fn a_trace_that_ends_within_a_window_has_its_own_rate() {
    let folder = folder();
    // One read every 10 ms on a disk that serves 78.8/s. Of 11 and 20.1 s the rest is left out, of 15 s it is a window of 5 s.
    for requests in [200, 1_100, 1_500, 2_010u64] {
        let reads: Vec<_> =
            (0..requests).map(|at| (at * 100_000, 0, true, at * 7_919 % 250_000 * 4096, 4096)).collect();
        file(&folder, "constant.csv", msr(&reads));
        let path = file(
            &folder,
            "constant.toml",
            "[[origin]]\nname = \"o\"\npreset = \"disk-7200\"\n[[volume]]\nname = \"a\"\ntrace = \"constant.csv\"\n\
             [[objective]]\nvolume = \"a\"\nlatency = \"20ms\"\n",
        );
        let plan = json(PLAN, args(&[&"plan", &path, &"--json"]));
        let a = &plan["volumes"][0];
        near(&a["requests_per_second"], 100.0);
        near(&a["requests_per_second_peak"], 100.0);
        assert_eq!(a["objectives"][0]["without"]["met"], false, "{requests} requests");
        near(&a["without"]["overloaded_share"], 1.0);
    }
}

#[test]
fn what_cannot_be_met_is_told_with_by_how_much() {
    let folder = folder();
    hot_and_cold(&folder);
    let volume =
        "[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"2ms\"\n";
    let path = plan_of_one_window(&folder, volume);
    let plan = json(PLAN, args(&[&"plan", &path, &"--json"]));
    // With all that a cache can do the latency is 2.5808 ms, 29% beyond 2 ms.
    near(&plan["remedies"][0]["unmet"]["excess"], 2.5808 / 2.0 - 1.0);
    assert!(plan["volumes"][0]["smallest_cache_bytes"].is_null());
    let text = succeed(args(&[&"plan", &path]));
    assert!(text.contains("Cannot be met: a stays 29.0% beyond"), "{text}");

    // A budget below the cliff at 200 blocks helps nobody.
    let budget = ORIGIN.replace("chunk", "window = \"200s\"\nbudget = \"400KiB\"\nchunk");
    let path = file(&folder, "budget.toml", budget + &volume.replace("2ms", "4ms"));
    let plan = json(PLAN, args(&[&"plan", &path, &"--json"]));
    assert!(plan["within_budget"]["total_bytes"].as_u64().unwrap() <= 400 << 10);
    near(&plan["within_budget"]["missed"][0]["excess"], 0.004 / 0.6 / 0.004 - 1.0);
}

/// With all that a cache can do the latency is 2.5808 ms, 35.5% within 4 ms: kept, and no margin of a half.
#[test]
fn a_margin_that_cannot_be_had_is_told_apart_from_what_cannot_be_met() {
    let folder = folder();
    hot_and_cold(&folder);
    let volume =
        "[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"4ms\"\n";
    let path = file(&folder, "margin.toml", format!("margin = 0.5\nwindow = \"200s\"\n{ORIGIN}{volume}"));
    let text = succeed(args(&[&"plan", &path, &"--simulate"]));
    let told = "Kept, but not with the margin: a: with the best caches it is 35.5 % within its bound (wanted: 50.0 % within)";
    assert!(text.contains(told) && text.contains("none with the margin"), "{text}");
    assert!(!text.contains("Cannot be met") && !text.contains("no size suffices"), "{text}");
    assert!(
        text.contains("no cache keeps \"mean latency at most 4ms\" of a with the margin in 95.0%"),
        "{text}"
    );
    let plan = json(PLAN, args(&[&"plan", &path, &"--json"]));
    let remedy = &plan["remedies"][0];
    assert!(
        remedy["unmet"].is_null() && plan["recommendation"]["missed"].as_array().unwrap().is_empty(),
        "{plan}"
    );
    near(&remedy["margin_unmet"]["excess"], 2.5808 / 4.0 - 1.0);
}

#[test]
fn the_shipped_example_works_and_draws() {
    let folder = folder();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plan.toml");
    let (svg, page) = (folder.path().join("plan.svg"), folder.path().join("plan.html"));
    let text = succeed(args(&[&"plan", &example, &"--svg", &svg, &"--report", &page]));
    assert!(text.contains("Recommended: ") && text.contains("Within the budget of 64MiB: "), "{text}");
    assert_nests(&std::fs::read_to_string(svg).unwrap());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h1>Cache plan</h1>") && page.contains("<svg "));
}

#[test]
fn a_trace_volume_that_the_trace_does_not_hold_is_told_with_those_it_does() {
    let folder = folder();
    hot_and_cold(&folder);
    let path = plan_file(&folder, "[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\ntrace_volume = \"b\"\n");
    let (status, words) = fail(args(&[&"plan", &path]));
    assert!(status == 1 && words.contains("plan.toml`, line 15, `trace_volume`"), "{words}");
    assert!(words.contains("hint: the trace holds `host_0`"), "{words}");
    let pages = file(&folder, "pages.lis", "0 4 0 1\n2 4 0 2\n");
    let path =
        plan_file(&folder, &format!("[[volume]]\nname = \"a\"\nformat = \"arc-lis\"\ntrace = {pages:?}\n"));
    let (status, words) = fail(args(&[&"plan", &path]));
    assert!(status == 1 && words.contains("has no times") && words.contains("hint: "), "{words}");
    // Nor has one of one instant any load over time.
    file(&folder, "instant.csv", msr(&[(7, 0, true, 0, 4096), (7, 0, true, 4096, 4096)]));
    let path = plan_file(&folder, "[[volume]]\nname = \"a\"\ntrace = \"instant.csv\"\n");
    let (status, words) = fail(args(&[&"plan", &path]));
    assert!(status == 1 && words.contains("all 2 requests of"), "{words}");
}

/// What is appended to the origin above, and what the refusal says. The trace is no trace: it must not be read.
#[test]
fn plan_files_are_refused_before_a_trace_is_read() {
    let folder = folder();
    file(&folder, "t", "this is no trace");
    let volume = "[[volume]]\nname = \"a\"\ntrace = \"t\"\n";
    let objective = |more: &str| format!("{volume}[[objective]]\nvolume = \"a\"\n{more}\n");
    let cases = [
        (format!("{volume}sise = 3\n"), "line 15, `sise`: unknown field `sise`"),
        (format!("{volume}origin = \"tape\"\n"), "line 15, `origin`: there is no origin `tape`"),
        (format!("{volume}{volume}"), "line 16, `name`: there are two volumes `a`"),
        (format!("{volume}closed_loop = 0\n"), "line 15, `closed_loop`: 0 is out of range"),
        (format!("{volume}format = \"mrs\"\n"), "line 15, `format`: `mrs` is not a trace format"),
        ("[[volume]]\nname = \"a\"\ntrace = \"absent\"\n".to_owned(), "line 14, `trace`: cannot open `"),
        ("[[volume]]\nname = \"a\"\n".to_owned(), "line 12, `[[volume]]`: missing field `trace`"),
        ("[[volume]]\nname = \"a\"\ntrace = []\n".to_owned(), "line 14, `trace`: an empty array"),
        (String::new(), "the plan has no `[[volume]]`"),
        (
            "[[origin]]\nname = \"x\"\npreset = \"tape\"\n".to_owned(),
            "line 14, `preset`: `tape` is not a preset",
        ),
        ("[[origin]]\nname = \"x\"\n".to_owned(), "line 12, `[[origin]]`: missing key `positioning`"),
        (
            "[[origin]]\nname = \"x\"\npreset = \"disk-10k\"\nservers = 0\n".to_owned(),
            "line 15, `servers`: 0 is out of range",
        ),
        (objective("latency = \"0ms\""), "line 17, `latency`: 0s is out of range"),
        (objective("latency = \"5\""), "line 17, `latency`: `5` is not a span of time"),
        (objective("latency = 5"), "line 17, `latency`: `5`, expected "),
        (objective("iops = -1"), "line 17, `iops`: -1 is out of range: expected above 0"),
        (objective("iops = nan"), "line 17, `iops`: NaN is out of range"),
        (objective("iops = 5\nlatency = \"5ms\""), "an objective has exactly one of `latency`, `iops`"),
        (objective(""), "line 15, `[[objective]]`: an objective has exactly one of"),
        (
            objective("iops = 5\nstatistic = \"p95\""),
            "line 18, `statistic`: `statistic` has a meaning only with `latency`",
        ),
        (
            objective("latency = \"5ms\"\nstatistic = \"p101\""),
            "line 18, `statistic`: `p101` is not a statistic",
        ),
        (
            objective("latency = \"5ms\"\nconforming_share = 1.5"),
            "line 18, `conforming_share`: 1.5 is out of range",
        ),
        (
            objective("latency = \"5ms\"\noperations = \"flushes\""),
            "line 18, `operations`: `flushes` is not a value",
        ),
        (
            format!("{volume}[[objective]]\nvolume = \"b\"\niops = 5\n"),
            "line 16, `volume`: there is no volume `b`",
        ),
    ];
    for (more, expected) in cases {
        let (status, words) = fail(args(&[&"plan", &plan_file(&folder, &more)]));
        assert!(
            status == 1 && words.contains("plan.toml`") && words.contains(expected),
            "{more}\n{words}\n{expected}"
        );
    }
    for (top, expected) in [
        ("budgt = \"1GiB\"\n", "line 1, `budgt`: unknown field `budgt`"),
        ("block_size = \"5000\"\n", "line 1, `block_size`: block size `4.88KiB` is not a power of two"),
        ("block_size = \"8KiB\"\n", "line 3, `chunk`: 4096 bytes are no multiple of a block of 8KiB"),
        ("window = \"1ms\"\n", "line 1, `window`: 1ms is out of range: expected 100ms to 86400s"),
        ("budget = \"1MiB\"\n", "line 1, `budget`: 1MiB is less than the volumes' minimums of 2MiB"),
        ("margin = 1.0\n", "line 1, `margin`: 1 is out of range: expected 0 to below 1"),
        ("rate = 0.5\n", "line 1, `rate`: `rate` is for the method `shards`"),
        ("method = \"guess\"\n", "line 1, `method`: `guess` is not a method"),
    ] {
        let path = file(&folder, "top.toml", top.to_owned() + ORIGIN + volume + "minimum = \"2MiB\"\n");
        let (status, words) = fail(args(&[&"plan", &path]));
        assert!(
            status == 1 && words.contains("top.toml`") && words.contains(expected),
            "{top}{words}\n{expected}"
        );
    }
    let text = ORIGIN.replace("chunk = \"4KiB\"", "chunk = \"15EiB\"") + volume;
    let (status, words) = fail(args(&[&"plan", &file(&folder, "chunk.toml", text)]));
    let expected = "line 2, `chunk`: 15EiB is out of range, expected at most 1TiB";
    assert!(status == 1 && words.contains(expected), "{words}");
}

/// The reference names every key, and the keys it names are keys.
#[test]
fn the_reference_names_every_key() {
    let reference = include_str!("../../../../docs/reference/plan.md");
    let source = include_str!("../../src/commands/plan/config.rs");
    let tables =
        source.split("struct ").filter(|part| part.split('{').next().unwrap().trim_end().ends_with("Table"));
    let mut keys = 0;
    for table in tables.filter(|table| !table.starts_with("Paths")) {
        let body = table.split_once("{\n").unwrap().1.split("\n}").next().unwrap();
        for line in body.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let key = line.split_once(':').expect("a field").0;
            let named =
                reference.contains(&format!("`{key}`")) || reference.contains(&format!("`[[{key}]]`"));
            assert!(named || reference.contains(&format!("`[{key}]`")), "`{key}` is not in the reference");
            keys += 1;
        }
    }
    assert!(keys > 40, "{keys} keys were found in the source");
}

/// Four recorded volumes, each on disks of its own: `budget` and, where there are any, the minimum of each, in bytes.
fn recorded_plan(
    folder: &tempfile::TempDir,
    budget: u64,
    minimums: Option<&[u64]>,
) -> Option<serde_json::Value> {
    let volumes = [
        ("cloud", "cloudphysics_sample.vscsi.zst", 8, "11ms"),
        ("web", "blkreplay_linux-webserver-2.load.gz", 16, "12ms"),
        ("mssql", "blkreplay_windows-mssql.load.gz", 4, "4ms"),
        ("dtrs", "msps_DTRS100M.ssdsim.trace.zst", 2, "1.6ms"),
    ];
    let mut text = format!("budget = \"{budget}B\"\nchunk = \"256KiB\"\n");
    let mut objectives = String::new();
    for (at, (name, trace, servers, latency)) in volumes.iter().enumerate() {
        let trace = recorded(trace)?;
        let minimum = minimums.map_or(0, |minimums| minimums[at]);
        text += &format!("[[origin]]\nname = \"{name}\"\npreset = \"disk-7200\"\nservers = {servers}\n");
        objectives += &format!(
            "[[volume]]\nname = \"{name}\"\norigin = \"{name}\"\ntrace = \"{}\"\nminimum = \"{minimum}B\"\n\
             [[objective]]\nvolume = \"{name}\"\nlatency = \"{latency}\"\noperations = \"reads\"\nconforming_share = 0.7\n",
            trace.display()
        );
    }
    let path = file(folder, "recorded.toml", text + &objectives);
    Some(json(PLAN, args(&[&"plan", &path, &"--json"])))
}

/// Where there is not enough for all, the planner's division violates less than shares in proportion to what each needs, to its working set,
/// and equal ones, at a quarter and three quarters of what all would need.
#[test]
fn a_budget_is_divided_better_than_in_proportion() {
    let folder = folder();
    let Some(enough) = recorded_plan(&folder, 1 << 40, None) else { return };
    let numbers = |rows: &serde_json::Value, field: &str| -> Vec<u64> {
        rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).collect()
    };
    let needed = numbers(&enough["recommendation"]["caches"], "bytes");
    let working_sets = numbers(&enough["volumes"], "working_set_bytes");
    let violation = |plan: &serde_json::Value| plan["within_budget"]["weighted_violation"].as_f64().unwrap();
    assert!(enough["recommendation"]["weighted_violation"].as_f64().unwrap() < 1e-9);
    for quarters in [1, 3] {
        let budget = needed.iter().sum::<u64>() * quarters / 4;
        let divided = violation(&recorded_plan(&folder, budget, None).unwrap());
        for (shares, how) in [(&needed, "need"), (&working_sets, "working set"), (&vec![1; 4], "nothing")] {
            // A plan whose minimums take up its budget has nothing to divide.
            let sum: u64 = shares.iter().sum();
            let part =
                |share: &u64| (u128::from(budget) * u128::from(*share) / u128::from(sum)) as u64 >> 18 << 18;
            let minimums: Vec<u64> = shares.iter().map(part).collect();
            let fixed = recorded_plan(&folder, minimums.iter().sum(), Some(&minimums)).unwrap();
            assert_eq!(numbers(&fixed["within_budget"]["caches"], "bytes"), minimums);
            let proportional = violation(&fixed);
            println!("{quarters}/4: divided {divided:.3}, in proportion to {how} {proportional:.3}");
            assert!(divided < proportional, "{quarters}/4, {how}: {divided} {proportional}");
        }
    }
}

/// Ranges of neighbouring objects overlap: 100 of 25 blocks each, used in turn, are 100 objects.
#[test]
fn an_object_is_one_block() {
    let folder = folder();
    let mut trace = Vec::new();
    for at in 0..10_000u64 {
        trace.extend_from_slice(&(at as u32 / 10).to_le_bytes());
        trace.extend_from_slice(&(at % 100).to_le_bytes());
        trace.extend_from_slice(&100_000u32.to_le_bytes());
        trace.extend_from_slice(&(-1i64).to_le_bytes());
    }
    file(&folder, "objects.bin", trace);
    let volume = |ids: &str| {
        format!(
            "[[volume]]\nname = \"a\"\ntrace = \"objects.bin\"\nformat = \"oracle-general\"\nids = \"{ids}\"\n"
        )
    };
    let footprint = |ids: &str| {
        let plan = json(PLAN, args(&[&"plan", &plan_file(&folder, &volume(ids)), &"--json"]));
        (plan["volumes"][0]["footprint_bytes"].clone(), plan["volumes"][0]["working_set_bytes"].clone())
    };
    assert_eq!(footprint("objects"), ((100 * 4096).into(), (100 * 4096).into()));
    // Read as blocks, the last of the ranges ends 24 blocks and a bit behind the start of the last block.
    assert_eq!(footprint("blocks"), ((124 * 4096).into(), (124 * 4096).into()));
}

/// Minimums are whole blocks, and their sum may be more than any number of bytes.
#[test]
fn minimums_beyond_the_budget_are_told_in_whole_blocks() {
    let folder = folder();
    file(&folder, "t", "this is no trace");
    for (budget, minimum, sum) in [("10KiB", "5KiB", "16KiB"), ("1MiB", "8388608TiB", "16.00EiB")] {
        let volumes: String = ["a", "b"]
            .map(|name| format!("[[volume]]\nname = \"{name}\"\ntrace = \"t\"\nminimum = \"{minimum}\"\n"))
            .concat();
        let path = file(&folder, "minimums.toml", format!("budget = \"{budget}\"\n{ORIGIN}{volumes}"));
        let (status, words) = fail(args(&[&"plan", &path]));
        let wanted = format!("line 1, `budget`: {budget} is less than the volumes' minimums of {sum}");
        assert!(status == 1 && words.contains(&wanted), "{words}");
    }
}

/// What the simulator says of a plan is what `forebay sim` says of the same devices, load and caches.
#[test]
fn a_plan_is_held_against_the_simulator() {
    let folder = folder();
    hot_and_cold(&folder);
    let objective = "[[objective]]\nvolume = \"a\"\nlatency = \"4ms\"\nconforming_share = 0.8\n";
    let volume = format!("[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\n{objective}");
    let path = plan_file(&folder, &volume);
    let plan = json(PLAN, args(&[&"plan", &path, &"--simulate", &"--seed", &"3", &"--json"]));
    let simulated = &plan["simulated"];
    assert_eq!((&simulated["seed"], &simulated["seconds"]), (&3.into(), &200.0.into()));
    let a = &simulated["volumes"][0];
    assert_eq!(a["planned_bytes"], plan["recommendation"]["caches"][0]["bytes"]);
    assert_eq!(simulated["total_bytes"], a["smallest_bytes"]);
    let sim = |bytes: u64| {
        let scenario = format!(
            "name = \"by hand\"\nduration = \"200s\"\ncache = {{ memory = \"1GiB\", hit_latency = \"100us\", sizing = \"fixed\" }}\n\
             [[origin]]\nname = \"disk\"\ntype = \"servers\"\nservers = 1\nqueues = \"each\"\nservice = \"3ms\"\ndistribution = \"exponential\"\n\
             transfer_per_second = \"4096000B\"\n[[volume]]\nname = \"a\"\nsize = \"8GiB\"\ncache = \"{bytes}B\"\n\
             load = [{{ arrivals = \"trace\", trace = \"hot.csv\" }}]\n{objective}"
        );
        let path = file(&folder, "by-hand.toml", scenario);
        let outcome = json("forebay.sim/1", args(&[&"sim", &path, &"--seed", &"3", &"--json"]));
        outcome["volumes"][0]["objectives"][0]["conforming_share"].as_f64().unwrap()
    };
    let bytes = |key: &str| a[key].as_u64().unwrap();
    let told = |key: &str| a["objectives"][0][key]["conforming_share"].as_f64().unwrap();
    assert!((sim(bytes("planned_bytes")) - told("with_planned")).abs() < 1e-12);
    assert!((sim(bytes("smallest_bytes")) - told("with_smallest")).abs() < 1e-12);
    assert_eq!(a["objectives"][0]["with_smallest"]["met"], true);
    assert!(sim(bytes("smallest_bytes")) >= 0.8 && sim(bytes("smallest_bytes") - 4096) < 0.8, "{a}");

    // In words, and absent unless asked for.
    let words = succeed(args(&[&"plan", &path, &"--simulate"]));
    assert!(words.contains("By simulation, all caches together (seed 1, "), "{words}");
    assert!(
        words.contains("\nBy simulation: a ") && words.contains("disk is simulated as 1 servers"),
        "{words}"
    );
    assert!(json(PLAN, args(&[&"plan", &path, &"--json"])).get("simulated").is_none());
    // A margin tightens the bound there, too: half of the reads are never cached, and take 4 ms.
    let path = file(&folder, "margin.toml", format!("margin = 0.6\n{ORIGIN}{volume}"));
    let plan = json(PLAN, args(&[&"plan", &path, &"--simulate", &"--seed", &"3", &"--json"]));
    assert_eq!(plan["simulated"]["volumes"][0]["objectives"][0]["with_smallest"]["met"], false);
}

/// 100 s of a read a second, then 100 s of 100: only the latter are planned for, and judged where they are played.
#[test]
fn windows_before_measure_from_are_not_judged() {
    let folder = folder();
    let slow = (0..100u64).map(|at| (at * 10_000_000, 0, true, (1_000_000 + at * 2) * 4096, 4096));
    let quick = (0..10_000u64).map(|at| (1_000_000_000 + at * 100_000, 0, true, at % 100 * 8192, 4096));
    file(&folder, "steps.csv", msr(&slow.chain(quick).collect::<Vec<_>>()));
    let volume =
        "[[volume]]\nname = \"a\"\ntrace = \"steps.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"4ms\"\n";
    let planned = |from: &str| {
        let path = file(&folder, "steps.toml", format!("measure_from = \"{from}\"\n{ORIGIN}{volume}"));
        json(PLAN, args(&[&"plan", &path, &"--simulate", &"--json"]))
    };
    let judged = |plan: &serde_json::Value| {
        let objective = &plan["simulated"]["volumes"][0]["objectives"][0];
        let share = |number: &serde_json::Value| number["conforming_share"].as_f64().unwrap();
        let without = &plan["volumes"][0]["objectives"][0]["without"];
        (
            plan["volumes"][0]["requests_per_second"].as_f64().unwrap(),
            share(without),
            share(&objective["with_planned"]),
        )
    };
    // A read that is alone takes 4 ms, half of the windows a little less; 100/s never do without a cache, and but for their first window always
    // with one of 100 blocks.
    let (all, later) = (judged(&planned("0s")), judged(&planned("95s")));
    assert!((all.0 - 50.5).abs() < 0.1 && (later.0 - 100.0).abs() < 0.1, "{all:?} {later:?}");
    assert!(all.1 > 0.1 && later.1 < 0.01, "{all:?} {later:?}");
    assert!((0.89..=1.0).contains(&later.2), "{all:?} {later:?}");
    let path = file(&folder, "late.toml", format!("measure_from = \"200s\"\n{ORIGIN}{volume}"));
    let (status, words) = fail(args(&[&"plan", &path]));
    let wanted = "line 1, `measure_from`: the last request of volume `a` is before it, in the first 200s";
    assert!(status == 1 && words.contains(wanted), "{words}");
}

/// A read a second, then 80 a second to the end of the trace: what decides lies in the last window.
#[test]
fn a_last_window_that_is_half_full_is_simulated() {
    let folder = folder();
    for (end_ms, seconds, played) in [(19_800u64, 20.0, 10 + 784u64), (14_000, 10.0, 10)] {
        let slow = (0..10u64).map(|at| (at * 10_000_000, 0, true, at * 8_192, 4096));
        let quick = (0..(end_ms - 10_000) * 80 / 1_000)
            .map(|at| (100_125_000 + at * 125_000, 0, true, at * 7_919 % 250_000 * 8_192, 4096));
        file(&folder, "last.csv", msr(&slow.chain(quick).collect::<Vec<_>>()));
        let volume = "[[volume]]\nname = \"a\"\ntrace = \"last.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"15ms\"\n";
        let path = file(
            &folder,
            "last.toml",
            format!("{}{volume}", ORIGIN.replace("3ms", "12ms").replace("cv2 = 1.0", "cv2 = 0.0")),
        );
        let plan = json(PLAN, args(&[&"plan", &path, &"--simulate", &"--json"]));
        let simulated = &plan["simulated"];
        assert_eq!((&simulated["seconds"], &simulated["requests"]), (&seconds.into(), &played.into()));
        // 80/s of 13 ms are more than can be served: in the last window they wait, and no cache answers any.
        let share = simulated["volumes"][0]["objectives"][0]["with_smallest"]["conforming_share"].as_f64();
        assert_eq!(share, Some(if played > 10 { 0.5 } else { 1.0 }), "{simulated}");
        let said = simulated["basis"].to_string();
        assert_eq!(said.contains("320 requests at the end are not played"), played == 10, "{said}");
    }
}

/// 1,000 blocks, read once before `measure_from` and once behind it: all hits there. By itself the second half is all first reads.
#[test]
fn what_is_read_before_measure_from_is_in_the_cache() {
    let folder = folder();
    let reads: Vec<_> =
        (0..2_000u64).map(|at| (at * 1_000_000, 0, true, at % 1_000 * 7_919 % 1_000 * 8_192, 4096)).collect();
    file(&folder, "twice.csv", msr(&reads));
    let volume =
        "[[volume]]\nname = \"a\"\ntrace = \"twice.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"1ms\"\n";
    for method in ["", "method = \"shards\"\nrate = 1.0\n"] {
        let top = format!("measure_from = \"100s\"\n{method}");
        let path = file(&folder, "twice.toml", format!("{top}{ORIGIN}{volume}"));
        let plan = json(PLAN, args(&[&"plan", &path, &"--json"]));
        assert_eq!(plan["volumes"][0]["smallest_cache_bytes"], 1_000 * 4096, "{plan}");
        assert!(plan["volumes"][0]["miss_ratio"].as_f64().unwrap() < 1e-9);
    }
    let path = file(&folder, "all.toml", format!("{ORIGIN}{volume}"));
    let words = succeed(args(&[&"plan", &path]));
    assert!(words.contains("; 50.0 % of its block reads are first ones, which no cache answers"), "{words}");
}

/// Reads of a block each as SPC has them, with times in ms.
fn spc(reads: impl Iterator<Item = (u64, u64)>) -> String {
    reads.map(|(ms, block)| format!("0,{},4096,R,{}.{:03}\n", block * 16, ms / 1_000, ms % 1_000)).collect()
}

/// Two volumes of which one begins 100 s behind the other, from 0 and from 1,000 s on.
#[test]
fn times_count_from_the_first_request_of_all_traces() {
    let folder = folder();
    let volumes: String = ["a", "b"]
        .map(|name| {
            format!(
                "[[volume]]\nname = \"{name}\"\ntrace = \"{name}.spc\"\n[[objective]]\nvolume = \"{name}\"\n\
                 latency = \"5ms\"\n"
            )
        })
        .concat();
    let path = plan_file(&folder, &volumes);
    let planned = |begins_ms: u64| {
        let reads = |from: u64| {
            spc((0..10_000).map(move |at| (begins_ms + from + at * 20, at * 7_919 % 10_000 % 400)))
        };
        file(&folder, "a.spc", reads(100_000));
        file(&folder, "b.spc", reads(0));
        json(PLAN, args(&[&"plan", &path, &"--simulate", &"--json"]))
    };
    let plan = planned(1_000_000);
    assert_eq!(plan, planned(0));
    near(&plan["volumes"][1]["requests_per_second"], 50.0);
    // 200 s of load in 300 s.
    near(&plan["volumes"][0]["requests_per_second"], 10_000.0 / 300.0);
    assert_eq!(plan["simulated"]["seconds"], 300.0);
    // The earliest request need not be among the first.
    let plan_of = |seconds: [u64; 2]| {
        let half = |from: u64| (0..5_000).map(move |at| (from * 1_000 + at * 20, at % 400));
        file(&folder, "halves.spc", spc(half(seconds[0]).chain(half(seconds[1]))));
        let path = plan_file(&folder, "[[volume]]\nname = \"a\"\ntrace = \"halves.spc\"\n");
        json(PLAN, args(&[&"plan", &path, &"--json"]))
    };
    near(&plan_of([1_100, 1_000])["volumes"][0]["requests_per_second"], 50.0);
    near(&plan_of([1_000, 1_100])["volumes"][0]["requests_per_second"], 50.0);
    // A pipe is read once: 10,000 requests over the 100 s of the first half, and one window of ten that is at the beginning.
    let pipe = folder.path().join("halves.pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let half = |from: u64| (0..5_000).map(move |at| (from * 1_000 + at * 20, at % 400));
    let text = spc(half(1_100).chain(half(1_000)));
    let path = plan_file(&folder, "[[volume]]\nname = \"a\"\ntrace = \"halves.pipe\"\nformat = \"spc\"\n");
    let writing = std::thread::spawn(move || std::fs::write(pipe, text));
    let plan = json(PLAN, args(&[&"plan", &path, &"--json"]));
    writing.join().unwrap().unwrap();
    near(&plan["volumes"][0]["requests_per_second"], 100.0);
}

/// Two volumes that are read at once, one file behind the other and sorted by time: the same load to the simulator.
#[test]
fn a_trace_whose_times_step_back_is_simulated_as_if_it_were_sorted() {
    let folder = folder();
    let volume = "[[volume]]\nname = \"a\"\ntrace = \"t.spc\"\n[[objective]]\nvolume = \"a\"\nlatency = \"4200us\"\nconforming_share = 0.5\n";
    let path = plan_file(&folder, volume);
    let mut lines: Vec<(u64, String)> = Vec::new();
    for unit in [1, 0u64] {
        lines.extend((0..5_000).map(|at| {
            // Units begin at the second read of all and at the first.
            let ms = at * 20 + unit * 7;
            let block = at * (7_919 + unit) % 5_000 % 300;
            (ms, format!("{unit},{},4096,R,{}.{:03}\n", block * 16, ms / 1_000, ms % 1_000))
        }));
    }
    let simulated = |lines: &[(u64, String)]| {
        file(&folder, "t.spc", lines.iter().map(|(_, line)| line.as_str()).collect::<String>());
        json(PLAN, args(&[&"plan", &path, &"--simulate", &"--json"]))
    };
    let joined = simulated(&lines);
    lines.sort_by_key(|(ms, _)| *ms);
    let sorted = simulated(&lines);
    assert_eq!(joined["simulated"]["seconds"], 100.0);
    let smallest = |plan: &serde_json::Value| {
        let a = &plan["simulated"]["volumes"][0];
        (a["smallest_bytes"].clone(), a["objectives"][0]["with_smallest"].clone())
    };
    assert_eq!(smallest(&joined), smallest(&sorted));
    assert!(smallest(&sorted).0.as_u64().unwrap() > 0, "{sorted}");
    // All of the second file lies before the end of the first, by up to 99.987 s.
    let told = "The times of 5,000 of the 10,000 requests of a lie before";
    let text = joined["basis"].to_string();
    assert!(text.contains(told), "{text}");
    assert!(!sorted["basis"].to_string().contains("lie before"));
}

#[test]
fn volumes_of_a_trace_lie_one_after_the_other_where_it_is_played() {
    let folder = folder();
    // The same block of two volumes, in turns: two blocks, of which a cache of one holds neither for long.
    let reads: Vec<_> = (0..4_000u64).map(|at| (at * 100_000, (at % 2) as u32, true, 4096, 4096)).collect();
    file(&folder, "two.csv", msr(&reads));
    let objective = "[[objective]]\nvolume = \"a\"\nlatency = \"1ms\"\n";
    let path = plan_file(&folder, &format!("[[volume]]\nname = \"a\"\ntrace = \"two.csv\"\n{objective}"));
    let plan = json(PLAN, args(&[&"plan", &path, &"--simulate", &"--json"]));
    assert_eq!(plan["simulated"]["volumes"][0]["smallest_bytes"], 2 * 4096, "{}", plan["simulated"]);
}

#[test]
fn what_cannot_be_simulated_is_refused_before_a_trace_is_read() {
    let folder = folder();
    file(&folder, "t", "this is no trace");
    let volume = "[[volume]]\nname = \"a\"\ntrace = \"t\"\n";
    let origin = |more: &str| format!("[[origin]]\nname = \"o\"\n{more}\n{volume}");
    for (text, wanted) in [
        (
            format!("{ORIGIN}{volume}closed_loop = 4\n"),
            "line 12, `[[volume]]`: `closed_loop` cannot be simulated",
        ),
        (
            format!("{ORIGIN}{volume}ids = \"objects\"\n"),
            "line 12, `[[volume]]`: `ids = \"objects\"` cannot be",
        ),
        (origin("preset = \"disk-7200\"\nservers = 1.5"), "line 1, `[[origin]]`: 1.5 `servers` cannot be"),
        (
            origin("preset = \"ssd-sata\"\nwrite_cost = 2"),
            "a `write_cost` of 2 cannot be simulated: expected 1, or",
        ),
        (
            origin("preset = \"disk-10k\"\nwrite_cost = 2"),
            "a `write_cost` of 2 on 1 disks cannot be simulated",
        ),
        (
            origin("preset = \"disk-10k\"\nservers = 4\nwrite_cost = 3"),
            "expected 1 (stripes), 2 on an even number (mirrors) or 4 on three and more (RAID 5)",
        ),
    ] {
        let path = file(&folder, "refused.toml", text);
        let (status, words) = fail(args(&[&"plan", &path, &"--simulate"]));
        assert!(status == 1 && words.contains(wanted), "{words}");
    }
    let (status, words) = fail(args(&[&"plan", &"x.toml", &"--seed", &"2"]));
    assert!(status == 2 && words.contains("--simulate"), "{words}");
    // How far the requests reach, and whether a bound is below a hit, is known only with the trace.
    file(&folder, "far.csv", msr(&[(0, 0, true, 1 << 51, 4096), (20_000_000, 0, true, 0, 4096)]));
    let path = plan_file(&folder, "[[volume]]\nname = \"a\"\ntrace = \"far.csv\"\n");
    assert!(succeed(args(&[&"plan", &path])).contains("none"));
    let (status, words) = fail(args(&[&"plan", &path, &"--simulate"]));
    assert!(
        status == 1 && words.contains("far.csv`: its requests reach as far as 2.00PiB, expected"),
        "{words}"
    );
    hot_and_cold(&folder);
    let path = plan_file(
        &folder,
        "[[volume]]\nname = \"a\"\ntrace = \"hot.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"50us\"\n",
    );
    let (status, words) = fail(args(&[&"plan", &path, &"--simulate"]));
    assert!(status == 1 && words.contains("cannot be simulated") && words.contains("50us"), "{words}");
}

/// Disks as large as what lies on them, with each RAID level.
#[test]
fn presets_of_disks_are_simulated_as_disks() {
    let folder = folder();
    hot_and_cold(&folder);
    for (preset, more, wanted) in [
        ("disk-7200", "servers = 2", "o is simulated as 2 disks of "),
        ("disk-10k", "servers = 2\nwrite_cost = 2", "o is simulated as 2 disks of "),
        (
            "disk-15k",
            "servers = 4\nwrite_cost = 4\ntransfer_per_second = \"90MB\"",
            "o is simulated as 4 disks of ",
        ),
        ("disk-15k", "positioning = \"5ms\"", "o is simulated as 1 servers with a queue each"),
        (
            "ssd-sata",
            "",
            "Services of o vary by 0.33 of their squared mean there, the nearest that can be drawn to 0.5.",
        ),
    ] {
        let text = format!(
            "[cache]\nflash_latency = \"200us\"\n[[origin]]\nname = \"o\"\npreset = \"{preset}\"\n{more}\n[[volume]]\nname = \"a\"\n\
             trace = \"hot.csv\"\n[[objective]]\nvolume = \"a\"\nlatency = \"9ms\"\n"
        );
        let path = file(&folder, "disks.toml", text);
        let words = succeed(args(&[&"plan", &path, &"--simulate"]));
        assert!(
            words.contains(wanted) && words.contains("Every hit takes as long as one in flash"),
            "{words}"
        );
    }
}
