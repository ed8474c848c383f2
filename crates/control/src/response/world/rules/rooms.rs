//! Where appliances are put, what counts of their room and for how long, and what cache they are held to.

use super::*;

#[test]
fn no_more_appliances_start_at_once_than_are_allowed() {
    let world = World::new(Draining::ByItself, true, Vec::new());
    let rules = ResponseRules { starting_max: 1, ..ResponseRules::default() };
    let mut responses = Responses::new(rules, hosts());
    for id in [VOLUME, VolumeId(5)] {
        responses.register(id, VolumeRoute { name: format!("{id:?}"), ..volumes(&world)[0].1.clone() });
        responses.want(id, wish(CACHE));
    }
    let mut step = |second, outcome: Option<Outcome>, last: Option<OrderId>| {
        if let (Some(outcome), Some(last)) = (outcome, last) {
            responses.report(last, outcome, Nanos::secs(second));
        }
        let orders = responses.step(Nanos::secs(second));
        let words: Vec<_> = orders.iter().map(|order| (order.volume.0, order.what.word())).collect();
        (words, orders.first().map(|order| order.id))
    };
    step(1, None, None);
    let (words, last) = step(2, None, None);
    assert_eq!(words, [(4, "start")]);
    // One that has started and has not answered yet counts.
    let (words, last) = step(3, Some(Outcome::Done), last);
    assert_eq!(words, [(4, "probe")]);
    let (words, _) =
        step(4, Some(Outcome::Healthy { cache: CACHE, has_clients: true, origin_trouble: None }), last);
    assert_eq!(words, [(4, "switch"), (5, "start")]);
}

#[test]
fn numbers_of_appliances_only_rise() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.forget(ApplianceId(90));
    responses.forget(ApplianceId(5));
    everybody_lists(&mut responses);
    assert_eq!(wanted(&mut world, &mut responses, CACHE, 10).0.1, Some(90));
}

#[test]
fn a_host_that_fails_again_is_left_out_twice_as_long_up_to_the_longest_and_gives_nothing_meanwhile() {
    let (mut world, mut responses) = there_on(hosts()[..1].to_vec(), ResponseRules::default());
    responses.want(VOLUME, wish(CACHE));
    let starts = times(
        &ordered(
            &mut world,
            &mut responses,
            3 * 3_600,
            |what| {
                if what.word() == "start" { no() } else { None }
            },
        ),
        "start",
    );
    // A minute, two, and so on up to half an hour; somebody looks every minute whether it is over.
    let rests = [60, 120, 240, 480, 960, 1_800, 1_800];
    for (pair, rest) in starts.windows(2).zip(rests) {
        let seconds = (pair[1] - pair[0]) / 1_000;
        assert!((rest..rest + 63).contains(&seconds), "{seconds} instead of {rest}: {starts:?}");
    }
    assert!(responses.rests(HostId(0)));
    assert_eq!((responses.free(HostId(0)), responses.most(VOLUME)), (Bytes::ZERO, Bytes::ZERO));
    // Once a cache was in place there the next failure is the first.
    ordered(&mut world, &mut responses, 3_600, |_| None);
    assert_eq!(status(&responses).step, "serving");
    world.machines.clear();
    let mut rested = 0;
    for _ in 0..600 {
        ordered(&mut world, &mut responses, 1, |_| None);
        rested += u32::from(responses.rests(HostId(0)));
    }
    assert!((58..62).contains(&rested), "{rested}");
}

#[test]
fn a_host_that_does_not_answer_is_not_tried_again_before_one_that_may() {
    let (mut world, mut responses) =
        there_on([0, 1].map(|id| host(HostId(id), Bytes::gib(8))).to_vec(), ResponseRules::default());
    responses.want(VOLUME, wish(CACHE));
    // Nothing is heard of a start, nor of the stops that follow: to leave it takes longer than a minute.
    let mut starts = Vec::new();
    for _ in 0..300 * 4 {
        world.pass(250);
        world.tell_reports(&mut responses);
        for order in responses.step(world.clock()) {
            match order.what {
                What::Start { host, .. } => starts.push(host),
                What::Stop { .. } => {}
                _ => assert_ne!(starts.last(), Some(&HostId(0)), "{:?}", order.what),
            }
            if !matches!(order.what, What::Start { host: HostId(0), .. } | What::Stop { host: HostId(0), .. })
            {
                world.take(order);
            }
        }
    }
    assert_eq!((starts, status(&responses).step), (vec![HostId(0), HostId(1)], "serving"));
}

