//! What is analysed, when, and what is told of it.

use super::super::grant::{Effort, Grant};
use super::super::sample::Sample;
use super::*;
use crate::config::ControlConfig;
use crate::decision::FactValue;
use crate::inventory::{HostId, VolumeSpec};
use crate::objective::{Objective, Operations};
use crate::windows::Windows;
use forebay_locality::{CurvePoint, MissRatioCurve};
use std::sync::Arc;

const FIRST: VolumeId = VolumeId(1);
const SECOND: VolumeId = VolumeId(2);
const THIRD: VolumeId = VolumeId(3);

fn reads(rate: f64) -> Sample {
    Sample {
        arrival_rate: rate,
        miss_rate: rate,
        origin_read_rate: rate,
        miss_latency: 5e-3,
        working_set: 1_000.0,
        ..Sample::default()
    }
}

/// Three volumes before one origin, each of which reads 1,000 blocks again and again, the third most and the second least. The first has 100 of them.
fn three() -> Controller {
    let config = ControlConfig { chunk_bytes: 16 * 4096, neighbours_max: 1, ..ControlConfig::default() };
    let mut controller = Controller::new(config, Bytes::mib(64), Vec::new(), Vec::new()).unwrap();
    for (id, rate) in [(FIRST, 50.0), (SECOND, 20.0), (THIRD, 80.0)] {
        let spec = VolumeSpec { id, name: format!("v{}", id.0), ..VolumeSpec::any() };
        controller.register(spec).unwrap();
        let volume = controller.volumes.get_mut(&id).unwrap();
        volume.history.extend([reads(rate); 3]);
        volume.steady = 3;
        let points = [(0, 1.0), (999, 1.0), (1_000, 0.1)];
        let point = |(size_blocks, miss_ratio)| CurvePoint { size_blocks, miss_ratio };
        volume.curve = Some(Arc::new(MissRatioCurve::new(points.map(point).to_vec())));
        volume.curve_accesses = 1_000_000;
    }
    let grant = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
    volume(&mut controller, FIRST).grant = Some(Grant { blocks: 100, serves: vec![FIRST], ..grant });
    controller
}

fn volume(controller: &mut Controller, id: VolumeId) -> &mut super::super::volume::Volume {
    controller.volumes.get_mut(&id).unwrap()
}

fn grant(controller: &mut Controller) -> &mut Grant {
    volume(controller, FIRST).grant.as_mut().unwrap()
}

fn scene(controller: &mut Controller) -> Scene {
    let mut scenes = Scenes::default();
    let (index, _) = controller.scene_place(&mut scenes, FIRST);
    scenes.list.swap_remove(index)
}

fn change(blocks: u64, wanted: u64) -> Change {
    let change = Change::new(blocks, DecisionKind::Granted, String::new(), Vec::new());
    Change { wanted, ..change }
}

#[test]
fn a_cache_that_is_under_way_is_for_whom_else_it_will_do_and_is_spare_no_more() {
    let mut controller = three();
    grant(&mut controller).is_spare = true;
    let mut changes = BTreeMap::from([(SECOND, change(10, 10))]);
    controller.join(THIRD, &[FIRST, SECOND], &mut changes);
    let grant = grant(&mut controller);
    assert_eq!((&grant.serves[..], grant.is_spare), (&[FIRST, THIRD][..], false));
    assert!(changes[&SECOND].serves.contains(&THIRD));
}

#[test]
fn what_is_planned_is_the_most_of_what_there_is_what_is_wanted_and_what_is_ordered() {
    let planned = |wanted: u64, ordered: Option<(u64, u64)>| {
        let mut controller = three();
        grant(&mut controller).wanted = wanted;
        let changes = ordered.map(|(blocks, wanted)| (FIRST, change(blocks, wanted))).into_iter().collect();
        let scene = scene(&mut controller);
        let planned = controller.planned(&scene, &changes);
        assert_eq!((planned.len(), planned[1]), (3, 0));
        planned[0]
    };
    assert_eq!(planned(0, None), 100);
    assert_eq!(planned(300, None), 300);
    assert_eq!(planned(300, Some((400, 0))), 400);
    assert_eq!(planned(300, Some((50, 500))), 500);
    assert_eq!(planned(300, Some((50, 50))), 300);
}

