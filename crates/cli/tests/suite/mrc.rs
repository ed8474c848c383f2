//! `forebay mrc`: by hand on small traces, and against published hit ratios on recorded ones.

use crate::simulate::SIMULATE;
use crate::support::{args, assert_nests, fail, file, folder, json, msr, succeed};
use forebay_prerequisite::recorded;
use serde_json::{Value, json};
use std::ffi::OsString;

const MRC: &str = "forebay.mrc/1";

fn ratios(mrc: &Value) -> Vec<f64> {
    mrc["curve"].as_array().unwrap().iter().map(|point| point["miss_ratio"].as_f64().unwrap()).collect()
}

fn sizes(mrc: &Value) -> Vec<u64> {
    mrc["curve"].as_array().unwrap().iter().map(|point| point["size_blocks"].as_u64().unwrap()).collect()
}

/// File, sizes in blocks, LRU hit ratios: the ARC paper's tables (in per cent, to 0.01) and those of w106.
#[test]
fn recorded_traces_have_the_published_hit_ratios() {
    let cases: [(&str, &str, &[f64], f64); 3] = [
        (
            "arc_OLTP.lis.zst",
            "1000,2000,5000,10000,15000",
            &[0.3283, 0.4247, 0.5365, 0.6070, 0.6463],
            0.00005,
        ),
        ("arc_P3.lis.zst", "32768", &[0.0357], 0.00005),
        (
            "cloudphysics_w106.lbn-u32le.zst",
            "1000,10000,50000,100000",
            &[0.7451, 0.8381, 0.9334, 0.9375],
            0.00005,
        ),
    ];
    for (name, wanted, hit_ratios, tolerance) in cases {
        let Some(path) = recorded(name) else { return };
        let mrc = json(MRC, args(&[&"mrc", &path, &"--json", &"--sizes", &wanted]));
        for (found, expected) in ratios(&mrc).iter().zip(hit_ratios) {
            assert!(
                (1.0 - found - expected).abs() <= tolerance + 1e-9,
                "{name}: {} not {expected}",
                1.0 - found
            );
        }
        assert_eq!(ratios(&mrc).len(), hit_ratios.len());
        // The estimators come near, from the command line too.
        for method in ["shards", "aet"] {
            let mrc = json(MRC, args(&[&"mrc", &path, &"--json", &"--sizes", &wanted, &"--method", &method]));
            for (found, expected) in ratios(&mrc).iter().zip(hit_ratios) {
                assert!(
                    (1.0 - found - expected).abs() < 0.04,
                    "{name} by {method}: {} not {expected}",
                    1.0 - found
                );
            }
        }
    }
}

fn small() -> (tempfile::TempDir, OsString) {
    let folder = folder();
    // Blocks of disk 0: write 0 1 | read 1 2 (100 bytes of 2) | read 1 (512 bytes). Disk 1: read 5 | read 5.
    let text = msr(&[
        (0, 0, false, 0, 8192),
        (10_000_000, 0, true, 4096, 4196),
        (20_000_000, 0, true, 4096, 512),
        (30_000_000, 1, true, 20_480, 4096),
        (40_000_000, 1, true, 20_480, 4096),
    ]);
    let path = file(&folder, "small.csv", text);
    (folder, path.into_os_string())
}

#[test]
fn modes_units_and_weights_by_hand() {
    let (_folder, path) = small();
    let at = |more: &[&str], size: &str| {
        let mut all = args(&[&"mrc", &path, &"--json", &"--sizes", &size]);
        all.extend(more.iter().map(OsString::from));
        let mrc = json(MRC, all);
        (mrc["accesses"].as_u64().unwrap(), mrc["footprint_blocks"].as_u64().unwrap(), ratios(&mrc)[0])
    };
    // 0 1 | 1 2 | 1 | 5' | 5': of 7 accesses the third, fifth and seventh hit with 2 blocks.
    assert_eq!(at(&[], "2"), (7, 4, 4.0 / 7.0));
    // Reads alone: 1 2 | 1 | 5' | 5'.
    assert_eq!(at(&["--requests", "reads"], "2"), (5, 3, 3.0 / 5.0));
    // The write fills 0 and 1, so the first read of 1 hits too.
    assert_eq!(at(&["--requests", "read-hits"], "2"), (5, 4, 2.0 / 5.0));
    // Objects by first block: 0, 1, 1, 5', 5'.
    assert_eq!(at(&["--unit", "request"], "1"), (5, 3, 3.0 / 5.0));
    // Their bytes: 8192 + 4196 + 512 + 4096 + 4096 = 21092, of which 512 + 4096 hit.
    assert_eq!(at(&["--unit", "request", "--weight", "bytes"], "1"), (21_092, 3, 16_484.0 / 21_092.0));
    // Bytes of blocks: the same sum, of which 4096 + 512 + 4096 hit.
    assert_eq!(at(&["--weight", "bytes"], "2"), (21_092, 4, 12_388.0 / 21_092.0));
    // Blocks of 8 KiB: 0 | 0 1 | 0 | 2' | 2'; with 2 blocks the second, fourth and sixth hit.
    assert_eq!(at(&["--block", "8KiB"], "2"), (6, 3, 3.0 / 6.0));
}

