//! Estimators on recorded traces: published hit ratios are met exactly, and the approximations keep the error bounds that the
//! documentation claims. The traces lie in `FOREBAY_TRACES`, by default `shared/traces` beside the workspace; where they are
//! absent each test says aloud that it was skipped, and fails when `CI` is `true`.
//!
//! Published ratios are checked through minimal decoders that know nothing of the trace room, so that a mistake there
//! cannot hide one here.

use forebay_locality::{
    CurveBuilder, CurveOptions, CurveResult, ExactLru, FixedRate, FixedSize, Method, ReuseTimes, Unit,
    WorkingSetWindows, volume_block_key,
};
use forebay_prerequisite::recorded;
use forebay_trace::{Operation, ReadOptions, Source, TraceReader, split_into_blocks};
use forebay_units::{BlockSize, ByteRange, Nanos};
use std::io::Read;

fn read(name: &str) -> Option<Vec<u8>> {
    let path = recorded(name)?;
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(&bytes[..]).unwrap().read_to_end(&mut plain).unwrap();
    Some(plain)
}

fn read_text(name: &str) -> Option<String> {
    read(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn number(field: &str) -> u64 {
    field.trim().parse().unwrap_or_else(|_| panic!("`{field}` is no number"))
}

/// ARC's pages: `start count 0 id`.
fn arc(name: &str) -> Option<Vec<u64>> {
    let text = read_text(name)?;
    let pages = text.lines().flat_map(|line| {
        let mut fields = line.split_whitespace().map(number);
        let (start, count) = (fields.next().unwrap(), fields.next().unwrap());
        start..start + count
    });
    Some(pages.collect())
}

fn w106() -> Option<Vec<u64>> {
    let bytes = read("cloudphysics_w106.lbn-u32le.zst")?;
    Some(bytes.chunks_exact(4).map(|id| u64::from(u32::from_le_bytes(id.try_into().unwrap()))).collect())
}

/// (seconds, LBN, bytes) of each request.
fn oracle_general() -> Option<Vec<(u64, u64, u64)>> {
    let bytes = read("cloudphysics_sample.oracleGeneral.bin.zst")?;
    let records = bytes.chunks_exact(24).map(|record| {
        let u32_at = |at: usize| u64::from(u32::from_le_bytes(record[at..at + 4].try_into().unwrap()));
        (u32_at(0), u64::from_le_bytes(record[4..12].try_into().unwrap()), u32_at(12))
    });
    Some(records.collect())
}

/// The block accesses of every recorded trace that has more than 100,000 of them, read by the trace room.
fn large_traces() -> impl Iterator<Item = (String, Vec<u64>)> {
    let mut names: Vec<String> = recorded("").map_or_else(Vec::new, |folder| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    });
    names.retain(|name| !["SOURCES.md", "SHA256SUMS"].contains(&name.as_str()));
    names.sort_unstable();
    names.into_iter().filter_map(|name| {
        let file = std::fs::File::open(recorded(&name)?).unwrap();
        let source = Source::new(name.clone(), file);
        let mut reader = TraceReader::open(vec![source], &ReadOptions::default()).unwrap();
        let (mut batch, mut keys) = (Vec::new(), Vec::new());
        loop {
            batch.clear();
            if reader.next_batch(&mut batch).unwrap() == 0 {
                break;
            }
            for request in &batch {
                if matches!(request.operation, Operation::Flush | Operation::Discard) {
                    continue;
                }
                let blocks = split_into_blocks(request, BlockSize::DEFAULT);
                keys.extend(blocks.map(|block| volume_block_key(request.volume.0, block.0)));
            }
        }
        (keys.len() > 100_000).then_some((name, keys))
    })
}

/// 100 sizes equally spaced up to the footprint.
fn spaced_sizes(footprint_blocks: u64) -> Vec<u64> {
    (1..=100).map(|part| footprint_blocks * part / 100).collect()
}

fn mean_error(found: &[f64], expected: &[f64]) -> f64 {
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).sum::<f64>() / expected.len() as f64
}

fn measure(method: Method, keys: &[u64]) -> CurveResult {
    let mut builder = CurveBuilder::new(CurveOptions { method, ..CurveOptions::default() });
    builder.access_batch(keys);
    builder.finish()
}

#[test]
fn arc_traces_have_the_published_lru_hit_ratios() {
    let oltp: &[(u64, f64)] =
        &[(1_000, 32.83), (2_000, 42.47), (5_000, 53.65), (10_000, 60.70), (15_000, 64.63)];
    for (name, references, ratios) in
        [("arc_OLTP.lis.zst", 914_145, oltp), ("arc_P3.lis.zst", 3_912_296, &[(32_768, 3.57)])]
    {
        let Some(keys) = arc(name) else { return };
        assert_eq!(keys.len(), references, "{name}");
        let exact = measure(Method::Exact, &keys);
        for &(size, hit_percent) in ratios {
            let found = 100.0 * (1.0 - exact.miss_ratios_at(&[size])[0]);
            assert!(
                (found - hit_percent).abs() <= 0.01,
                "{name} at {size} pages: {found}, published {hit_percent}"
            );
        }
    }
}

#[test]
fn w106_has_its_known_lru_hit_ratios() {
    let Some(keys) = w106() else { return };
    let exact = measure(Method::Exact, &keys);
    assert_eq!((exact.accesses(), exact.footprint_blocks()), (5_292_456, 275_171));
    let found = exact.miss_ratios_at(&[1_000, 10_000, 50_000, 100_000]);
    for (miss, hit) in found.iter().zip([0.7451, 0.8381, 0.9334, 0.9375]) {
        assert!((1.0 - miss - hit).abs() <= 0.0001, "{found:?}");
    }
}

