//! Profiles of streams whose properties are known.

use super::*;
use crate::generator::{ZipfRanks, exponential, random, unit};
use forebay_trace::{ThreadNumber, VolumeIndex};

fn request(time: Nanos, operation: Operation, volume: u32, offset: u64, length: u64) -> Request {
    Request {
        time,
        offset,
        length,
        latency: Nanos::MAX,
        volume: VolumeIndex(volume),
        thread: ThreadNumber::UNKNOWN,
        operation,
    }
}

fn profile(requests: &[Request]) -> Profile {
    let mut profiler = Profiler::new(BlockSize::DEFAULT, true);
    profiler.add(requests);
    profiler.finish()
}

#[test]
fn a_small_trace_by_hand() {
    let at = Nanos::millis;
    let requests = [
        request(at(1_000), Operation::Read, 0, 0, 4096),
        request(at(1_500), Operation::Read, 0, 4096, 8192),
        request(at(2_000), Operation::Write, 1, 0, 4096),
        request(at(3_000), Operation::Read, 0, 12_288, 4096),
        request(at(2_500), Operation::Read, 0, 0, 4096),
        request(at(5_000), Operation::Flush, 0, 0, 0),
    ];
    let profile = profile(&requests);
    assert_eq!((profile.requests, profile.reads, profile.writes, profile.flushes), (6, 4, 1, 1));
    assert_eq!((profile.bytes_read, profile.bytes_written, profile.volumes), (20_480, 4_096, 2));
    assert_eq!((profile.span_s, profile.steps_back), (Some(4.0), 1));
    assert_eq!((profile.read_sizes.mean_bytes, profile.read_sizes.median_bytes), (Some(5120.0), Some(4096)));
    let common = SizeShare { bytes: 4096, share: 0.75 };
    assert_eq!(profile.read_sizes.common[0], common);
    // Of five reads and writes, the second and the fourth go on where volume 0's last one ended: a run of 16 KiB.
    assert_eq!(profile.runs.random_share, Some(0.6));
    assert_eq!((profile.runs.runs, profile.runs.run_requests_mean), (1, Some(3.0)));
    assert_eq!((profile.runs.run_bytes_mean, profile.runs.run_bytes_max), (Some(16_384.0), 16_384));
    // Gaps of 0.5, 0.5, 1, 0 and 2 s: mean 0.8, mean of squares 1.1, so (1.1 - 0.64) / 0.64.
    let gaps = profile.gaps.unwrap();
    assert!((gaps.mean_s - 0.8).abs() < 1e-9 && (gaps.squared_cv - 0.71875).abs() < 1e-9, "{gaps:?}");
    // Blocks 0 to 3 of volume 0 and block 0 of volume 1; block 0 of volume 0 comes twice, 2 s apart.
    assert_eq!(profile.footprint_blocks, 5);
    let (popularity, reuse) = (profile.popularity.unwrap(), profile.reuse.unwrap());
    assert_eq!((popularity.sampling_rate, popularity.touched_once_share), (1.0, 0.8));
    assert!((reuse.share - 1.0 / 6.0).abs() < 1e-12);
    // 2 s lie between 2^30 and 2^31 ns.
    assert_eq!(reuse.percentiles_s[2], (50.0, 2f64.powi(31) / 1e9));
    // Two requests in the first second, one in each of the next two that had any: 2 per second over 6 in 4 s.
    assert_eq!((profile.peaks[0].requests_per_s, profile.peaks.len()), (2.0, 1));
    assert!((profile.peaks[0].to_average - 2.0 / 1.5).abs() < 1e-12);
    assert_eq!(profile.heat.len(), 2);
    assert_eq!(profile.heat[0].cells, [[2, 0, 2]]);
}

#[test]
fn no_rate_is_told_of_an_instant_at_the_end() {
    // Ten requests a second, the last of which is the only one behind the last whole bin.
    let requests: Vec<Request> = (0..=10_000u64)
        .map(|at| request(Nanos::millis(100 * at), Operation::Read, 0, 4096 * (at % 50), 4096))
        .collect();
    let rates = profile(&requests).rates;
    assert!(rates.iter().all(|bin| (bin.reads_per_s - 10.0).abs() < 1.5), "{:?}", rates.last());
}

