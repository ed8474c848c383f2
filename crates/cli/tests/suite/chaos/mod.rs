//! A chain of Forebays under whatever strikes: clients read, write and flush through a proxy, by an appliance or without, before a stranger's server that loses
//! power, while parts are killed and stopped, connections cut and held up, answers late or wrong, and clients moved to and fro.
//!
//! Each answer is held against what it may be ([`truth`]): no byte is older than what was acknowledged, but for what a loss of power may have taken, of which
//! the first flush behind it has to tell; no request hangs; no part ends by itself or panics; the proxy is where it says; and in the end the
//! origin holds what it must, also if it lost power then.
//!
//! A run is a seed: how the chain is configured, what strikes in which order, and what each client asks for follow from it. **When they meet does not**, so that a
//! seed which fails once may pass again, and the other way round. `FOREBAY_CHAOS_SEEDS` says how many runs there are (2 unless set), `FOREBAY_CHAOS_SEED_FIRST`
//! the first seed, `FOREBAY_CHAOS_SECONDS` for how long each strikes (10), `FOREBAY_CHAOS_ONLY` what alone strikes, `FOREBAY_CHAOS_LOG` what the parts log (`info`). A run that fails leaves its folder,
//! with the logs of all parts and what happened when (`events`).

mod chain;
mod client;
mod course;
mod draw;
mod origin;
mod parts;
mod relay;
mod truth;

use crate::ledger::SECTOR;
use crate::support::SetOnDrop;
use chain::Chain;
use draw::Draw;
use forebay_actuate::Deadline;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use truth::Truth;

const SIZE_BYTES: usize = 4 << 20;
const SECTORS: usize = SIZE_BYTES / SECTOR;
const CLIENTS: u64 = 6;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a run may take behind its last strike, and how long the last strike may take.
const AFTERWARDS: Duration = Duration::from_secs(150);

/// Unless set: it and the next are one before a stranger's server and one before a file.
const FIRST_SEED: u64 = 11;

/// The rows of numbers of a run; those below are of the strikes.
const CONFIGURATION: u64 = 1 << 32;
const FIRST_CLIENT: u64 = 2 << 32;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// One run; what it was like.
fn run(folder: &Path, seed: u64, time: Duration) -> Result<String, String> {
    let truth = Truth::new(SECTORS);
    let until = Deadline::after(time + AFTERWARDS);
    let mut chain = Chain::start(folder, &truth, &mut Draw::new(seed, CONFIGURATION), until)?;
    let (is_over, striking) = (AtomicBool::new(false), Deadline::after(time));
    let socket = chain.parts.path("proxy.sock");
    let (mut strikes, volume) = (0, Chain::volume(&socket, &truth));
    std::thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|client| {
            let is_over = &is_over;
            scope.spawn(move || {
                let draw = Draw::new(seed, FIRST_CLIENT + client);
                let worked = client::work(volume, draw, || is_over.load(Ordering::Relaxed));
                worked.inspect_err(|_| is_over.store(true, Ordering::Relaxed))
            })
        });
        let clients: Vec<_> = clients.collect();
        let over = SetOnDrop(&is_over);
        let mut result = Ok(());
        while result.is_ok() && !striking.is_over() && !is_over.load(Ordering::Relaxed) {
            result = course::strike(&mut chain, seed, strikes);
            strikes += 1;
        }
        drop(over);
        result = result.and_then(|()| chain.mend());
        if let Err(error) = &result {
            chain.parts.note(error);
            // Nobody has to wait for an answer then.
            chain.parts.kill();
        }
        for client in clients {
            let worked = client.join().unwrap_or_else(|_| Err("a client panics".to_owned()));
            if let Err(error) = &worked {
                chain.parts.note(error);
            }
            result = result.and(worked);
        }
        result
    })?;
    let (starts, appliances, what) = (chain.parts.starts, chain.appliances, chain.describe());
    chain.finish()?;
    Ok(format!("{what}; {strikes} strikes, {starts} starts, {appliances} appliances; {}", truth.counts()))
}

#[test]
fn whatever_strikes_a_chain_nothing_is_lost_but_what_is_told() {
    let (first, seeds) = (setting("FOREBAY_CHAOS_SEED_FIRST", FIRST_SEED), setting("FOREBAY_CHAOS_SEEDS", 2));
    let time = Duration::from_secs(setting("FOREBAY_CHAOS_SECONDS", 10));
    for seed in first..first + seeds {
        println!("chaos: FOREBAY_CHAOS_SEED_FIRST={seed} for {time:?}");
        let folder = crate::support::folder();
        match run(folder.path(), seed, time) {
            Ok(what) => println!("chaos: seed {seed} passed: {what}"),
            Err(error) => {
                let folder = folder.keep();
                panic!("chaos: seed {seed} FAILED: {error}; see {}", folder.display());
            }
        }
    }
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
