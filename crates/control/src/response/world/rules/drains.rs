//! Hosts and volumes that are drained: what is there leaves by the original route, nothing comes, and it is told when nothing is left.

use super::super::runs::{WAYS, checked_on};
use super::*;

fn host_drained(host: u32) -> Drained {
    Drained { hosts: [HostId(host)].into(), ..Drained::default() }
}

fn volume_drained() -> Drained {
    Drained { volumes: [VOLUME].into(), ..Drained::default() }
}

/// Serving on `h0`, its home.
fn serving() -> (World, Responses) {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    wanted(&mut world, &mut responses, CACHE, 20);
    assert_eq!((status(&responses).step, status(&responses).host), ("serving", Some(HostId(0))));
    told(&mut responses);
    (world, responses)
}

#[test]
fn a_cache_on_a_drained_host_goes_by_the_original_route_to_another_host_at_once() {
    let (mut world, mut responses) = serving();
    responses.drain(host_drained(0));
    assert_eq!(responses.left_on(HostId(0)).as_deref(), Some("appliance 1 of volume `db`"));
    let orders = ordered(&mut world, &mut responses, 5, |_| None);
    let moves: Vec<&What> = orders
        .iter()
        .map(|(_, what)| what)
        .filter(|what| !matches!(what, What::Probe { .. } | What::Resize { .. }))
        .collect();
    assert!(
        matches!(
            moves[..],
            [
                What::Switch { to: Target::Original, .. },
                What::Fence { holder: Holder::Original, .. },
                What::Stop { host: HostId(0), .. },
                What::Start { host: HostId(1), .. },
                What::Switch { to: Target::Appliance { .. }, .. },
                What::Fence { holder: Holder::Named, .. },
            ]
        ),
        "{moves:?}"
    );
    assert_eq!((status(&responses).step, status(&responses).host), ("serving", Some(HostId(1))));
    assert!(!responses.rests(HostId(0)), "it did nothing wrong");
    assert_eq!((responses.left_on(HostId(0)), responses.free(HostId(0))), (None, Bytes::ZERO));
    let told = told(&mut responses);
    assert_eq!(told[0], "the cache of db is taken back: its host h0 is drained");
    assert_eq!(told[1], "db is on the original route: its host h0 is drained");
    // Told again, as with every turn, and taken back: nobody moves for that.
    for drained in [host_drained(0), Drained::default()] {
        responses.drain(drained);
        let orders = ordered(&mut world, &mut responses, 5, |_| None);
        assert!(orders.iter().all(|(_, what)| what.word() == "probe"), "{orders:?}");
    }
    assert!(responses.free(HostId(0)) > Bytes::ZERO);
}

#[test]
fn where_all_hosts_are_drained_nothing_is_started_and_it_is_told_until_one_is_not() {
    let (mut world, mut responses) = serving();
    let all = Drained { hosts: (0..4).map(HostId).collect(), ..Drained::default() };
    responses.drain(all);
    let orders = ordered(&mut world, &mut responses, 120, |_| None);
    assert!(times(&orders, "start").is_empty(), "{orders:?}");
    assert_eq!(status(&responses).step, "original route");
    assert_eq!(responses.most(VOLUME), Bytes::ZERO);
    let why = "no host has room for the cache of db: no host has";
    let said = told(&mut responses);
    let said: Vec<&String> = said.iter().filter(|told| told.starts_with(why)).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("`h0` is drained; `h1` is drained"), "{said:?}");
    assert!(status(&responses).hindered.is_some_and(|why| why.contains("`h0` is drained")));
    responses.drain(host_drained(0));
    ordered(&mut world, &mut responses, 70, |_| None);
    assert_eq!((status(&responses).step, status(&responses).host), ("serving", Some(HostId(1))));
}

#[test]
fn what_is_on_its_way_to_a_drained_host_is_given_up_and_nothing_rests_for_that() {
    for at in ["start", "probe"] {
        let (mut world, mut responses) = there(Draining::ByItself, true);
        responses.want(VOLUME, wish(CACHE));
        let mut is_out = false;
        while !is_out {
            world.pass(250);
            world.tell_reports(&mut responses);
            for order in responses.step(world.clock()) {
                is_out |= order.what.word() == at;
                world.take(order);
            }
        }
        responses.drain(host_drained(0));
        let orders = ordered(&mut world, &mut responses, 60, |_| None);
        let starts = orders.iter().filter_map(|(_, what)| match what {
            What::Start { host, .. } => Some(host.0),
            _ => None,
        });
        assert!(starts.eq([1]), "{at}: {orders:?}");
        assert_eq!(status(&responses).step, "serving", "{at}");
        assert!(told(&mut responses).iter().any(|told| told.ends_with("its host h0 is drained")), "{at}");
    }
}

