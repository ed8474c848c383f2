//! How clients come to an appliance and back, what fences what, and what is told of it.

use super::*;

/// Who has a dead appliance in front of a volume waits for longer than for the switch alone.
#[test]
fn the_outage_of_an_appliance_that_died_counts_from_its_last_answer() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 20);
    responses.give_back(VOLUME, "its load is low");
    ordered(&mut world, &mut responses, 20, |_| None);
    assert_eq!(
        (status(&responses).step, status(&responses).outage),
        ("original route", None),
        "none was dead"
    );
    wanted(&mut world, &mut responses, CACHE, 20);
    assert_eq!(status(&responses).step, "serving");
    let (dies, mut asked, mut switched) = (world.now + 10_100, 0, 0);
    while switched == 0 {
        world.pass(250);
        assert!(world.now < dies + 60_000, "clients are left on it");
        if world.now >= dies {
            world.machines.remove(&ApplianceId(2));
        }
        world.tell_reports(&mut responses);
        if status(&responses).outage.is_some() {
            switched = world.now;
        }
        for order in responses.step(world.clock()) {
            if world.now < dies && order.what.word() == "probe" {
                asked = world.now;
            }
            world.take(order);
        }
    }
    let outage_ms = status(&responses).outage.expect("it died").0 / 1_000_000;
    // From the answer to the last probe that it had.
    let most = switched - asked;
    assert!(outage_ms <= most && outage_ms + 500 >= most, "{outage_ms} ms of {most} ms");
    // Three in a row were not answered, a second apart.
    assert!(outage_ms > 2_000, "{outage_ms}");
}

#[test]
fn why_a_cache_went_is_told_and_stands_until_there_is_another() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 10);
    responses.decisions();
    responses.give_back(VOLUME, "its load is low");
    ordered(&mut world, &mut responses, 20, |_| None);
    assert_eq!(told(&mut responses), ["db is on the original route: its load is low"]);
    assert_eq!(status(&responses).why.as_deref(), Some("its load is low"));
    // It was moved away from a host that is gone: that is why.
    wanted(&mut world, &mut responses, CACHE, 10);
    world.machines.clear();
    ordered(&mut world, &mut responses, 5, |_| None);
    let why = status(&responses).why.unwrap_or_default();
    assert!(why.contains("does not answer"), "{why}");
    let (mut world, mut responses) = there_on(hosts()[..1].to_vec(), ResponseRules::default());
    responses.want(VOLUME, wish(CACHE));
    ordered(&mut world, &mut responses, 10, |what| if what.word() == "start" { no() } else { None });
    let status = status(&responses);
    assert_eq!((status.step, status.why.as_deref()), ("original route", Some("it does not start: no")));
}

#[test]
fn a_lease_that_is_raised_by_the_step_at_hand_is_not_raised_again_and_nobody_is_moved_for_it() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 10);
    responses.give_back(VOLUME, "its load is low");
    ordered(&mut world, &mut responses, 20, |_| None);
    responses.want(VOLUME, wish(CACHE));
    // It is seen to be lost while the fence behind the clients is out.
    loop {
        world.pass(250);
        world.tell_reports(&mut responses);
        let orders = responses.step(world.clock());
        let is_out = orders.iter().any(|order| order.what.word() == "fence");
        orders.into_iter().for_each(|order| world.take(order));
        if is_out {
            break;
        }
    }
    responses.lease_seen(VOLUME, 0, Holder::Original);
    let orders = ordered(&mut world, &mut responses, 20, |_| None);
    assert_eq!(times(&orders, "fence"), [0u64; 0]);
    assert_eq!((status(&responses).step, status(&responses).appliance), ("serving", Some(ApplianceId(2))));
}

#[test]
fn whoever_is_behind_a_fence_is_brought_back_where_the_route_is_not_switched() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    world.in_doubt = true;
    responses.want(VOLUME, wish(CACHE));
    let mut refused = false;
    let orders = ordered(&mut world, &mut responses, 30, |what| match what {
        What::Switch { to: Target::Appliance { .. }, settled: true, .. } => {
            refused = true;
            no()
        }
        _ => None,
    });
    assert!(refused, "{orders:?}");
    let back = orders.iter().any(|(_, what)| matches!(what, What::Switch { to: Target::Original, .. }));
    assert!(back && world.admits(world.path), "{orders:?}");
}