#[test]
fn the_busiest_neighbours_that_load_the_origin_are_judged() {
    let judged = |change: fn(&mut Controller)| {
        let mut controller = three();
        change(&mut controller);
        let scene = scene(&mut controller);
        let judged = controller.judge_neighbours(&scene, 0);
        judged.into_iter().map(|(at, _)| scene.parties[at].id).collect::<Vec<_>>()
    };
    assert_eq!(judged(|_| ()), [THIRD]);
    assert_eq!(judged(|controller| controller.config.neighbours_max = 8), [THIRD, SECOND]);
    let idle = |controller: &mut Controller| {
        controller.config.neighbours_max = 8;
        volume(controller, THIRD).history = [Sample::default(); 3].into();
    };
    assert_eq!(judged(idle), [SECOND]);
}

#[test]
fn what_is_awaited_of_a_cache_is_told_with_how_long_it_has_been_made_ready() {
    let awaited = |change: fn(&mut Controller)| {
        let mut controller = three();
        (controller.step, controller.interval_s) = (7, 10.0);
        change(&mut controller);
        controller.awaited(FIRST)
    };
    let made = |since| format!("the cache of v1 (400KiB) is being made ready, for {since} so far");
    assert_eq!(awaited(|controller| grant(controller).awaited_since = Some(4)), Some(made(Nanos::secs(30))));
    let is_hindered = |controller: &mut Controller| {
        grant(controller).awaited_since = Some(4);
        controller.hindered(FIRST, Some("h1 rests".to_owned()));
    };
    let told = "the cache of v1 (400KiB) is not made for now: h1 rests".to_owned();
    assert_eq!(awaited(is_hindered), Some(told));
    let fills = "the cache of v1 (40KiB of 400KiB) is being filled".to_owned();
    let is_new = |controller: &mut Controller| {
        (grant(controller).awaited_since, volume(controller, FIRST).used_blocks) = (None, 10);
    };
    assert_eq!(awaited(is_new), Some(fills));
    let is_full = |controller: &mut Controller| {
        (grant(controller).awaited_since, volume(controller, FIRST).used_blocks) = (None, 100);
    };
    assert_eq!(awaited(is_full), None);
    assert_eq!(awaited(|controller| grant(controller).blocks = 0), None);
}

#[test]
fn a_violated_volume_is_told_by_the_cache_that_serves_it() {
    use super::super::volume::VolumeState;
    let state = |change: fn(&mut Controller)| {
        let mut controller = three();
        volume(&mut controller, FIRST).violated_since = Some(Nanos::ZERO);
        change(&mut controller);
        controller.settle_states();
        controller.status(FIRST).unwrap().state
    };
    // The scene's own cache is ordered and not in place.
    assert_eq!(state(|_| ()), VolumeState::Awaiting);
    assert_eq!(state(|controller| grant(controller).awaited_since = None), VolumeState::Acting);
    let is_full = |controller: &mut Controller| {
        (grant(controller).awaited_since, grant(controller).age) = (None, 100);
        volume(controller, FIRST).used_blocks = 100;
    };
    assert_eq!(state(is_full), VolumeState::Correcting);
    assert_eq!(state(|controller| volume(controller, FIRST).grant = None), VolumeState::Violating);
    // One of two is in place, and the other is to come.
    let is_one_of_two = |controller: &mut Controller| {
        let other = Grant::new(HostId(0), 100.0, Windows::assumed(0.05), 0);
        volume(controller, SECOND).grant = Some(Grant { blocks: 100, serves: vec![FIRST], ..other });
        grant(controller).awaited_since = None;
        (grant(controller).age, volume(controller, FIRST).used_blocks) = (100, 100);
    };
    assert_eq!(state(is_one_of_two), VolumeState::Acting);
}

#[test]
fn whether_a_volume_can_be_cached_is_said_by_its_reads_of_either_kind_and_by_what_its_writes_undo() {
    let check = |id: VolumeId, change: fn(&mut Sample), sequential: f64, utilisation: f64| {
        let mut controller = three();
        let of = volume(&mut controller, id);
        of.sequential_share = sequential;
        of.history.iter_mut().for_each(change);
        let mut scene = scene(&mut controller);
        scene.utilisation = utilisation;
        let party = &scene.parties[scene.place(id).unwrap()];
        controller.check_cacheable(&scene, party)
    };
    assert_eq!(check(FIRST, |_| (), 0.0, 0.5), Ok(()));
    // Those that its cache answers are reads too.
    let hits = |sample: &mut Sample| {
        (sample.hit_rate, sample.miss_rate, sample.write_rate) = (40.0, 0.0, 10.0);
    };
    assert_eq!(check(FIRST, hits, 0.0, 0.5), Ok(()));
    let undone = |sample: &mut Sample| (sample.invalidated, sample.filled) = (90.0, 100.0);
    let found = check(FIRST, undone, 0.0, 0.5);
    assert!(matches!(found, Err(NotCacheable::Invalidated { .. })), "{found:?}");
    assert_eq!(check(SECOND, undone, 0.0, 0.5), Ok(()), "it has no cache");
    let found = check(FIRST, |_| (), 0.95, 0.5);
    assert!(matches!(found, Err(NotCacheable::Sequential { .. })), "{found:?}");
    assert_eq!(check(FIRST, |_| (), 0.95, 1.5), Ok(()), "its origin serves not even that");
}

