//! Courses that responses take on the simulated world: undisturbed, under every failure at every step, and where something is in the way.

use super::runs::{WAYS, checked, fresh, restart, run, volumes, wanted, wish, words};
use super::*;

#[test]
fn undisturbed_the_fence_follows_who_drains_and_leads_who_does_not() {
    let there = |draining, leased| words(&checked(draining, leased, false, &[])).join(" ");
    let used = "Resize Warm Probe Resize Probe Resize Probe";
    assert_eq!(there(Draining::ByItself, true), format!("Start Probe Switch Fence {used} Switch Fence Stop"));
    assert_eq!(there(Draining::ByItself, false), format!("Start Probe Switch {used} Switch Stop"));
    assert_eq!(there(Draining::Not, true), format!("Start Probe Fence Switch {used} Fence Switch Stop"));
    // The appliance's epoch is 1; of the three for the way back 2 fences everybody and is not needed, 3 is the lease's, and the path names 4.
    let world = checked(Draining::ByItself, true, false, &[]);
    assert_eq!((world.lease, world.path), ((3, Holder::Original), Path::Straight(Some(4))));
    // Where clients name no epoch the switch has the lease's; the fence that follows finds it so.
    assert_eq!(there(Draining::ByLease, true), there(Draining::ByItself, true));
    let world = checked(Draining::ByLease, true, false, &[]);
    assert_eq!((world.lease, world.path), ((3, Holder::Original), Path::Straight(None)));
}

#[test]
fn what_the_storage_side_left_in_doubt_is_settled_by_a_fence_on_the_way_there() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    world.in_doubt = true;
    run(&mut world, true);
    let told = words(&world).join(" ");
    assert!(told.starts_with("Start Probe Switch Fence Switch Fence Resize"), "{told}");
    assert!(matches!(world.path, Path::Through(..)) && !world.in_doubt);
}

#[test]
fn every_failure_at_every_step_ends_in_place_or_on_the_original_route() {
    let mut runs = 0;
    for (draining, leased) in WAYS {
        for keeps in [false, true] {
            // Up to the first probes of a cache that stays, and all of one that goes.
            let orders = if keeps { 14 } else { checked(draining, leased, keeps, &[]).orders };
            for order in 1..=orders {
                for failure in FAILURES {
                    for (after, late, controller_dies) in
                        (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0))
                    {
                        // Only what is not heard of can be late.
                        let unheard = [Failure::HypervisorHangs, Failure::RouteHangs, Failure::AnswerLost];
                        if late && !unheard.contains(&failure) {
                            continue;
                        }
                        checked(
                            draining,
                            leased,
                            keeps,
                            &[Strike { order, failure, after, late, controller_dies }],
                        );
                        runs += 1;
                    }
                }
            }
        }
    }
    assert!(runs > 8_000, "{runs}");
}

