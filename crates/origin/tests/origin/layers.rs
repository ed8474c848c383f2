//! What each layer promises besides passing on.

use super::conformance::memory;
use super::support::{Collector, errno, read, run, submit, write};
use forebay_origin::layer::{
    Delay, DelayParameters, ErrorInjection, ErrorParameters, HELD_MAX, Log, LogParameters, Rate,
    RateParameters,
};
use forebay_origin::{Origin, OriginOperation, Timer};
use forebay_units::{ByteRange, Nanos};
use std::time::{Duration, Instant};

#[test]
fn a_delay_delays_what_it_is_told_to_and_is_bounded() {
    let timer = Timer::start().unwrap();
    let parameters =
        DelayParameters { read: Nanos::millis(5), write: Nanos::secs(3600), ..DelayParameters::default() };
    let layer = Delay::new(memory(), timer, parameters);
    let started = Instant::now();
    run(&layer, OriginOperation::Flush).unwrap();
    run(&layer, read(0, 1)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(5));
    let collector = Collector::new();
    for id in 0..=HELD_MAX as u64 {
        submit(&layer, id, write(0, b"x"), &collector);
    }
    assert_eq!(collector.count(), 1);
    assert_eq!(errno(&collector.wait(1)[&(HELD_MAX as u64)]), Some(16));
    let statistics = layer.statistics();
    assert_eq!((statistics.in_flight, statistics.refused), (HELD_MAX as u64, 1));
    // The last owner of the timer lets go: what waits goes on at once.
    drop(layer);
    let outcomes = collector.wait(HELD_MAX + 1);
    assert_eq!(outcomes.values().filter(|outcome| outcome.is_ok()).count(), HELD_MAX);
}

#[test]
fn errors_hit_what_they_are_told_to_and_never_reach_the_origin() {
    let parameters = ErrorParameters {
        errno: 28,
        reads: false,
        range: Some(ByteRange::new(4096, 4096)),
        ..ErrorParameters::default()
    };
    let layer = ErrorInjection::new(memory(), parameters).unwrap();
    assert_eq!(run(&layer, read(4096, 10)), Ok(vec![0; 10]));
    assert_eq!(run(&layer, write(0, b"y")), Ok(Vec::new()));
    assert_eq!(errno(&run(&layer, write(4095, b"xx"))), Some(28));
    assert_eq!(run(&layer, OriginOperation::Flush), Ok(Vec::new()));
    assert_eq!(run(&layer, read(4095, 2)), Ok(vec![0; 2]));
    assert_eq!((layer.injected(), layer.statistics().errors), (1, 1));
    layer.set_active(false);
    assert_eq!(run(&layer, write(4095, b"xx")), Ok(Vec::new()));

    // A share of 0.3 over 2,000 requests: the standard deviation is 20, so that 500 to 700 is five of them.
    let run_seed = |seed| {
        let parameters = ErrorParameters { probability: 0.3, seed, ..ErrorParameters::default() };
        let layer = ErrorInjection::new(memory(), parameters).unwrap();
        (0..2000).map(|_| run(&layer, read(0, 1)).is_err()).collect::<Vec<_>>()
    };
    let first = run_seed(5);
    assert!((500..700).contains(&first.iter().filter(|failed| **failed).count()));
    assert_eq!(first, run_seed(5));
    assert_ne!(first, run_seed(6));
    for (name, bad) in [
        ("probability", ErrorParameters { probability: 1.5, ..ErrorParameters::default() }),
        ("errno", ErrorParameters { errno: 0, ..ErrorParameters::default() }),
    ] {
        assert_eq!(ErrorInjection::new(memory(), bad).err().unwrap().name, name);
    }
}

