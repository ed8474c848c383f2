//! Appliances of which no journal tells: they are counted, and stopped once nobody is on them.

use super::*;

/// A controller that has lost its journal, and looks what was done before.
fn forgetful(draining: Draining, leased: bool) -> (World, Responses) {
    let (world, mut responses) = there(draining, leased);
    responses.adopt_unknown(VOLUME);
    responses.forget(ApplianceId(90));
    (world, responses)
}

fn restarted(world: &World, responses: &Responses) -> Responses {
    let kept = serde_json::to_string(&responses.journal()).unwrap();
    Responses::recover(
        serde_json::from_str(&kept).unwrap(),
        ResponseRules::default(),
        hosts(),
        volumes(world),
    )
    .unwrap()
}

#[test]
fn a_stray_is_stopped_once_its_clients_are_brought_back_also_after_a_restart() {
    for restarts in [false, true] {
        let (mut world, mut responses) = forgetful(Draining::ByItself, true);
        let host = HostId(1);
        let room = Room { memory: Bytes::mib(64), ..Room::default() };
        let machine = Machine { host, room, cache: CACHE, condition: Condition::Works, answers: true };
        world.machines.insert(ApplianceId(5), machine);
        (world.path, world.switched, world.lease) = (Path::Through(ApplianceId(5), 7), 7, (7, Holder::Named));
        responses.listed(host, Nanos::ZERO, vec![stray(5)]);
        let told = told(&mut responses).join("; ");
        assert!(told.contains("an appliance for db runs on h1 of which no journal tells"), "{told}");
        assert_eq!(responses.claims().map(|claim| claim.room.memory).collect::<Vec<_>>(), [Bytes::mib(64)]);
        // Nothing can be heard of the route for a while.
        world.route_untold_until = 30_000;
        let before = ordered(&mut world, &mut responses, 20, |_| None);
        assert!(before.iter().all(|(_, what)| *what == What::Look), "{before:?}");
        if restarts {
            responses = restarted(&world, &responses);
            world.skew = -(world.now as i64);
        }
        let after = ordered(&mut world, &mut responses, 200, |_| None);
        let words: Vec<&str> = after.iter().map(|(_, what)| what.word()).collect();
        let at = |word: &str| words.iter().position(|of| *of == word);
        assert!(at("switch") < at("stop") && at("stop").is_some(), "{words:?}");
        assert!(world.machines.is_empty() && matches!(world.path, Path::Straight(_)));
        assert_eq!(responses.claims().count(), 0);
    }
}

#[test]
fn nobody_is_taken_for_never_moved_while_an_order_of_before_may_come_late() {
    let (mut world, mut responses) = forgetful(Draining::ByItself, true);
    let (host, room) = (HostId(1), Room { memory: Bytes::mib(64), ..Room::default() });
    let machine = Machine { host, room, cache: CACHE, condition: Condition::Works, answers: true };
    world.machines.insert(ApplianceId(5), machine);
    responses.listed(host, Nanos::ZERO, vec![stray(5)]);
    let appliance = ApplianceId(5);
    world
        .late
        .push((40_000, What::Switch { to: Target::Appliance { appliance, host }, epoch: 1, settled: false }));
    // That clients are not on it when it is stopped the world checks.
    let orders = ordered(&mut world, &mut responses, 200, |_| None);
    assert!(times(&orders, "stop")[0] > times(&orders, "switch")[0], "{orders:?}");
    assert!(world.machines.is_empty() && matches!(world.path, Path::Straight(_)));
    // Where nothing comes, that is believed then, and not before.
    let (mut world, mut responses) = forgetful(Draining::ByItself, true);
    let late = ResponseRules::default().late_max_ms;
    let looks = times(&ordered(&mut world, &mut responses, 100, |_| None), "look");
    assert!((late..late + 3_000).contains(looks.last().unwrap()), "{looks:?}");
}

/// Clients are on number 5, by epoch 7, and the original route refuses whoever would be switched there.
fn refused(draining: Draining) -> (World, Responses) {
    let (mut world, responses) = forgetful(draining, true);
    let (host, room) = (HostId(1), Room { memory: Bytes::mib(64), ..Room::default() });
    let machine = Machine { host, room, cache: CACHE, condition: Condition::Works, answers: true };
    world.machines.insert(ApplianceId(5), machine);
    (world.path, world.switched, world.lease) = (Path::Through(ApplianceId(5), 7), 7, (7, Holder::Named));
    world.original_refuses_until = u64::MAX;
    (world, responses)
}