#[test]
fn several_failures_at_once_end_no_worse() {
    for seed in 0..2_000u64 {
        let mut state = seed;
        let mut draw = |below: u64| {
            state = mix64(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
            state % below
        };
        let (draining, leased) = WAYS[draw(4) as usize];
        let keeps = draw(2) == 0;
        let mut strikes: Vec<Strike> = (0..2 + draw(4))
            .map(|_| Strike {
                order: 1 + draw(40) as usize,
                failure: FAILURES[draw(FAILURES.len() as u64) as usize],
                after: draw(2) == 0,
                late: draw(4) == 0,
                controller_dies: draw(3) == 0,
            })
            .collect();
        // How long an order may lie is counted by the controller's clock, which no step of the time of day moves (it is monotonic), but which is moved here.
        if strikes.iter().any(|strike| strike.failure == Failure::ClockForward) {
            strikes.iter_mut().for_each(|strike| strike.late = false);
        }
        checked(draining, leased, keeps, &strikes);
    }
}

/// A controller without a journal finds the original route refusing its clients (a wrong secret in its file, say), and the appliance that they are on may die at any step of its way.
#[test]
fn without_a_journal_nobody_is_fenced_for_an_original_route_that_refuses_them_and_the_dead_are_left() {
    let strike = |order, failure, controller_dies| Strike {
        order,
        failure,
        after: false,
        late: false,
        controller_dies,
    };
    let mut refused = 0;
    for (draining, leased) in WAYS {
        for forgets in 1..=12 {
            for refuses in forgets + 1..=forgets + 3 {
                for dies in [None, Some(0), Some(1), Some(2), Some(4)] {
                    for controller_dies in [false, true] {
                        let mut strikes = vec![
                            strike(forgets, Failure::JournalLost, false),
                            strike(refuses, Failure::OriginalRefuses, controller_dies),
                        ];
                        let dies = dies.map(|later| strike(refuses + later, Failure::ApplianceDies, false));
                        strikes.extend(dies);
                        let world = checked(draining, leased, true, &strikes);
                        let is_refused = |line: &&String| line.contains("there is no such export");
                        refused += world.told.iter().filter(is_refused).count();
                    }
                }
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn without_a_journal_nothing_is_done_before_it_is_known_what_was_done() {
    for (draining, leased) in WAYS {
        // Of the controller before nothing is known but what it did: clients are on its appliance, under epoch 7.
        let mut world = World::new(draining, leased, Vec::new());
        let stray = ApplianceId(50);
        let room = ResponseRules::default().cost.room(CACHE, Bytes::ZERO, 100.0);
        let machine =
            Machine { host: HostId(1), room, cache: CACHE, condition: Condition::Works, answers: true };
        world.machines.insert(stray, machine);
        (world.path, world.switched) = (Path::Through(stray, 7), 7);
        if leased {
            world.lease = (7, Holder::Named);
        }
        // The route tells nothing for a while, and the controller ends in the middle of it.
        world.route_untold_until = 100_000;
        let mut responses = fresh(&world);
        responses.adopt_unknown(VOLUME);
        let ((step, appliance, _), told) = wanted(&mut world, &mut responses, CACHE, 40);
        assert_eq!((step, appliance), ("looking what was done before", None));
        assert!(told.len() == 1 && told[0].contains("the route cannot be told"), "{told:?}");
        let kept = serde_json::to_string(&responses.journal()).unwrap();
        let mut responses = restart(&mut world, &kept);
        assert_eq!(wanted(&mut world, &mut responses, CACHE, 40).0.0, "looking what was done before");
        let orders = words(&world);
        assert!(orders.iter().all(|word| word == "Look"), "{orders:?}");
        // The stray runs on: it is not taken for one of ours, nor for one of before.
        let ((step, appliance, cache), _) = wanted(&mut world, &mut responses, CACHE, 200);
        assert_eq!((step, appliance, cache), ("serving", Some(1), CACHE));
        assert!(words(&world)[1..].join(" ").starts_with(if draining == Draining::Not {
            "Fence Switch Start"
        } else if leased {
            "Switch Fence Start"
        } else {
            "Switch Start"
        }));
        assert!(world.machines.contains_key(&stray) && world.admits(world.path));
    }
}

#[test]
fn what_was_never_moved_is_served_as_soon_as_that_is_known() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    responses.adopt_unknown(VOLUME);
    assert_eq!(wanted(&mut world, &mut responses, CACHE, 20).0, ("serving", Some(1), CACHE));
    assert!(words(&world).join(" ").starts_with("Look Start Probe Switch"));
}

/// A cache is in place, and none is wanted any more; `happens` says what goes wrong in which quarter of a second, and the controller may begin anew in the middle. The world after two
/// minutes, and what was told.
fn on_the_way_back(
    leased: bool,
    restarts: bool,
    mut happens: impl FnMut(&mut World, usize),
) -> (World, Responses, Vec<String>) {
    let mut world = World::new(Draining::ByItself, leased, Vec::new());
    let mut responses = fresh(&world);
    assert_eq!(wanted(&mut world, &mut responses, CACHE, 20).0.0, "serving");
    let mut told = Vec::new();
    responses.give_back(VOLUME, "its load is low");
    for quarter in 0..480 {
        happens(&mut world, quarter);
        world.pass(250);
        if restarts && quarter == 20 {
            let kept = serde_json::to_string(&responses.journal()).unwrap();
            responses = restart(&mut world, &kept);
            responses.give_back(VOLUME, "its load is low");
        }
        world.tell_reports(&mut responses);
        responses.step(world.clock()).into_iter().for_each(|order| world.take(order));
        told.extend(responses.decisions().into_iter().map(|decision| decision.summary));
    }
    (world, responses, told)
}

/// A machine that is shut down while its disk is on an appliance: it is started by the original path, and has to be let in by it.
#[test]
fn where_nobody_is_left_to_be_moved_the_original_path_is_opened_for_who_comes() {
    for (leased, restarts) in [(true, false), (true, true), (false, false), (false, true)] {
        let (world, responses, told) =
            on_the_way_back(leased, restarts, |world, quarter| world.is_deserted |= quarter == 0);
        let status = responses.status(VOLUME).unwrap();
        assert_eq!((status.step, status.appliance), ("original route", None), "{told:?}");
        assert!(world.machines.is_empty() && world.admits(Path::Straight(None)), "{:?}", world.told);
        assert_eq!(world.is_deserted, !leased, "who comes where there is no lease was never kept out");
    }
}

#[test]
fn a_way_back_gets_over_a_lease_that_somebody_else_has_raised() {
    for holder in [Holder::Original, Holder::Named] {
        for restarts in [false, true] {
            let (world, responses, told) = on_the_way_back(true, restarts, |world, quarter| match quarter {
                // What is on the dead appliance is fenced, and then the route is not to be told for a while.
                0 => {
                    world.machines.clear();
                    world.route_untold_until = world.now + 15_000;
                }
                40 => (world.lease, world.is_meddled_with) = ((500, holder), true),
                _ => {}
            });
            assert_eq!(responses.status(VOLUME).unwrap().step, "original route", "{told:?}");
            assert!(world.machines.is_empty() && world.admits(world.path), "{:?}", world.told);
        }
    }
}

#[test]
fn a_lease_that_was_lost_is_raised_again_and_what_was_cached_meanwhile_is_left() {
    for (draining, _) in WAYS.into_iter().filter(|(_, leased)| *leased) {
        for restarts in [false, true] {
            let mut world = World::new(draining, true, Vec::new());
            let mut responses = fresh(&world);
            assert_eq!(wanted(&mut world, &mut responses, CACHE, 20).0, ("serving", Some(1), CACHE));
            let fenced = world.lease;
            world.lease = (0, Holder::Original);
            responses.lease_seen(VOLUME, 0, Holder::Original);
            responses.lease_seen(VOLUME, 0, Holder::Original);
            let mut told = responses.decisions();
            if restarts {
                // It dies before it has ordered anything.
                let kept = serde_json::to_string(&responses.journal()).unwrap();
                responses = restart(&mut world, &kept);
            }
            world.tell_reports(&mut responses);
            let order = responses.step(world.clock()).remove(0);
            assert_eq!(order.what, What::Fence { epoch: fenced.0, holder: fenced.1 });
            world.take(order);
            assert_eq!(world.lease, fenced);
            // What it had cached by then may be old.
            let (found, _) = wanted(&mut world, &mut responses, CACHE, 20);
            assert_eq!(found, ("serving", Some(2), CACHE), "{:?}", world.told);
            told.retain(|told| told.kind == DecisionKind::LeaseLost);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].summary.contains("is at epoch 0, expected 1"), "{told:?}");
        }
    }
}

#[test]
fn a_cache_whose_lease_somebody_else_raised_is_left() {
    for (draining, _) in WAYS.into_iter().filter(|(_, leased)| *leased) {
        let mut world = World::new(draining, true, Vec::new());
        let mut responses = fresh(&world);
        assert_eq!(wanted(&mut world, &mut responses, CACHE, 20).0, ("serving", Some(1), CACHE));
        // What it was raised to here says nothing.
        responses.lease_seen(VOLUME, world.lease.0, world.lease.1);
        assert_eq!(wanted(&mut world, &mut responses, CACHE, 5).0, ("serving", Some(1), CACHE));
        world.lease = (50, Holder::Original);
        responses.lease_seen(VOLUME, 50, Holder::Original);
        let (found, told) = wanted(&mut world, &mut responses, CACHE, 60);
        assert_eq!(found, ("serving", Some(2), CACHE), "{:?}", world.told);
        assert!(world.lease.0 > 50, "{:?}", world.lease);
        assert!(told.iter().any(|told| told.contains("at epoch 50: somebody else raised it")), "{told:?}");
    }
}

#[test]
fn what_was_seen_of_a_lease_that_somebody_else_raised_is_not_held_against_the_next_appliance() {
    // It is seen while the answer to the first, the second ... probe that fails is awaited: one of them is the last.
    for failing in 1..=6 {
        let mut world = World::new(Draining::ByItself, true, Vec::new());
        let mut responses = fresh(&world);
        assert_eq!(wanted(&mut world, &mut responses, CACHE, 20).0, ("serving", Some(1), CACHE));
        let mut failed = 0;
        while failed < failing && responses.status(VOLUME).unwrap().step == "serving" {
            world.pass(250);
            world.tell_reports(&mut responses);
            for order in responses.step(world.clock()) {
                if !matches!(order.what, What::Probe { .. }) {
                    world.take(order);
                    continue;
                }
                failed += 1;
                if failed == failing {
                    world.lease = (50, Holder::Original);
                    responses.lease_seen(VOLUME, 50, Holder::Original);
                }
                responses.report(order.id, Outcome::Refused("it hangs".to_owned()), world.clock());
            }
        }
        let (found, told) = wanted(&mut world, &mut responses, CACHE, 60);
        assert_eq!(found, ("serving", Some(2), CACHE), "{failing}: {told:?}");
    }
}

#[test]
fn where_nothing_is_cached_a_lost_lease_is_raised_again_and_nobody_is_moved() {
    let (mut world, mut responses, _) = on_the_way_back(true, false, |_, _| ());
    let (fenced, path) = (world.lease, world.path);
    assert_eq!(responses.status(VOLUME).unwrap().step, "original route");
    world.lease = (0, Holder::Original);
    responses.lease_seen(VOLUME, 0, Holder::Original);
    let ordered = words(&world).len();
    for _ in 0..40 {
        world.pass(250);
        world.tell_reports(&mut responses);
        responses.lease_seen(VOLUME, world.lease.0, world.lease.1);
        responses.step(world.clock()).into_iter().for_each(|order| world.take(order));
    }
    assert_eq!((world.lease, world.path), (fenced, path));
    assert_eq!(words(&world)[ordered..], ["Fence"]);
    // Of a volume that was never fenced a low epoch says nothing.
    let mut responses = fresh(&world);
    responses.lease_seen(VOLUME, 0, Holder::Original);
    assert_eq!((responses.step(world.clock()), responses.decisions().len()), (Vec::new(), 0));
}

#[test]
fn who_can_neither_drain_nor_fence_is_refused() {
    let world = World::new(Draining::Not, false, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(CACHE));
    assert_eq!(responses.step(world.clock()), []);
    let told = responses.decisions();
    assert_eq!(told.len(), 1);
    assert!(told[0].summary.contains("cannot drain") && told[0].summary.contains("no lease"), "{told:?}");
    assert_eq!(responses.claims().count(), 0);
}

#[test]
fn who_outgrows_its_appliance_gets_a_larger_one_where_there_is_room() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    let mut told = Vec::new();
    let mut go = |cache| {
        let (found, summaries) = wanted(&mut world, &mut responses, cache, 20);
        told.extend(summaries);
        found
    };
    // With 64 MiB of headroom it can have 74 MiB.
    assert_eq!(go(Bytes::mib(10)), ("serving", Some(1), Bytes::mib(10)));
    assert_eq!(go(Bytes::mib(74)), ("serving", Some(1), Bytes::mib(74)));
    // 80 MiB are a hundredth more and 64 MiB: 145 MiB of the 200 that a host has.
    assert_eq!(go(Bytes::mib(80)), ("serving", Some(2), Bytes::mib(80)));
    // And 140 MiB are 206 MiB, which no host has.
    assert_eq!(go(Bytes::mib(140)), ("serving", Some(2), Bytes::mib(80)));
    let said = |what: &str| told.iter().filter(|told| told.contains(what)).count();
    assert_eq!((said("has no room for"), said("cannot grow to 140MiB")), (1, 1), "{told:?}");
}

#[test]
fn who_cannot_grow_is_not_told_so_again_whenever_its_load_changes() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    wanted(&mut world, &mut responses, Bytes::mib(74), 20);
    let mut told = Vec::new();
    for second in 0..20 {
        world.pass(1_000);
        world.tell_reports(&mut responses);
        let rate = if second % 2 == 0 { 64.0 } else { 128.0 };
        responses.want(VOLUME, Wish { rate, ..wish(Bytes::mib(140)) });
        responses.step(world.clock()).into_iter().for_each(|order| world.take(order));
        told.extend(responses.decisions().into_iter().map(|decision| decision.summary));
    }
    assert!(told.len() == 1 && told[0].contains("cannot grow to 140MiB"), "{told:?}");
}