#[test]
fn a_cache_is_planned_up_to_what_is_of_use_and_may_be_had_and_never_below_what_there_is() {
    let most = |blocks: u64, eligible: bool, change: fn(&mut Controller)| {
        let mut controller = three();
        change(&mut controller);
        let scene = scene(&mut controller);
        let free = controller.hosts_free();
        let tenant = controller.tenant(&scene, 0, blocks, eligible.then_some(&free));
        (tenant.blocks_max, tenant.peaking, tenant.stable)
    };
    assert_eq!(most(100, true, |_| ()), (1_000, false, true));
    assert_eq!(most(100, false, |_| ()), (100, false, true));
    let at_most = |controller: &mut Controller| {
        volume(controller, FIRST).spec.maximum = Some(Bytes(500 * 4096));
    };
    assert_eq!(most(100, true, at_most).0, 500);
    assert_eq!(most(100, true, |controller| controller.located(FIRST, None, Bytes(300 * 4096))).0, 300);
    assert_eq!(most(2_000, true, |_| ()).0, 2_000);
    // Three times what is usual is a peak, and another working set a change.
    let peaks = |controller: &mut Controller| {
        let history = &mut volume(controller, FIRST).history;
        *history = [[reads(10.0); 8].to_vec(), [reads(50.0); 3].to_vec()].concat().into();
    };
    assert_eq!(most(100, true, peaks), (1_000, true, true));
    assert_eq!(most(100, false, peaks), (100, false, true));
    let changes = |controller: &mut Controller| {
        let history = &mut volume(controller, FIRST).history;
        let other = Sample { working_set: 10.0, ..reads(50.0) };
        *history = [[other; 8].to_vec(), [reads(50.0); 3].to_vec()].concat().into();
    };
    assert_eq!(most(100, true, changes), (1_000, false, false));
}

/// What is told of the analyses of violated volumes.
fn analysed(
    controller: &mut Controller,
    violated: &[VolumeId],
    mut changes: BTreeMap<VolumeId, Change>,
) -> Vec<Decision> {
    for id in violated {
        let objectives = &mut volume(controller, *id).spec.objectives;
        if objectives.is_empty() {
            objectives.push(Objective::mean_latency(Nanos::millis(1), Operations::All));
        }
    }
    let mut outcome = StepOutcome::default();
    controller.analyse(Nanos::ZERO, violated, &mut Scenes::default(), &mut changes, &mut outcome);
    outcome.decisions
}

fn whose(decisions: &[Decision]) -> Vec<VolumeId> {
    let judged = |told: &&Decision| told.kind == DecisionKind::InterferenceJudged;
    decisions.iter().filter(judged).map(|told| told.volume).collect()
}

#[test]
fn a_volume_is_left_to_the_cache_that_serves_it_while_that_may_still_do_it() {
    let is_analysed = |change: fn(&mut Controller), ordered: Option<u64>| {
        let mut controller = three();
        (grant(&mut controller).serves, grant(&mut controller).age) = (vec![FIRST, SECOND], 1_000);
        change(&mut controller);
        let changes = ordered.map(|blocks| (FIRST, self::change(blocks, 0))).into_iter().collect();
        !whose(&analysed(&mut controller, &[SECOND], changes)).is_empty()
    };
    assert!(is_analysed(|_| (), None), "it had its time");
    assert!(!is_analysed(|controller| grant(controller).age = 0, None));
    let others = |controller: &mut Controller| {
        (grant(controller).age, grant(controller).serves) = (0, vec![FIRST]);
    };
    assert!(is_analysed(others, None), "it serves others");
    let is_spare = |controller: &mut Controller| {
        (grant(controller).age, grant(controller).is_spare) = (0, true);
    };
    assert!(is_analysed(is_spare, None), "it is of memory that nobody wants");
    let is_least = |controller: &mut Controller| {
        grant(controller).age = 0;
        volume(controller, FIRST).spec.minimum = Bytes(100 * 4096);
    };
    assert!(is_analysed(is_least, None), "it is what is guaranteed to another");
    // It tries to end a flood, and has not been in vain yet.
    fn tries(controller: &mut Controller, intervals: usize) {
        let effort = Effort { blocks: 50, hits: 0.0, before: 1.0, now: 1.0, intervals };
        grant(controller).effort = Some(effort);
    }
    assert!(!is_analysed(|controller| tries(controller, VAIN_INTERVALS - 1), None));
    assert!(is_analysed(|controller| tries(controller, VAIN_INTERVALS), None));
    // It is resized in this step.
    assert!(!is_analysed(|_| (), Some(200)) && !is_analysed(|_| (), Some(50)));
    let full = |controller: &mut Controller| controller.located(FIRST, None, Bytes::ZERO);
    assert!(is_analysed(full, Some(200)), "there is no room for what is ordered");
    assert!(!is_analysed(full, Some(50)));
}

