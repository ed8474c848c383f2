//! Rules that courses do not show, since they end well without them too; here, what their tests share.

mod drains;
mod rooms;
mod strays;
mod tries;
mod ways;

use super::runs::{fresh, restart, volumes, wanted, wish, words};
use super::*;

/// Runs for so many seconds. `answer` may say what becomes of an order in place of the world; what was ordered, and when, in milliseconds.
fn ordered(
    world: &mut World,
    responses: &mut Responses,
    seconds: u64,
    mut answer: impl FnMut(&What) -> Option<Outcome>,
) -> Vec<(u64, What)> {
    let mut ordered = Vec::new();
    for _ in 0..seconds * 4 {
        world.pass(250);
        world.tell_reports(responses);
        for order in responses.step(world.clock()) {
            ordered.push((world.now, order.what.clone()));
            match answer(&order.what) {
                Some(outcome) => world.reports.push((world.now, order.id, outcome)),
                None => world.take(order),
            }
        }
    }
    ordered
}

fn there(draining: Draining, leased: bool) -> (World, Responses) {
    let world = World::new(draining, leased, Vec::new());
    let responses = fresh(&world);
    (world, responses)
}

/// The same on other hosts, or by other rules.
fn there_on(hosts: Vec<HostSpec>, rules: ResponseRules) -> (World, Responses) {
    let world = World::new(Draining::ByItself, true, Vec::new());
    let mut responses = Responses::new(rules, hosts);
    volumes(&world).into_iter().for_each(|(id, route)| responses.register(id, route));
    (world, responses)
}

fn host(id: HostId, memory: Bytes) -> HostSpec {
    HostSpec::new(id, format!("h{}", id.0), id.0 / 2, memory)
}

fn times(ordered: &[(u64, What)], word: &str) -> Vec<u64> {
    ordered.iter().filter(|(_, what)| what.word() == word).map(|(at, _)| *at).collect()
}

/// No host has anything of before, nor can come to have it.
pub(super) fn everybody_lists(responses: &mut Responses) {
    let late = Nanos::millis(ResponseRules::default().late_max_ms);
    responses
        .unlisted()
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|host| responses.listed(host, late, Vec::new()));
}

/// One of which no journal tells.
pub(super) fn stray(number: u64) -> Found {
    Found { appliance: ApplianceId(number), volume: VOLUME, memory: Bytes::mib(64), has_clients: false }
}

fn no() -> Option<Outcome> {
    Some(Outcome::Refused("no".to_owned()))
}

fn silence() -> Option<Outcome> {
    Some(Outcome::Unknown("nothing is heard".to_owned()))
}

fn status(responses: &Responses) -> ResponseStatus {
    responses.status(VOLUME).unwrap()
}

fn told(responses: &mut Responses) -> Vec<String> {
    responses.decisions().into_iter().map(|decision| decision.summary).collect()
}
