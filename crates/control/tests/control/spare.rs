//! Memory that nobody wants goes to who is violated although nothing says that a cache would help, for as long as it answers something and nobody else wants it.

use super::application;
use super::world::{BOUND_S, World, application_curve, first, hindsight};
use forebay_control::{ControlConfig, DecisionKind, Objective, Operations, VolumeSpec};
use forebay_locality::{CurvePoint, MissRatioCurve};
use forebay_units::{Bytes, Nanos};
use std::sync::Arc;

/// A curve by which no cache answers more than this share of the reads.
fn flat(hit_ratio: f64) -> Arc<MissRatioCurve> {
    let point = CurvePoint { size_blocks: 100_000, miss_ratio: 1.0 - hit_ratio };
    Arc::new(MissRatioCurve::new(vec![point]))
}

/// Nothing that was read says that a cache would help. Memory that nobody wants goes to who is violated all the same, and to others as soon as they want it.
#[test]
fn memory_that_nobody_wants_goes_to_who_is_not_mended_until_somebody_wants_it() {
    for (spare_share, blocks) in [(0.0, 0), (0.5, 5_120), (1.0, 10_240)] {
        let config = ControlConfig { spare_share, ..ControlConfig::default() };
        let mut world = World::with(1, Bytes::mib(40), config);
        world.sides[0].curve = flat(0.02);
        world.sides[1].rate = 260.0;
        let run = world.run(60);
        assert!(first(&run, DecisionKind::NothingHelps).is_some());
        assert_eq!(world.quota(), blocks, "a share of {spare_share}");
        // Now a cache in front of the neighbour would help, and gets all that it wants.
        world.sides[1].curve = Arc::new(application_curve());
        let run = world.run(120);
        let kept = run[60..].iter().filter(|(latency, _)| *latency <= BOUND_S).count();
        assert!(world.sides[1].quota > 1_000 && kept > 40, "{} blocks, {kept} of 60", world.sides[1].quota);
        // Whoever is violated no more needs none.
        assert_eq!(world.quota(), 0, "a share of {spare_share}");
    }
}

/// A few blocks seem to answer half of the reads, and answer none: who reads everything for the first time gets as much as it has read, and not twice as little each few intervals.
#[test]
fn a_cache_that_answers_nothing_is_given_up_for_memory_that_nobody_wants() {
    let mut world = World::new(5, Bytes::mib(200));
    let half = MissRatioCurve::new(vec![CurvePoint { size_blocks: 8, miss_ratio: 0.5 }]);
    (world.sides[0].curve, world.sides[0].told) = (flat(0.0), Some(Arc::new(half)));
    world.sides[1].rate = 260.0;
    let run = world.run(10);
    assert!(first(&run, DecisionKind::SolutionChosen).is_some() && world.quota() < 100, "{}", world.quota());
    world.run(5);
    // Half of 10,000 reads were the first of their blocks.
    assert!(world.quota() >= 5_000, "{}", world.quota());
}

#[test]
fn a_guaranteed_minimum_is_kept_whatever_a_cache_answers() {
    let mut world = World::new(6, Bytes::mib(20));
    let half = MissRatioCurve::new(vec![CurvePoint { size_blocks: 8, miss_ratio: 0.5 }]);
    (world.sides[0].curve, world.sides[0].told) = (flat(0.0), Some(Arc::new(half)));
    world.sides[1].rate = 260.0;
    let objective = Objective::mean_latency(Nanos::from_secs_f64(BOUND_S), Operations::All);
    let spec = VolumeSpec { minimum: Bytes::mib(1), ..application(vec![objective.over(Nanos::secs(1))]) };
    world.controller.register(spec).unwrap();
    let quotas: Vec<u64> = (0..400)
        .map(|_| {
            world.second();
            world.quota()
        })
        .collect();
    let (least, most) = (quotas[1..].iter().min().unwrap(), quotas.iter().max().unwrap());
    assert!(*least >= 256 && *most > 2_000 && quotas.contains(&256), "{least} to {most}");
}

#[test]
fn memory_that_nobody_wants_is_taken_back_where_it_answers_nothing() {
    let mut world = World::new(2, Bytes::mib(20));
    world.sides[0].curve = flat(0.0);
    world.sides[1].rate = 260.0;
    let quotas: Vec<u64> = (0..600)
        .map(|_| {
            world.second();
            world.quota()
        })
        .collect();
    // Two minutes, then none for two, then tried again, and then none for four.
    let given: Vec<usize> = quotas.chunks(10).map(|ten| usize::from(ten[9] > 0)).collect();
    let changes = given.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let share = given.iter().sum::<usize>();
    assert!((3..=5).contains(&changes) && (20..=30).contains(&share), "{given:?}");
}

#[test]
fn who_is_mended_by_memory_that_nobody_wanted_is_given_what_it_needs_of_it() {
    let mut world = World::new(3, Bytes::mib(200));
    let truth = Arc::clone(&world.sides[0].curve);
    world.sides[0].curve = flat(0.02);
    world.sides[1].rate = 260.0;
    world.run(40);
    let given = world.quota();
    let needed = hindsight(300.0, 260.0 * 0.97);
    assert!(given > needed, "{given} blocks, {needed} needed");
    // What was read is read again.
    world.sides[0].curve = truth;
    let run = world.run(240);
    let kept = run[120..].iter().filter(|(latency, _)| *latency <= BOUND_S).count();
    let ratio = world.quota() as f64 / needed as f64;
    assert!((0.8..=1.3).contains(&ratio) && kept >= 100, "{ratio} of what is needed, {kept} of 120");
}
