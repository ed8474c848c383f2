//! Hand-traced placement, and the same decisions by a naive reference.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Chunks of 4 KiB, nothing filtered, no pace.
fn placing(admission: Admission) -> Placing {
    Placing {
        admission,
        cooling: 100.0,
        exclusive: false,
        skip_sequential: false,
        bytes_per_second_max: 1 << 40,
        bytes_per_second_min: 1 << 40,
        moving_max: 1_000,
        ..Placing::default()
    }
}

fn tier(capacity: u32, placing: Placing) -> Placement {
    let shape = Shape { chunk_bytes: 4_096, capacity_chunks: capacity, tracked_chunks: capacity.max(32) * 4 };
    Placement::new(shape, placing).unwrap()
}

fn request(chunk: u64, writes: bool) -> Request {
    Request { volume: 0, client: 0, offset: chunk * 4_096, length: 4_096, writes }
}

/// Asks for a chunk, and has the answer come at once: what was said of it, and what is to be moved.
fn ask(placement: &mut Placement, now: Nanos, request: Request) -> (Touch, Option<Promotion>) {
    let mut seen = None;
    placement.request(now, request, |touch| seen = Some(touch));
    placement.answered(now, now, Nanos::ZERO);
    (seen.expect("one chunk is touched"), placement.due())
}

/// Touches a chunk, and ends what it promotes; whether it was in the tier, and who was displaced.
fn touch(placement: &mut Placement, chunk: u64, writes: bool) -> (bool, Option<u64>) {
    let (touch, promotion) = ask(placement, Nanos::secs(1), request(chunk, writes));
    if let Some(promotion) = promotion {
        placement.moved(promotion.chunk, true);
    }
    let here = matches!(touch.at, Where::Tier(_));
    (here, promotion.and_then(|promotion| promotion.displaced).map(|chunk| chunk.index))
}

fn read(placement: &mut Placement, chunk: u64) -> bool {
    touch(placement, chunk, false).0
}

#[test]
fn a_chunk_is_placed_when_its_count_reaches_the_threshold() {
    let mut placement = tier(2, placing(Admission::Threshold(3)));
    assert_eq!([1, 1, 1, 1].map(|chunk| read(&mut placement, chunk)), [false, false, false, true]);
    assert_eq!(placement.held(), (1, 0));
    // 2 and 3 are next; 2 finds room, 3 must be hotter than the coldest by one: 1 has 4, 2 has 3, so 3 needs 4.
    for _ in 0..3 {
        read(&mut placement, 2);
        read(&mut placement, 3);
    }
    assert_eq!(placement.find(Chunk { volume: 0, index: 3 }), Where::Origin);
    assert_eq!(touch(&mut placement, 3, false), (false, Some(2)));
    assert!(read(&mut placement, 3));
}

#[test]
fn cooling_makes_room_for_what_is_hot_now() {
    // Everything cools by one after every 2 x 2 counts.
    let mut placement = tier(2, Placing { cooling: 2.0, ..placing(Admission::Threshold(2)) });
    for chunk in [1, 1, 2, 2] {
        read(&mut placement, chunk);
    }
    assert_eq!((placement.held(), placement.statistics().coolings), ((2, 0), 0));
    // Before the fifth access 2 and 2 are cooled to 1 and 1. 3: 1, then 2, which is above 1 by one: the older of the coldest leaves.
    assert_eq!(touch(&mut placement, 3, false), (false, None));
    assert_eq!((touch(&mut placement, 3, false), placement.statistics().coolings), ((false, Some(1)), 1));
}

#[test]
fn who_comes_when_the_like_saved_nothing_waits() {
    // Two places, and chunks of which each is read three times and never again: each displaces another.
    let unearned = |admission| {
        let mut placement = tier(2, Placing { margin: 0.0, cooling: 2.0, ..placing(admission) });
        for number in 1..=400 {
            (0..3).for_each(|_| _ = read(&mut placement, number));
        }
        let statistics = placement.statistics();
        (statistics.promotions, statistics.unearned)
    };
    // A fixed threshold knows nothing of it.
    assert_eq!(unearned(Admission::Threshold(2)), (400, 0));
    let (promotions, waited) = unearned(Admission::Adaptive);
    assert!(promotions < 200 && waited > 200, "{promotions} {waited}");
}