#[test]
fn nothing_one_request_and_no_times() {
    let empty = profile(&[]);
    assert_eq!((empty.requests, empty.span_s, empty.runs.random_share), (0, None, None));
    assert!(empty.gaps.is_none() && empty.popularity.is_none() && empty.heat.is_empty());
    let one = profile(&[request(Nanos::secs(9), Operation::Write, 0, 0, 512)]);
    assert_eq!((one.span_s, one.footprint_blocks), (Some(0.0), 1));
    assert!(one.gaps.is_none() && one.burstiness.is_none() && one.rates.is_empty() && one.peaks.is_empty());
    let mut profiler = Profiler::new(BlockSize::DEFAULT, false);
    profiler.add(&[request(Nanos::ZERO, Operation::Read, 0, 0, 4096); 3]);
    let untimed = profiler.finish();
    assert_eq!((untimed.span_s, untimed.requests), (None, 3));
    let reuse = untimed.reuse.unwrap();
    assert!((reuse.share - 2.0 / 3.0).abs() < 1e-12 && reuse.percentiles_s.is_empty());
    // A request as long as volumes can be costs no more than its first blocks.
    let long = profile(&[request(Nanos::ZERO, Operation::Read, 0, 0, 1 << 36)]);
    assert_eq!((long.long_requests, long.bytes_read), (1, 1 << 36));
}

/// Arrivals at exponential gaps.
#[test]
fn whole_seconds_are_told_and_order_does_not_change_the_span() {
    let at = |seconds: &[u64], more: Nanos| {
        let requests: Vec<Request> = seconds
            .iter()
            .map(|&second| request(Nanos::secs(second) + more, Operation::Write, 0, 0, 4096))
            .collect();
        let profile = profile(&requests);
        (profile.span_s, profile.steps_back, profile.whole_seconds)
    };
    assert_eq!(at(&[3, 3, 9], Nanos::ZERO), (Some(6.0), 0, true));
    // The first is not the earliest; a clock that does not begin at a whole second is no finer for it.
    assert_eq!(at(&[9, 3, 4], Nanos::millis(1)), (Some(6.0), 2, true));
    // One time tells nothing.
    assert!(!at(&[3, 3], Nanos::ZERO).2);
    let finer = [Nanos::secs(1), Nanos::millis(2_500), Nanos::secs(4)];
    let requests = finer.map(|time| request(time, Operation::Read, 0, 0, 4096));
    assert!(!profile(&requests).whole_seconds);
}

fn poisson(rate: f64, count: usize, seed: u64) -> BurstCounter {
    let mut random = random(seed);
    let mut counter = BurstCounter::new();
    let mut now = 0.0;
    for _ in 0..count {
        now += exponential(1.0 / rate, &mut random);
        counter.arrive(Nanos::from_secs_f64(now));
    }
    counter
}

#[test]
fn poisson_arrivals_are_not_bursty_at_any_scale() {
    for seed in 1..4 {
        let found = poisson(500.0, 400_000, seed).finish().unwrap();
        for dispersion in found.dispersion.iter().filter(|dispersion| dispersion.windows >= 500) {
            // The standard error of a dispersion of 1 over n windows is sqrt(2 / n).
            let error = 4.0 * (2.0 / dispersion.windows as f64).sqrt();
            assert!((dispersion.index - 1.0).abs() < error, "seed {seed}: {dispersion:?}");
        }
        let hurst = found.hurst.unwrap();
        assert!((hurst - 0.5).abs() < 0.06, "seed {seed}: H = {hurst}");
    }
}

