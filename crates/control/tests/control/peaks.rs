//! A peak that comes at equal spans is foreseen: what its cache held in the last one is there before it, and is not given back while it lasts.

use super::application;
use super::world::{APPLICATION, BOUND_S, READER, World};
use forebay_control::foresight::ForesightRules;
use forebay_control::{
    ControlConfig, Controller, DecisionKind, FactValue, Objective, Observation, Operations, RecallError,
    VolumeId, VolumeSpec,
};
use forebay_units::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Three peaks of a minute, and the calm before the next, with buckets of five seconds.
fn before_the_fourth_peak(seed: u64, tells: bool) -> World {
    calm_after(three_peaks(seed, tells))
}

fn three_peaks(seed: u64, tells: bool) -> World {
    let mut world = World::with(seed, Bytes::mib(200), with_short_buckets());
    world.tells = tells;
    for _ in 0..3 {
        world.rates(60.0, 30.0);
        world.run(60);
        world.rates(300.0, 260.0);
        world.run(60);
    }
    world
}

fn calm_after(mut world: World) -> World {
    world.rates(60.0, 30.0);
    world.foreseen = None;
    world.run(60);
    world
}

fn with_short_buckets() -> ControlConfig {
    let mut config = ControlConfig::default();
    config.foresight.bucket_intervals = 5;
    config
}

/// Blocks that were hot are loaded where it is known which, and no faster than they must be there. Of those there need not be many more than were held.
#[test]
fn before_a_peak_what_the_cache_held_in_the_last_one_is_loaded() {
    let world = before_the_fourth_peak(3, true);
    let foreseen = world.foreseen.expect("a peak is foreseen");
    assert_eq!(world.quota(), foreseen + foreseen / 8);
    let (ranges, bytes_per_second) = world.sides[0].ordered.as_ref().expect("it is loaded");
    assert!(ranges.iter().all(|range| range.blocks == 1 && range.first_block % 3 == 0), "zones are loaded");
    let blocks = ranges.len() as u64;
    assert!(blocks * 10 > foreseen * 9 && blocks <= world.quota(), "{blocks} blocks of {foreseen}");
    // Two buckets before: within half of ten seconds.
    assert_eq!(*bytes_per_second, blocks * 4_096 / 5, "{blocks} blocks");
    // Who is not told loads zones.
    let world = before_the_fourth_peak(3, false);
    let (zones, _) = world.sides[0].ordered.as_ref().expect("it is loaded");
    assert!(zones.iter().all(|zone| zone.blocks == 256), "{zones:?}");
}

/// The volumes of the world, by name.
fn known() -> BTreeMap<String, VolumeId> {
    let named = |(name, id): (&str, VolumeId)| (name.to_owned(), id);
    BTreeMap::from([("application", APPLICATION), ("reader", READER)].map(named))
}

