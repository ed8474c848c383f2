//! `forebay plan`: numbers worked out by hand, the shipped example, and plan files that are refused before a trace is read.

use crate::support::{args, assert_nests, fail, file, folder, json, msr, succeed};
use forebay_prerequisite::recorded;
use std::path::{Path, PathBuf};

pub(crate) const PLAN: &str = "forebay.plan/1";

/// One disk with exponential service of 3 ms + 4 KiB at 4,096,000 B/s = 4 ms.
pub(crate) const ORIGIN: &str = r#"
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
pub(crate) fn hot_and_cold(folder: &tempfile::TempDir) {
    let reads: Vec<_> = (0..20_000u64)
        .map(|at| {
            let block = if at % 2 == 0 { at / 2 % 100 * 2 } else { 1_000_000 + at * 2 };
            (at * 100_000, 0, true, block * 4096, 4096)
        })
        .collect();
    file(folder, "hot.csv", msr(&reads));
}

pub(crate) fn plan_file(folder: &tempfile::TempDir, more: &str) -> PathBuf {
    file(folder, "plan.toml", ORIGIN.to_owned() + more)
}

/// One window of all of `hot_and_cold`: so little is left to chance that what comes out can be had by hand.
fn plan_of_one_window(folder: &tempfile::TempDir, more: &str) -> PathBuf {
    file(folder, "plan.toml", format!("window = \"200s\"\n{ORIGIN}{more}"))
}

pub(crate) fn near(found: &serde_json::Value, expected: f64) {
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
        (
            format!("{volume}minimum = \"1MiB\"\nmay_cache = false\n"),
            "line 16, `may_cache`: false, beside a `minimum` of 1MiB",
        ),
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
        (objective("latency = \"0ms\""), "line 17, `latency`: 0s, expected a span above 0"),
        (objective("latency = \"5\""), "line 17, `latency`: `5` is not a span of time"),
        (objective("latency = 5"), "line 17, `latency`: `5`, expected "),
        (objective("iops = -1"), "line 17, `iops`: -1, expected a number above 0"),
        (objective("iops = nan"), "line 17, `iops`: NaN, expected a number above 0"),
        (
            objective("iops = 5\nlatency = \"5ms\""),
            "`latency` and `iops` are there, expected exactly one of `latency`, `iops` and `bandwidth_per_second`",
        ),
        (objective(""), "line 15, `[[objective]]`: none of them is there, expected exactly one of"),
        (
            objective("iops = 5\nstatistic = \"p95\""),
            "line 18, `statistic`: `p95`, expected it only beside `latency`",
        ),
        (
            objective("latency = \"5ms\"\nstatistic = \"p101\""),
            "line 18, `statistic`: `p101`, expected `mean`, or a percentile as in `p95`",
        ),
        (
            objective("latency = \"200s\"\nstatistic = \"p95\""),
            "line 17, `latency`: 200s, expected less than 100 s of a percentile",
        ),
        (
            objective("latency = \"5ms\"\nconforming_share = 1.5"),
            "line 18, `conforming_share`: 1.5, expected a number above 0 and at most 1",
        ),
        (
            objective("latency = \"5ms\"\noperations = \"flushes\""),
            "line 18, `operations`: `flushes`, expected one of `reads`, `writes`, `all`",
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

#[test]
fn what_is_wrong_with_a_trace_is_told_with_its_volume_and_the_keys_that_help() {
    let folder = folder();
    file(&folder, "bad.csv", "1,h,0,Read,0,4096,0\ngarbage,line\n");
    let volume = "[[volume]]\nname = \"a\"\ntrace = \"bad.csv\"\nformat = \"msr\"\n";
    let (status, words) = fail(args(&[&"plan", &plan_file(&folder, volume)]));
    assert_eq!(status, 1);
    assert!(words.contains(", `[[volume]]`: ") && words.contains("bad.csv"), "{words}");
    assert!(
        words
            .contains("more than 0 such records with `skip_malformed`, or name another format with `format`"),
        "{words}"
    );
}