#[test]
fn writes_that_are_copied_count_against_a_chunk() {
    let mut placement = tier(1, Placing { write_weight: -1.0, ..placing(Admission::Threshold(2)) });
    // +1 -1 +1 -1 +1: one, never two.
    for writes in [false, true, false, true, false] {
        touch(&mut placement, 1, writes);
    }
    assert_eq!(placement.held(), (0, 0));
    let mut placement = tier(1, Placing { write_weight: 1.0, ..placing(Admission::Threshold(2)) });
    touch(&mut placement, 1, true);
    touch(&mut placement, 1, true);
    assert_eq!(touch(&mut placement, 1, true), (true, None));
    assert_eq!((placement.statistics().writes, placement.statistics().write_hits), (3, 1));
}

#[test]
fn a_chunk_that_is_worth_nothing_leaves_without_another() {
    let mut placement = tier(2, Placing { write_weight: -0.5, ..placing(Admission::Threshold(2)) });
    let ask = |placement: &mut Placement, writes| {
        let mut demotion = None;
        placement.request(Nanos::secs(1), request(1, writes), |touch| demotion = touch.demotion);
        demotion
    };
    // Two reads place it.
    read(&mut placement, 1);
    read(&mut placement, 1);
    assert_eq!(placement.held(), (1, 0));
    // Four writes take its count of two away, and two more an access besides: the sixth has it leave. Before that one read would have kept it.
    assert_eq!([true; 5].map(|writes| ask(&mut placement, writes)), [None; 5]);
    let chunk = Chunk { volume: 0, index: 1 };
    assert_eq!(ask(&mut placement, true), Some(Demotion { chunk, place: 0 }));
    assert_eq!(
        (placement.find(chunk), placement.held(), placement.statistics().left),
        (Where::Origin, (0, 0), 1)
    );
    // Its place is taken until it is gone: the next chunk has the other one.
    read(&mut placement, 2);
    read(&mut placement, 2);
    assert_eq!(placement.find(Chunk { volume: 0, index: 2 }), Where::Tier(1));
    placement.left(0);
    // What it owes is paid first: three reads, not two.
    assert_eq!([1, 1, 1, 1].map(|chunk| read(&mut placement, chunk)), [false, false, false, true]);
    // Demand admission never sends anybody away.
    let mut demand = tier(2, Placing { write_weight: -0.5, ..placing(Admission::Demand) });
    read(&mut demand, 1);
    assert_eq!([true; 9].map(|writes| ask(&mut demand, writes)), [None; 9]);
}

#[test]
fn sequential_runs_do_not_count() {
    let mut placement = tier(8, Placing { skip_sequential: true, ..placing(Admission::Threshold(1)) });
    // The first request of a run cannot be told; the others can.
    for chunk in 0..8 {
        read(&mut placement, chunk);
    }
    assert_eq!((placement.held(), placement.statistics().sequential), ((1, 0), 7));
}

#[test]
fn what_the_array_answers_is_left_to_it() {
    let mut placement = tier(4, Placing { exclusive: true, ..placing(Admission::Threshold(2)) });
    // Chunk 1 comes every 10 ms and is answered at once, as the array's cache would; once that is known, it does not count.
    let mut promoted = 0;
    for number in 0..12u64 {
        let (Touch { age, .. }, promotion) =
            ask(&mut placement, Nanos::millis(10 * number), request(1, false));
        promoted += u64::from(promotion.is_some());
        if number == 0 {
            // Others of that age have shown it before: one block is asked for between two of its reads.
            for _ in 0..1_000 {
                placement.origin_answered(Age::of(1), Nanos::micros(200));
            }
        } else {
            placement.origin_answered(age, Nanos::micros(200));
        }
    }
    assert_eq!(promoted, 0);
    // Chunk 2 comes after so much else that the array does not remember it.
    for number in 1..3u64 {
        (0..40).for_each(|other| {
            read(&mut placement, 1_000 * number + other);
        });
        let (_, promotion) = ask(&mut placement, Nanos::secs(10 * number), request(2, false));
        promoted += u64::from(promotion.is_some());
    }
    assert_eq!(promoted, 1);
}