/// A volume may be heard of for the first time long after a restart, since its storage was started after the controller. Its past is kept meanwhile, grows older, and is its own then.
#[test]
fn the_past_of_a_volume_that_is_registered_late_is_kept_for_it() {
    let mut before = three_peaks(3, true);
    // The last peak is over, and the next one not foreseen yet: one that is open ends with the next step of a volume that has no cache.
    before.rates(60.0, 30.0);
    before.run(30);
    let kept = serde_json::to_string(&before.controller.past(Nanos::secs(1))).unwrap();
    let spec = || {
        let bound = Objective::mean_latency(Nanos::from_secs_f64(BOUND_S), Operations::All);
        application(vec![bound.over(Nanos::secs(1))])
    };
    for (before, unheard) in [(0, 0), (0, 3), (0, 37), (7, 300)] {
        let mut both = [false, true].map(|is_late| {
            let mut controller = World::with(4, Bytes::mib(200), with_short_buckets()).controller;
            if is_late {
                controller.forget(APPLICATION);
            }
            (controller, 0)
        });
        let pass = |(controller, now): &mut (Controller, u64), seconds| {
            for _ in 0..seconds {
                *now += 1;
                let at = Nanos::secs(*now);
                controller.step(&Observation { at, interval: Nanos::secs(1), ..Observation::default() });
            }
        };
        let past = |(controller, _): &(Controller, u64)| {
            serde_json::to_value(controller.past(Nanos::secs(1))).unwrap()
        };
        for one in &mut both {
            pass(one, before);
            let kept = serde_json::from_str(&kept).unwrap();
            assert_eq!(one.0.recall_past(kept, &known(), Nanos::ZERO, Nanos::secs(1)), Ok(2));
            pass(one, unheard);
        }
        let are_alike = |both: &[(Controller, u64); 2], when: &str| {
            let of_volumes = |one| {
                let mut volumes = past(one)["volumes"].as_array().unwrap().clone();
                volumes.sort_by_key(|volume| volume[0].as_u64());
                volumes
            };
            let [registered, late] = both.each_ref().map(of_volumes);
            assert_eq!((registered.len(), late.len()), (2, 2), "{when}");
            for (of, other) in registered.iter().zip(&late) {
                for what in ["now", "intervals", "peaks", "wary_until"] {
                    assert_eq!(of[2][what], other[2][what], "{what} of {}, {when}", of[1]);
                }
                // The bucket that is open may be told by the one before it, or by the season.
                let loads = [of, other].map(|volume| {
                    let loads = volume[2]["loads"].as_array().unwrap().iter();
                    loads.map(|load| load.as_f64().unwrap()).collect::<Vec<_>>()
                });
                assert_eq!(loads[0].len(), loads[1].len());
                for (at, (load, other)) in loads[0].iter().zip(&loads[1]).enumerate() {
                    assert!((load / other - 1.0).abs() < 0.02, "{load} and {other} in bucket {at}, {when}");
                }
            }
        };
        are_alike(&both, &format!("{unheard} s"));
        both[1].0.register(spec()).unwrap();
        for one in &mut both {
            pass(one, 11);
        }
        are_alike(&both, &format!("{unheard} s, and it is registered"));
    }
    // Whoever is not to be registered is forgotten.
    let mut controller = World::with(4, Bytes::mib(200), with_short_buckets()).controller;
    controller.forget(APPLICATION);
    let (mut others, kept) = (known(), serde_json::from_str(&kept).unwrap());
    others.remove("application");
    assert_eq!(controller.recall_past(kept, &others, Nanos::ZERO, Nanos::secs(1)), Ok(1));
}

/// The past outlasts a restart, and the configuration may be another one then.
#[test]
fn a_peak_is_granted_no_more_than_its_volume_may_have() {
    let kept = serde_json::to_string(&three_peaks(3, true).controller.past(Nanos::secs(1))).unwrap();
    let mut world = World::with(4, Bytes::mib(200), with_short_buckets());
    let past = serde_json::from_str(&kept).unwrap();
    assert_eq!(world.controller.recall_past(past, &known(), Nanos::ZERO, Nanos::secs(1)), Ok(2));
    let most = 1_000;
    let bound = Objective::mean_latency(Nanos::from_secs_f64(BOUND_S), Operations::All).over(Nanos::secs(1));
    let maximum = Some(Bytes(most * 4_096));
    world.controller.register(VolumeSpec { maximum, ..application(vec![bound]) }).unwrap();
    let world = calm_after(world);
    assert_eq!((world.foreseen, world.quota()), (Some(most), most));
}

/// The caches are gone with the daemon; what they held in the last peak is kept as text with the rest of the past.
#[test]
fn after_a_restart_what_the_last_peak_held_is_loaded_before_the_next() {
    let before = three_peaks(3, true);
    let kept = serde_json::to_string(&before.controller.past(Nanos::secs(1))).unwrap();
    let mut world = World::with(4, Bytes::mib(200), with_short_buckets());
    let past = serde_json::from_str(&kept).unwrap();
    assert_eq!(world.controller.recall_past(past, &known(), Nanos::ZERO, Nanos::secs(1)), Ok(2));
    world.tells = true;
    let world = calm_after(world);
    let foreseen = world.foreseen.expect("a peak is foreseen");
    assert_eq!(world.quota(), foreseen + foreseen / 8);
    let (ranges, _) = world.sides[0].ordered.as_ref().expect("it is loaded");
    assert!(ranges.iter().all(|range| range.blocks == 1 && range.first_block % 3 == 0), "zones are loaded");
    assert!(ranges.len() as u64 * 10 > foreseen * 9, "{} blocks of {foreseen}", ranges.len());
}