/// Fractional Gaussian noise of mean 0 and variance 1 by Hosking's recursion, which is exact (Water Resources Research 1984).
fn fractional_noise(hurst: f64, count: usize, seed: u64) -> Vec<f64> {
    let mut random = random(seed);
    let mut normal = move || {
        let (u, v) = (1.0 - unit(&mut random), unit(&mut random));
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let power = |lag: f64| lag.abs().powf(2.0 * hurst);
    let covariance = |lag: usize| {
        let lag = lag as f64;
        (power(lag + 1.0) - 2.0 * power(lag) + power(lag - 1.0)) / 2.0
    };
    let covariances: Vec<f64> = (0..count).map(covariance).collect();
    let (mut values, mut coefficients) = (vec![normal()], Vec::new());
    let mut variance = 1.0;
    for at in 1..count {
        let known: f64 = coefficients
            .iter()
            .enumerate()
            .map(|(index, c): (usize, &f64)| c * covariances[at - 1 - index])
            .sum();
        let last = (covariances[at] - known) / variance;
        let before: Vec<f64> = coefficients.clone();
        for (index, coefficient) in coefficients.iter_mut().enumerate() {
            *coefficient = before[index] - last * before[at - 2 - index];
        }
        coefficients.push(last);
        variance *= 1.0 - last * last;
        let mean: f64 = coefficients.iter().enumerate().map(|(index, c)| c * values[at - 1 - index]).sum();
        values.push(mean + variance.sqrt() * normal());
    }
    values
}

#[test]
fn the_hurst_exponent_of_known_noise_is_found() {
    for (hurst, low, high) in [(0.5, 0.44, 0.56), (0.7, 0.62, 0.76), (0.85, 0.73, 0.90)] {
        let found: Vec<f64> = (1..4)
            .map(|seed| {
                let mut counter = BurstCounter::new();
                for value in fractional_noise(hurst, 4096, seed) {
                    counter.count((1_000.0 + 100.0 * value).round() as u64);
                }
                counter.finish().unwrap().hurst.unwrap()
            })
            .collect();
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        // The method errs low for large exponents, as its source says.
        assert!((low..high).contains(&mean), "H = {hurst}: found {found:?}");
    }
}

#[test]
fn silence_costs_nothing_and_counts() {
    // 1,000 arrivals at once, then one 2^40 ms later: all windows between are empty.
    let mut counter = BurstCounter::new();
    (0..1_000).for_each(|_| counter.arrive(Nanos::ZERO));
    counter.arrive(Nanos(BASE_NS << 34));
    let found = counter.finish().unwrap();
    let first = found.dispersion[0];
    // n windows, one of them with 1,000 arrivals: the variance is 10^6 / n, the mean 10^3 / n, the ratio 1,000 (1 - 1 / n).
    assert_eq!(first.windows, 1 << 34);
    assert!((first.index - 1_000.0).abs() < 1e-3, "{first:?}");
    // The same by walking through every window, for a shorter silence of an odd length.
    let (mut jumped, mut walked) = (BurstCounter::new(), BurstCounter::new());
    for at in [3, 4, 40, 41, 1_000, 1_001, 5_003] {
        jumped.arrive(Nanos(at * BASE_NS));
    }
    for window in 0..5_003 {
        walked.count(u64::from([3, 4, 40, 41, 1_000, 1_001].contains(&window)));
    }
    assert_eq!(jumped.finish().unwrap().dispersion, walked.finish().unwrap().dispersion);
}

const BASE_NS: u64 = burst::BASE.0;

#[test]
fn planted_periods_are_found_and_none_is_invented() {
    let day = 86_400.0;
    // A week in bins of 64 s, on average 20 requests each, by chance; with or without waves.
    let week = |hourly: f64, daily: f64, seed: u64| -> Vec<f64> {
        let mut random = random(seed);
        (0..9_450)
            .map(|bin| {
                let time = f64::from(bin) * 64.0;
                let wave = |period: f64| (std::f64::consts::TAU * time / period).sin();
                let mean = 20.0 * (1.0 + hourly * wave(3_600.0) + daily * wave(day));
                // Requests of a bin at exponential gaps.
                let (mut left, mut count) = (mean, 0.0);
                loop {
                    left -= exponential(1.0, &mut random);
                    if left < 0.0 {
                        return count;
                    }
                    count += 1.0;
                }
            })
            .collect()
    };
    let found = period::find(&week(0.2, 0.5, 1), 64.0);
    assert_eq!(
        found.iter().map(|found| (found.period, found.cycles)).collect::<Vec<_>>(),
        [("hour", 168), ("day", 7)]
    );
    assert!(found.iter().all(|found| found.confidence > 0.99 && found.found), "{found:?}");
    // A swing of eight hours is none of those that are looked for.
    let eight_hours: Vec<f64> =
        (0..2_700).map(|bin| 20.0 + 10.0 * (std::f64::consts::TAU * f64::from(bin) / 450.0).sin()).collect();
    assert!(period::find(&eight_hours, 64.0).iter().all(|period| period.period == "hour" && !period.found));
    // Mean 20, so 20 of variance by chance; a wave of 0.5 adds (0.5 * 20)^2 / 2 = 50, one of 0.2 adds 8: 50 / 78 and 8 / 78.
    assert!((found[1].variance_share - 50.0 / 78.0).abs() < 0.03, "{found:?}");
    assert!((found[0].variance_share - 8.0 / 78.0).abs() < 0.02, "{found:?}");
    // Without waves: 1 of 100 judgements may pass 0.99 by chance, and 4 of 60 would be too many.
    let mut invented = 0;
    for seed in 0..30 {
        invented +=
            period::find(&week(0.0, 0.0, seed), 64.0).iter().filter(|found| found.confidence > 0.99).count();
    }
    assert!(invented < 4, "{invented} of 60");
    // A trend is no period.
    let trend: Vec<f64> = (0..9_450).map(f64::from).collect();
    assert!(period::find(&trend, 64.0).iter().all(|found| found.confidence < 0.99));
    // Too short, too coarse, constant.
    assert!(period::find(&week(0.5, 0.5, 1)[..100], 64.0).is_empty());
    assert!(period::find(&[1.0, 2.0].repeat(50), 3_600.0).iter().all(|found| found.period == "day"));
    assert_eq!(period::find(&[5.0; 1_000], 64.0), []);
}

#[test]
fn the_exponent_of_a_known_zipf_distribution_is_found() {
    for (theta, seed) in [(0.6, 1), (0.9, 2), (1.1, 3)] {
        let (ranks, mut random) = (ZipfRanks::new(20_000, theta), random(seed));
        let mut counter = PopularityCounter::new();
        for at in 0..2_000_000u64 {
            counter.access(mix64(ranks.next(&mut random)), Nanos(at * 1_000));
        }
        let (popularity, reuse) = counter.finish();
        let (popularity, reuse) = (popularity.unwrap(), reuse.unwrap());
        let fit = popularity.zipf.unwrap();
        assert!((fit.exponent - theta).abs() < 0.05 && fit.r_squared > 0.97, "theta {theta}: {fit:?}");
        let expected: f64 = (1..=200).map(|rank| ranks.probability(rank)).sum();
        assert!(
            (popularity.hottest[1].1 - expected).abs() < 0.02,
            "{:?} and not {expected}",
            popularity.hottest
        );
        assert!(reuse.share > 0.98 && popularity.sampling_rate == 1.0);
    }
}

#[test]
fn a_sample_stands_for_the_whole() {
    // A million blocks accessed twice in turn: every sampled one twice, a million accesses apart.
    let mut counter = PopularityCounter::new();
    for at in 0..2_000_000u64 {
        counter.access(mix64(at % 1_000_000), Nanos(at * 1_000));
    }
    let (popularity, reuse) = counter.finish();
    let (popularity, reuse) = (popularity.unwrap(), reuse.unwrap());
    assert!((0.02..0.07).contains(&popularity.sampling_rate), "{}", popularity.sampling_rate);
    // The footprint is estimated, with a standard error of half a per cent.
    assert!((popularity.accesses_per_block - 2.0).abs() < 0.03, "{}", popularity.accesses_per_block);
    assert_eq!(popularity.touched_once_share, 0.0);
    assert!((reuse.share - 0.5).abs() < 0.02, "{}", reuse.share);
    // A second apart lies between 2^29 and 2^30 ns.
    assert_eq!(reuse.percentiles_s[2].1, 2f64.powi(30) / 1e9);
}

/// What a sample holds of the hottest blocks is by chance; how many accesses there were is known.
#[test]
fn a_sample_without_its_share_of_hot_blocks_is_made_good() {
    const BLOCKS: u64 = 500_000;
    for theta in [0.9, 1.1] {
        let (ranks, mut random) = (ZipfRanks::new(BLOCKS, theta), random(7));
        let accesses: Vec<u64> = (0..2_000_000).map(|_| ranks.next(&mut random)).collect();
        let mut counts = vec![0u64; BLOCKS as usize + 1];
        accesses.iter().for_each(|rank| counts[*rank as usize] += 1);
        counts.retain(|count| *count > 0);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let share = |top: f64| {
            let top = (top * counts.len() as f64).ceil() as usize;
            counts[..top].iter().sum::<u64>() as f64 / accesses.len() as f64
        };
        let per_block = accesses.len() as f64 / counts.len() as f64;
        for salt in 0..6u64 {
            let mut counter = PopularityCounter::new();
            accesses.iter().for_each(|rank| counter.access(mix64(rank + (salt << 32)), Nanos::ZERO));
            let (popularity, reuse) = counter.finish();
            let (popularity, reuse) = (popularity.unwrap(), reuse.unwrap());
            let told = format!("theta {theta}, salt {salt}: {popularity:?}, {}", reuse.share);
            assert!(popularity.sampling_rate < 1.0, "{told}");
            assert!((popularity.accesses_per_block / per_block - 1.0).abs() < 0.015, "{per_block}, {told}");
            assert!((reuse.share - (1.0 - 1.0 / per_block)).abs() < 0.004, "{told}");
            for (top, found) in &popularity.hottest {
                // 0.1 % of the blocks are some 50 of the sample: which of them are in it moves the rank that is meant.
                let bound = if *top < 0.1 { 0.04 } else { 0.005 };
                assert!((found - share(*top)).abs() < bound, "{} of {top}, {told}", share(*top));
            }
        }
    }
}

#[test]
fn long_traces_are_told_in_few_bins() {
    // A request a minute for 90 days, over 10 TiB.
    let requests: Vec<Request> = (0..129_600u64)
        .map(|at| request(Nanos::secs(60 * at), Operation::Read, 0, at * (80 << 20), 4096))
        .collect();
    let profile = profile(&requests);
    assert!(profile.rates.len() <= 512 && profile.working_sets.len() <= 128);
    let rate = profile.rates[10].reads_per_s;
    assert!((rate - 1.0 / 60.0).abs() < 0.001, "{rate}");
    let heat = &profile.heat[0];
    assert!(heat.cells.len() <= 64 && heat.cells[0].len() <= 128);
    assert_eq!(heat.cells.iter().flatten().sum::<u64>(), 129_600);
    // A scan lies on the diagonal: the first cell of the first row, nothing at the end of it.
    assert!(heat.cells[0][0] > 0 && *heat.cells[0].last().unwrap() == 0);
    let footprint = profile.footprint_blocks as f64;
    assert!((footprint / 129_600.0 - 1.0).abs() < 0.03, "{footprint}");
    let last = profile.working_sets.last().unwrap().footprint_blocks as f64;
    assert!((last / 129_600.0 - 1.0).abs() < 0.1, "{last}");
    // As long as all blocks are sampled they are counted, not estimated.
    assert_eq!(self::profile(&requests[..60_000]).footprint_blocks, 60_000);
}

#[test]
fn threads_are_told_where_the_trace_has_them() {
    let mut profiler = Profiler::new(BlockSize::DEFAULT, true);
    let of = |thread| Request {
        thread: ThreadNumber(thread),
        ..request(Nanos::ZERO, Operation::Read, 0, 0, 4_096)
    };
    profiler.add(&[of(5), of(0), of(2), of(5)]);
    let threads = profiler.finish().threads.unwrap();
    assert_eq!((threads.count, threads.known_share, threads.weights), (2, 0.75, vec![0.5, 0.25]));
    let mut profiler = Profiler::new(BlockSize::DEFAULT, true);
    profiler.add(&[of(0)]);
    assert!(profiler.finish().threads.is_none());
}