#[test]
fn migrations_keep_their_pace() {
    let slow = Placing {
        bytes_per_second_min: 4_096,
        bytes_per_second_max: 8_192,
        moving_max: 3,
        ..placing(Admission::Threshold(1))
    };
    let mut placement = tier(64, slow);
    let mut begun = 0;
    for chunk in 0..64u64 {
        let (_, promotion) = ask(&mut placement, Nanos::millis(125 * chunk), request(chunk, false));
        begun += u64::from(promotion.is_some());
    }
    // Two a second, of which three may be under way at once, and none has ended; three more wait.
    assert_eq!((begun, placement.held()), (3, (0, 6)));
    assert_eq!(placement.statistics().deferred, 58);
    // Chunks 4, 8 and 12: the bucket holds one after 500 ms, and so on. They make room for 16, 20 and 24.
    for index in [4, 8, 12] {
        placement.moved(Chunk { volume: 0, index }, true);
    }
    assert_eq!(placement.held(), (3, 3));
    let next = [0; 4].map(|_| placement.due().map(|promotion| promotion.chunk.index));
    assert_eq!(next, [Some(16), Some(20), Some(24), None]);
}

#[test]
fn a_chunk_sets_out_when_the_request_that_brought_it_was_answered() {
    let mut placement = tier(8, placing(Admission::Threshold(1)));
    let chunk = |index| Some(Chunk { volume: 0, index });
    let due = |placement: &mut Placement| placement.due().map(|promotion| promotion.chunk);
    for number in 1..=4u64 {
        placement.request(Nanos::secs(number), request(number, false), |_| {});
        assert_eq!((due(&mut placement), placement.held()), (None, (0, number as u32)));
    }
    // The answer to an earlier request is none of theirs.
    placement.answered(Nanos::secs(5), Nanos::millis(999), Nanos::secs(4));
    assert_eq!(due(&mut placement), None);
    placement.answered(Nanos::secs(5), Nanos::secs(1), Nanos::secs(4));
    assert_eq!([due(&mut placement), due(&mut placement)], [chunk(1), None]);
    // The third is answered before the second: both are due. Whoever was never answered for waits for the next one.
    placement.answered(Nanos::secs(5), Nanos::secs(3), Nanos::secs(2));
    assert_eq!([0; 3].map(|_| due(&mut placement)), [chunk(2), chunk(3), None]);
    (1..=3).for_each(|index| placement.moved(Chunk { volume: 0, index }, true));
    assert_eq!(placement.held(), (3, 1));
}

#[test]
fn a_chunk_that_waits_is_in_nobodys_way() {
    let mut placement = tier(8, placing(Admission::Threshold(1)));
    placement.request(Nanos::secs(1), request(1, false), |_| {});
    // Had these met a migration there would be nothing to compare them with, and the next chunk would have to wait.
    for _ in 0..400 {
        placement.answered(Nanos::secs(2), Nanos::ZERO, Nanos::millis(1));
    }
    placement.request(Nanos::secs(2), request(2, false), |_| {});
    assert_eq!((placement.held(), placement.statistics().deferred), ((0, 2), 0));
}

#[test]
fn who_is_switched_off_neither_enters_nor_stays() {
    let mut placement = tier(2, placing(Admission::Threshold(1)));
    let ask = |placement: &mut Placement, volume, client, chunk: u64| {
        let asked = Request { volume, client, ..request(chunk, false) };
        let (touch, promotion) = ask(placement, Nanos::secs(1), asked);
        if let Some(promotion) = promotion {
            placement.moved(promotion.chunk, true);
        }
        (touch.at, promotion)
    };
    placement.set_volume(7, false).unwrap();
    placement.set_client(9, false).unwrap();
    assert_eq!(ask(&mut placement, 7, 0, 1).1, None);
    assert_eq!(ask(&mut placement, 6, 9, 1).1, None);
    assert!(ask(&mut placement, 6, 8, 1).1.is_some());
    // A client that is off is served from the tier nevertheless.
    assert_eq!(ask(&mut placement, 6, 9, 1).0, Where::Tier(0));
    for _ in 0..50 {
        ask(&mut placement, 6, 8, 1);
    }
    ask(&mut placement, 5, 8, 2);
    // Volume 6 goes off: its chunk, hot as it was, is still served, and leaves for the next one.
    placement.set_volume(6, false).unwrap();
    assert!(matches!(ask(&mut placement, 6, 8, 1).0, Where::Tier(_)));
    let displaced = ask(&mut placement, 5, 8, 3).1.unwrap().displaced;
    assert_eq!(displaced, Some(Chunk { volume: 6, index: 1 }));
    placement.set_default(false);
    assert_eq!(ask(&mut placement, 4, 8, 4).1, None);
    for volume in 10..4_104 {
        let _ = placement.set_volume(volume, true);
    }
    assert_eq!(placement.set_volume(99_999, true), Err(SwitchesFull));
}