/// Peaks are remembered by the number of their buckets: in buckets of another length they would be foreseen at times at which there is none.
#[test]
fn a_past_in_buckets_of_another_length_is_not_recalled() {
    let kept = serde_json::to_value(three_peaks(3, false).controller.past(Nanos::secs(1))).unwrap();
    let recall = |kept: serde_json::Value, bucket_intervals, interval| {
        let rules = with_short_buckets();
        let foresight = ForesightRules { bucket_intervals, ..rules.foresight };
        let mut world = World::with(4, Bytes::mib(200), ControlConfig { foresight, ..rules });
        world.controller.recall_past(serde_json::from_value(kept).unwrap(), &known(), Nanos::ZERO, interval)
    };
    let same = with_short_buckets().foresight.bucket_intervals;
    assert_eq!(recall(kept.clone(), same, Nanos::secs(1)), Ok(2));
    assert_eq!(recall(kept.clone(), 2 * same, Nanos::millis(500)), Ok(2));
    let (found_s, expected_s) = (same as f64, 2.0 * same as f64);
    let other = Err(RecallError::Buckets { found_s, expected_s });
    assert_eq!(recall(kept.clone(), 2 * same, Nanos::secs(1)), other);
    assert_eq!(recall(kept.clone(), same, Nanos::secs(2)), other);
    // What was kept before that was told is believed.
    let mut before = kept;
    before.as_object_mut().unwrap().remove("bucket_s");
    assert_eq!(recall(before, same, Nanos::secs(2)), Ok(2));
}

/// A cache that fills slowly is kept over the calm, so that it is neither granted nor grows when the load comes back: it is needed then all the same.
#[test]
fn a_peak_that_finds_its_cache_is_remembered() {
    let mut world = World::with(3, Bytes::mib(200), with_short_buckets());
    world.fill_max = 10;
    world.rates(300.0, 260.0);
    world.run(300);
    let mut least = world.quota();
    for _ in 0..2 {
        world.rates(60.0, 30.0);
        world.run(20);
        least = least.min(world.quota());
        world.rates(300.0, 260.0);
        world.run(60);
    }
    let past = serde_json::to_value(world.controller.past(Nanos::secs(1))).unwrap();
    let peaks = past["volumes"][0][2]["peaks"].as_array().expect("peaks");
    let begun: Vec<u64> = peaks.iter().map(|peak| peak["from"].as_u64().expect("a bucket")).collect();
    assert!(2 * least > world.quota(), "the cache is not kept: {least} of {}", world.quota());
    assert_eq!(begun, [0, 64, 80]);
}

#[test]
fn what_a_peak_was_foreseen_to_need_is_not_given_back_while_it_lasts() {
    let mut world = before_the_fourth_peak(3, false);
    // Half as much again is granted as was needed before, which the law may take back.
    let granted = world.quota();
    let foreseen = world.foreseen.expect("a peak is foreseen");
    assert_eq!(granted, foreseen + foreseen / 2);
    assert!(foreseen > 1_000, "{foreseen} blocks");
    // The neighbour comes late: for half of the time the cache is larger than what is needed, and then it is needed.
    world.rates(300.0, 60.0);
    let mut least = granted;
    for second in 0..50 {
        if second == 25 {
            world.rates(300.0, 260.0);
        }
        world.second();
        least = least.min(world.quota());
    }
    // 256 blocks: a chunk.
    assert!(least + 256 >= foreseen - foreseen / 40, "{least} of {foreseen} blocks");
    assert!(least < granted, "nothing of the {granted} blocks is taken back");
}