#[test]
fn a_way_back_that_does_not_succeed_is_told_once() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 10);
    responses.decisions();
    responses.give_back(VOLUME, "its load is low");
    ordered(&mut world, &mut responses, 3_600, |what| if what.word() == "switch" { silence() } else { None });
    let told = told(&mut responses);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn where_clients_are_is_told_only_where_it_is_known() {
    let (mut world, mut responses) = there(Draining::Not, true);
    responses.want(VOLUME, wish(CACHE));
    let mut seen = Vec::new();
    for quarter in 0..80 {
        if quarter == 20 {
            responses.give_back(VOLUME, "its load is low");
        }
        world.pass(250);
        world.tell_reports(&mut responses);
        responses.step(world.clock()).into_iter().for_each(|order| world.take(order));
        let status = status(&responses);
        seen.push((status.step, status.route));
    }
    seen.dedup();
    let expected = [
        ("room claimed", "original"),
        ("starting", "original"),
        ("waiting for an answer", "original"),
        ("fencing the original path", "original"),
        ("switching", "unknown"),
        ("serving", "appliance"),
        ("fencing the appliance", "unknown"),
        ("switching back", "unknown"),
        ("stopping", "original"),
        ("original route", "original"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn an_appliance_that_does_not_answer_is_asked_once_to_drain_before_it_is_fenced() {
    for (hangs, tries) in [(true, 1), (false, 3)] {
        let (mut world, mut responses) = there(Draining::ByItself, true);
        wanted(&mut world, &mut responses, CACHE, 10);
        if hangs {
            world.machines.values_mut().for_each(|machine| machine.condition = Condition::Hangs);
        } else {
            responses.give_back(VOLUME, "its load is low");
        }
        let orders = ordered(&mut world, &mut responses, 20, |what| match what {
            What::Switch { to: Target::Original, settled: false, .. } => {
                Some(Outcome::NotDrained("something is out".to_owned()))
            }
            _ => None,
        });
        let drains = |what: &What| matches!(what, What::Switch { to: Target::Original, settled: false, .. });
        assert_eq!(orders.iter().filter(|(_, what)| drains(what)).count(), tries, "{orders:?}");
        assert!(world.admits(world.path));
    }
}

#[test]
fn an_appliance_that_clients_may_be_on_is_not_stopped_because_the_route_tells_nothing() {
    // It does not answer the controller; of the route nothing is heard for a while, or nobody is there for a moment.
    let nobody = || Some(Outcome::NoClient("nobody is there".to_owned()));
    for answer in [&silence as &dyn Fn() -> Option<Outcome>, &no, &nobody] {
        let (mut world, mut responses) = there(Draining::ByItself, false);
        wanted(&mut world, &mut responses, CACHE, 10);
        world.hosts.get_mut(&HostId(0)).unwrap().cut_until = world.now + 15_000;
        let mut switches = 0;
        let orders = ordered(&mut world, &mut responses, 40, |what| match what {
            What::Switch { to: Target::Original, .. } => {
                switches += 1;
                if switches <= 2 { answer() } else { None }
            }
            _ => None,
        });
        let words: Vec<&str> = orders.iter().map(|(_, what)| what.word()).collect();
        let words: Vec<&&str> = words.iter().filter(|word| ["switch", "stop"].contains(word)).collect();
        assert_eq!(words[..4], [&"switch", &"switch", &"switch", &"stop"], "{orders:?}");
    }
}

#[test]
fn clients_that_are_served_are_not_fenced_because_who_would_move_them_cannot_be_told() {
    let on_the_way_back = |strike: fn(&mut World)| {
        let (mut world, mut responses) = there(Draining::ByItself, true);
        wanted(&mut world, &mut responses, CACHE, 10);
        responses.decisions();
        world.route_untold_until = world.now + 120_000;
        responses.give_back(VOLUME, "its load is low");
        ordered(&mut world, &mut responses, 30, |_| None);
        strike(&mut world);
        let fences = |orders: &[(u64, What)]| times(orders, "fence").len();
        let untold = fences(&ordered(&mut world, &mut responses, 85, |_| None));
        let served = world.admits(world.path);
        let then = fences(&ordered(&mut world, &mut responses, 90, |_| None));
        (untold, served, then, status(&responses).step, told(&mut responses))
    };
    let (untold, served, then, step, told) = on_the_way_back(|_| ());
    assert_eq!((untold, served, then, step), (0, true, 1, "original route"), "{told:?}");
    let stay = told.iter().filter(|told| told.contains("its clients stay on it, since they cannot be moved"));
    assert_eq!(stay.count(), 1, "{told:?}");
    // One that dies meanwhile, or that nobody is on, is left in any case.
    let (untold, ..) = on_the_way_back(|world| world.machines.clear());
    assert!(untold > 0);
    let (untold, ..) = on_the_way_back(|world| world.is_deserted = true);
    assert!(untold > 0);
}

/// Behind a fence nothing is compared any more.
#[test]
fn clients_whose_original_route_leads_to_other_data_stay_until_it_leads_to_theirs() {
    for leased in [true, false] {
        let (mut world, mut responses) = there(Draining::ByItself, leased);
        wanted(&mut world, &mut responses, CACHE, 10);
        responses.decisions();
        world.other_disk_until = world.now + 600_000;
        responses.give_back(VOLUME, "its load is low");
        let orders = ordered(&mut world, &mut responses, 599, |_| None);
        let only_asks =
            |what: &What| matches!(what, What::Probe { .. } | What::Switch { settled: false, .. });
        assert!(orders.iter().all(|(_, what)| only_asks(what)), "{orders:?}");
        // Each one holds what clients ask for.
        let tries = times(&orders, "switch");
        assert!((9..=10).contains(&tries.len()) && tries[1] - tries[0] >= 60_000, "{tries:?}");
        assert!(matches!(world.path, Path::Through(..)) && world.admits(world.path));
        let told = told(&mut responses);
        assert!(told.len() == 1 && told[0].contains("does not lead to their data"), "{told:?}");
        let hindered = status(&responses).hindered.unwrap_or_default();
        assert!(hindered.contains("it holds other data") && hindered.contains("put the right disk"));
        ordered(&mut world, &mut responses, 70, |_| None);
        assert_eq!((status(&responses).step, status(&responses).hindered), ("original route", None));
    }
}

#[test]
fn who_was_on_an_appliance_that_dies_is_not_sent_to_what_is_known_to_be_other_data() {
    for leased in [true, false] {
        let (mut world, mut responses) = there(Draining::ByItself, leased);
        wanted(&mut world, &mut responses, CACHE, 10);
        world.other_disk_until = u64::MAX;
        responses.give_back(VOLUME, "its load is low");
        ordered(&mut world, &mut responses, 10, |_| None);
        world.machines.clear();
        ordered(&mut world, &mut responses, 150, |_| None);
        // The next controller knows of it, too.
        let kept = serde_json::to_string(&responses.journal()).unwrap();
        let mut responses = restart(&mut world, &kept);
        let orders = ordered(&mut world, &mut responses, 300, |_| None);
        let only_asks =
            |what: &What| matches!(what, What::Probe { .. } | What::Switch { settled: false, .. });
        assert!(orders.iter().all(|(_, what)| only_asks(what)), "{orders:?}");
        let hindered = status(&responses).hindered.unwrap_or_default();
        assert!(
            hindered.contains("it holds other data") && hindered.contains("cannot be drained"),
            "{hindered}"
        );
        // Somebody sends them there by hand.
        (world.path, world.other_disk_until) = (Path::Straight(leased.then_some(world.lease.0 + 1)), 0);
        ordered(&mut world, &mut responses, 90, |_| None);
        assert_eq!((status(&responses).step, status(&responses).hindered), ("original route", None));
        assert!(world.admits(world.path));
    }
}

/// What differs there is what was written past it.
#[test]
fn clients_of_a_cache_that_may_be_stale_are_not_left_there_because_it_differs() {
    // On the way back for another reason, too.
    for is_leaving in [false, true] {
        let differs = |what: &What| match what {
            What::Switch { settled: false, to: Target::Original, .. } => {
                Some(Outcome::OtherData("it differs".to_owned()))
            }
            _ => None,
        };
        let (mut world, mut responses) = there(Draining::ByItself, true);
        wanted(&mut world, &mut responses, CACHE, 10);
        if is_leaving {
            responses.give_back(VOLUME, "its load is low");
            ordered(&mut world, &mut responses, 1, differs);
        }
        world.lease = (0, Holder::Original);
        responses.lease_seen(VOLUME, 0, Holder::Original);
        // The next controller knows of it, too.
        ordered(&mut world, &mut responses, 1, differs);
        assert_eq!(status(&responses).step, "switching back");
        let kept = serde_json::to_string(&responses.journal()).unwrap();
        let mut responses = restart(&mut world, &kept);
        let orders = ordered(&mut world, &mut responses, 120, differs);
        let is_settled =
            |what: &What| matches!(what, What::Switch { settled: true, to: Target::Original, .. });
        assert!(orders.iter().any(|(_, what)| is_settled(what)), "{orders:?}");
        assert!(world.admits(world.path));
    }
}

#[test]
fn an_appliance_that_shows_other_data_gets_no_clients() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.want(VOLUME, wish(CACHE));
    let other = |what: &What| match what {
        What::Switch { .. } => Some(Outcome::OtherData("it holds other data".to_owned())),
        _ => None,
    };
    let orders = ordered(&mut world, &mut responses, 3, other);
    assert_eq!(times(&orders, "fence"), [0u64; 0]);
    let stops = orders.iter().filter(|(_, what)| what.word() == "stop").count();
    assert!(stops == 1 && world.path == Path::Straight(None), "{orders:?}");
}

#[test]
fn what_a_volume_waits_for_is_told_until_it_is_over() {
    let (mut world, mut responses) = there_on(hosts()[..1].to_vec(), ResponseRules::default());
    responses.want(VOLUME, wish(CACHE));
    let hindered = |responses: &Responses| status(responses).hindered.unwrap_or_default();
    assert_eq!(hindered(&responses), "");
    ordered(&mut world, &mut responses, 5, |what| if what.word() == "start" { no() } else { None });
    let told = hindered(&responses);
    assert!(
        told.starts_with("no host has room for it: ") && told.contains("it does not start: no"),
        "{told}"
    );
    ordered(&mut world, &mut responses, 200, |_| None);
    assert_eq!((status(&responses).step, hindered(&responses)), ("serving", String::new()));
    responses.give_back(VOLUME, "its load is low");
    let untold = |what: &What| (what.word() == "switch").then(|| Outcome::Unheard("it is busy".to_owned()));
    ordered(&mut world, &mut responses, 20, untold);
    assert_eq!(hindered(&responses), "it is busy");
    ordered(&mut world, &mut responses, 90, |_| None);
    assert_eq!((status(&responses).step, hindered(&responses)), ("original route", String::new()));
    responses.adopt_unknown(VOLUME);
    ordered(&mut world, &mut responses, 5, |_| silence());
    assert_eq!(hindered(&responses), "nothing is heard");
}

#[test]
fn an_origin_of_which_an_appliance_has_nothing_is_told_while_it_has_not() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 10);
    assert_eq!(status(&responses).origin_trouble, None);
    world.storage_down_until = world.now + 20_000;
    ordered(&mut world, &mut responses, 5, |_| None);
    let told = status(&responses);
    assert_eq!((told.step, told.origin_trouble.as_deref()), ("serving", Some("it is down")));
    ordered(&mut world, &mut responses, 30, |_| None);
    assert_eq!((status(&responses).step, status(&responses).origin_trouble), ("serving", None));
}