#[test]
fn a_chunk_that_is_on_its_way_when_its_volume_is_switched_off_is_the_first_to_leave() {
    let mut placement = tier(2, placing(Admission::Threshold(1)));
    let asks = |placement: &mut Placement, volume, chunk: u64| {
        ask(placement, Nanos::secs(1), Request { volume, ..request(chunk, false) }).1
    };
    let on_its_way = asks(&mut placement, 6, 1).unwrap();
    // It is wanted more than any other while it comes.
    (0..50).for_each(|_| assert_eq!(asks(&mut placement, 6, 1), None));
    placement.set_volume(6, false).unwrap();
    placement.moved(on_its_way.chunk, true);
    let other = asks(&mut placement, 5, 2).unwrap();
    placement.moved(other.chunk, true);
    (0..5).for_each(|_| assert_eq!(asks(&mut placement, 5, 2), None));
    assert!(matches!(placement.find(on_its_way.chunk), Where::Tier(_)), "nobody wants its place");
    assert_eq!(asks(&mut placement, 5, 3).unwrap().displaced, Some(on_its_way.chunk));
}

#[test]
fn a_migration_that_a_write_overtook_leaves_its_place_free() {
    let mut placement = tier(1, placing(Admission::Threshold(1)));
    let promotion = ask(&mut placement, Nanos::secs(1), request(1, false)).1.unwrap();
    assert_eq!((promotion.place, placement.find(promotion.chunk)), (0, Where::Moving));
    placement.moved(promotion.chunk, false);
    assert_eq!((placement.held(), placement.find(promotion.chunk)), ((0, 0), Where::Origin));
    assert!(!read(&mut placement, 2));
    assert!(read(&mut placement, 2));
    placement.invalidate(Chunk { volume: 0, index: 2 });
    assert!(!read(&mut placement, 2));
}

#[test]
fn least_recently_used_and_demand_take_everything() {
    let mut lru = tier(2, placing(Admission::Lru));
    assert_eq!(
        [1, 2, 1, 3, 2, 1].map(|chunk| touch(&mut lru, chunk, false)),
        [(false, None), (false, None), (true, None), (false, Some(2)), (false, Some(1)), (false, Some(3))]
    );
    let mut demand = tier(2, placing(Admission::Demand));
    // 1 has two when 3 comes, 2 has one and leaves; then 3 has one and leaves.
    assert_eq!(
        [1, 2, 1, 3, 2, 1].map(|chunk| touch(&mut demand, chunk, false)),
        [(false, None), (false, None), (true, None), (false, Some(2)), (false, Some(3)), (true, None)]
    );
}

#[test]
fn larc_takes_what_is_used_twice_while_it_is_remembered() {
    let mut larc = tier(10, placing(Admission::Larc));
    // The queue holds one: every miss lengthens it by 10 / target, so from 1 to 9 at once.
    assert_eq!([1, 2, 1, 1].map(|chunk| touch(&mut larc, chunk, false).0), [false, false, false, true]);
    // Nine others push 2 out of the queue: it is new again.
    for chunk in 20..30 {
        touch(&mut larc, chunk, false);
    }
    assert_eq!([2, 2].map(|chunk| touch(&mut larc, chunk, false).0), [false, false]);
    assert_eq!(larc.held(), (2, 0));
    // A scan of any length places nothing.
    for chunk in 100..1_000 {
        touch(&mut larc, chunk, false);
    }
    assert_eq!(larc.held(), (2, 0));
}

