//! How often and for how long something is tried, and after which pauses.

use super::*;

#[test]
fn a_clock_that_goes_back_stands_still() {
    let (_, mut responses) = there(Draining::ByItself, true);
    responses.want(VOLUME, wish(CACHE));
    responses.step(Nanos::secs(100));
    let orders = responses.step(Nanos::secs(1));
    assert_eq!(orders[0].deadline, Nanos::secs(130));
}

#[test]
fn each_step_is_tried_as_often_as_is_allowed_whatever_those_before_it_took() {
    let (mut world, mut responses) = there(Draining::Not, true);
    responses.want(VOLUME, wish(CACHE));
    let mut failed = BTreeMap::new();
    let mut fails_twice = |what: &What| {
        let count = failed.entry(what.word()).or_insert(0);
        *count += 1;
        if ["fence", "switch"].contains(&what.word()) && *count <= 2 { silence() } else { None }
    };
    let tried = ordered(&mut world, &mut responses, 30, &mut fails_twice);
    assert_eq!((times(&tried, "fence").len(), times(&tried, "switch").len()), (3, 3));
    assert_eq!((status(&responses).step, status(&responses).appliance), ("serving", Some(ApplianceId(1))));
    // Three times in vain is enough.
    let (mut world, mut responses) = there(Draining::Not, true);
    responses.want(VOLUME, wish(CACHE));
    let to_it = |what: &What| matches!(what, What::Switch { epoch: 1, .. });
    let tried = ordered(&mut world, &mut responses, 12, |what| if to_it(what) { silence() } else { None });
    let tried: Vec<u64> = tried.iter().filter(|(_, what)| to_it(what)).map(|(at, _)| at / 1_000).collect();
    assert_eq!(tried, [2, 3, 5], "a second after the first time, and two after the second");
}

#[test]
fn the_next_appliance_has_all_the_time_that_the_first_one_had() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.want(VOLUME, wish(CACHE));
    let mut probes: BTreeMap<ApplianceId, u32> = BTreeMap::new();
    ordered(&mut world, &mut responses, 150, |what| {
        let What::Probe { appliance, .. } = what else { return None };
        let count = probes.entry(*appliance).or_default();
        *count += 1;
        // Each takes a while to answer. The first dies then, and the next does not answer now and then.
        match (appliance.0, *count) {
            (_, 1..=3) | (1, 30..) => silence(),
            (2, count) if count % 3 != 1 => silence(),
            _ => None,
        }
    });
    assert_eq!((status(&responses).step, status(&responses).appliance), ("serving", Some(ApplianceId(2))));
}

#[test]
fn who_is_asked_what_was_done_before_is_asked_every_second() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.adopt_unknown(VOLUME);
    let looks = ordered(&mut world, &mut responses, 60, |_| silence()).len();
    assert!((40..=60).contains(&looks), "{looks}");
}

#[test]
fn who_fails_again_and_again_is_tried_more_and_more_seldom_until_a_cache_is_in_place() {
    let to_it = |what: &What| matches!(what, What::Switch { to: Target::Appliance { .. }, .. });
    type Answer<'a> = &'a dyn Fn(&What) -> Option<Outcome>;
    let ways: [(&str, Draining, Answer); 3] = [
        ("the route refuses", Draining::ByItself, &|what| if to_it(what) { no() } else { None }),
        ("the route is not heard", Draining::ByItself, &|what| if to_it(what) { silence() } else { None }),
        ("somebody has the lease", Draining::Not, &|what| match what {
            What::Fence { epoch, holder: Holder::Named } => Some(Outcome::Stale { epoch: *epoch }),
            _ => None,
        }),
    ];
    for (way, draining, answer) in ways {
        let (mut world, mut responses) = there(draining, true);
        responses.want(VOLUME, wish(CACHE));
        let starts = times(&ordered(&mut world, &mut responses, 1_200, answer), "start");
        let gaps: Vec<u64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect();
        assert!(gaps[0] < 20, "{way}: {gaps:?}");
        let last = gaps[gaps.len() - 1];
        assert!((60..80).contains(&last), "{way}: {gaps:?}");
        ordered(&mut world, &mut responses, 100, |_| None);
        assert_eq!(status(&responses).step, "serving", "{way}");
        // The next failure is the first: somebody has to wait for a second, and not for a minute.
        responses.give_back(VOLUME, "its load is low");
        ordered(&mut world, &mut responses, 20, |_| None);
        responses.want(VOLUME, wish(CACHE));
        let starts = times(&ordered(&mut world, &mut responses, 60, answer), "start");
        assert!(starts.len() > 2, "{way}: {starts:?}");
    }
}

#[test]
fn an_order_counts_until_a_while_after_its_deadline_and_is_given_up_then() {
    let rules = ResponseRules::default();
    let (_, mut responses) = there(Draining::ByItself, true);
    responses.want(VOLUME, wish(CACHE));
    responses.step(Nanos::secs(1));
    let start = responses.step(Nanos::secs(1)).remove(0);
    assert_eq!(start.deadline, Nanos::secs(1) + Nanos::millis(rules.start_within_ms));
    let lost = start.deadline + Nanos::millis(rules.report_grace_ms);
    assert_eq!(responses.step(lost), []);
    responses.report(start.id, Outcome::Done, lost);
    assert!(matches!(responses.step(lost)[..], [Order { what: What::Probe { .. }, .. }]));
}

#[test]
fn each_kind_of_order_has_its_own_time() {
    let (mut world, mut responses) = there(Draining::Not, true);
    responses.want(VOLUME, wish(CACHE));
    responses.warm(VOLUME, Vec::new(), 1);
    let mut within = BTreeMap::new();
    for quarter in 0..80 {
        if quarter == 40 {
            responses.give_back(VOLUME, "its load is low");
        }
        world.pass(250);
        world.tell_reports(&mut responses);
        for order in responses.step(world.clock()) {
            let left = order.deadline.saturating_since(world.clock());
            assert_eq!(*within.entry(order.what.word()).or_insert(left), left);
            world.take(order);
        }
    }
    let expected = [
        ("fence", 10_000),
        ("probe", 2_000),
        ("resize", 2_000),
        ("start", 30_000),
        ("stop", 20_000),
        ("switch", 5_000),
        ("warm", 2_000),
    ];
    let expected = expected.map(|(word, millis)| (word, Nanos::millis(millis)));
    assert_eq!(within.into_iter().collect::<Vec<_>>(), expected);
}