#[test]
fn an_appliance_whose_clients_have_gone_gives_its_lease_back_within_seconds() {
    for draining in [Draining::ByItself, Draining::Not] {
        let (mut world, mut responses) = there(draining, true);
        wanted(&mut world, &mut responses, CACHE, 10);
        world.is_deserted = true;
        ordered(&mut world, &mut responses, 3, |_| None);
        assert_eq!(status(&responses).step, "serving", "they may be connecting anew");
        let orders = ordered(&mut world, &mut responses, 12, |_| None);
        let lets_in = |what: &What| matches!(what, What::Fence { holder: Holder::Original, .. });
        // Those that come by an address do not stay.
        let expected = draining == Draining::ByItself;
        assert_eq!(orders.iter().any(|(_, what)| lets_in(what)), expected, "{orders:?}");
    }
}

#[test]
fn an_appliance_without_a_lease_that_nobody_is_on_is_stopped_before_the_route_is_left_to_who_comes() {
    let (mut world, mut responses) = there(Draining::ByItself, false);
    wanted(&mut world, &mut responses, CACHE, 10);
    world.is_deserted = true;
    responses.give_back(VOLUME, "its load is low");
    let orders = ordered(&mut world, &mut responses, 40, |_| None);
    let words: Vec<&str> = orders.iter().map(|(_, what)| what.word()).collect();
    let expected = ["switch", "switch", "switch", "stop", "switch", "switch", "switch", "stop"];
    assert_eq!(words, expected);
}