#[test]
fn what_larc_remembers_is_a_tenth_to_nine_tenths_of_the_tier() {
    let mut larc = tier(10, placing(Admission::Larc));
    let target = |placement: &Placement| placement.larc.as_ref().unwrap().target;
    (0..100).for_each(|chunk| _ = read(&mut larc, chunk));
    assert_eq!(target(&larc), 9.0);
    read(&mut larc, 99);
    // A hit shortens it the faster the longer it is: by 10 / (10 - 9).
    assert!(read(&mut larc, 99));
    assert_eq!(target(&larc), 1.0);
    (0..100).for_each(|_| _ = read(&mut larc, 99));
    assert_eq!(target(&larc), 1.0);
}

#[test]
fn what_larc_would_take_and_cannot_move_now_is_taken_at_its_next_use() {
    let mut larc = tier(10, Placing { moving_max: 1, ..placing(Admission::Larc) });
    let mut first = None;
    for chunk in [1, 1, 2, 2] {
        let (_, promotion) = ask(&mut larc, Nanos::secs(1), request(chunk, false));
        first = first.or(promotion);
    }
    let first = first.expect("it was used twice").chunk;
    assert_eq!(first.index, 1);
    larc.moved(first, true);
    assert_eq!([2, 2].map(|chunk| read(&mut larc, chunk)), [false, true]);
}

#[test]
fn writes_that_a_tier_does_not_take_bring_no_chunk_by_recency() {
    for admission in [Admission::Lru, Admission::Larc] {
        let mut placement = tier(10, placing(admission));
        (0..3).for_each(|_| _ = touch(&mut placement, 1, true));
        assert_eq!(placement.held(), (0, 0), "{admission}");
        // Where it takes them they are uses as reads are.
        let mut placement = tier(10, Placing { write_weight: 1.0, ..placing(admission) });
        (0..3).for_each(|_| _ = touch(&mut placement, 1, true));
        assert_eq!(placement.held(), (1, 0), "{admission}");
    }
}

#[test]
fn what_larc_remembered_is_forgotten_with_it() {
    let mut placement = tier(10, placing(Admission::Larc));
    read(&mut placement, 1);
    // Neither counts, and nothing is asked in between.
    placement.set(placing(Admission::Lru));
    placement.set(placing(Admission::Larc));
    read(&mut placement, 1);
    assert_eq!(placement.held(), (0, 0), "a use of before counts");
    read(&mut placement, 1);
    assert_eq!(placement.held(), (1, 0));
}

#[test]
fn parameters_change_while_it_serves() {
    let mut placement = tier(4, placing(Admission::Threshold(4)));
    read(&mut placement, 1);
    read(&mut placement, 1);
    assert_eq!((placement.held(), placement.threshold()), ((0, 0), Some(4)));
    // The count of two is kept, and a third reaches the new threshold.
    placement.set(placing(Admission::Threshold(3)));
    read(&mut placement, 1);
    assert_eq!(placement.held(), (1, 0));
    for admission in [
        Admission::Lru,
        Admission::Larc,
        Admission::Demand,
        Admission::Adaptive,
        Admission::Larc,
        Admission::Lru,
        Admission::Threshold(1),
    ] {
        placement.set(placing(admission));
        assert!(read(&mut placement, 1), "{admission}");
        for chunk in 2..9 {
            read(&mut placement, chunk);
            read(&mut placement, chunk);
            read(&mut placement, 1);
        }
        assert!(placement.held().0 <= 4);
    }
}

/// Which thresholds suit differs: an adaptive tier follows.
#[test]
fn the_threshold_follows_what_is_best() {
    let shape = Shape { chunk_bytes: 4_096, capacity_chunks: 512, tracked_chunks: 8_192 };
    let mut placement = Placement::new(shape, placing(Admission::Adaptive)).unwrap();
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = forebay_units::mix64(state);
        state % below
    };
    let run =
        |placement: &mut Placement, from_s: u64, noise_of_ten: u64, random: &mut dyn FnMut(u64) -> u64| {
            for number in 0..200_000u64 {
                let chunk = if random(10) < noise_of_ten { 10_000 + random(1 << 24) } else { random(400) };
                let now = Nanos::secs(from_s) + Nanos::micros(500 * number);
                let (_, promotion) = ask(placement, now, request(chunk, false));
                // Its disks are busy: reads wait for others.
                placement.origin_answered(Age::NEVER, Nanos::millis(if number % 5 == 0 { 2 } else { 20 }));
                if let Some(promotion) = promotion {
                    placement.moved(promotion.chunk, true);
                }
            }
        };
    // Nine of ten accesses never come back: one access is no reason.
    run(&mut placement, 0, 9, &mut random);
    assert!(placement.threshold().unwrap() >= 2, "{:?}", placement.threshold());
    let before = placement.statistics();
    run(&mut placement, 200, 9, &mut random);
    let after = placement.statistics();
    let moved = after.promotions - before.promotions;
    let hits = (after.read_hits - before.read_hits) as f64 / 200_000.0;
    assert!(hits > 0.095 && moved < 2_000, "{hits} of 0.1, {moved} moved");
}

