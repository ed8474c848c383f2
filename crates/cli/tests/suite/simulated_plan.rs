//! `forebay plan --simulate`: a plan is held against the simulator, which plays the traces on the origins that it names.

use crate::plan::{ORIGIN, PLAN, hot_and_cold, near, plan_file};
use crate::support::{args, fail, file, folder, json, msr, succeed};

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
