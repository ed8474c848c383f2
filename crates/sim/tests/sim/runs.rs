//! What holds of every run: it repeats, nothing is lost, loads change when they should, and what is shed is said.

use crate::{run, scenario};
use forebay_sim::{DrawJob, RecordedRequest, Simulation, Traces};
use forebay_units::Nanos;

const MIXED: &str = r#"
    name = "mixed"
    duration = "120s"
    cache = { memory = "16MiB", interval = "5s" }
    [[origin]]
    name = "disks"
    type = "disks"
    spindles = 6
    disk = "15000rpm"
    link_latency = "50us"
    [[origin]]
    name = "array"
    type = "servers"
    servers = 8
    service = "2ms"
    distribution = "exponential"
    [[volume]]
    name = "db"
    origin = "disks"
    size = "4GiB"
    load = [
        { arrivals = "poisson", rate = 400, theta = 1.1, working_set = "64MiB", read_share = 0.8 },
        { from = "60s", arrivals = "closed", clients = 16, think = "5ms", theta = 1.1, working_set = "128MiB", request_size = "8KiB" },
    ]
    [[volume]]
    name = "log"
    origin = "disks"
    size = "1GiB"
    load = [{ arrivals = "constant", rate = 50, popularity = "sequential", read_share = 0, request_size = "16KiB" }]
    [[volume]]
    name = "web"
    origin = "array"
    size = "2GiB"
    cache = "4MiB"
    load = [{ arrivals = "poisson", rate = 800, popularity = "uniform", working_set = "8MiB", read_share = 0.6, request_size = "16KiB" }]
    [[objective]]
    volume = "db"
    latency = "8ms"
    window = "5s"
"#;

#[test]
fn the_same_seed_repeats_every_event_and_another_does_not() {
    let scenario = scenario(MIXED);
    let (one, again, other) = (run(&scenario, 1), run(&scenario, 1), run(&scenario, 2));
    assert_eq!(one, again);
    assert_ne!(one.hash, other.hash);
    assert!(
        one.requests > 80_000 && one.requests - one.answered < 2_000,
        "{} {}",
        one.requests,
        one.answered
    );
}

#[test]
fn whoever_draws_its_requests_a_run_is_the_same() {
    let scenario = scenario(MIXED);
    let traces = Traces::new();
    let simulation = || Simulation::new(&scenario, &traces, Some(1)).unwrap();
    let alone = simulation().run();
    let (hand, jobs) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || jobs.into_iter().map(DrawJob::run).count());
    assert_eq!(simulation().with_helper(move |job| hand.send(job).unwrap()).run(), alone);
    // Three open loops, of some 120,000 requests, in batches of a thousand.
    let helped = thread.join().unwrap();
    assert!(helped > 100, "{helped}");
    assert_eq!(simulation().with_helper(drop).run(), alone);
}

#[test]
fn a_run_ends_after_so_many_events() {
    let scenario = scenario(MIXED);
    let outcome = Simulation::new(&scenario, &Traces::new(), None).unwrap().with_events_max(10_000).run();
    assert_eq!(outcome.events, 10_000);
    assert!(outcome.seconds > 1.0 && outcome.seconds < 60.0, "{}", outcome.seconds);
    assert!(outcome.flags.last().unwrap().message.contains("after 10000 events"), "{:?}", outcome.flags);
}

#[test]
fn totals_series_and_events_agree() {
    let outcome = run(&scenario(MIXED), 3);
    for volume in &outcome.volumes {
        let totals = &volume.totals;
        let completed = totals.hits + totals.misses + totals.writes;
        let from_rows: f64 = volume.intervals.iter().map(|row| row.iops * 5.0).sum();
        assert!((from_rows - completed as f64).abs() < 1.0, "{}", volume.volume);
        let rows: u64 = volume.intervals.iter().map(|row| row.latency.count).sum();
        assert_eq!((rows, totals.latency.count), (completed, completed), "{}", volume.volume);
        assert!(volume.intervals.iter().all(|row| row.used_blocks <= row.quota_blocks.max(1_024)));
        assert_eq!(volume.intervals.len(), 24);
    }
    let sums: u64 = outcome.volumes.iter().map(|volume| volume.totals.latency.count).sum();
    // All but those whose answer came after the last interval.
    assert_eq!(sums, outcome.answered);
    // A write-only volume has no hits; a fixed cache keeps its size.
    assert_eq!(outcome.volumes[1].totals.hit_ratio, None);
    assert!(outcome.volumes[2].intervals.iter().all(|row| row.quota_blocks == 1_024));
    assert!(outcome.volumes[2].totals.hit_ratio.unwrap() > 0.3);
}