#[test]
fn a_size_that_an_appliance_does_not_get_is_told_once() {
    // It cannot grow so far, or refuses for as long as it is asked.
    for (cache, refuses, expected) in
        [(140, false, "cannot grow to 140MiB"), (70, true, "its cache is not 70MiB: no")]
    {
        let mut world = World::new(Draining::ByItself, true, Vec::new());
        let mut responses = fresh(&world);
        wanted(&mut world, &mut responses, Bytes::mib(74), 20);
        responses.want(VOLUME, wish(Bytes::mib(cache)));
        let (mut told, mut asked) = (Vec::new(), 0);
        for _ in 0..400 {
            world.pass(1_000);
            world.tell_reports(&mut responses);
            for order in responses.step(world.clock()) {
                match order.what {
                    What::Resize { .. } if refuses => {
                        asked += 1;
                        responses.report(order.id, Outcome::Refused("no".to_owned()), world.clock());
                    }
                    _ => world.take(order),
                }
            }
            told.extend(responses.decisions().into_iter().map(|decision| decision.summary));
        }
        assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
        assert!(asked > 5 || !refuses, "{asked}");
    }
}

#[test]
fn who_has_no_room_for_all_of_its_headroom_gets_what_there_is_of_it() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    // 100 MiB take 165 of the 200 MiB that a host has. Twice as much does not fit, nor half as much again; a quarter more does.
    for cache in [Bytes::mib(100), Bytes::mib(125)] {
        assert_eq!(wanted(&mut world, &mut responses, cache, 20).0, ("serving", Some(1), cache));
    }
}