#[test]
fn a_drained_volume_gives_its_cache_back_and_gets_none_before_it_is_not_drained_any_more() {
    let (mut world, mut responses) = serving();
    responses.drain(volume_drained());
    assert_eq!(responses.left_of(VOLUME).as_deref(), Some("appliance 1 on host `h0`"));
    // Whoever sizes caches may not have heard of it yet.
    let ((step, appliance, _), told) = wanted(&mut world, &mut responses, CACHE, 120);
    assert_eq!((step, appliance), ("original route", None));
    assert_eq!((responses.left_of(VOLUME), responses.left_on(HostId(0))), (None, None));
    assert_eq!(
        told,
        [
            "the cache of db is taken back: the volume is drained",
            "db is on the original route: the volume is drained"
        ]
    );
    responses.drain(Drained::default());
    let ((step, appliance, _), _) = wanted(&mut world, &mut responses, CACHE, 20);
    assert_eq!((step, appliance), ("serving", Some(2)));
}

/// What is not known yet may be there.
#[test]
fn nothing_is_said_to_be_free_of_appliances_before_that_is_known() {
    let (mut world, mut responses) = there(Draining::ByItself, true);
    responses.adopt_unknown(VOLUME);
    responses.forget(ApplianceId(9));
    assert!(responses.left_of(VOLUME).is_some_and(|why| why.contains("not known yet")));
    assert!(responses.left_on(HostId(2)).is_some_and(|why| why.contains("has not said")));
    everybody_lists(&mut responses);
    ordered(&mut world, &mut responses, 70, |_| None);
    assert_eq!((responses.left_of(VOLUME), responses.left_on(HostId(2))), (None, None));
}

/// With every failure at every step behind the order to drain, before and after its effect, with and without the death of the controller.
#[test]
fn whatever_fails_what_is_drained_ends_free_of_appliances_and_no_byte_is_lost() {
    let mut runs = 0;
    for (draining, leased) in WAYS {
        for drained in [host_drained(0), volume_drained()] {
            let keeps = true;
            let world = |strikes| {
                let mut world = World::new(draining, leased, strikes);
                // By then it serves.
                world.drained = Some((5_000, drained.clone()));
                world
            };
            for order in 1..=20 {
                for failure in FAILURES {
                    for (after, controller_dies) in (0..4).map(|bits| (bits & 1 > 0, bits & 2 > 0)) {
                        let strike = Strike { order, failure, after, late: false, controller_dies };
                        checked_on(world(vec![strike]), keeps);
                        runs += 1;
                    }
                }
            }
        }
    }
    assert!(runs > 5_000, "{runs}");
}

/// Its host cannot be reached, say: whoever waits for the end of the drain is told what it waits for.
#[test]
fn what_keeps_a_drained_host_from_being_free_is_told() {
    let (mut world, mut responses) = serving();
    responses.drain(host_drained(0));
    let unreachable = || Some(Outcome::Unknown("no route to host".to_owned()));
    ordered(&mut world, &mut responses, 20, |what| match what {
        What::Stop { .. } => unreachable(),
        _ => None,
    });
    assert_eq!(
        responses.left_on(HostId(0)).as_deref(),
        Some("appliance 1 of volume `db`; stopping does not succeed: no route to host")
    );
    ordered(&mut world, &mut responses, 300, |_| None);
    assert_eq!(responses.left_on(HostId(0)), None);
    // As it is while clients cannot be moved.
    let (mut world, mut responses) = serving();
    world.original_refuses_until = u64::MAX;
    responses.drain(volume_drained());
    ordered(&mut world, &mut responses, 20, |_| None);
    let left = responses.left_of(VOLUME).unwrap();
    assert_eq!(left, "appliance 1 on host `h0`; switching back does not succeed: there is no such export");
}