#[test]
fn what_was_never_moved_is_told_where_somebody_had_to_wait_for_that() {
    for (silent, expected) in [(0, 0), (1, 1)] {
        let (mut world, mut responses) = there(Draining::ByItself, true);
        responses.adopt_unknown(VOLUME);
        let mut looks = 0;
        ordered(&mut world, &mut responses, 10, |_| {
            looks += 1;
            if looks <= silent { silence() } else { None }
        });
        let told = told(&mut responses);
        assert_eq!(
            told.iter().filter(|told| told.contains("it was never moved")).count(),
            expected,
            "{told:?}"
        );
    }
}

#[test]
fn a_lost_lease_that_somebody_else_has_raised_is_left_to_them_and_the_next_is_above_it() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 10);
    responses.lease_seen(VOLUME, 0, Holder::Original);
    // It is not told more often than once a second.
    let orders =
        ordered(&mut world, &mut responses, 10, |what| if what.word() == "fence" { silence() } else { None });
    let fences = times(&orders, "fence").len();
    assert!((6..=10).contains(&fences), "{fences}");
    responses.decisions();
    let orders = ordered(&mut world, &mut responses, 3, |what| match what {
        What::Fence { epoch: 1, .. } => Some(Outcome::Stale { epoch: 500 }),
        What::Fence { .. } | What::Switch { .. } => silence(),
        _ => None,
    });
    let words: Vec<&str> =
        orders.iter().map(|(_, what)| what.word()).filter(|word| *word != "probe").collect();
    assert_eq!(words[..2], ["fence", "switch"]);
    let is_above = |what: &What| !matches!(what, What::Switch { epoch, .. } if *epoch <= 500);
    assert!(orders.iter().all(|(_, what)| is_above(what)), "{orders:?}");
    let why = status(&responses).why.unwrap_or_default();
    assert_eq!(why, "its lease was lost, and is at epoch 500 since: somebody else raised it");
}