#[test]
fn home_with_less_headroom_comes_before_another_host_with_all_of_it() {
    // An appliance takes 64 MiB besides, so that 10 MiB are 139 of the 200 MiB that other hosts have with all of the headroom, and 79 with a sixteenth of it.
    for (home_mib, expected) in [(200, 0), (120, 0), (75, 1)] {
        let mut world = World::new(Draining::ByItself, true, Vec::new());
        let mut hosts = hosts();
        hosts[0].capacity = Bytes::mib(home_mib);
        let mut responses = Responses::new(ResponseRules::default(), hosts);
        volumes(&world).into_iter().for_each(|(id, route)| responses.register(id, route));
        wanted(&mut world, &mut responses, Bytes::mib(10), 20);
        let host = responses.status(VOLUME).unwrap().host;
        assert_eq!(host, Some(HostId(expected)), "with {home_mib} MiB at home");
    }
}

#[test]
fn who_has_no_room_for_a_sixteenth_of_its_headroom_gets_as_much_again() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    // A sixteenth is 256 MiB, which no host has.
    let rules = ResponseRules { headroom_bytes: 4 << 30, ..ResponseRules::default() };
    let mut responses = Responses::new(rules, hosts());
    volumes(&world).into_iter().for_each(|(id, route)| responses.register(id, route));
    for cache in [Bytes::mib(10), Bytes::mib(20)] {
        assert_eq!(wanted(&mut world, &mut responses, cache, 20).0, ("serving", Some(1), cache));
    }
    assert_eq!(wanted(&mut world, &mut responses, Bytes::mib(21), 20).0.1, Some(2));
}