#[test]
fn windows_count_that_lie_wholly_in_what_is_measured() {
    // 10.15 ms where nothing waits. Until 70 s requests do wait; sums begin with the interval from 70 s on, and the first window of 20 s after that
    // is the one from 80 s on.
    let scenario = scenario(
        r#"
        name = "windows"
        duration = "120s"
        measure_from = "65s"
        origin = [{ name = "o", type = "servers", servers = 1, service = "10ms" }]
        [[volume]]
        name = "v"
        size = "1GiB"
        load = [
            { arrivals = "poisson", rate = 80, popularity = "uniform" },
            { from = "70s", arrivals = "constant", rate = 10, popularity = "uniform" },
        ]
        [[objective]]
        volume = "v"
        latency = "11ms"
        window = "20s"
        "#,
    );
    let volume = &run(&scenario, 1).volumes[0];
    assert_eq!(volume.totals.seconds, 50.0);
    let kept = &volume.objectives[0];
    assert_eq!((kept.conforming, kept.nonconforming, kept.conforming_share), (2, 0, Some(1.0)));
    assert_eq!((kept.windows.len(), kept.last_violation_s), (6, Some(80.0)));
}

#[test]
fn loads_change_when_they_should_and_overload_is_shed_and_said() {
    let scenario = scenario(
        r#"
        name = "steps"
        duration = "90s"
        cache.memory = "1GiB"
        origin = [{ name = "o", type = "servers", servers = 1, service = "10ms" }]
        [[volume]]
        name = "v"
        size = "1GiB"
        load = [
            { arrivals = "constant", rate = 20, popularity = "uniform" },
            { from = "30s", arrivals = "constant", rate = 400, popularity = "uniform", outstanding_max = 50 },
            { from = "60s", arrivals = "idle" },
        ]
        "#,
    );
    let outcome = run(&scenario, 1);
    assert!(outcome.flags[0].message.contains("at least 75 % of them must be hits"), "{:?}", outcome.flags);
    let rows = &outcome.volumes[0].intervals;
    let arrivals: Vec<u64> = rows.iter().map(|row| row.arrivals_per_second.round() as u64).collect();
    assert_eq!(arrivals[..3], [20, 20, 20]);
    // 100/s are served, the others are shed; 50 wait for half a second.
    assert!((99.0..=101.0).contains(&rows[4].iops), "{:?}", rows[4]);
    assert!((2_990..=3_010).contains(&rows[4].shed), "{:?}", rows[4]);
    assert!((rows[4].latency.mean_ms.unwrap() - 500.0).abs() < 15.0);
    assert_eq!(arrivals[7..], [0, 0]);
}

#[test]
fn what_is_shed_behind_the_last_whole_interval_is_said_too() {
    // From 10 s on 100/s of 400 are served for 9 s, and 50 wait.
    let scenario = scenario(
        r#"
        name = "late"
        cache.memory = "1GiB"
        duration = "19s"
        origin = [{ name = "o", type = "servers", servers = 1, service = "10ms" }]
        [[volume]]
        name = "v"
        size = "1GiB"
        load = [
            { arrivals = "idle" },
            { from = "10s", arrivals = "constant", rate = 400, popularity = "uniform", outstanding_max = 50 },
        ]
        "#,
    );
    let outcome = run(&scenario, 1);
    let rows = &outcome.volumes[0].intervals;
    assert_eq!((rows.len(), rows[0].shed), (1, 0));
    let flag = outcome.flags.last().expect("2,650 were shed");
    let (sent, answered) = (outcome.requests, outcome.answered);
    assert!((949..=951).contains(&sent) && (899..=901).contains(&answered), "{sent} and {answered}");
    let shed = 3_600 - sent;
    assert!(
        flag.message.starts_with(&format!(
            "{shed} requests were shed at the maximum outstanding, and {answered} of the {sent} that were sent were answered"
        )),
        "{flag:?}"
    );
}