/// The thinned curve and the one with every breakpoint agree with the histogram that they come from.
#[test]
fn a_real_curve_survives_thinning() {
    let Some(keys) = arc("arc_OLTP.lis.zst") else { return };
    let exact = measure(Method::Exact, &keys);
    let sizes = spaced_sizes(exact.footprint_blocks());
    let ratios = exact.miss_ratios_at(&sizes);
    let curve = exact.curve();
    assert!(mean_error(&curve.miss_ratios_at(&sizes), &ratios) < 1e-12);
    let (thin, error) = curve.thinned(100);
    assert!(error < 0.01, "{error}");
    for (a, b) in thin.miss_ratios_at(&sizes).iter().zip(&ratios) {
        assert!((a - b).abs() <= error + 1e-9);
    }
    for (hull, curve) in curve.convex_hull().miss_ratios_at(&sizes).iter().zip(&ratios) {
        assert!(*hull <= curve + 1e-9);
    }
}

/// Objects named by LBN: a unit of requests counts one access each, whatever their sizes.
#[test]
fn requests_as_objects_are_counted_once() {
    let Some(requests) = oracle_general() else { return };
    let block_size = BlockSize::new(forebay_units::Bytes(512)).unwrap();
    let options = CurveOptions { unit: Unit::Request, block_size, ..CurveOptions::default() };
    let mut builder = CurveBuilder::new(options);
    let mut windows = WorkingSetWindows::tumbling(Nanos::secs(600));
    let mut objects = std::collections::BTreeSet::new();
    for &(seconds, lbn, bytes) in &requests {
        builder.request(0, ByteRange::new(lbn * 512, bytes.max(1)), true);
        windows.access(lbn, Nanos::secs(seconds));
        objects.insert(lbn);
    }
    let result = builder.finish();
    assert_eq!((result.accesses(), result.footprint_blocks()), (113_872, objects.len() as u64));
    assert_eq!(windows.footprint_blocks(), objects.len() as u64);
    // An endless cache misses the first touches only.
    let expected = objects.len() as f64 / 113_872.0;
    assert!((result.miss_ratios_at(&[u64::MAX])[0] - expected).abs() < 1e-12);
    let summary = windows.summary();
    assert!(
        summary.windows == 12 || summary.windows == 11,
        "7,200 s hold twelve windows of 600: {summary:?}"
    );
    assert!(summary.mean_blocks <= summary.max_blocks as f64 && summary.max_blocks < objects.len() as u64);
}

/// 128 KiB, everything counted: mean absolute error against the exact curve over ten seeds at most 0.01 in the mean and 0.02 at
/// worst, on every large trace.
#[test]
fn shards_in_128_kib_keeps_its_error_bound() {
    let mut measured = 0;
    for (name, keys) in large_traces() {
        let exact = measure(Method::Exact, &keys);
        let sizes = spaced_sizes(exact.footprint_blocks());
        let expected = exact.miss_ratios_at(&sizes);
        let mut errors = Vec::new();
        let mut rate = 0.0;
        for seed in 0..10 {
            let mut shards = FixedSize::with_bytes(128 << 10, seed);
            shards.access_batch(&keys);
            assert!(shards.bytes() <= 128 << 10, "{name}: {} bytes", shards.bytes());
            errors.push(mean_error(&shards.curve().miss_ratios_at(&sizes), &expected));
            rate = shards.rate();
        }
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let worst = errors.iter().copied().fold(0.0, f64::max);
        println!(
            "{name:<44} {:>8} accesses {:>8} blocks  mean {mean:.4} worst {worst:.4} rate {rate:.4}",
            keys.len(),
            exact.footprint_blocks()
        );
        assert!(mean <= 0.01 && worst <= 0.02, "{name}: mean {mean}, worst {worst}");
        measured += 1;
    }
    assert!(measured > 0 || recorded("").is_none(), "no trace has more than 100,000 accesses");
}

/// Bands, not promises: what the other estimators are worth on the same traces.
#[test]
fn the_other_estimators_stay_in_their_bands() {
    let mut sums = [0.0; 3];
    let mut traces = 0.0;
    for (name, keys) in large_traces() {
        let mut exact = ExactLru::new();
        exact.access_batch(&keys);
        let sizes = spaced_sizes(exact.footprint_blocks());
        let expected = exact.miss_ratios_at(&sizes);
        let mut times = ReuseTimes::new();
        keys.iter().for_each(|&key| times.access(key, 1));
        let mut sampled = FixedRate::new(0.1, 1);
        sampled.access_batch(&keys);
        let curves = [times.aet_curve(), times.working_set_curve(), sampled.curve()];
        let errors = curves.map(|curve| mean_error(&curve.miss_ratios_at(&sizes), &expected));
        println!(
            "{name:<44} AET {:.4}  working set derivative {:.4}  SHARDS at 0.1 {:.4}",
            errors[0], errors[1], errors[2]
        );
        assert_eq!(times.footprint_blocks(), exact.footprint_blocks());
        // Sampling at a fixed rate needs a sample: a tenth of the 1,011 blocks of the loop is none to speak of.
        if exact.footprint_blocks() > 5_000 {
            assert!(errors[2] <= 0.02, "{name}: SHARDS at 0.1: {}", errors[2]);
        }
        sums.iter_mut().zip(errors).for_each(|(sum, error)| *sum += error);
        traces += 1.0;
    }
    if traces > 0.0 {
        println!("mean: AET {:.4}  working set derivative {:.4}", sums[0] / traces, sums[1] / traces);
        assert!(sums[0] / traces < 0.03 && sums[1] / traces < 0.1);
    }
}