/// How nothing is known of a second.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Unheard,
    Unasked,
}

/// The first peak that is foreseen after all lost seconds, in seconds from the beginning of its season, a minute of calm and one of load; lost are seconds after
/// three seasons, by number.
fn foreseen_after(lost_until: usize, lost: impl Fn(usize) -> Option<Lost>) -> Option<usize> {
    let mut world = three_peaks(3, false);
    for second in 0..360 {
        match second % 120 {
            0 => world.rates(60.0, 30.0),
            60 => world.rates(300.0, 260.0),
            _ => {}
        }
        let lost = lost(second);
        world.foreseen = None;
        world.is_heard = !matches!(lost, Some(Lost::Unheard));
        match lost {
            Some(Lost::Unasked) => world.unasked_second(),
            _ => drop(world.second()),
        }
        if second >= lost_until && world.foreseen.is_some() {
            return Some(second % 120);
        }
    }
    None
}

/// Whether nothing is heard or nobody asks, whether for a part of a bucket again and again or for more than a season: peaks stay where they are.
#[test]
fn a_season_goes_on_while_nothing_is_heard() {
    let seen = foreseen_after(0, |_| None);
    // Two buckets of five seconds before the minute, told with the second that closes the third.
    assert_eq!(seen, Some(49));
    for lost in [Lost::Unheard, Lost::Unasked] {
        for span in [10..32, 20..43, 30..150] {
            let at = foreseen_after(span.end, |second| span.contains(&second).then_some(lost));
            assert_eq!(at, seen, "{lost:?} in {span:?}");
        }
        let at = foreseen_after(0, |second| (second % 3 == 1).then_some(lost));
        // A bucket later where the cache was made smaller just when it would have been granted.
        assert!(at.is_some_and(|at| (49..=54).contains(&at)), "{lost:?} every third second: {at:?}");
    }
}

/// The fourth peak comes after so many seconds, and lasts so many; what is told of it until its season is over.
fn fourth_peak(calm: usize, lasts: usize) -> World {
    let mut world = three_peaks(3, false);
    world.told.clear();
    world.rates(60.0, 30.0);
    world.run(calm);
    world.rates(300.0, 260.0);
    world.run(lasts);
    world.rates(60.0, 30.0);
    world.run(120 - calm - lasts);
    world
}

fn is_told(world: &World, kind: DecisionKind) -> bool {
    world.told.iter().any(|(of, _)| *of == kind)
}

#[test]
fn a_peak_that_came_is_not_said_to_be_absent() {
    // On time and short, early and short: over before it was expected to be.
    for (calm, lasts) in [(60, 60), (60, 30), (45, 30), (40, 25)] {
        let world = fourth_peak(calm, lasts);
        assert!(!is_told(&world, DecisionKind::PeakAbsent), "{lasts} s after {calm} s: {:?}", world.told);
    }
    // What is there is not granted.
    let world = fourth_peak(45, 60);
    for (_, told) in world.told.iter().filter(|(kind, _)| *kind == DecisionKind::PeakForeseen) {
        assert!(told.ends_with("its cache grows to that of last time"), "{told}");
    }
}

#[test]
fn of_a_peak_that_does_not_come_it_is_told_when_it_was_foreseen_for() {
    let world = fourth_peak(120, 0);
    assert_eq!(world.told.iter().filter(|(kind, _)| *kind == DecisionKind::PeakAbsent).count(), 1);
    let fact = |name: &str| {
        let fact = world.absent.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("no {name}"));
        let FactValue::Number(number) = fact.value else { panic!("{fact:?}") };
        number
    };
    // Foreseen two buckets before, and waited for as long.
    assert_eq!((fact("foreseen_ago"), fact("expected_ago"), fact("season")), (4.0, 2.0, 24.0));
    assert!(2.0 * fact("load_seen") < fact("load"), "{:?}", world.absent);
}
