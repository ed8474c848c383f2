//! Forebays under whatever strikes, while clients read, write and flush.
//!
//! * A chain: through a proxy, by an appliance or without, before a stranger's server that loses power, while parts are killed and stopped, connections cut and held up, answers late
//!   or wrong, and clients moved to and fro ([`chain`], [`course`]).
//! * A daemon with several volumes, each before a file or a stranger's server, with flash, snapshots and all else that it keeps: while it is killed and stopped, what it keeps is
//!   damaged or finds no room, caches are resized, and it is started with another configuration ([`daemon`], [`daemon_course`]).
//!
//! Each answer is held against what it may be ([`truth`]): no byte is older than what was acknowledged, but for what a loss of power may have taken, of which
//! the first flush behind it has to tell; no request hangs; no part ends by itself or panics; the parts say of themselves what is so; and in the end the
//! origin holds what it must, also if it lost power then.
//!
//! A run is a seed: how all is configured, what strikes in which order, and what each client asks for follow from it. **When they meet does not**, so that a
//! seed which fails once may pass again, and the other way round. `FOREBAY_CHAOS_SEEDS` says how many runs there are (2 unless set), `FOREBAY_CHAOS_SEED_FIRST`
//! the first seed, `FOREBAY_CHAOS_SECONDS` for how long each strikes (10), `FOREBAY_CHAOS_ONLY` what alone strikes, `FOREBAY_CHAOS_LOG` what the parts log (`info`). A run that fails leaves its folder,
//! with the logs of all parts and what happened when (`events`).

mod chain;
mod client;
mod course;
mod daemon;
mod daemon_course;
mod damage;
mod draw;
mod origin;
mod parts;
mod relay;
mod repertoire;
mod space;
mod truth;
mod volumes;

use crate::ledger::SECTOR;
use crate::support::SetOnDrop;
use chain::Chain;
use client::{Step, Volume};
use daemon::Daemon;
use draw::Draw;
use forebay_actuate::Deadline;
use parts::Parts;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use truth::Truth;

const SIZE_BYTES: usize = 4 << 20;
const SECTORS: usize = SIZE_BYTES / SECTOR;
const CLIENTS: usize = 6;
/// Of each volume of a daemon.
const CLIENTS_OF_VOLUME: usize = 3;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a run may take behind its last strike, and how long the last strike may take.
const AFTERWARDS: Duration = Duration::from_secs(150);

/// The rows of numbers of a run; those below are of the strikes.
const CONFIGURATION: u64 = 1 << 32;
const FIRST_CLIENT: u64 = 2 << 32;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Each of `strikes` as often as it is to be drawn: all of them, or those that `FOREBAY_CHAOS_ONLY` names, as in `Loss,ToAppliance`.
fn meant<S: Copy + std::fmt::Debug>(strikes: &[(S, usize)]) -> Vec<S> {
    let only = std::env::var("FOREBAY_CHAOS_ONLY").unwrap_or_default();
    let is_meant = |strike: &S| only.is_empty() || only.split(',').any(|name| name == format!("{strike:?}"));
    let meant = strikes.iter().filter(|(strike, _)| is_meant(strike));
    meant.flat_map(|(strike, often)| std::iter::repeat_n(*strike, *often)).collect()
}

/// What is struck.
trait Struck {
    /// What strikes as the `number`th, a while from now; all about it follows from `draw`.
    fn strike(&mut self, draw: Draw, number: u64) -> Result<(), String>;

    /// Has everything behave again that was told to misbehave; an error if somebody has ended by itself.
    fn mend(&mut self) -> Result<(), String>;

    fn parts(&mut self) -> &mut Parts;
}