#[test]
fn clients_that_wait_for_a_dead_host_are_told_of_once() {
    let (mut world, mut responses) = there(Draining::ByItself, false);
    wanted(&mut world, &mut responses, CACHE, 10);
    responses.decisions();
    world.hosts.get_mut(&HostId(0)).unwrap().dead = true;
    let orders = ordered(&mut world, &mut responses, 3_600, |_| None);
    let told = told(&mut responses);
    let waits = told.iter().filter(|told| told.contains("its clients wait for it")).count();
    assert_eq!(waits, 1, "{} told, {} ordered: {told:?}", told.len(), orders.len());
}

/// An operator raised it too far by hand, with an earlier version. Else it is silently fenced again and again, and epochs overflow.
#[test]
fn a_lease_that_leaves_no_epoch_is_told_until_it_is_mended() {
    let expects = |responses: &Responses| {
        let hindered = status(responses).hindered.unwrap_or_default();
        assert!(hindered.contains("is at epoch 18446744073709551615, and none can follow"), "{hindered}");
        assert!(hindered.contains("(`leases.path`, `routes.path`) to "), "{hindered}");
    };
    let count = |told: &[String]| told.iter().filter(|told| told.contains("none can follow")).count();
    // At the original route, with a cache in place, on its way back, and where no journal tells of it.
    for (serves, leaves, forgets) in
        [(false, false, false), (true, false, false), (true, true, false), (false, false, true)]
    {
        for restarts in [false, true] {
            let (mut world, mut responses) = there(Draining::ByItself, true);
            let mut told = Vec::new();
            if serves {
                wanted(&mut world, &mut responses, CACHE, 20);
            }
            if forgets {
                responses.adopt_unknown(VOLUME);
            }
            if leaves {
                world.route_untold_until = world.now + 2_000;
                responses.give_back(VOLUME, "its load is low");
                ordered(&mut world, &mut responses, 1, |_| None);
            }
            let was = world.lease;
            world.lease = (u64::MAX, Holder::Named);
            for second in 0..60 {
                if !leaves {
                    responses.want(VOLUME, wish(CACHE));
                }
                // As the storage side does by then.
                ordered(&mut world, &mut responses, 1, |what| match what {
                    What::Switch { .. } => no(),
                    _ => None,
                });
                responses.lease_seen(VOLUME, world.lease.0, world.lease.1);
                told.extend(super::told(&mut responses));
                if restarts && second == 30 {
                    let kept = serde_json::to_string(&responses.journal()).unwrap();
                    responses = restart(&mut world, &kept);
                }
            }
            expects(&responses);
            assert_eq!(count(&told), 1 + usize::from(restarts), "{told:?}");
            assert_eq!(world.lease.0, u64::MAX);
            world.lease = was;
            for _ in 0..120 {
                ordered(&mut world, &mut responses, 1, |_| None);
                responses.lease_seen(VOLUME, world.lease.0, world.lease.1);
            }
            let (step, wanted) = (status(&responses).step, if leaves { "original route" } else { "serving" });
            assert_eq!((step, status(&responses).hindered), (wanted, None), "{:?}", world.told);
            assert!(world.admits(world.path) && world.lease.0 < 100, "{:?}", world.lease);
        }
    }
    // The journal of an earlier version may have it.
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 20);
    let mut kept = serde_json::to_value(responses.journal()).unwrap();
    kept["responses"][0][1]["epoch"] = u64::MAX.into();
    let mut responses = restart(&mut world, &kept.to_string());
    responses.give_back(VOLUME, "its load is low");
    ordered(&mut world, &mut responses, 20, |_| None);
    assert_eq!(status(&responses).step, "original route");
    assert!(world.lease.0 < 100, "{:?}", world.lease);
}