#[test]
fn a_violation_is_left_to_caches_that_fill_or_are_ordered_if_they_are_predicted_to_end_it() {
    let is_left = |used, age, bound, ordered: Option<u64>| {
        let mut controller = three();
        volume(&mut controller, SECOND).spec.objectives =
            vec![Objective::mean_latency(bound, Operations::All)];
        (volume(&mut controller, FIRST).used_blocks, grant(&mut controller).age) = (used, age);
        let changes = ordered.map(|blocks| (FIRST, change(blocks, 0))).into_iter().collect();
        whose(&analysed(&mut controller, &[SECOND], changes)).is_empty()
    };
    let (kept, missed) = (Nanos::secs(1), Nanos::millis(1));
    assert!(is_left(10, 0, kept, None) && !is_left(10, 0, missed, None));
    assert!(!is_left(100, 1_000, kept, None), "it is full");
    assert!(is_left(100, 1_000, kept, Some(200)) && !is_left(100, 1_000, kept, Some(50)));
}

#[test]
fn a_volume_that_was_analysed_is_left_alone_for_a_while_unless_it_bursts_and_has_no_cache() {
    let is_analysed = |id, change: fn(&mut Controller)| {
        let mut controller = three();
        volume(&mut controller, id).analyse_from = 1;
        change(&mut controller);
        !whose(&analysed(&mut controller, &[id], BTreeMap::new())).is_empty()
    };
    fn bursts(controller: &mut Controller) {
        for id in [FIRST, SECOND] {
            let calm = [reads(10.0); 12].to_vec();
            volume(controller, id).history = [calm, [reads(50.0); 3].to_vec()].concat().into();
        }
        grant(controller).age = 1_000;
    }
    assert!(!is_analysed(SECOND, |_| ()));
    assert!(is_analysed(SECOND, |controller| controller.step = 1));
    assert!(is_analysed(SECOND, bursts) && !is_analysed(FIRST, bursts));
}

#[test]
fn no_more_volumes_are_analysed_in_a_step_than_are_allowed() {
    let mut controller = three();
    controller.config.analyses_max = 1;
    assert_eq!(whose(&analysed(&mut controller, &[SECOND, THIRD], BTreeMap::new())), [SECOND]);
}

#[test]
fn what_is_granted_and_what_is_ordered_is_not_free() {
    let mut controller = three();
    let decisions = analysed(
        &mut controller,
        &[SECOND],
        BTreeMap::from([(FIRST, change(150, 0)), (THIRD, change(10, 0))]),
    );
    let facts = decisions.iter().flat_map(|told| &told.facts);
    let free: Vec<_> = facts.filter(|fact| fact.name == "free").map(|fact| &fact.value).collect();
    assert_eq!(free, [&FactValue::Number(f64::from(64 << 20) - 160.0 * 4096.0)], "{decisions:?}");
}

#[test]
fn who_has_a_cache_that_is_being_made_is_told_to_wait_for_it_and_not_that_nothing_helps() {
    let told = |change: fn(&mut Controller)| {
        let mut controller = three();
        controller.config.neighbours_max = 0;
        // It has all that it may have, and the objective is beyond reach with that.
        volume(&mut controller, FIRST).spec.maximum = Some(Bytes(100 * 4096));
        grant(&mut controller).age = 1_000;
        change(&mut controller);
        let decisions = analysed(&mut controller, &[FIRST], BTreeMap::new());
        decisions
            .iter()
            .map(|told| told.kind)
            .filter(|kind| *kind != DecisionKind::InterferenceJudged)
            .collect::<Vec<_>>()
    };
    let makes = |controller: &mut Controller| grant(controller).awaited_since = Some(0);
    assert_eq!(told(makes), [DecisionKind::CacheAwaited]);
    let is_full = |controller: &mut Controller| volume(controller, FIRST).used_blocks = 100;
    assert_eq!(told(is_full), [DecisionKind::NotCacheable, DecisionKind::NothingHelps]);
}