#[test]
fn who_fails_a_probe_is_only_probed() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(CACHE));
    let mut reports = Vec::new();
    let mut heard = Vec::new();
    // It serves, and then nothing is heard of it any more, while more cache is wanted of it and more is to be loaded.
    for quarter in 0..400 {
        world.pass(250);
        reports.append(&mut world.reports);
        let is_over = responses.status(VOLUME).unwrap().step != "serving";
        for (_, id, outcome) in reports.drain(..).filter(|_| quarter < 80 || is_over) {
            responses.report(id, outcome, world.clock());
        }
        if quarter == 80 {
            assert_eq!(responses.status(VOLUME).unwrap().step, "serving");
            responses.want(VOLUME, wish(CACHE + CACHE));
            responses.warm(VOLUME, vec![ZoneRange { first_block: 0, blocks: 1 }], 1);
        }
        for order in responses.step(world.clock()) {
            if quarter >= 80 && !is_over {
                heard.push((quarter, order.what.word()));
            }
            world.take(order);
        }
        if quarter >= 80 && is_over {
            break;
        }
    }
    // One probe was out already, whose answer is the first that is not heard; then two more, and the way back.
    let probes: Vec<&str> = heard.iter().map(|(_, word)| *word).collect();
    assert_eq!(probes, ["probe", "probe", "switch"], "{heard:?}");
}