#[test]
fn the_most_that_a_volume_could_cache_counts_what_it_has_and_no_host_where_it_cannot_be() {
    let hosts = || vec![host(HostId(0), Bytes::mib(100)), host(UNFIT, Bytes::gib(1))];
    let (mut world, mut responses) = there_on(hosts(), ResponseRules::default());
    let cost = ResponseRules::default().cost;
    let most = cost.cache(Bytes::mib(100));
    assert_eq!(responses.most(VOLUME), most);
    wanted(&mut world, &mut responses, Bytes::mib(20), 10);
    assert_eq!(responses.most(VOLUME), most, "its own room is free for what takes its place");
    // Its host is another by now.
    let route =
        VolumeRoute { unfit: vec![(HostId(0), "is slow".to_owned())], ..volumes(&world)[0].1.clone() };
    let rules = ResponseRules::default();
    let hosts = vec![host(HostId(0), Bytes::mib(100))];
    let responses = Responses::recover(responses.journal(), rules, hosts, vec![(VOLUME, route)]).unwrap();
    let room = responses.claims().next().unwrap().room;
    assert_eq!(responses.most(VOLUME), cost.cache(room.memory), "where it is it can be");
}

#[test]
fn a_cache_is_where_it_was_wished_for_and_moves_only_where_it_can_be() {
    let host = |id, rack, memory| HostSpec::new(HostId(id), format!("h{id}"), rack, memory);
    let large = Bytes::gib(1);
    let hosts = vec![host(0, 0, HOST_BYTES), host(1, 1, HOST_BYTES), host(2, 1, large), host(3, 1, large)];
    let (mut world, mut responses) = there_on(hosts, ResponseRules::default());
    let mut want = |responses: &mut Responses, cache| {
        responses.want(VOLUME, Wish { host: Some(HostId(2)), ..wish(Bytes::mib(cache)) });
        ordered(&mut world, responses, 20, |what| match what {
            What::Start { host, .. } if *host == HostId(2) => no(),
            _ => None,
        })
    };
    let tried = |ordered: &[(u64, What)]| {
        let start = |what: &What| match what {
            What::Start { host, .. } => Some(host.0),
            _ => None,
        };
        ordered.iter().filter_map(|(_, what)| start(what)).collect::<Vec<_>>()
    };
    // Where it is left out the application's own host is next.
    assert_eq!(tried(&want(&mut responses, 10)), [2, 0]);
    // The host that failed would have the room, and so would the one where it cannot be.
    assert_eq!(tried(&want(&mut responses, 140)), [0u32; 0]);
    assert_eq!((status(&responses).step, status(&responses).cache_bytes), ("serving", Bytes::mib(10).get()));
    let mut moved = Vec::new();
    for _ in 0..8 {
        moved.extend(tried(&want(&mut responses, 140)));
    }
    assert_eq!(moved[0], 2, "once it is left out no more");
}

/// Where an address moves to, all that serves at one port would listen on every address there.
#[test]
fn appliances_that_are_to_be_apart_are_on_different_hosts_and_wait_for_one() {
    let world = World::new(Draining::ByItself, true, Vec::new());
    let hosts = vec![host(HostId(0), Bytes::gib(1)), host(HostId(1), Bytes::gib(1))];
    let mut responses = Responses::new(ResponseRules::default(), hosts);
    let (volumes_apart, other) = ([VOLUME, VolumeId(5), VolumeId(6)], VolumeId(7));
    for id in volumes_apart.into_iter().chain([other]) {
        let apart = match id == other {
            true => Vec::new(),
            false => volumes_apart
                .iter()
                .filter(|of| **of != id)
                .map(|of| (*of, format!("has {}", of.0)))
                .collect(),
        };
        let name = format!("v{}", id.0);
        responses.register(id, VolumeRoute { name, apart, ..volumes(&world)[0].1.clone() });
        responses.want(id, wish(CACHE));
    }
    let on = |responses: &Responses, id| responses.status(id).unwrap().host;
    responses.step(Nanos::secs(1));
    let hosts_of = [VOLUME, VolumeId(5), VolumeId(6), other].map(|id| on(&responses, id));
    assert_eq!(hosts_of, [Some(HostId(0)), Some(HostId(1)), None, Some(HostId(0))]);
    assert_eq!(responses.most(VolumeId(6)), Bytes::ZERO);
    let told = told(&mut responses);
    let short = told.iter().find(|told| told.contains("no host has room for the cache of v6"));
    assert!(short.is_some_and(|told| told.contains("`h0` has 4; `h1` has 5")), "{told:?}");

    // Nothing was started yet, so its room is free at once, and whoever waits asks again a second later.
    responses.give_back(VolumeId(5), "its load is low");
    responses.step(Nanos::secs(2));
    responses.step(Nanos::secs(3));
    assert_eq!(on(&responses, VolumeId(6)), Some(HostId(1)));
}