#[test]
fn nobody_is_fenced_for_an_original_route_that_was_never_seen_to_answer() {
    for draining in [Draining::ByItself, Draining::ByLease] {
        for restarts in [false, true] {
            let (mut world, mut responses) = refused(draining);
            let mut orders = ordered(&mut world, &mut responses, 300, |_| None);
            if restarts {
                responses = restarted(&world, &responses);
                world.skew = -(world.now as i64);
                orders.extend(ordered(&mut world, &mut responses, 300, |_| None));
            }
            assert!(orders.iter().all(|(_, what)| matches!(what, What::Look | What::Switch { .. })));
            // The pause between tries doubles up to a minute.
            let tries = times(&orders, "switch").len();
            assert!(tries < if restarts { 25 } else { 13 }, "{orders:?}");
            assert!(world.admits(world.path) && matches!(world.path, Path::Through(..)), "{:?}", world.told);
            let now = status(&responses);
            assert_eq!(
                (now.step, now.hindered.as_deref()),
                ("switching back", Some("there is no such export"))
            );
            let told = told(&mut responses);
            let said = told.iter().filter(|told| told.contains("switching back does not succeed"));
            assert_eq!(said.count(), 1, "of the last run: {told:?}");
            // The file is mended.
            world.original_refuses_until = 0;
            ordered(&mut world, &mut responses, 70, |_| None);
            assert!(matches!(world.path, Path::Straight(_)) && world.admits(world.path), "{:?}", world.told);
        }
    }
}

#[test]
fn who_is_on_a_dead_appliance_is_fenced_once_the_original_route_was_seen_to_answer() {
    let (mut world, mut responses) = refused(Draining::ByItself);
    world.machines.clear();
    let orders = ordered(&mut world, &mut responses, 60, |_| None);
    assert!(times(&orders, "fence").is_empty(), "a fence would help nobody: {orders:?}");
    world.original_refuses_until = 0;
    let orders = ordered(&mut world, &mut responses, 70, |_| None);
    assert_eq!(times(&orders, "fence").len(), 2, "{orders:?}");
    assert!(matches!(world.path, Path::Straight(_)) && world.admits(world.path), "{:?}", world.told);
    // Where it answers at once it takes the tries of a step.
    let (mut world, mut responses) = refused(Draining::ByItself);
    (world.original_refuses_until, world.machines) = (0, BTreeMap::new());
    ordered(&mut world, &mut responses, 10, |_| None);
    assert!(matches!(world.path, Path::Straight(_)) && world.admits(world.path), "{:?}", world.told);
}

/// Else the epoch of the way back, which is over by then, is refused for ever.
#[test]
fn the_way_back_from_the_unknown_gets_over_a_lease_that_somebody_else_raises() {
    for holder in [Holder::Original, Holder::Named] {
        let (mut world, mut responses) = refused(Draining::ByItself);
        ordered(&mut world, &mut responses, 20, |_| None);
        (world.original_refuses_until, world.lease, world.is_meddled_with) = (0, (500, holder), true);
        ordered(&mut world, &mut responses, 200, |_| None);
        assert!(matches!(world.path, Path::Straight(Some(503))), "{:?}", world.told);
        assert!(world.admits(world.path), "{:?}", world.told);
    }
}

#[test]
fn a_host_is_asked_until_nothing_of_before_can_start_there_late() {
    let (_, mut responses) = forgetful(Draining::ByItself, true);
    let late = Nanos::millis(ResponseRules::default().late_max_ms);
    let unlisted = |responses: &Responses| responses.unlisted().map(|host| host.0).collect::<Vec<_>>();
    assert_eq!(unlisted(&responses), [0, 1, 2, 3]);
    responses.listed(HostId(0), Nanos(late.0 - 1), vec![stray(5)]);
    responses.listed(HostId(1), late, Vec::new());
    assert_eq!(unlisted(&responses), [0, 2, 3]);
    // One that is listed again is claimed for once, and one that was ordered since is none of before.
    responses.listed(HostId(0), late, vec![stray(5), stray(6), stray(90)]);
    assert_eq!((unlisted(&responses), responses.claims().count()), (vec![2, 3], 2));
    // What comes of a host that is not asked any more says nothing.
    responses.listed(HostId(0), late, vec![stray(7)]);
    assert_eq!(responses.claims().count(), 2);
}