#[test]
fn while_the_journal_cannot_be_kept_nothing_is_begun_and_nothing_fails_by_that() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    // Told words of orders, once each in a row, and steps; a day is longer than any host rests.
    let go = |world: &mut World, responses: &mut Responses, seconds: u64| -> Vec<&'static str> {
        let mut ordered = Vec::new();
        for _ in 0..seconds {
            world.pass(1_000);
            world.tell_reports(responses);
            for order in responses.step(world.clock()) {
                ordered.push(order.what.word());
                world.take(order);
            }
        }
        ordered.dedup();
        ordered
    };
    // What is wanted waits, and nobody is told of an appliance that is not started.
    responses.want(VOLUME, wish(CACHE));
    responses.hold(true);
    assert_eq!(go(&mut world, &mut responses, 86_400), Vec::<&str>::new());
    assert!(responses.decisions().is_empty() && responses.claims().count() == 0);
    responses.hold(false);
    go(&mut world, &mut responses, 10);
    assert_eq!(responses.status(VOLUME).unwrap().step, "serving");
    // What is in place is asked how it is, and gets no other size.
    responses.hold(true);
    responses.want(VOLUME, wish(Bytes::mib(60)));
    assert_eq!(go(&mut world, &mut responses, 86_400), ["probe"]);
    assert_eq!(responses.status(VOLUME).unwrap().cache_bytes, CACHE.get());
    responses.hold(false);
    go(&mut world, &mut responses, 10);
    assert_eq!(responses.status(VOLUME).unwrap().cache_bytes, Bytes::mib(60).get());
    // Who was on one that died is brought back at once when that can be, however long it could not.
    responses.hold(true);
    world.machines.values_mut().for_each(|machine| machine.condition = Condition::Hangs);
    assert_eq!(go(&mut world, &mut responses, 3_600), ["probe"]);
    responses.decisions();
    responses.hold(false);
    assert_eq!(go(&mut world, &mut responses, 1), ["switch"]);
}