/// Strikes for so long, while clients are at work; how often.
fn strike(
    struck: &mut impl Struck,
    clients: &[(Volume<'_>, Step)],
    seed: u64,
    time: Duration,
) -> Result<u64, String> {
    let (is_over, striking) = (AtomicBool::new(false), Deadline::after(time));
    std::thread::scope(|scope| {
        let clients = clients.iter().zip(FIRST_CLIENT..).map(|((volume, step), row)| {
            let is_over = &is_over;
            scope.spawn(move || {
                let worked =
                    client::work(*volume, *step, Draw::new(seed, row), || is_over.load(Ordering::Relaxed));
                worked.inspect_err(|_| is_over.store(true, Ordering::Relaxed))
            })
        });
        let clients: Vec<_> = clients.collect();
        let over = SetOnDrop(&is_over);
        let (mut result, mut strikes) = (Ok(()), 0);
        while result.is_ok() && !striking.is_over() && !is_over.load(Ordering::Relaxed) {
            result = struck.strike(Draw::new(seed, strikes), strikes);
            strikes += 1;
        }
        drop(over);
        result = result.and_then(|()| struck.mend());
        if let Err(error) = &result {
            struck.parts().note(error);
            // Nobody has to wait for an answer then.
            struck.parts().kill();
        }
        for client in clients {
            let worked = client.join().unwrap_or_else(|_| Err("a client panics".to_owned()));
            if let Err(error) = &worked {
                struck.parts().note(error);
            }
            result = result.and(worked);
        }
        result.map(|()| strikes)
    })
}

/// One run of a chain; what it was like.
fn run_chain(folder: &Path, seed: u64, time: Duration) -> Result<String, String> {
    let truth = Truth::new(SECTORS);
    let until = Deadline::after(time + AFTERWARDS);
    let mut chain = Chain::start(folder, &truth, &mut Draw::new(seed, CONFIGURATION), until)?;
    let socket = chain.parts.path("proxy.sock");
    let step: Step = |lane, draw| lane.step(draw);
    let clients = [(Chain::volume(&socket, &truth), step); CLIENTS];
    let strikes = strike(&mut chain, &clients, seed, time)?;
    let (starts, appliances, what) = (chain.parts.starts, chain.appliances, chain.describe());
    chain.finish()?;
    let counts = Truth::counts(&[truth]);
    Ok(format!("{what}; {strikes} strikes, {starts} starts, {appliances} appliances; {counts}"))
}

/// One run of a daemon; what it was like.
fn run_daemon(folder: &Path, seed: u64, time: Duration) -> Result<String, String> {
    let mut draw = Draw::new(seed, CONFIGURATION);
    let truths = daemon::truths(&mut draw);
    let until = Deadline::after(time + AFTERWARDS);
    let mut daemon = Daemon::start(folder, &truths, &mut draw, until)?;
    let socket = daemon.socket();
    let volumes = truths.iter().map(|truth| Volume { socket: &socket, truth });
    let clients: Vec<_> =
        volumes.flat_map(|volume| [(volume, repertoire::ask_anything as Step); CLIENTS_OF_VOLUME]).collect();
    let strikes = strike(&mut daemon, &clients, seed, time)?;
    let what = daemon.describe();
    let (starts, refusals) = daemon.finish()?;
    let counts = Truth::counts(&truths);
    Ok(format!("{what}; {strikes} strikes, {starts} starts, {refusals} of them refused; {counts}"))
}

fn run_seeds(what: &str, first: u64, run: fn(&Path, u64, Duration) -> Result<String, String>) {
    let (first, seeds) = (setting("FOREBAY_CHAOS_SEED_FIRST", first), setting("FOREBAY_CHAOS_SEEDS", 2));
    let time = Duration::from_secs(setting("FOREBAY_CHAOS_SECONDS", 10));
    for seed in first..first + seeds {
        println!("chaos: {what}, FOREBAY_CHAOS_SEED_FIRST={seed} for {time:?}");
        let folder = crate::support::folder();
        match run(folder.path(), seed, time) {
            Ok(how) => println!("chaos: seed {seed} of {what} passed: {how}"),
            Err(error) => {
                let folder = folder.keep();
                panic!("chaos: seed {seed} of {what} FAILED: {error}; see {}", folder.display());
            }
        }
    }
}

#[test]
fn whatever_strikes_a_chain_nothing_is_lost_but_what_is_told() {
    if course::strikes().is_empty() {
        return println!("skipped: nothing of FOREBAY_CHAOS_ONLY strikes a chain");
    }
    // It and the next are one before a stranger's server and one before a file.
    run_seeds("a chain", 11, run_chain);
}

#[test]
fn whatever_strikes_a_daemon_and_what_it_keeps_nothing_is_lost_but_what_is_told() {
    if daemon_course::strikes().is_empty() {
        return println!("skipped: nothing of FOREBAY_CHAOS_ONLY strikes a daemon");
    }
    // It and the next have flash on a small file system and on a plain one, before a file and a stranger's server.
    run_seeds("a daemon", 13, run_daemon);
}

/// What finds nothing must be able to find something: there is no Forebay here to tell anybody anything.
#[test]
fn a_loss_of_which_nobody_is_told_is_found() {
    use origin::{Manners, Origin};
    let find = |is_known: bool, asks: fn(&mut client::Lane<'_>) -> Result<(), client::Unanswered>| {
        let folder = crate::support::folder();
        let socket = folder.path().join("origin.sock");
        let origin = Origin::start(&socket, SIZE_BYTES, Draw::new(1, 0));
        let truth = Truth::new(SECTORS);
        let connect = || client::Lane::connect(Chain::volume(&socket, &truth)).ok().expect("it serves");
        let mut lane = connect();
        for block in 0..SECTORS / 8 {
            lane.write(block * 8, 8, false, false).ok().expect("it takes writes");
        }
        if is_known {
            truth.lose(|| origin.lose());
        } else {
            origin.lose();
        }
        origin.behave(Manners::default());
        match asks(&mut connect()) {
            Err(client::Unanswered::Broken(what)) => what,
            _ => String::new(),
        }
    };
    assert!(find(false, |lane| lane.read_whole()).contains("lost"));
    assert_eq!(find(true, |lane| lane.read_whole()), "");
    assert!(find(true, |lane| lane.flush()).contains("nobody was told"));
}