/// Two controllers with a `state` each would give out the same epochs, and fence each other's appliances or not as it happens.
#[test]
fn nothing_is_done_for_a_volume_whose_lease_somebody_else_holds() {
    for draining in [Draining::ByItself, Draining::ByLease, Draining::Not] {
        let mut world = World::new(draining, true, Vec::new());
        let mut responses = fresh(&world);
        world.lease = (7, Holder::Named);
        let mut told = Vec::new();
        for _ in 0..60 {
            responses.lease_seen(VOLUME, world.lease.0, world.lease.1);
            responses.want(VOLUME, wish(CACHE));
            assert_eq!(ordered(&mut world, &mut responses, 1, |_| None), [], "{:?}", world.told);
            told.extend(super::told(&mut responses));
        }
        let status = responses.status(VOLUME).unwrap();
        assert_eq!((status.step, status.route), ("original route", "unknown"));
        let why = status.hindered.unwrap();
        assert!(
            why.contains("at epoch 7 and held by somebody") && why.contains("--raise 8 --original"),
            "{why}"
        );
        assert!(told.len() == 1 && told[0].contains(&why), "{told:?}");
        // It is given back, and nobody is met again at an epoch of theirs.
        world.lease = (8, Holder::Original);
        responses.lease_seen(VOLUME, 8, Holder::Original);
        assert_eq!(responses.status(VOLUME).unwrap().route, "original");
        let (found, told) = wanted(&mut world, &mut responses, CACHE, 20);
        assert_eq!(found.0, "serving", "{told:?}");
        assert!(world.lease.0 > 8, "{:?}", world.lease);
    }
}

/// As by a secret that is wrong: the appliance serves them, and a fence would have them fail.
#[test]
fn who_is_served_by_an_appliance_stays_there_while_the_original_route_refuses() {
    for draining in [Draining::ByItself, Draining::ByLease] {
        for dies in [false, true] {
            let (mut world, mut responses) = there(draining, true);
            assert_eq!(wanted(&mut world, &mut responses, CACHE, 20).0.0, "serving");
            world.original_refuses_until = u64::MAX;
            responses.give_back(VOLUME, "its load is low");
            let orders = ordered(&mut world, &mut responses, 300, |_| None);
            assert_eq!(times(&orders, "fence"), [0; 0], "{:?}", world.told);
            let is_there = matches!(world.path, Path::Through(..)) && world.admits(world.path);
            assert!(is_there, "{:?}", world.told);
            let told = told(&mut responses);
            let stay = told
                .iter()
                .filter(|told| told.contains("its clients stay on it, since they cannot be moved"));
            assert_eq!(stay.count(), 1, "{told:?}");
            if dies {
                world.machines.clear();
                ordered(&mut world, &mut responses, 60, |_| None);
            }
            world.original_refuses_until = 0;
            ordered(&mut world, &mut responses, 130, |_| None);
            assert!(matches!(world.path, Path::Straight(_)) && world.admits(world.path), "{:?}", world.told);
            assert_eq!(status(&responses).step, "original route", "{:?}", world.told);
        }
    }
}