#[test]
fn sizes_are_exactly_those_asked_for() {
    let (_folder, path) = small();
    // The footprint is 4 blocks. Windows of 2 s: {0 1 2} (0 s, 1 s), {1 5'} (2 s, 3 s); the last is not over at its last access,
    // so the mean is (3 + 2) / 2 = 2.5, which is 3 whole blocks, and twice that is 6.
    let mrc = json(MRC, args(&[&"mrc", &path, &"--json", &"--sizes", &"3,8KiB,50%,2wss(2s)"]));
    assert_eq!(sizes(&mrc), [3, 2, 2, 6]);
    assert_eq!(mrc["curve"][1]["size_bytes"], 8192);
    assert_eq!(mrc["points"], "exact");
    assert_eq!(
        mrc["working_sets"],
        json!([{"window_s": 2.0, "windows": 2, "mean_blocks": 2.5, "max_blocks": 3, "whole": true, "rest_s": 0.0}])
    );
}

#[test]
fn volumes_have_curves_of_their_own() {
    let (_folder, path) = small();
    let mrc = json(MRC, args(&[&"mrc", &path, &"--json", &"--per", &"volume", &"--sizes", &"1,2"]));
    let volumes = mrc["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 2);
    assert_eq!((&volumes[0]["volume"], &volumes[1]["volume"]), (&json!("host_0"), &json!("host_1")));
    assert_eq!((&volumes[0]["accesses"], &volumes[0]["footprint_blocks"]), (&json!(5), &json!(3)));
    // 0 1 1 2 1: one block lets the second 1 hit, two blocks the third as well.
    assert_eq!(ratios(&volumes[0]), [4.0 / 5.0, 3.0 / 5.0]);
    assert_eq!(ratios(&volumes[1]), [0.5, 0.5]);
}

#[test]
fn the_default_curve_ends_at_the_footprint_and_never_rises() {
    let Some(path) = recorded("cloudphysics_sample.vscsi.zst") else { return };
    let mrc = json(MRC, args(&[&"mrc", &path, &"--json"]));
    let (sizes, ratios) = (sizes(&mrc), ratios(&mrc));
    assert!(
        sizes.windows(2).all(|pair| pair[0] < pair[1]) && ratios.windows(2).all(|pair| pair[0] >= pair[1])
    );
    assert!(sizes.len() <= 200 && *sizes.last().unwrap() <= mrc["footprint_blocks"].as_u64().unwrap());
    assert_eq!(mrc["points"], "thinned");
    let error = mrc["thinned_error_max"].as_f64().unwrap();
    assert!(error > 0.0 && error < 0.005, "{error}");
    // The thinned curve is as near to the exact one as it says.
    let wanted = "1000,5000,20000,77777,150000,250000";
    let exact = json(MRC, args(&[&"mrc", &path, &"--json", &"--sizes", &wanted]));
    for (size, exact) in self::sizes(&exact).into_iter().zip(self::ratios(&exact)) {
        let after = sizes.partition_point(|other| *other <= size);
        let (low, high) = (after - 1, after.min(sizes.len() - 1));
        let share =
            if high == low { 0.0 } else { (size - sizes[low]) as f64 / (sizes[high] - sizes[low]) as f64 };
        let thinned = ratios[low] + share * (ratios[high] - ratios[low]);
        assert!((thinned - exact).abs() <= error + 1e-6, "at {size}: {thinned} and {exact}, bound {error}");
    }
}

#[test]
fn one_seed_gives_one_curve_and_another_gives_another() {
    let Some(path) = recorded("cloudphysics_sample.vscsi.zst") else { return };
    let curve = |seed: &str| {
        json(
            MRC,
            args(&[&"mrc", &path, &"--json", &"--method", &"shards", &"--rate", &"0.01", &"--seed", &seed]),
        )["curve"]
            .clone()
    };
    assert_eq!(curve("1"), curve("1"));
    assert_ne!(curve("1"), curve("2"));
}

#[test]
fn the_table_and_the_picture() {
    let (folder, path) = small();
    let svg = folder.path().join("mrc.svg");
    // What cannot be written in the end is said before anything is read.
    let folder = svg.parent().unwrap();
    for (named, told) in [
        (folder.join("absent/curve.svg"), "there is no folder `"),
        (folder.to_path_buf(), "it is a folder, expected the name of a file"),
        (std::path::Path::new(&path).join("curve.svg"), "there is no folder `"),
    ] {
        let (code, words) = fail(args(&[&"mrc", &folder.join("absent.csv"), &"--svg", &named]));
        assert!(code == 2 && words.contains(told) && words.contains("--svg <FILE>"), "{words}");
    }
    let (code, words) = fail(args(&[&"mrc", &path, &"--svg", &path]));
    assert!(code == 2 && words.contains("neither a page nor a picture"), "{words}");
    let table = succeed(args(&[&"mrc", &path, &"--sizes", &"8KiB", &"--wss", &"600s", &"--svg", &svg]));
    assert!(table.contains("7 accesses, footprint 16KiB (4 blocks)"), "{table}");
    assert!(
        table.contains(
            "working set over 600s: 16KiB mean, 16KiB largest, of all 4s, which are no whole window"
        ),
        "{table}"
    );
    assert!(table.contains("8KiB       2         50.0%      0.5714     0.4286\n"), "{table}");
    let table = succeed(args(&[&"mrc", &path, &"--wss", &"3s", &"--wss", &"4s"]));
    assert!(table.contains("of 1 windows, without the last 1s, which are no whole one\n"), "{table}");
    assert!(table.contains("working set over 4s: 16KiB mean, 16KiB largest, of 1 windows\n"), "{table}");
    let svg_text = std::fs::read_to_string(&svg).unwrap();
    assert!(svg_text.starts_with("<svg ") && svg_text.contains("Miss ratio of small.csv (LRU)"));
    assert_nests(&svg_text);
    succeed(args(&[&"mrc", &path, &"--per", &"volume", &"--svg", &svg, &"--log-sizes"]));
    assert_nests(&std::fs::read_to_string(&svg).unwrap());
}

#[test]
fn requests_without_bytes_are_counted_and_told() {
    let folder = folder();
    let requests = [(0, 0, true, 0, 512), (1, 0, true, 0, 0), (2, 0, false, 4096, 0), (3, 0, true, 0, 512)];
    let path = file(&folder, "empty.csv", msr(&requests));
    let none = file(&folder, "none.csv", msr(&requests[1..3]));
    for (command, schema) in [("mrc", MRC), ("simulate", SIMULATE)] {
        for unit in ["block", "request"] {
            let at = |more: &[&str]| {
                let mut all = args(&[&command, &path, &"--sizes", &"1", &"--unit", &unit]);
                all.extend(more.iter().map(OsString::from));
                all
            };
            let told = |more| json(schema, at(more))["without_bytes"].clone();
            let counts = (told(&["--json"]), told(&["--json", "--requests", "reads"]));
            assert_eq!(counts, (2.into(), 1.into()), "{command}, {unit}");
            let text = succeed(at(&[]));
            assert!(
                text.contains("\n2 requests without bytes touch no block, and are no access\n"),
                "{text}"
            );
        }
        let (status, words) = fail(args(&[&command, &none]));
        assert!(status == 1 && words.contains("hint: 2 requests have no bytes"), "{words}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    let (folder, path) = small();
    let says = |more: &[&str], status: i32, words: &str| {
        let mut all = args(&[&"mrc", &path]);
        all.extend(more.iter().map(OsString::from));
        let found = fail(all);
        assert!(found.0 == status && found.1.contains(words), "{more:?}: {found:?}");
    };
    says(&["--rate", "0.1"], 2, "--rate is for --method shards");
    says(&["--method", "shards", "--rate", "0"], 2, "0 is out of range: expected above 0, at most 1");
    says(&["--method", "aet", "--memory", "64KiB"], 2, "--memory is for --method shards");
    says(&["--sizes", "10 parsecs"], 2, "`10 parsecs` is not a cache size");
    // A cache of less than a block would be told of as one of a block.
    let too_small = "a cache of 4095 bytes holds no block of 4096 bytes: expected a block or more in `--sizes`, or a smaller `--block`";
    says(&["--sizes", "8KiB,4095B"], 2, too_small);
    let (status, words) = fail(args(&[&"simulate", &path, &"--policy", &"lru", &"--sizes", &"4095B"]));
    assert!(status == 2 && words.contains(too_small), "{words}");
    succeed(args(&[
        &"simulate",
        &path,
        &"--policy",
        &"lru",
        &"--sizes",
        &"4095B,0.001%",
        &"--block",
        &"512B",
    ]));
    says(&["--block", "5000"], 2, "not a power of two");
    says(&["--wss", "0s"], 2, "longer than 0");
    let writes = file(&folder, "writes.csv", msr(&[(0, 0, false, 0, 512)]));
    let (status, words) = fail(args(&[&"mrc", &writes, &"--requests", &"reads"]));
    assert!(status == 1 && words.contains("no access that counts") && words.contains("hint: "), "{words}");
    let pages = file(&folder, "pages.lis", "0 4 0 1\n2 4 0 2\n");
    let (status, words) = fail(args(&[&"mrc", &pages, &"--format", &"arc-lis", &"--sizes", &"1wss(600s)"]));
    assert!(status == 1 && words.contains("has no times"), "{words}");
}