#[test]
fn lack_of_room_is_told_anew_once_there_was_room_or_nothing_was_wanted() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    let mut lacks = |responses: &mut Responses, cache| {
        let (_, told) = wanted(&mut world, responses, Bytes::mib(cache), 70);
        if cache == 40 {
            // It wants more than there is by the time at which its appliance dies.
            assert_eq!(responses.status(VOLUME).unwrap().step, "serving");
            world.machines.clear();
        }
        told.iter().filter(|told| told.contains("no host has room")).count()
    };
    assert_eq!(lacks(&mut responses, 200), 1);
    assert_eq!(lacks(&mut responses, 200), 0);
    assert_eq!(lacks(&mut responses, 40), 0);
    assert_eq!(lacks(&mut responses, 200), 1);
    responses.give_back(VOLUME, "its load is low");
    assert_eq!(lacks(&mut responses, 200), 1);
}

#[test]
fn what_was_to_be_loaded_into_a_cache_that_is_given_back_is_not_loaded_into_the_next() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.want(VOLUME, wish(CACHE));
    responses.warm(VOLUME, vec![ZoneRange { first_block: 0, blocks: 1 }], 1);
    ordered(&mut world, &mut responses, 1, |_| None);
    responses.give_back(VOLUME, "its load is low");
    ordered(&mut world, &mut responses, 20, |_| None);
    wanted(&mut world, &mut responses, CACHE, 20);
    let words = words(&world);
    assert!(words.contains(&"Resize".to_owned()) && !words.contains(&"Warm".to_owned()), "{words:?}");
}

#[test]
fn an_appliance_has_to_keep_the_cache_that_it_was_given() {
    let (mut world, mut responses) = there(Draining::ByItself, false);
    assert_eq!(wanted(&mut world, &mut responses, CACHE, 10).0.0, "serving");
    world.machines.get_mut(&ApplianceId(1)).unwrap().cache = Bytes::mib(10);
    // Its clients are on it, and it answers: it is not stopped before they are moved, though at first that does not succeed.
    let mut undrained = 0;
    ordered(&mut world, &mut responses, 5, |what| match what {
        What::Switch { .. } if undrained == 0 => {
            undrained += 1;
            Some(Outcome::NotDrained("something is out".to_owned()))
        }
        _ => None,
    });
    let told = told(&mut responses).join("; ");
    assert!(told.contains("it has 10MiB for its cache, expected 40MiB"), "{told}");
    assert!(responses.rests(HostId(0)), "a host that gives less than it says is left out");
}