#[test]
fn nothing_is_started_where_it_is_not_known_what_runs_there() {
    let (mut world, mut responses) = forgetful(Draining::ByItself, true);
    let late = Nanos::millis(ResponseRules::default().late_max_ms);
    let (found, told) = wanted(&mut world, &mut responses, CACHE, 70);
    assert_eq!(found, ("original route", None, Bytes::ZERO));
    assert!(told.join("; ").contains("`h0` is left out until it is known what runs there"), "{told:?}");
    // All of this one is taken, as long as that is not stopped.
    responses.listed(HostId(1), late, vec![Found { memory: HOST_BYTES, ..stray(5) }]);
    let orders = ordered(&mut world, &mut responses, 20, |what| match what {
        What::Stop { .. } => silence(),
        _ => None,
    });
    assert!(!orders.is_empty() && orders.iter().all(|(_, what)| what.word() == "stop"), "{orders:?}");
    responses.listed(HostId(2), late, Vec::new());
    let (found, _) = wanted(&mut world, &mut responses, CACHE, 70);
    assert_eq!((found.0, responses.status(VOLUME).unwrap().host), ("serving", Some(HostId(2))));
}

/// Strays without a lease, on a host each. Clients are on number 7, which hangs, so that they cannot be drained; whether that is known says `is_told`.
fn stranded(strays: &[u64], is_told: bool) -> (World, Responses) {
    let (mut world, mut responses) = forgetful(Draining::ByItself, false);
    let room = Room { memory: Bytes::mib(64), ..Room::default() };
    for (number, host) in strays.iter().zip((0..).map(HostId)) {
        let condition = if *number == 7 { Condition::Hangs } else { Condition::Works };
        let machine = Machine { host, room, cache: CACHE, condition, answers: true };
        world.machines.insert(ApplianceId(*number), machine);
    }
    (world.path, world.switched) = (Path::Through(ApplianceId(7), 7), 7);
    list_all(&world, &mut responses, Nanos::ZERO, is_told);
    (world, responses)
}

fn list_all(world: &World, responses: &mut Responses, asked: Nanos, is_told: bool) {
    for host in (0..4).map(HostId) {
        let of_it = world.machines.iter().filter(|(_, machine)| machine.host == host);
        let found = of_it.map(|(id, _)| Found { has_clients: id.0 == 7 && is_told, ..stray(id.0) });
        responses.listed(host, asked, found.collect());
    }
}

#[test]
fn clients_on_a_stray_that_hangs_are_brought_back_where_it_is_known_which_it_is() {
    let late = Nanos::millis(ResponseRules::default().late_max_ms);
    for (strays, is_told, is_known) in
        [(&[7][..], false, true), (&[5, 7], true, true), (&[5, 7], false, false)]
    {
        let (mut world, mut responses) = stranded(strays, is_told);
        ordered(&mut world, &mut responses, 70, |_| None);
        assert!(matches!(world.path, Path::Through(..)), "not all have said what they have");
        list_all(&world, &mut responses, late, is_told);
        // What clients are on is stopped before they are moved, which the world allows where it hangs.
        ordered(&mut world, &mut responses, 300, |_| None);
        assert_eq!(matches!(world.path, Path::Straight(_)), is_known, "{strays:?}");
        assert_eq!(world.machines.is_empty(), is_known, "{strays:?}");
        assert_eq!(responses.claims().count(), if is_known { 0 } else { 2 });
    }
}

#[test]
fn clients_on_an_appliance_that_is_gone_are_brought_back_once_nothing_of_their_volume_runs_anywhere() {
    let (mut world, mut responses) = stranded(&[], false);
    ordered(&mut world, &mut responses, 70, |_| None);
    assert!(matches!(world.path, Path::Through(..)));
    everybody_lists(&mut responses);
    ordered(&mut world, &mut responses, 70, |_| None);
    assert!(matches!(world.path, Path::Straight(_)));
    // It may run on a host that says nothing.
    let (mut world, mut responses) = stranded(&[], false);
    let late = Nanos::millis(ResponseRules::default().late_max_ms);
    (0..3).for_each(|host| responses.listed(HostId(host), late, Vec::new()));
    ordered(&mut world, &mut responses, 300, |_| None);
    assert!(matches!(world.path, Path::Through(..)));
}

/// Hosts whose appliances were ordered with another secret have nothing to tell.
#[test]
fn who_has_lost_more_than_the_journal_takes_nothing_for_gone() {
    for forgets in [false, true] {
        let (mut world, mut responses) = there(Draining::ByItself, false);
        responses.adopt_unknown(VOLUME);
        if forgets {
            responses.forget(ApplianceId(90));
            everybody_lists(&mut responses);
            // Which is known also after a restart.
            responses = restarted(&world, &responses);
        }
        (world.path, world.switched) = (Path::Through(ApplianceId(7), 7), 7);
        let orders = ordered(&mut world, &mut responses, 300, |_| None);
        let settled = orders.iter().any(|(_, what)| matches!(what, What::Switch { settled: true, .. }));
        assert_eq!((settled, matches!(world.path, Path::Straight(_))), (forgets, forgets));
    }
}
