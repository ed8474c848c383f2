//! The models against closed forms and against what must hold of every run.

use forebay_devmodel::{
    Array, ArrayCache, DiskBuffer, DiskCompletion, DiskGroup, DiskGroupParameters, DiskParameters,
    DiskRequest, DiskRequestId, DiskRequestKind, Lane, LaneParameters, Layout, QueueDiscipline, Ssd,
    SsdParameters, SubmitError,
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
    let run = |discipline, clients| {
        let disk = DiskParameters::rpm_7200(1 << 40);
        let parameters = DiskGroupParameters { discipline, ..DiskGroupParameters::striped(1, disk) };
        let (seconds, _) = closed_loop(parameters, clients, 10_000);
        10_000.0 / seconds
    };
    let fifo = run(QueueDiscipline::Fifo, 32);
    let look = run(QueueDiscipline::CLook, 32);
    let nearest = run(QueueDiscipline::ShortestPositioning, 32);
    println!(
        "7,200 rpm, depth 32: FIFO {fifo:.0}, C-LOOK {look:.0}, shortest positioning {nearest:.0} requests/s"
    );
    assert!(look > 1.3 * fifo, "{look} against {fifo}");
    assert!(nearest > 1.2 * look, "{nearest} against {look}");
    // However many more wait, and for however long.
    for (discipline, at_depth) in
        [(QueueDiscipline::CLook, look), (QueueDiscipline::ShortestPositioning, nearest)]
    {
        let many = run(discipline, 1_000);
        assert!(many > 0.97 * at_depth, "{discipline:?}: {many} against {at_depth}");
    }
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

/// What the devices have in common.
trait Device {
    fn submit(&mut self, now: Nanos, request: DiskRequest);
    fn next_event(&self) -> Option<Nanos>;
    fn advance(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>);
    fn outstanding(&self) -> usize;
}

macro_rules! device {
    ($type:ty) => {
        impl Device for $type {
            fn submit(&mut self, now: Nanos, request: DiskRequest) {
                self.submit(now, request).unwrap();
            }
            fn next_event(&self) -> Option<Nanos> {
                self.next_event()
            }
            fn advance(&mut self, now: Nanos, completions: &mut Vec<DiskCompletion>) {
                self.advance(now, completions);
            }
            fn outstanding(&self) -> usize {
                self.outstanding()
            }
        }
    };
}

device!(DiskGroup);
device!(Array);
device!(Ssd);

/// Requests per second of a closed loop of `clients` that ask for `length` bytes at random multiples of `length` below
/// `bytes`, after `total` have completed.
fn saturate(
    device: &mut dyn Device,
    kind: DiskRequestKind,
    bytes: u64,
    length: u64,
    clients: u64,
    total: u64,
) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut next = |id| {
        let offset = random.random_range(0..bytes / length) * length;
        DiskRequest { id: DiskRequestId(id), kind, range: ByteRange::new(offset, length) }
    };
    (0..clients).for_each(|id| device.submit(Nanos::ZERO, next(id)));
    let (mut done, mut now, mut completions) = (0, Nanos::ZERO, Vec::new());
    while done < total {
        now = device.next_event().unwrap();
        device.advance(now, &mut completions);
        for completion in completions.drain(..) {
            done += 1;
            device.submit(now, next(completion.id.0));
        }
    }
    done as f64 / now.as_secs_f64()
}

fn compare(what: &str, measured: f64, expected: f64, band: f64) {
    let error = measured / expected - 1.0;
    println!("{what}: measured {measured:.2}, closed form {expected:.2}, error {:+.2} %", error * 100.0);
    assert!(error.abs() < band, "{what}: {measured} against {expected}");
}

#[test]
fn small_writes_cost_what_their_level_says() {
    // Six disks of 5 ms: 1,200 requests/s. A small write is one request, or two copies, or two reads and two writes; RAID
    // 4's parity disk does two of those for every write.
    for (layout, expected) in [
        (Layout::Striped, 1_200.0),
        (Layout::Mirrored, 1_200.0 / 2.0),
        (Layout::DedicatedParity, 200.0 / 2.0),
        (Layout::RotatedParity, 1_200.0 / 4.0),
    ] {
        let disk = DiskParameters::fixed_service(1 << 30, Nanos::millis(5));
        let parameters = DiskGroupParameters { layout, ..DiskGroupParameters::striped(6, disk) };
        let mut group = DiskGroup::new(parameters.clone()).unwrap();
        let bytes = group.capacity_bytes();
        let small = saturate(&mut group, DiskRequestKind::Write, bytes, 4_096, 512, 20_000);
        compare(&format!("{layout:?}, small writes/s"), small, expected, 0.02);
        let mut group = DiskGroup::new(parameters.clone()).unwrap();
        let reads = saturate(&mut group, DiskRequestKind::Read, bytes, 4_096, 512, 20_000);
        let data = if layout == Layout::DedicatedParity { 1_000.0 } else { 1_200.0 };
        compare(&format!("{layout:?}, small reads/s"), reads, data, 0.02);
        // A whole row holds every disk once, except the copies' double.
        let mut group = DiskGroup::new(parameters).unwrap();
        let row = u64::from(layout.data_spindles(6)) * (64 << 10);
        let rows = saturate(&mut group, DiskRequestKind::Write, bytes / row * row, row, 32, 2_000);
        compare(&format!("{layout:?}, rows/s"), rows, 200.0, 0.02);
    }
}

