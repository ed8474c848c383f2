//! The response to a violation on the real data path: the machine of `control::response` has appliances started, clients moved, caches filled and
//! everything taken back, while applications write and read what they wrote, and anything fails at any step.
//!
//! Real are the response with its journal, the sessions, services and volume machines of the storage side, the appliances and the permanent proxy, leases,
//! and the change of a volume's origin. Imitated are their drivers: the worker's turn (`node.rs`), the NBD origin (`link.rs`), and what carries orders out
//! (`carrying.rs`, as `serve::fleet` does). Simulated are network, disk, hosts and clock, at a hundredth of the usual times.
//!
//! Every read is explained by some order of the changes, no change that its application was told had failed, or that was lost with the proxy, comes back over a later one, nothing that came on a connection is
//! begun before all is over that came on those whose place it takes, and in the end the cache is in place or the clients are on the original route, as the last decision says, and all can be read there.

mod address;
mod application;
mod carrying;
mod controller;
mod disk;
mod link;
mod node;
mod strike;
mod visit;
mod wires;
mod world;

use crate::{LOG_LINES, commit, number};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};
use world::{ADDRESS, Course, FAR, World};

/// Seeds of an ordinary run of the suite; and of those with a server of others behind the storage side.
const SEED_COUNT: u64 = 200;
const FAR_COUNT: u64 = 100;
const ADDRESS_COUNT: u64 = 100;

/// A change that a killed run of the proxy had sent to an appliance whose host stood still came when the next run had been sent back to the storage side. The
/// error of a flush that one had been told was told to nobody where the next one was fenced before it asked for a flush;
/// and where it was let in before the fence, and looked at behind it.
///
/// With a server of others: a storage side told an appliance that ended of a loss, and the proxy whose own changes these were that all was safe; and the error of a flush of the proxy's own was told by nobody, which
/// was fenced then, sent to an appliance, and killed. And an appliance died with such an error, before the fence behind which its clients came another way.
///
/// Of clients by an address: who has the old path flush before they leave it was told of a loss by the appliance, which had it from the storage side and told nobody else. The storage side took it for heard when another
/// flush succeeded there, and when the appliance's connection was made again; and the appliance, when the visitor's connection ended right behind its farewell.
/// And two flushes were with the disk at once: it told the visitor's of the loss, the client's heard first that all was safe.
const FAILED_ONCE: [u64; 11] = [
    70_002_229,
    70_004_895,
    80_008_938,
    850_000_621,
    FAR + 300_017_752,
    FAR + 400_001_127,
    FAR + 700_004_308,
    FAR + ADDRESS + 224,
    FAR + ADDRESS + 8_005_919,
    FAR + ADDRESS + 6_363,
    ADDRESS + 770_000_667,
];

fn run(seed: u64) -> Course {
    let mut world = World::new(seed, false);
    world.run();
    world.course
}

fn run_or_tell(seed: u64, place: u64) -> Course {
    match catch_unwind(|| run(seed)) {
        Ok(course) => course,
        Err(panic) => {
            eprintln!(
                "simtest: seed {seed} of responses fails, number {place} of this run, commit {}",
                commit()
            );
            let mut world = World::new(seed, true);
            let _ = catch_unwind(AssertUnwindSafe(|| world.run()));
            let log = world.log.take().unwrap_or_default();
            let shown =
                if number("FOREBAY_RESPONSE_SEED").is_some() { log.len() } else { LOG_LINES.min(log.len()) };
            log[log.len() - shown..].iter().for_each(|line| eprintln!("{line}"));
            eprintln!(
                "simtest: replay with FOREBAY_RESPONSE_SEED={seed} cargo test -p forebay-simtest response"
            );
            resume_unwind(panic)
        }
    }
}

/// Runs so many seeds from this one on, or for as long as `FOREBAY_MINUTES` says.
fn run_all(first: u64, count: u64) -> (u64, Course) {
    let minutes = number("FOREBAY_MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let start = Instant::now();
    let (mut seeds, mut all) = (0, Course::default());
    while minutes.map_or(seeds < count, |minutes| start.elapsed() < minutes) {
        let course = run_or_tell(first + seeds, seeds + 1);
        seeds += 1;
        all.add(&course);
    }
    println!(
        "simtest: {seeds} responses from seed {first} on in {:.1} s: {all:?}",
        start.elapsed().as_secs_f64()
    );
    (seeds, all)
}

#[test]
fn every_response_ends_in_place_or_on_the_original_route_and_no_byte_is_wrong() {
    if let Some(seed) = number("FOREBAY_RESPONSE_SEED") {
        println!("simtest: response, seed {seed}: {:?}", run_or_tell(seed, 1));
        return;
    }
    let first = number("FOREBAY_SEED_FIRST").unwrap_or(0);
    let (seeds, all) = run_all(first, number("FOREBAY_RESPONSE_SEEDS").unwrap_or(SEED_COUNT));
    // A simulation in which nothing happens proves nothing.
    if seeds >= 100 {
        assert!(
            all.answers > 300 * seeds
                && all.switches > seeds / 2
                && all.strikes > seeds / 2
                && all.hits > seeds
                && all.errors > seeds / 4
                && all.sent_again > seeds / 8
                && all.in_place > seeds / 8
                && all.original > seeds / 4
                && all.left_behind > seeds / 20
                && all.replaced > seeds / 20
                && all.failed_flushes > seeds / 50
                && all.overtaking > seeds / 20
                && all.forgotten > 0
        );
    }
}

/// A server of others behind the storage side tells nobody what it lost with its power: who asked it finds out, or who asked that one.
#[test]
fn what_a_server_of_others_loses_is_told() {
    if number("FOREBAY_RESPONSE_SEED").is_some() {
        return; // The other test runs it.
    }
    let first = FAR | number("FOREBAY_SEED_FIRST").unwrap_or(0);
    let (seeds, all) = run_all(first, number("FOREBAY_RESPONSE_SEEDS").unwrap_or(FAR_COUNT));
    if seeds >= 100 {
        assert!(
            all.answers > 300 * seeds
                && all.switches > seeds / 2
                && all.power_failures > seeds / 20
                && all.told_and_lost > 0
                && all.in_place > seeds / 8
                && all.original > seeds / 4
        );
    }
}

/// Clients come by an address that moves, with the disk at the storage side, and with a server of others behind that.
#[test]
fn clients_of_an_address_that_moves_lose_nothing() {
    if number("FOREBAY_RESPONSE_SEED").is_some() {
        return; // The first test runs it.
    }
    for first in [ADDRESS, ADDRESS | FAR] {
        let first = first | number("FOREBAY_SEED_FIRST").unwrap_or(0);
        let (seeds, all) = run_all(first, number("FOREBAY_RESPONSE_SEEDS").unwrap_or(ADDRESS_COUNT));
        if seeds >= 100 {
            assert!(
                all.answers > 300 * seeds
                    && all.switches > seeds / 2
                    && all.strikes > seeds / 2
                    && all.in_place > seeds / 8
                    && all.original > seeds / 4
            );
        }
    }
}

/// What they found is told by `docs/internals/simtest.md`.
#[test]
fn seeds_that_failed_once_do_not_fail_again() {
    for (seed, place) in FAILED_ONCE.into_iter().zip(1..) {
        run_or_tell(seed, place);
    }
}

#[test]
fn a_response_takes_the_same_course_each_time() {
    for seed in [0, 1, 2, FAR, FAR + 1, ADDRESS, ADDRESS + 1] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