#[test]
fn recorded_requests_come_when_they_were_recorded() {
    let scenario = scenario(
        r#"
        name = "trace"
        duration = "100s"
        cache = { memory = "1MiB", sizing = "fixed", hit_latency = "1ms" }
        origin = [{ name = "o", type = "servers", servers = 4, service = "10ms" }]
        [[volume]]
        name = "v"
        size = "1MiB"
        cache = "1MiB"
        load = [{ arrivals = "trace", trace = "t", speed = 2.0 }]
        "#,
    );
    let request =
        |at, offset, length, writes| RecordedRequest { at: Nanos::secs(at), offset, length, writes };
    // Blocks 0 and 1 are filled at 10 s; at 15 s block 1 hits and block 2 does not; at 20 s all hit; a write is slow.
    let requests = [
        request(20, 0, 8_192, false),
        request(30, 6_000, 4_000, false),
        request(40, 1, 9_000, false),
        request(40, 0, 1, true),
    ];
    let traces = Traces::from([((0, 0), requests.into())]);
    let outcome = Simulation::new(&scenario, &traces, None).unwrap().run();
    let totals = &outcome.volumes[0].totals;
    assert_eq!((totals.misses, totals.hits, totals.writes), (2, 1, 1));
    let means: Vec<Option<f64>> =
        outcome.volumes[0].intervals[..3].iter().map(|row| row.latency.mean_ms).collect();
    // The intervals end at 10, 20 and 30 s; what arrives at 10 s was planned after the first interval's end.
    assert_eq!(means, [None, Some(11.0), Some(6.0)]);
    // Begun 25 s into the recording, the request of 30 s comes after 2.5 s and misses both of its blocks.
    let mut later = scenario.clone();
    later.volume[0].load[0].trace_from = Nanos::secs(25);
    let outcome = Simulation::new(&later, &traces, None).unwrap().run();
    let totals = &outcome.volumes[0].totals;
    assert_eq!((totals.misses, totals.hits, totals.writes), (2, 0, 1));
    assert_eq!(outcome.volumes[0].intervals[0].reads, 2);
    assert_eq!(outcome.volumes[0].intervals[0].read_mean_ms, Some(11.0));
    // The trace is refused where it passes the volume's end, and where it is not there.
    let beyond = Traces::from([((0, 0), [request(0, 1 << 20, 1, false)].into())]);
    let error = Simulation::new(&scenario, &beyond, None).unwrap_err().to_string();
    assert!(
        error.contains("request 0 of the trace of volume `v` asks for 1 bytes from byte 1048576 on"),
        "{error}"
    );
    assert!(Simulation::new(&scenario, &Traces::new(), None).is_err());
}

#[test]
fn recorded_requests_that_step_back_come_with_those_before_them_and_are_told() {
    let scenario = scenario(
        r#"
        name = "back"
        duration = "100s"
        cache = { memory = "1MiB", sizing = "fixed" }
        origin = [{ name = "o", type = "servers", servers = 4, service = "10ms" }]
        volume = [{ name = "v", size = "1MiB", cache = "1MiB", load = [{ arrivals = "trace", trace = "t", trace_from = "20s" }] }]
        "#,
    );
    let run = |back: std::ops::Range<u64>| {
        let at = |second| Nanos::secs(if back.contains(&second) { 1 } else { second });
        let request =
            |second| RecordedRequest { at: at(second), offset: second * 4_096, length: 4_096, writes: false };
        let requests: Vec<RecordedRequest> = (0..80).map(request).collect();
        let traces = Traces::from([((0, 0), requests.into())]);
        Simulation::new(&scenario, &traces, None).unwrap().run()
    };
    let ordered = run(0..0);
    assert_eq!((ordered.volumes[0].totals.arrivals, ordered.flags.len()), (60, 0), "{:?}", ordered.flags);
    // The middle of the trace says 1 s: what stands ahead of it is played as well. The end of the trace, too.
    for back in [35..56, 70..80] {
        let count = back.clone().count();
        let outcome = run(back);
        assert_eq!(outcome.volumes[0].totals.arrivals, 60);
        let [flag] = outcome.flags.as_slice() else { panic!("{:?}", outcome.flags) };
        assert_eq!(flag.key, "volume[0].load[0].trace");
        assert!(
            flag.message.starts_with(&format!("{count} of 60 requests were recorded before")),
            "{}",
            flag.message
        );
    }
}