#[test]
fn a_lane_with_poisson_arrivals_is_m_d_1() {
    let (item, rho) = (0.001, 0.7);
    let mut lane = Lane::new(LaneParameters { item: Nanos::millis(1), ..LaneParameters::default() }).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    let (mut now, mut total, count) = (0.0, 0.0, 400_000);
    for _ in 0..count {
        now += -(1.0 - random.random::<f64>()).ln() * item / rho;
        let at = Nanos::from_secs_f64(now);
        total += (lane.send(at, 0) - at).as_secs_f64();
    }
    compare("lane, ms", total / f64::from(count) * 1e3, 1.0 + rho / (2.0 * (1.0 - rho)), 0.02);
}

#[test]
fn an_ssd_saturates_where_its_dies_or_its_channels_do() {
    let parameters = SsdParameters {
        channels: 4,
        dies_per_channel: 2,
        latency: Nanos::ZERO,
        ..SsdParameters::typical(1 << 30)
    };
    // 8 dies of 60 us, 4 KiB of 5.12 us on 4 channels: the dies, 133,333/s.
    let mut ssd = Ssd::new(parameters.clone()).unwrap();
    let small = saturate(&mut ssd, DiskRequestKind::Read, 1 << 30, 4_096, 512, 50_000);
    compare("SSD, small reads/s", small, 8.0 / 60e-6, 0.02);
    // Pages at 100 MB/s: 163.84 us on each of 4 channels.
    let slow = SsdParameters { channel_bytes_s: 100_000_000, ..parameters.clone() };
    let pages = saturate(&mut Ssd::new(slow).unwrap(), DiskRequestKind::Read, 1 << 30, 16_384, 512, 50_000);
    compare("SSD, pages/s over slow channels", pages, 4.0 / 163.84e-6, 0.02);
    // An empty one programs whole pages without cleaning; one in steady state moves and erases besides.
    let empty = SsdParameters { filled_share: 0.0, ..parameters.clone() };
    let mut ssd = Ssd::new(empty).unwrap();
    let first = saturate(&mut ssd, DiskRequestKind::Write, 1 << 30, 16_384, 256, 20_000);
    compare("SSD, first writes/s", first, 8.0 / 600e-6, 0.03);
    let small = SsdParameters { pages_per_block: 64, spare_share: 0.25, ..parameters };
    let mut ssd = Ssd::new(small).unwrap();
    saturate(&mut ssd, DiskRequestKind::Write, 1 << 30, 16_384, 256, 200_000);
    // What the dies do per page written: a program, and per page moved a read and a program, and the erases.
    let clock = ssd.next_event().unwrap();
    let before = ssd.observe(clock);
    let mut completions = Vec::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
    let mut now = clock;
    for id in 0..100_000 {
        while ssd.outstanding() >= 512 {
            now = ssd.next_event().unwrap();
            ssd.advance(now, &mut completions);
        }
        let range = ByteRange::new(random.random_range(0..1u64 << 16) * 16_384, 16_384);
        let request = DiskRequest { id: DiskRequestId(1_000_000 + id), kind: DiskRequestKind::Write, range };
        Device::submit(&mut ssd, now, request);
    }
    let after = ssd.observe(now);
    let (written, moved) =
        (after.pages_written - before.pages_written, after.pages_moved - before.pages_moved);
    let erased = after.blocks_erased - before.blocks_erased;
    let per_second = written as f64 / (now - clock).as_secs_f64();
    let work = written as f64 * 600e-6 + moved as f64 * 660e-6 + erased as f64 * 3e-3;
    println!("SSD in steady state: write amplification {:.3}", 1.0 + moved as f64 / written as f64);
    compare("SSD, writes/s in steady state", per_second, 8.0 * written as f64 / work, 0.03);
    assert!(moved > written / 2, "{moved} of {written}");
}