#[test]
fn where_no_curve_is_known_that_is_why_nothing_helps() {
    let mut controller = three();
    for id in [FIRST, SECOND, THIRD] {
        volume(&mut controller, id).curve = None;
    }
    let decisions = analysed(&mut controller, &[SECOND], BTreeMap::new());
    let last = &decisions.last().unwrap().summary;
    assert!(last.contains("the curves of what could be cached are not known yet"), "{last}");
}

#[test]
fn memory_that_nobody_wants_may_help_where_only_memory_or_reuse_is_lacking() {
    let open = |change: fn(&mut Controller)| {
        let mut controller = three();
        change(&mut controller);
        let scene = scene(&mut controller);
        let judged = [(2, Interference::Unknown)];
        let open =
            controller.open_to_caches(Nanos::ZERO, SECOND, &scene, &judged, &mut StepOutcome::default());
        (open.parties, open.curve_missing, open.may_help)
    };
    // Who was not judged matters to nobody.
    assert_eq!(open(|_| ()), (vec![false, true, true], false, true));
    assert_eq!(
        open(|controller| volume(controller, SECOND).curve = None),
        (vec![false, false, true], true, false)
    );
    assert_eq!(
        open(|controller| volume(controller, THIRD).curve = None),
        (vec![false, true, false], true, true)
    );
    let none = |controller: &mut Controller| volume(controller, SECOND).spec.maximum = Some(Bytes::ZERO);
    assert_eq!(open(none), (vec![false, false, true], false, true));
    let forbidden = |controller: &mut Controller| volume(controller, SECOND).spec.may_cache = false;
    assert_eq!(open(forbidden), (vec![false, false, true], false, false));
}

#[test]
fn who_knows_why_a_cache_is_forbidden_says_so() {
    let mut controller = three();
    let told = |controller: &Controller, reason| {
        controller.tell_not_cacheable(Nanos::secs(1), SECOND, FIRST, &reason).summary
    };
    let name = controller.volumes[&SECOND].spec.name.clone();
    let forbidden = told(&controller, NotCacheable::Forbidden);
    assert_eq!(forbidden, format!("a cache cannot help {name}: its configuration forbids a cache"));
    controller.say_why_forbidden(SECOND, "nobody can move its clients".to_owned());
    let forbidden = told(&controller, NotCacheable::Forbidden);
    assert_eq!(forbidden, format!("a cache cannot help {name}: nobody can move its clients"));
    assert!(told(&controller, NotCacheable::NoMemory).ends_with("there is no memory that it may have"));
}

#[test]
fn only_caches_of_neighbours_that_take_much_away_relieve() {
    let mut controller = three();
    volume(&mut controller, SECOND).spec.objectives =
        vec![Objective::mean_latency(Nanos::millis(1), Operations::All)];
    let scene = scene(&mut controller);
    // A part of a loop answers nothing, and its own cache is no neighbour's.
    assert_eq!(controller.relieving(&scene, 1, &[100, 0, 0]), []);
    assert_eq!(controller.relieving(&scene, 1, &[0, 1_000, 0]), []);
    // Where the objective is kept with and without it there is nothing to take away.
    assert!(scene.excess(&[0, 1_000, 0])[1] < 0.0);
    assert_eq!(controller.relieving(&scene, 1, &[100, 1_000, 0]), []);
}

#[test]
fn neighbours_of_which_nothing_is_known_are_not_said_to_interfere() {
    let mut controller = three();
    let scene = scene(&mut controller);
    let summary = |judged| controller.tell_interference(Nanos::ZERO, SECOND, &scene, &[(2, judged)]).summary;
    assert_eq!(summary(Interference::Unknown), "no neighbour is seen to interfere with v2");
    assert_eq!(summary(Interference::SharedOrigin), "v3 may interfere with v2");
}

#[test]
fn an_alternative_is_told_with_why_it_was_not_chosen() {
    let mut controller = three();
    let scene = scene(&mut controller);
    let solution = Solution {
        sizes: vec![(1, 1_024)],
        cost: Bytes::mib(4),
        excess: 0.5,
        reached: false,
        harmed: Vec::new(),
        peaking: false,
        unstable: false,
    };
    let told = |is_chosen, free| {
        let alternative =
            controller.alternatives(&scene, std::slice::from_ref(&solution), is_chosen, free).remove(0);
        (alternative.chosen, alternative.reason)
    };
    let beyond = "leaves it 50 % beyond the objective";
    assert_eq!(told(false, Bytes::mib(1)), (false, format!("{beyond}; needs more than is free")));
    assert_eq!(told(true, Bytes::mib(4)), (true, beyond.to_owned()));
}