/// The first that cannot be kept shows only when it is written: what was ordered by then is taken back.
#[test]
fn what_is_taken_back_before_it_was_begun_fails_nobody_and_is_ordered_at_once_when_it_can_be() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    let withdrawn = |world: &mut World, responses: &mut Responses| {
        for _ in 0..40 {
            world.pass(250);
            world.tell_reports(responses);
            let (kept, asked): (Vec<_>, Vec<_>) =
                responses.step(world.clock()).into_iter().partition(|order| responses.needs_journal(order));
            asked.into_iter().for_each(|order| world.take(order));
            if !kept.is_empty() {
                let words: Vec<&str> = kept.iter().map(|order| order.what.word()).collect();
                kept.into_iter().for_each(|order| responses.withdraw(order));
                responses.hold(true);
                return words;
            }
        }
        Vec::new()
    };
    let next = |world: &mut World, responses: &mut Responses| {
        responses.hold(false);
        let orders = responses.step(world.clock());
        let words: Vec<&str> = orders.iter().map(|order| order.what.word()).collect();
        orders.into_iter().for_each(|order| world.take(order));
        words
    };
    responses.want(VOLUME, wish(CACHE));
    assert_eq!(withdrawn(&mut world, &mut responses), ["start"]);
    assert_eq!(next(&mut world, &mut responses), ["start"]);
    assert!(!responses.rests(HostId(0)), "it did nothing wrong");
    wanted(&mut world, &mut responses, CACHE, 20);
    responses.want(VOLUME, wish(Bytes::mib(60)));
    assert_eq!(withdrawn(&mut world, &mut responses), ["resize"]);
    assert_eq!(next(&mut world, &mut responses), ["resize"]);
    wanted(&mut world, &mut responses, Bytes::mib(60), 10);
    let zones = vec![ZoneRange { first_block: 0, blocks: 10 }];
    responses.warm(VOLUME, zones, 1 << 20);
    assert_eq!(withdrawn(&mut world, &mut responses), ["warm"]);
    assert_eq!(next(&mut world, &mut responses), ["warm"]);
    responses.give_back(VOLUME, "its load is low");
    assert_eq!(withdrawn(&mut world, &mut responses), ["switch"]);
    assert_eq!(next(&mut world, &mut responses), ["switch"]);
    assert_eq!(responses.status(VOLUME).unwrap().step, "switching back");
}

/// Else nobody hears of one that dies before the disk has room again.
#[test]
fn who_is_not_wanted_any_more_is_looked_after_while_the_journal_cannot_be_kept() {
    for shows_later in [false, true] {
        let mut world = World::new(Draining::ByItself, true, Vec::new());
        let mut responses = fresh(&world);
        wanted(&mut world, &mut responses, CACHE, 20);
        responses.hold(!shows_later);
        responses.give_back(VOLUME, "its load is low");
        let go = |world: &mut World, responses: &mut Responses| -> usize {
            let mut probes = 0;
            for _ in 0..40 {
                world.pass(250);
                world.tell_reports(responses);
                for order in responses.step(world.clock()) {
                    if responses.needs_journal(&order) {
                        responses.withdraw(order);
                        responses.hold(true);
                    } else {
                        probes += usize::from(order.what.word() == "probe");
                        world.take(order);
                    }
                }
            }
            probes
        };
        let probes = go(&mut world, &mut responses);
        assert!((8..=10).contains(&probes), "{probes} in ten seconds");
        responses.decisions();
        world.machines.clear();
        go(&mut world, &mut responses);
        let told: Vec<String> = responses.decisions().into_iter().map(|told| told.summary).collect();
        assert!(told.len() == 1 && told[0].contains("it does not answer: it does not run"), "{told:?}");
        responses.hold(false);
        wanted(&mut world, &mut responses, CACHE, 20);
        assert_eq!(responses.status(VOLUME).unwrap().appliance, Some(ApplianceId(2)), "{:?}", world.told);
    }
}

/// Else whoever was fenced is let in for as long as the disk is full.
#[test]
fn a_lost_lease_is_raised_again_though_the_journal_cannot_be_kept() {
    let mut world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    wanted(&mut world, &mut responses, CACHE, 20);
    let fenced = world.lease;
    responses.hold(true);
    world.lease = (0, Holder::Original);
    responses.lease_seen(VOLUME, 0, Holder::Original);
    world.tell_reports(&mut responses);
    let order = responses.step(world.clock()).remove(0);
    assert_eq!(order.what, What::Fence { epoch: fenced.0, holder: fenced.1 });
    assert!(!responses.needs_journal(&order), "it would be refused");
    world.take(order);
    // Who was on a cache that may be old now is taken off it once that can be kept.
    let mut ordered = Vec::new();
    for second in 0..40 {
        responses.hold(second < 20);
        world.pass(1_000);
        world.tell_reports(&mut responses);
        for order in responses.step(world.clock()) {
            let needs = !matches!(order.what, What::Probe { .. });
            assert_eq!(responses.needs_journal(&order), needs, "{order:?}");
            if needs {
                ordered.push((second, order.what.word()));
            }
            world.take(order);
        }
    }
    assert_eq!(world.lease.1, Holder::Named);
    assert!(ordered.iter().all(|(second, _)| *second >= 20), "{ordered:?}");
    let (found, _) = wanted(&mut world, &mut responses, CACHE, 20);
    assert_eq!(found, ("serving", Some(2), CACHE), "{:?}", world.told);
}