#[test]
fn a_rate_is_not_passed() {
    let timer = Timer::start().unwrap();
    let parameters = RateParameters {
        requests_per_second: Some(500.0),
        bytes_per_second: Some(1e12),
        burst: Nanos::millis(20),
    };
    let layer = Rate::new(memory(), timer.clone(), parameters).unwrap();
    let collector = Collector::new();
    let started = Instant::now();
    // 61 requests: 11 go at once (debts of 0 to 20 ms), the last of the other 50 goes 100 ms later.
    for id in 0..61 {
        submit(&layer, id, read(0, 1), &collector);
    }
    collector.wait(61);
    assert!(started.elapsed() >= Duration::from_millis(99), "{:?}", started.elapsed());

    let parameters =
        RateParameters { bytes_per_second: Some(1e6), burst: Nanos::ZERO, ..RateParameters::default() };
    let layer = Rate::new(memory(), timer.clone(), parameters).unwrap();
    let started = Instant::now();
    run(&layer, read(0, 50_000)).unwrap();
    run(&layer, read(0, 1)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(49), "{:?}", started.elapsed());
    // A subnormal rate has no finite reciprocal.
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE / 8.0] {
        let parameters = RateParameters { bytes_per_second: Some(bad), ..RateParameters::default() };
        assert_eq!(Rate::new(memory(), timer.clone(), parameters).err().unwrap().name, "bytes_per_second");
    }
}

#[test]
fn a_rate_that_takes_longer_than_any_clock_can_say_holds_requests_and_no_more() {
    let timer = Timer::start().unwrap();
    for rate in [1e-300, 1e-9, f64::MIN_POSITIVE] {
        let rate = RateParameters {
            requests_per_second: Some(rate),
            bytes_per_second: Some(rate),
            ..RateParameters::default()
        };
        let layer = Rate::new(memory(), timer.clone(), rate).unwrap();
        let collector = Collector::new();
        // The first goes at once; what the others cost may be more than a floating-point number can say.
        for id in 0..4 {
            submit(&layer, id, read(0, 1 << 20), &collector);
        }
        collector.wait(1);
        assert_eq!((collector.count(), layer.statistics().in_flight), (1, 3));
    }
}

#[test]
fn a_log_has_a_line_per_request() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let parameters = LogParameters {
        name: "db".into(),
        file: Some(file.path().to_path_buf()),
        ..LogParameters::default()
    };
    let layer = Log::new(memory(), parameters).unwrap();
    run(&layer, write(4096, b"abc")).unwrap();
    run(&layer, read(u64::MAX, 1)).unwrap_err();
    run(&layer, OriginOperation::Flush).unwrap();
    assert_eq!(layer.lines_lost(), 0);
    drop(layer);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0][1..5], lines[0][6]), (&["db", "write", "4096", "3"][..], "ok"));
    assert_eq!((lines[1][2], lines[1][6]), ("read", "22"));
    assert_eq!((&lines[2][1..5], lines[2][6]), (&["db", "flush", "0", "0"][..], "ok"));
    assert!(lines[0][0].parse::<f64>().is_ok() && lines[0][5].parse::<u64>().is_ok());
    // A log of before is made anew; what is none is as it was.
    let again = || {
        let file = Some(file.path().to_path_buf());
        Log::new(memory(), LogParameters { name: "a b".into(), file, ..LogParameters::default() })
    };
    let layer = again().unwrap();
    run(&layer, OriginOperation::Flush).unwrap();
    drop(layer);
    let second = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(second.lines().count(), 1);
    // Rotated by cutting it, while it is written or before.
    let layer = again().unwrap();
    run(&layer, OriginOperation::Flush).unwrap();
    std::fs::write(file.path(), format!("{}{second}", "\0".repeat(20_000))).unwrap();
    drop(layer);
    drop(again().unwrap());
    for other in ["my thesis\n", "[[volume]]\nname = \"v\"", "1 2 3 4 5 6 7\n", "\0\0my thesis"] {
        std::fs::write(file.path(), other).unwrap();
        let error = again().err().unwrap().to_string();
        assert!(error.contains("holds something that is no log of requests"), "{error}");
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), other);
    }
}