#[test]
fn room_is_given_back_once_nothing_can_start_in_it_any_more() {
    // When an appliance is stopped, and how long after that its room stands: what may start late keeps it for a minute.
    let stands = |answer: &dyn Fn(&What) -> Option<Outcome>, gives_back: bool| {
        let (mut world, mut responses) = there_on(hosts()[..1].to_vec(), ResponseRules::default());
        responses.want(VOLUME, wish(CACHE));
        let (mut stopped, mut stops, mut seconds) = (false, 0, 0);
        for second in 0..200 {
            if gives_back && second == 2 {
                responses.give_back(VOLUME, "its load is low");
            }
            let orders = ordered(&mut world, &mut responses, 1, answer);
            stops += times(&orders, "stop").len();
            stopped |= stops > 0;
            seconds += u64::from(stopped && responses.claims().count() > 0);
            if stopped && responses.claims().count() == 0 {
                break;
            }
        }
        assert!((1..=3).contains(&stops), "{stops}");
        seconds
    };
    let start = |outcome: fn() -> Option<Outcome>| {
        move |what: &What| if what.word() == "start" { outcome() } else { None }
    };
    let probe = |outcome: fn() -> Option<Outcome>| {
        move |what: &What| if what.word() == "probe" { outcome() } else { None }
    };
    assert!(stands(&start(no), false) < 3);
    assert!((60..70).contains(&stands(&start(silence), false)));
    assert!(stands(&probe(silence), true) < 3, "it is not wanted while it is asked whether it serves");
    assert!(
        stands(
            &probe(|| Some(Outcome::Healthy {
                cache: Bytes::mib(1),
                has_clients: true,
                origin_trouble: None
            })),
            false
        ) < 3
    );
}

#[test]
fn who_gets_less_for_its_cache_than_it_was_started_for_has_no_clients_moved_to_it() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    world.hosts.get_mut(&HostId(0)).unwrap().lies = true;
    let (found, told) = wanted(&mut world, &mut responses, CACHE, 20);
    assert_eq!(found, ("serving", Some(2), CACHE), "{told:?}");
    assert!(
        words(&world).join(" ").starts_with("Start Probe Stop Start Probe Switch"),
        "{:?}",
        words(&world)
    );
    assert!(
        told.iter().any(|told| told.contains("h0 gives it 20MiB for its cache, expected 40MiB")),
        "{told:?}"
    );
}

#[test]
fn an_appliance_is_held_to_the_smallest_size_that_it_may_have_been_told() {
    // A larger or a smaller size is ordered, the appliance hears of it or does not, and nothing is heard of that.
    for (cache, hears) in [(60, false), (60, true), (20, false), (20, true)] {
        let (mut world, mut responses) = there(Draining::ByItself, true);
        wanted(&mut world, &mut responses, CACHE, 10);
        responses.want(VOLUME, wish(Bytes::mib(cache)));
        let mut machines = world.machines.clone();
        if hears {
            machines.values_mut().for_each(|machine| machine.cache = Bytes::mib(cache));
        }
        world.machines = machines;
        ordered(&mut world, &mut responses, 20, |what| {
            if matches!(what, What::Resize { .. }) { silence() } else { None }
        });
        let found = (status(&responses).step, status(&responses).appliance);
        assert_eq!(found, ("serving", Some(ApplianceId(1))), "{cache} MiB, hears {hears}");
    }
    // What it is known to have been told it has to have.
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 10);
    wanted(&mut world, &mut responses, Bytes::mib(60), 10);
    world.machines.values_mut().for_each(|machine| machine.cache = CACHE);
    let (found, told) = wanted(&mut world, &mut responses, Bytes::mib(60), 20);
    assert_eq!((found.0, found.1), ("serving", Some(2)), "{told:?}");
}

#[test]
fn a_cache_that_is_not_given_its_first_size_is_asked_again_soon_and_loaded_with_nothing_before() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.want(VOLUME, wish(CACHE));
    responses.warm(VOLUME, vec![ZoneRange { first_block: 0, blocks: 1 }], 1);
    let mut refused = 0;
    let orders = ordered(&mut world, &mut responses, 30, |what| match what {
        What::Resize { .. } if refused < 3 => {
            refused += 1;
            no()
        }
        What::Warm { .. } => no(),
        _ => None,
    });
    let used: Vec<&str> =
        orders.iter().map(|(_, what)| what.word()).filter(|word| ["resize", "warm"].contains(word)).collect();
    assert_eq!(used, ["resize", "resize", "resize", "resize", "warm"]);
    let told = told(&mut responses);
    let said = |what: &str| told.iter().filter(|told| told.contains(what)).count();
    assert_eq!(
        (said("its cache is not 40MiB: no"), said("nothing is loaded into it: no")),
        (1, 1),
        "{told:?}"
    );
    // Another size is asked for at once, whatever became of the last; the same one a minute later.
    let mut resizes = |responses: &mut Responses, cache| {
        responses.want(VOLUME, wish(Bytes::mib(cache)));
        let orders =
            ordered(&mut world, responses, 20, |what| if what.word() == "resize" { no() } else { None });
        times(&orders, "resize").len()
    };
    assert_eq!(
        [resizes(&mut responses, 50), resizes(&mut responses, 50), resizes(&mut responses, 55)],
        [1, 0, 1]
    );
}