/// What became of an order is not known, and what was before it is wanted again: else the appliance keeps the other size for good.
#[test]
fn a_size_that_may_be_another_is_ordered_again() {
    for restarts in [false, true] {
        let mut world = World::new(Draining::ByItself, true, Vec::new());
        let mut responses = fresh(&world);
        wanted(&mut world, &mut responses, CACHE, 20);
        let cache = |world: &World| world.machines[&ApplianceId(1)].cache;
        assert_eq!(cache(&world), CACHE);
        responses.want(VOLUME, wish(Bytes::mib(20)));
        while cache(&world) == CACHE {
            world.pass(250);
            world.tell_reports(&mut responses);
            responses.step(world.clock()).into_iter().for_each(|order| world.take(order));
        }
        if restarts {
            let kept = serde_json::to_string(&responses.journal()).unwrap();
            responses = restart(&mut world, &kept);
        }
        for (_, id, _) in std::mem::take(&mut world.reports) {
            responses.report(id, Outcome::Unknown("the answer is lost".to_owned()), world.clock());
        }
        wanted(&mut world, &mut responses, CACHE, 120);
        assert_eq!(cache(&world), CACHE, "restarts: {restarts}");
    }
}

#[test]
fn lack_of_room_is_told_once_with_the_sums() {
    let world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(Bytes::mib(200)));
    for second in 1..200 {
        assert_eq!(responses.step(Nanos::secs(second)), []);
    }
    let told = responses.decisions();
    assert_eq!(told.len(), 1, "{told:?}");
    // 200 MiB, a hundredth of it for bookkeeping, and 64 MiB.
    let sums = "no host has 266MiB of memory, 0.10 processors free: `h0` 200MiB of memory";
    assert!(told[0].summary.contains(sums), "{}", told[0].summary);
}

#[test]
fn a_journal_that_names_what_is_gone_is_refused() {
    let world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = fresh(&world);
    responses.want(VOLUME, wish(CACHE));
    assert_eq!(responses.step(Nanos::secs(1)).len(), 0);
    assert_eq!(responses.step(Nanos::secs(2)).len(), 1);
    let recover = |hosts, volumes| {
        let text = serde_json::to_string(&responses.journal()).unwrap();
        Responses::recover(serde_json::from_str(&text).unwrap(), ResponseRules::default(), hosts, volumes)
    };
    let gone = recover(hosts(), Vec::new()).unwrap_err();
    assert_eq!(
        gone,
        RecoverError::VolumeGone { volume: "db".into(), holds: "appliance 1 on host `h0`".into() }
    );
    let gone = recover(hosts()[1..].to_vec(), volumes(&world)).unwrap_err();
    assert_eq!(
        gone,
        RecoverError::HostGone { host: "h0".into(), holds: "appliance 1 of volume `db`".into() }
    );
    let said = "host `h0` has appliance 1 of volume `db` and is no longer configured: put it back with `drain = true`, and";
    assert!(gone.to_string().starts_with(said), "{gone}");
    // Numbers may differ from run to run.
    let renumbered = vec![(VolumeId(9), volumes(&world)[0].1.clone())];
    let mut recovered = recover(hosts(), renumbered).unwrap();
    let orders = recovered.step(Nanos::secs(1));
    assert!(
        matches!(orders[..], [Order { volume: VolumeId(9), what: What::Start { .. }, .. }]),
        "{orders:?}"
    );
}