#[test]
fn overlapping_writes_keep_their_order_and_a_read_joins_one_that_is_under_way() {
    let scenario = scenario(
        r#"
        name = "order"
        duration = "10s"
        cache = { memory = "1MiB", sizing = "fixed", hit_latency = "0ms" }
        origin = [{ name = "o", type = "servers", servers = 4, service = "10ms" }]
        volume = [{ name = "v", size = "1MiB", cache = "1MiB", load = [{ arrivals = "trace", trace = "t" }] }]
        "#,
    );
    let at = |ms, offset, length, writes| RecordedRequest { at: Nanos::millis(ms), offset, length, writes };
    let run = |requests: Vec<RecordedRequest>| {
        let traces = Traces::from([((0, 0), requests.into())]);
        Simulation::new(&scenario, &traces, None).unwrap().run().volumes[0].totals.clone()
    };
    // Three writes of one block, two of them also of the next: 10, 20 and 30 ms although four could be served at once.
    let totals = run(vec![at(0, 0, 8_192, true), at(0, 0, 4_096, true), at(0, 0, 8_192, true)]);
    assert_eq!(totals.latency.mean_ms, Some(20.0));
    // The second read joins the first after 4 ms: 10 and 6 ms. A third one hits.
    let totals = run(vec![at(0, 0, 1, false), at(4, 0, 1, false), at(20, 0, 1, false)]);
    assert_eq!((totals.misses, totals.hits), (2, 1));
    assert!((totals.latency.mean_ms.unwrap() - 16.0 / 3.0).abs() < 1e-5);
    // A write that overtakes a read on its way keeps it out of the cache: the next read misses, the one after it hits.
    let totals = run(vec![at(0, 0, 1, false), at(1, 0, 1, true), at(50, 0, 1, false), at(80, 0, 1, false)]);
    assert_eq!((totals.misses, totals.hits, totals.writes), (2, 1, 1));
    // One of all of the block brings it: the next read hits.
    let whole = |ms| at(ms, 0, 4_096, true);
    let totals = run(vec![at(0, 0, 1, false), whole(1), at(50, 0, 1, false)]);
    assert_eq!((totals.misses, totals.hits, totals.writes), (1, 1, 1));
    // What a read missed after the write was sent comes with the next write, which waits for the first (until 20 ms), and not before.
    let totals = run(vec![whole(0), at(1, 0, 1, false), whole(2), at(15, 0, 1, false), at(25, 0, 1, false)]);
    assert_eq!((totals.misses, totals.hits, totals.writes), (2, 1, 2));
    let totals = run(vec![whole(0), at(1, 0, 1, false), at(25, 0, 1, false)]);
    assert_eq!((totals.misses, totals.hits, totals.writes), (2, 0, 1));
}

#[test]
fn what_is_on_its_way_to_an_appliance_counts_as_outstanding() {
    // A second on the way there, and 100 requests/s: but for the maximum, a hundred would be outstanding.
    let scenario = scenario(
        r#"
        name = "far"
        duration = "60s"
        origin = [{ name = "o", type = "servers", servers = 64, service = "1ms" }]
        appliance = [{ name = "a", link_latency = "1s" }]
        [[volume]]
        name = "v"
        size = "1GiB"
        appliance = "a"
        load = [{ arrivals = "constant", rate = 100, popularity = "uniform", outstanding_max = 10 }]
        "#,
    );
    let outcome = run(&scenario, 1);
    // Ten each second: those that set out come together, and nothing follows them until then.
    assert!(outcome.requests <= 10 * 61, "{}", outcome.requests);
    assert!(outcome.volumes[0].totals.shed > 5_000, "{}", outcome.volumes[0].totals.shed);
}

#[test]
fn a_reservation_is_told_of_by_the_whole_intervals_in_which_it_stood() {
    let scenario = scenario(
        r#"
        name = "between"
        duration = "60s"
        cache.interval = "5s"
        origin = [{ name = "o", type = "servers", servers = 64, service = "1ms" }]
        volume = [{ name = "v", size = "1GiB", load = [{ arrivals = "constant", rate = 100, popularity = "uniform" }] }]
        reservation = [{ volumes = ["v"], iops = 100, from = "12s", for = "31s" }]
        "#,
    );
    // From 15 to 40 s, of 12 to 43.
    let told = &run(&scenario, 1).reservations[0];
    assert_eq!((told.from_s, told.until_s, told.intervals), (12.0, 43.0, 5));
}