/// While there is room the lowest threshold has the most hits; that tells nothing of a tier that is full.
#[test]
fn what_was_best_while_it_filled_is_forgotten() {
    let shape = Shape { chunk_bytes: 4_096, capacity_chunks: 512, tracked_chunks: 8_192 };
    let mut placement = Placement::new(shape, placing(Admission::Adaptive)).unwrap();
    let (mut state, mut filling, mut owed) = (1u64, None, 0.0);
    for number in 0..40_000u64 {
        state = forebay_units::mix64(state);
        let now = Nanos::millis(2 * number);
        let before = placement.adaptation.debt;
        let (_, promotion) = ask(&mut placement, now, request(state % 540, false));
        placement.origin_answered(Age::NEVER, Nanos::millis(if number % 5 == 0 { 2 } else { 20 }));
        if let Some(promotion) = promotion {
            placement.moved(promotion.chunk, true);
        }
        if placement.statistics().displaced == 0 {
            filling = placement.threshold();
            assert!(!placement.adaptation.filling.is_over());
        } else if placement.adaptation.filling.is_over() {
            owed = before;
            break;
        }
    }
    assert_eq!((filling, placement.threshold()), (Some(1), Some(2)));
    // What the migrations that filled it have cost is not charged to what comes after; this request may have brought one about.
    assert!(owed > 10.0 && placement.adaptation.debt <= 2.5, "{owed} {}", placement.adaptation.debt);
}

#[test]
fn shapes_are_checked_and_memory_is_what_is_said() {
    for (shape, what) in [
        (Shape { chunk_bytes: 5_000, ..Shape::default() }, "chunk"),
        (Shape { chunk_bytes: 1 << 25, ..Shape::default() }, "chunk"),
        (Shape { capacity_chunks: 0, ..Shape::default() }, "capacity in chunks"),
        (Shape { tracked_chunks: 100, ..Shape::default() }, "tracked chunks"),
    ] {
        assert_eq!(Placement::new(shape, Placing::default()).unwrap_err().what, what);
    }
    // 65,536 chunks, 262,144 tracked: 37 + 21/4 each, and the ghosts' sample.
    let shape = Shape::new(4 << 30, 64 << 10);
    let placement = Placement::new(shape, Placing::default()).unwrap();
    let per_chunk = placement.footprint_bytes() as f64 / f64::from(shape.tracked_chunks);
    assert!((42.0..45.0).contains(&per_chunk), "{per_chunk}");
}

