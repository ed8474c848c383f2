//! The models against closed forms and against what must hold of every run.

use forebay_devmodel::{
    DiskCompletion, DiskGroup, DiskGroupParameters, DiskParameters, DiskRequest, DiskRequestId,
    DiskRequestKind, QueueDiscipline, SubmitError,
};
use forebay_units::{ByteRange, Nanos};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

fn read(id: u64, offset: u64, length: u64) -> DiskRequest {
    DiskRequest { id: DiskRequestId(id), kind: DiskRequestKind::Read, range: ByteRange::new(offset, length) }
}

/// Lets a closed loop of `clients` run until `total` requests have completed; requests of 4 KiB at random offsets.
/// Returns the time it took and the mean latency in seconds.
fn closed_loop(parameters: DiskGroupParameters, clients: u64, total: u64) -> (f64, f64) {
    let mut group = DiskGroup::new(parameters).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let blocks = group.capacity_bytes() / 4096;
    let mut submitted_at = BTreeMap::new();
    let mut next_id = 0;
    let mut submit = |group: &mut DiskGroup, now, submitted_at: &mut BTreeMap<DiskRequestId, Nanos>| {
        let request = read(next_id, random.random_range(0..blocks) * 4096, 4096);
        next_id += 1;
        submitted_at.insert(request.id, now);
        group.submit(now, request).unwrap();
    };
    for _ in 0..clients {
        submit(&mut group, Nanos::ZERO, &mut submitted_at);
    }
    let (mut done, mut latency, mut now) = (0, 0.0, Nanos::ZERO);
    let mut completions = Vec::new();
    while done < total {
        now = group.next_event().unwrap();
        group.advance(now, &mut completions);
        for completion in completions.drain(..) {
            done += 1;
            latency += (completion.at - submitted_at.remove(&completion.id).unwrap()).as_secs_f64();
            submit(&mut group, now, &mut submitted_at);
        }
    }
    (now.as_secs_f64(), latency / done as f64)
}

#[test]
fn a_disk_with_fixed_service_and_poisson_arrivals_is_m_d_1() {
    // Pollaczek-Khinchine for a constant service time s and load rho: mean time in system = s + rho s / (2 (1 - rho)).
    let service = 0.005;
    for (rho, band) in [(0.3, 0.01), (0.7, 0.02), (0.9, 0.06)] {
        let disk = DiskParameters::fixed_service(1 << 30, Nanos::from_secs_f64(service));
        let parameters =
            DiskGroupParameters { outstanding_max: 100_000, ..DiskGroupParameters::striped(1, disk) };
        let mut group = DiskGroup::new(parameters).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(42);
        let (mut now, mut total, count) = (0.0, 0.0, 400_000u64);
        let mut arrivals = Vec::new();
        let mut completions = Vec::new();
        for id in 0..count {
            now += -(1.0 - random.random::<f64>()).ln() * service / rho;
            let at = Nanos::from_secs_f64(now);
            group.advance(at, &mut completions);
            group.submit(at, read(id, 0, 512)).unwrap();
            arrivals.push(at);
        }
        group.advance(Nanos::MAX, &mut completions);
        assert_eq!(completions.len() as u64, count);
        for completion in &completions {
            total += (completion.at - arrivals[completion.id.0 as usize]).as_secs_f64();
        }
        let measured = total / count as f64;
        let expected = service + rho * service / (2.0 * (1.0 - rho));
        let error = (measured - expected).abs() / expected;
        println!(
            "M/D/1 at load {rho}: measured {measured:.6} s, closed form {expected:.6} s, error {error:.4}"
        );
        assert!(error < band, "load {rho}: {measured} against {expected}");
        // Busy time over the whole span is the load: every request held the disk for exactly the service time.
        let observed = group.observe(completions.last().unwrap().at);
        assert_eq!(observed.spindles[0].busy.0, count * 5_000_000);
    }
}

#[test]
fn a_closed_loop_saturates_at_spindles_over_service() {
    for spindles in [1, 4, 16] {
        let disk = DiskParameters::fixed_service(1 << 30, Nanos::millis(5));
        let (seconds, _) = closed_loop(DiskGroupParameters::striped(spindles, disk), 512, 40_000);
        let measured = 40_000.0 / seconds;
        let expected = f64::from(spindles) / 0.005;
        // With 512 clients at random over 16 spindles a spindle is hardly ever idle.
        assert!((measured / expected - 1.0).abs() < 0.02, "{spindles}: {measured} against {expected}");
    }
}

#[test]
fn one_random_read_takes_seek_half_a_turn_and_transfer() {
    // 7,200 rpm: mean seek over uniformly random distances from the curve's integral is near 7.9 ms, half a turn is
    // 4.17 ms, the transfer of 4 KiB 0.02 to 0.04 ms and the command 0.1 ms.
    let parameters = DiskGroupParameters::striped(1, DiskParameters::rpm_7200(1 << 40));
    let (_, latency) = closed_loop(parameters, 1, 20_000);
    assert!((0.0115..0.0132).contains(&latency), "{latency}");
    let parameters = DiskGroupParameters::striped(1, DiskParameters::rpm_15000(300 << 30));
    let (_, latency) = closed_loop(parameters, 1, 20_000);
    assert!((0.0048..0.0058).contains(&latency), "{latency}");
}