#[test]
fn an_appliance_that_is_not_known_to_be_gone_is_stopped_until_it_is_and_its_room_stands_so_long() {
    let (world, mut responses) = there(Draining::ByItself, true);
    responses.forget(ApplianceId(90));
    responses.listed(HostId(0), Nanos::ZERO, vec![stray(5)]);
    // Nothing is heard of the first, and then it cannot be reached.
    let (mut stops, mut last) = (Vec::new(), None);
    for second in 60..400 {
        for order in responses.step(Nanos::secs(second)) {
            stops.push(second);
            last = Some(order.id);
            if stops.len() > 1 {
                responses.report(order.id, Outcome::Unknown("no answer".to_owned()), Nanos::secs(second));
            }
        }
    }
    let gaps: Vec<u64> = stops.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // 20 s and 2 s of grace, and a pause that doubles up to a minute.
    assert_eq!(gaps[..8], [24, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(responses.claims().count(), 1, "{:?}", world.told);
    assert!(last.is_some());
    let order = (400..500).find_map(|second| responses.step(Nanos::secs(second)).pop()).unwrap();
    responses.report(order.id, Outcome::Done, Nanos::secs(500));
    assert_eq!(responses.claims().count(), 0);
}

#[test]
fn what_a_journal_tells_of_is_found_again_where_hosts_and_volumes_have_other_numbers() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.want(VOLUME, Wish { host: Some(HostId(1)), ..wish(CACHE) });
    ordered(&mut world, &mut responses, 10, |_| None);
    responses.forget(ApplianceId(60));
    for host in [HostId(0), HostId(1), HostId(2)] {
        let found = if host == HostId(2) { vec![stray(50)] } else { Vec::new() };
        responses.listed(host, Nanos::secs(100), found);
    }
    let nothing = VolumeRoute { name: "nothing is there".to_owned(), ..volumes(&world)[0].1.clone() };
    responses.register(VolumeId(5), nothing);
    assert_eq!(responses.journal().on_appliances().collect::<Vec<_>>(), ["db"]);
    let text = serde_json::to_string(&responses.journal()).unwrap();
    let renumbered =
        hosts().into_iter().map(|spec| HostSpec { id: HostId(10 + spec.id.0), ..spec }).collect();
    let route = VolumeRoute { home: HostId(10), unfit: Vec::new(), ..volumes(&world)[0].1.clone() };
    let volumes = vec![(VolumeId(9), route)];
    // A volume without an appliance may be gone.
    let journal = serde_json::from_str(&text).unwrap();
    let mut recovered = Responses::recover(journal, ResponseRules::default(), renumbered, volumes).unwrap();
    let claims: Vec<_> = recovered.claims().map(|claim| (claim.host.0, claim.volume.0)).collect();
    assert_eq!(claims, [(11, 9), (12, 9)]);
    assert_eq!(recovered.unlisted().collect::<Vec<_>>(), [HostId(13)]);
    let orders = recovered.step(Nanos::ZERO);
    let ordered: Vec<_> = orders.iter().map(|order| (order.volume.0, &order.what)).collect();
    let (probe, stop) = (
        What::Probe { appliance: ApplianceId(1), host: HostId(11) },
        What::Stop { appliance: ApplianceId(50), host: HostId(12) },
    );
    assert!(ordered.contains(&(9, &probe)) && ordered.contains(&(9, &stop)), "{ordered:?}");
    // The host that it would rather have is the same, too.
    let kept = serde_json::to_string(&recovered.journal()).unwrap();
    assert!(kept.contains(r#""rate":100.0,"host":11"#), "{kept}");
}

#[test]
fn a_cache_is_given_room_to_become_twice_as_large() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    for cache in [Bytes::mib(66), Bytes::mib(132)] {
        assert_eq!(wanted(&mut world, &mut responses, cache, 10).0, ("serving", Some(1), cache));
    }
}