#[test]
fn a_neighbours_flood_of_writes_slows_the_readers_of_an_array() {
    // A volume that reads 32 MiB at 200/s from an array with 64 MiB of cache, with and without a neighbour's random writes.
    let latency_ms = |flood: bool| {
        let disk = DiskParameters::rpm_7200(64 << 30);
        let group =
            DiskGroupParameters { layout: Layout::RotatedParity, ..DiskGroupParameters::striped(8, disk) };
        let mut array = Array::new(group, ArrayCache::new(64 << 20)).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut sums, mut completions) = ((0.0, 0u32), Vec::new());
        let mut arrived = BTreeMap::new();
        for id in 0..12_000u64 {
            let at = Nanos::millis(5 * id / 2);
            array.advance(at, &mut completions);
            let (kind, offset) = if id % 2 == 0 {
                (DiskRequestKind::Read, random.random_range(0..2_048u64) << 14)
            } else {
                (DiskRequestKind::Write, (1 << 30) + (random.random_range(0..1u64 << 20) << 14))
            };
            if kind == DiskRequestKind::Read || flood {
                let range = ByteRange::new(offset, 4_096);
                Device::submit(&mut array, at, DiskRequest { id: DiskRequestId(id), kind, range });
                arrived.insert(id, at);
            }
        }
        array.advance(Nanos::secs(3_600), &mut completions);
        assert_eq!(array.outstanding(), 0);
        for done in completions.iter().filter(|done| done.id.0 % 2 == 0 && done.id.0 > 6_000) {
            sums = (sums.0 + (done.at - arrived[&done.id.0]).as_millis_f64(), sums.1 + 1);
        }
        sums.0 / f64::from(sums.1)
    };
    let (alone, flooded) = (latency_ms(false), latency_ms(true));
    println!("reads of an array: {alone:.2} ms alone, {flooded:.2} ms beside a flood of writes");
    assert!(alone < 1.0 && flooded > 10.0 * alone, "{alone} and {flooded}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Of every device: each accepted request completes exactly once, in order of time, not before it arrived, and
    /// however coarsely time is told the completions are the same.
    #[test]
    fn devices_lose_nothing_and_do_not_mind_how_time_is_told(
        requests in prop::collection::vec((0u64..20_000_000, prop::bool::ANY, 0u64..1 << 24, 0u64..200_000), 1..120),
        which in 0usize..7,
        tick in 1_000_000u64..50_000_000,
    ) {
        let make = || -> Box<dyn Device> {
            let disk = DiskParameters { buffer: DiskBuffer::typical(), ..DiskParameters::rpm_15000(1 << 26) };
            let layout = [Layout::Striped, Layout::Mirrored, Layout::DedicatedParity, Layout::RotatedParity][which % 4];
            let group = DiskGroupParameters { layout, ..DiskGroupParameters::striped(4, disk) };
            let cache = ArrayCache { flush_after: Nanos::millis(30), ..ArrayCache::new(1 << 20) };
            let flash = SsdParameters { channels: 2, dies_per_channel: 2, pages_per_block: 8, ..SsdParameters::typical(1 << 25) };
            match which {
                0..4 => Box::new(DiskGroup::new(group).unwrap()),
                4..6 => Box::new(Array::new(group, cache).unwrap()),
                _ => Box::new(Ssd::new(flash).unwrap()),
            }
        };
        let (mut fine, mut coarse) = (make(), make());
        let (mut fine_done, mut coarse_done) = (Vec::new(), Vec::new());
        let mut now = Nanos::ZERO;
        let mut arrived = Vec::new();
        for (id, (gap, writes, offset, length)) in requests.iter().enumerate() {
            now += Nanos(*gap);
            while let Some(at) = fine.next_event().filter(|at| *at < now) {
                fine.advance(at, &mut fine_done);
            }
            let kind = if *writes { DiskRequestKind::Write } else { DiskRequestKind::Read };
            let request = DiskRequest { id: DiskRequestId(id as u64), kind, range: ByteRange::new(*offset, *length) };
            fine.submit(now, request);
            if now.0 % tick < *gap {
                coarse.advance(Nanos(now.0 - 1), &mut coarse_done);
            }
            coarse.submit(now, request);
            arrived.push(now);
        }
        while fine.outstanding() > 0 {
            fine.advance(fine.next_event().unwrap(), &mut fine_done);
        }
        coarse.advance(Nanos::secs(1 << 20), &mut coarse_done);
        prop_assert!(fine_done.is_sorted_by_key(|completion| completion.at));
        prop_assert!(coarse_done.is_sorted_by_key(|completion| completion.at));
        prop_assert_eq!(fine_done.len(), requests.len());
        let by_id = |done: &[DiskCompletion]| -> BTreeMap<u64, Nanos> {
            done.iter().map(|completion| (completion.id.0, completion.at)).collect()
        };
        prop_assert_eq!(by_id(&fine_done).len(), requests.len());
        prop_assert_eq!(by_id(&fine_done), by_id(&coarse_done));
        prop_assert!(fine_done.iter().all(|completion| completion.at >= arrived[completion.id.0 as usize]));
    }
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