#[test]
fn schedulers_beat_fifo_at_depth() {
    let run = |discipline| {
        let disk = DiskParameters::rpm_7200(1 << 40);
        let parameters = DiskGroupParameters { discipline, ..DiskGroupParameters::striped(1, disk) };
        let (seconds, _) = closed_loop(parameters, 32, 10_000);
        10_000.0 / seconds
    };
    let fifo = run(QueueDiscipline::Fifo);
    let look = run(QueueDiscipline::CLook);
    let nearest = run(QueueDiscipline::ShortestPositioning);
    println!(
        "7,200 rpm, depth 32: FIFO {fifo:.0}, C-LOOK {look:.0}, shortest positioning {nearest:.0} requests/s"
    );
    assert!(look > 1.3 * fifo, "{look} against {fifo}");
    assert!(nearest > 1.2 * look, "{nearest} against {look}");
}

#[test]
fn a_neighbour_on_the_same_spindles_slows_a_volume() {
    let latency = |neighbours: u64| {
        let disk = DiskParameters::rpm_15000(64 << 30);
        closed_loop(DiskGroupParameters::striped(4, disk), 4 + neighbours, 10_000).1
    };
    assert!(latency(28) > 3.0 * latency(0));
}

#[test]
fn limits_are_kept() {
    let disk = DiskParameters::fixed_service(1 << 20, Nanos::millis(1));
    let parameters = DiskGroupParameters { outstanding_max: 2, ..DiskGroupParameters::striped(2, disk) };
    let mut group = DiskGroup::new(parameters).unwrap();
    assert_eq!(group.capacity_bytes(), 2 << 20);
    assert!(matches!(
        group.submit(Nanos::ZERO, read(0, (2 << 20) - 1, 2)),
        Err(SubmitError::OutOfRange { .. })
    ));
    assert!(matches!(group.submit(Nanos::ZERO, read(0, u64::MAX, 2)), Err(SubmitError::OutOfRange { .. })));
    group.submit(Nanos::ZERO, read(0, 0, 1)).unwrap();
    group.submit(Nanos::ZERO, read(1, 0, 0)).unwrap();
    assert_eq!(group.submit(Nanos::ZERO, read(2, 0, 1)), Err(SubmitError::Full { outstanding_max: 2 }));
    let mut completions = Vec::new();
    group.advance(Nanos::millis(1), &mut completions);
    assert_eq!(
        completions,
        [
            DiskCompletion { id: DiskRequestId(1), at: Nanos::ZERO },
            DiskCompletion { id: DiskRequestId(0), at: Nanos::millis(1) }
        ]
    );
    assert_eq!((group.outstanding(), group.next_event()), (0, None));
    assert_eq!(
        DiskGroup::new(DiskGroupParameters::striped(0, DiskParameters::rpm_7200(1 << 30))).unwrap_err().name,
        "spindles"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every accepted request completes exactly once, in order of time, not before it arrived, and however coarsely
    /// time is told the completions are the same.
    #[test]
    fn requests_are_conserved_and_time_is_monotone(
        requests in prop::collection::vec((0u64..20_000_000, 0u64..1 << 30, 0u64..400_000), 1..120),
        discipline in prop::sample::select(vec![
            QueueDiscipline::Fifo, QueueDiscipline::CLook, QueueDiscipline::ShortestPositioning,
        ]),
        spindles in 1u32..7,
        tick in 1_000_000u64..50_000_000,
    ) {
        let parameters = DiskGroupParameters {
            discipline,
            ..DiskGroupParameters::striped(spindles, DiskParameters::rpm_15000(1 << 30))
        };
        let mut fine = DiskGroup::new(parameters.clone()).unwrap();
        let mut coarse = DiskGroup::new(parameters).unwrap();
        let (mut fine_done, mut coarse_done) = (Vec::new(), Vec::new());
        let mut now = Nanos::ZERO;
        let mut arrived = Vec::new();
        for (id, (gap, offset, length)) in requests.iter().enumerate() {
            now += Nanos(*gap);
            while let Some(at) = fine.next_event().filter(|at| *at < now) {
                fine.advance(at, &mut fine_done);
            }
            fine.submit(now, read(id as u64, *offset % ((1 << 30) - 400_000), *length)).unwrap();
            if now.0 % tick < *gap {
                coarse.advance(Nanos(now.0 - 1), &mut coarse_done);
            }
            coarse.submit(now, read(id as u64, *offset % ((1 << 30) - 400_000), *length)).unwrap();
            arrived.push(now);
        }
        while let Some(at) = fine.next_event() {
            fine.advance(at, &mut fine_done);
        }
        coarse.advance(Nanos::MAX, &mut coarse_done);
        prop_assert!(fine_done.is_sorted_by_key(|completion| completion.at));
        let by_id = |done: &[DiskCompletion]| -> BTreeMap<u64, Nanos> {
            done.iter().map(|completion| (completion.id.0, completion.at)).collect()
        };
        prop_assert_eq!(fine_done.len(), requests.len());
        prop_assert_eq!(coarse_done.len(), requests.len());
        prop_assert_eq!(by_id(&fine_done).len(), requests.len());
        prop_assert_eq!(by_id(&fine_done), by_id(&coarse_done));
        for completion in &fine_done {
            prop_assert!(completion.at >= arrived[completion.id.0 as usize]);
        }
        let end = fine_done.last().unwrap().at;
        let observed = fine.observe(end);
        prop_assert!(observed.spindles.iter().all(|spindle| spindle.queue_length == 0 && spindle.busy <= end));
        prop_assert_eq!(
            observed.spindles.iter().map(|spindle| spindle.bytes).sum::<u64>(),
            requests.iter().map(|request| request.2).sum::<u64>()
        );
    }
}
