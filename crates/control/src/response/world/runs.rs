//! A controller on the simulated world: what it knows when it begins, a plan of what is wanted run to the end, with strikes and its own death, and what has to hold there.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(super) fn volumes(world: &World) -> Vec<(VolumeId, VolumeRoute)> {
    let (draining, leased) = (world.draining, world.leased);
    let unfit = vec![(UNFIT, "is of another kind".to_owned())];
    vec![(
        VOLUME,
        VolumeRoute {
            name: "db".into(),
            draining,
            leased,
            home: HostId(0),
            unfit,
            apart: Vec::new(),
            way: Way::default(),
        },
    )]
}

pub(super) fn fresh(world: &World) -> Responses {
    let mut responses = Responses::new(ResponseRules::default(), hosts());
    volumes(world).into_iter().for_each(|(id, route)| responses.register(id, route));
    responses
}

pub(super) fn wish(cache: Bytes) -> Wish {
    Wish { cache, flash: Bytes::ZERO, rate: 100.0, host: None }
}

/// Another controller, which knows what the disk says, or what it finds.
pub(super) fn restart(world: &mut World, text: &str) -> Responses {
    world.reports.clear();
    world.skew = -(world.now as i64);
    // Who knows nothing has to be told of it again.
    world.is_told_of_other_disk &= !world.journal_lost;
    if !std::mem::take(&mut world.journal_lost) {
        let journal: Journal = serde_json::from_str(text).expect("a journal");
        return Responses::recover(journal, ResponseRules::default(), hosts(), volumes(world))
            .expect("the same volumes and hosts");
    }
    let mut responses = fresh(world);
    world.forgetful = Some(false);
    responses.adopt_unknown(VOLUME);
    // Nobody orders one each millisecond.
    responses.forget(ApplianceId(world.now));
    responses
}

/// Hosts say what runs there, as far as they are reached.
fn list(world: &World, responses: &mut Responses) {
    let asked: Vec<HostId> = responses.unlisted().collect();
    for host in asked.into_iter().filter(|host| world.answers(*host)) {
        let of_it = world.machines.iter().filter(|(_, machine)| machine.host == host);
        let is_told = world.now >= world.route_hangs_until.max(world.route_untold_until);
        let found = of_it.map(|(id, machine)| Found {
            appliance: *id,
            volume: VOLUME,
            memory: machine.room.memory,
            has_clients: is_told && matches!(world.path, Path::Through(on, _) if on == *id),
        });
        responses.listed(host, world.clock(), found.collect());
    }
}