#[test]
fn names_lead_to_their_admissions() {
    for admission in
        [Admission::Lru, Admission::Larc, Admission::Demand, Admission::Adaptive, Admission::Threshold(64)]
    {
        assert_eq!(admission.to_string().parse(), Ok(admission));
    }
    for name in ["threshold-0", "threshold-513", "threshold", "most"] {
        let error = name.parse::<Admission>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{name}` is not an admission")), "{error}");
    }
}

/// The rules as they read: a count per chunk, from which cooling really subtracts.
#[derive(Default)]
struct Naive {
    /// By chunk: the count above zero or how far it has sunk below, in sixteenths.
    counts: BTreeMap<u64, i64>,
    places: BTreeMap<u64, u32>,
    free: Vec<u32>,
    warmed: i64,
}

impl Naive {
    fn touch(&mut self, chunk: u64, capacity: i64, threshold: i64, margin: i64) -> (bool, Option<u64>) {
        let here = self.places.contains_key(&chunk);
        if self.warmed >= capacity * 16 {
            self.warmed = 0;
            let held = self.places.keys().map(|chunk| self.counts[chunk].max(0));
            let mean = held.sum::<i64>() / (self.places.len() as i64).max(1);
            self.counts.values_mut().for_each(|count| *count -= (mean / 4).max(16));
        }
        self.warmed += 16;
        let count = self.counts.entry(chunk).or_insert(0);
        *count = ((*count).max(0) + 16).min(COUNT_MAX as i64);
        let count = *count;
        if here || count + 8 < threshold * 16 {
            return (here, None);
        }
        if let Some(place) = self.free.pop() {
            self.places.insert(chunk, place);
            return (false, None);
        }
        let coldest = |at: (&u64, &u32)| (self.counts[at.0], *at.1, *at.0);
        let (coldest, place, displaced) = self.places.iter().map(coldest).min().unwrap();
        if count < coldest.max(0) + margin * 16 {
            return (false, None);
        }
        self.places.remove(&displaced);
        self.places.insert(chunk, place);
        (false, Some(displaced))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn it_decides_as_the_naive_one(
        capacity in 1u32..6,
        threshold in 1u16..4,
        margin in 0u8..3,
        chunks in proptest::collection::vec(0u64..16, 1..400),
    ) {
        let placing = Placing { cooling: 1.0, margin: f64::from(margin), ..placing(Admission::Threshold(threshold)) };
        let mut placement = tier(capacity, placing);
        let mut naive = Naive { free: (0..capacity).rev().collect(), ..Naive::default() };
        for chunk in chunks {
            let expected = naive.touch(chunk, capacity.into(), threshold.into(), margin.into());
            prop_assert_eq!(touch(&mut placement, chunk, false), expected, "chunk {}", chunk);
            prop_assert_eq!(placement.held().0 as usize, naive.places.len());
        }
    }

    /// Whatever is done in whatever order: places are unique, statistics add up, nothing panics.
    #[test]
    fn places_are_unique_under_any_order(
        steps in proptest::collection::vec((0u64..24, 0u8..10), 1..300),
    ) {
        let how = Placing { write_weight: -1.0, ..placing(Admission::Adaptive) };
        let mut placement = tier(4, how);
        let (mut on_the_way, mut leaving) = (Vec::new(), Vec::new());
        for (number, (chunk, what)) in steps.into_iter().enumerate() {
            let now = Nanos::secs(number as u64);
            match what {
                0 => placement.invalidate(Chunk { volume: 0, index: chunk }),
                1 | 2 if !on_the_way.is_empty() => {
                    let moved = on_the_way.remove(chunk as usize % on_the_way.len());
                    placement.moved(moved, what == 1);
                }
                3 => {
                    let admissions = [Admission::Lru, Admission::Larc, Admission::Adaptive, Admission::Demand];
                    placement.set(Placing { admission: admissions[chunk as usize % 4], ..how });
                }
                4 => placement.set_volume(0, chunk > 4).unwrap(),
                5 if !leaving.is_empty() => placement.left(leaving.remove(0)),
                6 => {
                    let asked = Nanos(now.0.saturating_sub(chunk * 500_000_000));
                    placement.answered(now, asked, Nanos::ZERO);
                    on_the_way.extend(std::iter::from_fn(|| placement.due()).map(|promotion| promotion.chunk));
                }
                _ => placement.request(now, request(chunk, what > 8), |touch| {
                    leaving.extend(touch.demotion.map(|demotion| demotion.place));
                }),
            }
            let moving = placement.held().1 as usize;
            prop_assert!(moving >= on_the_way.len());
            let places = (0..24).filter_map(|index| match placement.find(Chunk { volume: 0, index }) {
                Where::Tier(place) => Some(place),
                _ => None,
            });
            let mut places: Vec<u32> = places.collect();
            places.sort_unstable();
            let count = places.len();
            places.dedup();
            prop_assert_eq!((places.len(), placement.held().0), (count, count as u32));
            prop_assert!(count + moving + leaving.len() <= 4);
            prop_assert!(leaving.iter().all(|place| !places.contains(place)));
        }
        placement.answered(Nanos::secs(1_000), Nanos::secs(1_000), Nanos::ZERO);
        on_the_way.extend(std::iter::from_fn(|| placement.due()).map(|promotion| promotion.chunk));
        prop_assert_eq!(placement.held().1 as usize, on_the_way.len());
    }
}

#[test]
fn a_request_for_nothing_touches_nothing() {
    let mut placement = tier(2, placing(Admission::Lru));
    let nothing = Request { length: 0, ..request(0, false) };
    placement.request(Nanos::secs(1), nothing, |touch| panic!("{touch:?}"));
    assert_eq!(placement.held(), (0, 0));
}

#[test]
fn switching_a_volume_off_makes_its_own_chunks_the_first_to_leave_and_nobody_elses() {
    let mut placement = tier(2, placing(Admission::Threshold(2)));
    let read = |placement: &mut Placement, volume, chunk| {
        let (_, promotion) = ask(placement, Nanos::secs(1), Request { volume, ..request(chunk, false) });
        if let Some(promotion) = promotion {
            placement.moved(promotion.chunk, true);
        }
        promotion.and_then(|promotion| promotion.displaced).map(|chunk| chunk.volume)
    };
    // Volume 1 has the first place, and volume 0 the second one and is the hotter.
    for (volume, reads) in [(1, 4), (0, 6)] {
        (0..reads).for_each(|_| assert_eq!(read(&mut placement, volume, 5), None));
    }
    assert_eq!(placement.held(), (2, 0));
    placement.set_volume(0, false).unwrap();
    assert_eq!([1, 2].map(|_| read(&mut placement, 1, 9)), [None, Some(0)]);
}

#[test]
fn whoever_has_a_switch_can_be_switched_again_when_there_are_no_more() {
    let mut placement = tier(2, placing(Admission::Lru));
    let most = SWITCHES_MAX as u32;
    for number in 0..most {
        placement.set_volume(number, false).unwrap();
        placement.set_client(number, false).unwrap();
    }
    assert!(placement.set_volume(most, false).is_err() && placement.set_client(most, false).is_err());
    assert!(placement.set_volume(0, true).is_ok() && placement.set_client(0, true).is_ok());
}

#[test]
fn runs_are_skipped_by_those_who_select_and_by_nobody_else() {
    let held = |admission| {
        let mut placement = tier(8, Placing { skip_sequential: true, ..placing(admission) });
        (0..5).for_each(|chunk| _ = read(&mut placement, chunk));
        placement.held().0
    };
    // The first chunk is not known to begin a run.
    assert_eq!([Admission::Threshold(1), Admission::Lru].map(held), [1, 5]);
}

#[test]
fn half_an_access_less_than_the_threshold_reaches_it() {
    // Three accesses are 48 sixteenths.
    assert_eq!([39, 40, 48].map(|count| reaches(count, 3)), [false, true, true]);
}

#[test]
fn an_answer_to_an_earlier_request_holds_nothing_back_that_is_due() {
    let mut placement = tier(4, placing(Admission::Lru));
    for chunk in [1, 2] {
        placement.request(Nanos::secs(chunk), request(chunk, false), |_| ());
    }
    placement.answered(Nanos::secs(3), Nanos::secs(2), Nanos::ZERO);
    placement.answered(Nanos::secs(3), Nanos::ZERO, Nanos::ZERO);
    let due = [(); 3].map(|()| placement.due().map(|promotion| promotion.chunk.index));
    assert_eq!(due, [Some(1), Some(2), None]);
}

#[test]
fn clients_that_are_slow_while_a_chunk_moves_slow_migrations_down_and_one_that_waits_is_in_nobodys_way() {
    let halvings = |sets_out: bool| {
        let slowed = Placing { bytes_per_second_min: 1 << 20, ..placing(Admission::Threshold(1)) };
        let mut placement = tier(4, slowed);
        let now = Nanos::secs(2);
        placement.request(now, request(1, false), |_| ());
        (0..200).for_each(|_| placement.answered(now, Nanos::ZERO, Nanos(1_000)));
        if sets_out {
            placement.answered(now, now, Nanos(1_000));
            assert!(placement.due().is_some());
        }
        // Each fifth takes a thousand times as long.
        (0..400).for_each(|number| {
            let latency = if number % 5 == 0 { Nanos::millis(1) } else { Nanos(1_000) };
            placement.answered(now, Nanos::ZERO, latency);
        });
        (placement.statistics().halvings, placement.pace() < (1u64 << 40) as f64)
    };
    assert_eq!([true, false].map(halvings), [(1, true), (0, false)]);
}