/// Runs a plan on the world to the end, and checks how it ended.
pub(super) fn run(world: &mut World, keeps: bool) {
    let mut responses = fresh(world);
    let mut kept = String::new();
    let mut changes = u64::MAX;
    let mut endings = Vec::new();
    let plan: [(u64, Option<Bytes>); 4] =
        [(1_500, Some(CACHE)), (6_000, Some(Bytes::mib(60))), (9_000, Some(CACHE)), (12_000, None)];
    let mut planned = 0;
    while world.now < 2_400_000 {
        world.pass(if world.now < 200_000 { 250 } else { 5_000 });
        // What is wanted is told again and again, as a controller does that knows nothing of what was told before.
        while planned < plan.len() && plan[planned].0 <= world.now && (planned < 3 || !keeps) {
            if planned == 0 {
                responses.warm(VOLUME, Vec::new(), 1);
            }
            planned += 1;
        }
        // As with every start.
        if let Some((_, drained)) = world.drained.as_ref().filter(|(from, _)| *from <= world.now) {
            responses.drain(drained.clone());
        }
        match planned.checked_sub(1).map(|at| plan[at].1) {
            Some(Some(cache)) => responses.want(VOLUME, wish(cache)),
            Some(None) => responses.give_back(VOLUME, "the load has gone"),
            None => {}
        }
        let due: Vec<(OrderId, Outcome)> = (world.reports.iter())
            .filter(|(at, ..)| *at <= world.now)
            .map(|(_, id, outcome)| (*id, outcome.clone()))
            .collect();
        world.reports.retain(|(at, ..)| *at > world.now);
        for (id, outcome) in due {
            world.tell_report(&mut responses, id, outcome);
        }
        if world.now >= world.storage_down_until {
            responses.lease_seen(VOLUME, world.lease.0, world.lease.1);
        }
        list(world, &mut responses);
        let orders = responses.step(world.clock());
        if responses.changes() != changes {
            changes = responses.changes();
            kept = serde_json::to_string(&responses.journal()).unwrap();
        }
        for order in orders {
            world.take(order);
            if std::mem::take(&mut world.controller_dies) {
                world.told.push(format!("{:>8} the controller dies", world.now));
                endings.extend(responses.decisions());
                responses = restart(world, &kept);
                changes = u64::MAX;
                break;
            }
        }
        endings.extend(responses.decisions());
    }
    let status = responses.status(VOLUME).unwrap();
    let claims: Vec<&Claim> = responses.claims().collect();
    let forgot = world.strikes.iter().any(|strike| strike.failure == Failure::JournalLost);
    match world.path {
        // What was compared with other data is gone, so that nothing can say whether the original route leads to it again.
        Path::Through(appliance, _) if world.is_told_of_other_disk && !world.works(appliance) => {
            assert_eq!(status.step, "switching back");
            let told = endings.iter().any(|told| told.summary.contains("does not lead to their data"));
            assert!(told, "nobody is told that clients wait for the right disk");
            return;
        }
        // Nothing but the host itself can say that what was out on it will not change data any more, and it is gone.
        Path::Through(appliance, _) if !world.leased && !world.machines.contains_key(&appliance) => {
            assert!(["stopping before the way back", "switching back"].contains(&status.step));
            // Where the journal is lost nobody knows which host it was.
            assert!(forgot || world.hosts[&status.host.unwrap()].dead);
            let waits = ["its clients wait for it", "switching back does not succeed"];
            let told = endings.iter().any(|told| waits.iter().any(|words| told.summary.contains(words)));
            assert!(told, "nobody is told that clients wait for a host");
            return;
        }
        Path::Through(appliance, _) => {
            assert!(keeps, "clients are still on an appliance that nobody wants");
            let on = status.host.expect("it serves");
            assert!(!responses.is_drained(on), "clients are on a host that is drained");
            assert!(!responses.shared.drained.volumes.contains(&VOLUME), "its volume is drained");
            assert!(world.works(appliance), "clients are on an appliance that does not answer");
            assert_eq!((status.step, status.appliance), ("serving", Some(appliance)));
            assert_eq!(status.cache_bytes, CACHE.get());
        }
        Path::Straight(_) => {
            assert_eq!((status.step, status.appliance), ("original route", None));
        }
    }
    if !world.leased {
        assert_eq!(world.lease, (0, Holder::Original));
    }
    // Whose journal is lost knows of no fence that was before it.
    assert!(forgot || world.lost_lease.is_none(), "whom a fence kept out is let in: {:?}", world.lease);
    assert!(world.admits(world.path), "clients are where the lease refuses them");
    // Somebody who connects anew finds the data where the journal says: by the name alone on the original route.
    let fenced = world.leased && world.lease.1 == Holder::Named;
    assert_eq!(fenced, world.leased && matches!(world.path, Path::Through(..)));
    // Nothing runs, and nothing is claimed, but what serves and what may run on a host that is gone.
    let serves = status.appliance;
    for id in world.machines.keys() {
        assert!(Some(*id) == serves, "{id:?} still runs");
    }
    for claim in claims {
        let its = Some(claim.host) == status.host;
        assert!(its || world.hosts[&claim.host].dead, "{claim:?} is claimed for nothing");
    }
    let last = endings.iter().rev().find(|decision| {
        matches!(
            decision.kind,
            DecisionKind::CacheInPlace | DecisionKind::OriginalRoute | DecisionKind::NothingHelps
        )
    });
    // Who adopts has nothing to say of it.
    if !forgot {
        let last = last.expect("it was said how it ended");
        let in_place = last.kind == DecisionKind::CacheInPlace;
        assert_eq!(in_place, serves.is_some(), "{}", last.summary);
    }
}

/// [`run`], telling everything that happened where it fails.
pub(super) fn checked(draining: Draining, leased: bool, keeps: bool, strikes: &[Strike]) -> World {
    checked_on(World::new(draining, leased, strikes.to_vec()), keeps)
}

/// The same on a world that is said.
pub(super) fn checked_on(mut world: World, keeps: bool) -> World {
    let (draining, leased, strikes) = (world.draining, world.leased, world.strikes.clone());
    let ran = catch_unwind(AssertUnwindSafe(|| run(&mut world, keeps)));
    if let Err(panic) = ran {
        let from = world.told.len().saturating_sub(60);
        eprintln!(
            "{draining:?}, leased {leased}, keeps {keeps}, {strikes:?}\n{}",
            world.told[from..].join("\n")
        );
        resume_unwind(panic);
    }
    world
}

/// What a route can do, where clients are moved at all.
pub(super) const WAYS: [(Draining, bool); 4] = [
    (Draining::ByItself, true),
    (Draining::ByItself, false),
    (Draining::ByLease, true),
    (Draining::Not, true),
];

pub(super) fn words(world: &World) -> Vec<String> {
    let orders =
        world.told.iter().filter_map(|line| line.split_once(": ").filter(|(head, _)| head.contains("order")));
    let word = |(_, what): (&str, &str)| what.split([' ', '{']).next().unwrap_or_default().to_owned();
    let mut words: Vec<String> = orders.map(word).collect();
    words.dedup();
    words
}

/// A cache of this size is wanted for so many seconds; where the volume is then, by which appliance, and with how much, and what was told.
pub(super) fn wanted(
    world: &mut World,
    responses: &mut Responses,
    cache: Bytes,
    seconds: u64,
) -> ((&'static str, Option<u64>, Bytes), Vec<String>) {
    responses.want(VOLUME, wish(cache));
    let mut told = Vec::new();
    for _ in 0..seconds * 4 {
        world.pass(250);
        world.tell_reports(responses);
        responses.step(world.clock()).into_iter().for_each(|order| world.take(order));
        told.extend(responses.decisions().into_iter().map(|decision| decision.summary));
    }
    let status = responses.status(VOLUME).unwrap();
    ((status.step, status.appliance.map(|appliance| appliance.0), Bytes(status.cache_bytes)), told)
}
