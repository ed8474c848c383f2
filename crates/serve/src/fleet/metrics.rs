//! What Prometheus is told of a controller of a fleet: what `forebay status` and `forebay explain` tell, as of the last turn.
//!
//! A family that a daemon has, too, has its name ([`crate::metrics::common`]). Label values are names from the configuration or words of ours. What is not known has no
//! sample: of a volume that nobody tells of there is no rate of 0. Of a volume that is only watched nothing is told of appliances.

use super::carrying::{Carriers, Switches, id_of};
use super::config::FleetConfig;
use super::observing::Observer;
use super::strays::Strays;
use super::{FleetShared, FleetState, draining, showing};
use crate::metrics::Text;
use crate::metrics::common::{self, Gauge, Promise};
use crate::status::{DrainStatus, DrainedWhat, LatencyStatus, VolumeStatus};
use forebay_control::HostId;
use forebay_control::response::{ResponseStatus, Responses};
use forebay_units::{Bytes, Nanos};

/// What there was in the last turn beside the status of the volumes.
#[derive(Default)]
pub(crate) struct Turn {
    /// In the order of the configuration, as all that follows.
    volumes: Vec<Moved>,
    hosts: Vec<Room>,
    strays_left: usize,
    /// Hosts and volumes that are drained, and what there is of them yet.
    pub(crate) drained: Vec<DrainStatus>,
}

/// How a volume's clients are moved, and when it was heard of.
struct Moved {
    response: Option<ResponseStatus>,
    switches: Switches,
    /// When something new was heard of it last, since the controller's start; nothing before that.
    heard: Nanos,
}

/// What is taken of a host.
struct Room {
    claimed: Bytes,
    rests: bool,
    is_unlisted: bool,
}

impl Turn {
    pub(super) fn of(
        config: &FleetConfig,
        observer: &Observer,
        responses: &Responses,
        carriers: &Carriers,
        strays: &Strays,
    ) -> Turn {
        let moved = |index| Moved {
            response: responses.status(id_of(index)),
            switches: carriers.switches(id_of(index)),
            heard: observer.last(id_of(index)).heard,
        };
        let claimed_of = |host| {
            let claims = responses.claims().filter(|claim| claim.host == host);
            Bytes(claims.map(|claim| claim.room.memory.get()).sum())
        };
        let room = |host| Room {
            claimed: claimed_of(host),
            rests: responses.rests(host),
            is_unlisted: responses.unlisted().any(|unlisted| unlisted == host),
        };
        Turn {
            volumes: (0..config.volume.len()).map(moved).collect(),
            hosts: (0..config.host.len()).map(|index| room(HostId(index as u32))).collect(),
            strays_left: strays.left(),
            drained: draining::statuses(config, responses),
        }
    }
}

/// The metrics of now.
pub(super) fn render(shared: &FleetShared) -> String {
    let mut text = Text::default();
    let now = Nanos::from(shared.started.elapsed());
    let state = shared.state();
    common::process(&mut text, shared.started_unix_ms, state.clock_steps);
    controller(&mut text, shared, &state);
    common::history(&mut text, shared.history.as_ref());
    hosts(&mut text, &shared.config, &state.turn);
    drained(&mut text, &state.turn);
    let strays = state.turn.strays_left as f64;
    let help = "Appliances of this controller found running for volumes whose clients it does not move: they are left to people.";
    text.single("forebay_strays_left_total", "counter", help, strays);
    let volumes: Vec<Volume<'_>> = state.volumes.iter().zip(&state.turn.volumes).collect();
    heard(&mut text, &volumes, now);
    rates(&mut text, &volumes);
    objectives(&mut text, &volumes);
    responses(&mut text, &shared.config, &volumes);
    events(&mut text, &volumes, &state);
    text.finish()
}

fn controller(text: &mut Text, shared: &FleetShared, state: &FleetState) {
    let kinds = state.decision_counts.iter();
    let kinds = kinds.map(|(kind, of)| (kind.as_str(), of.values().sum::<u64>()));
    common::controller(text, &showing::controller(shared, state), kinds);
    let fails = f64::from(state.journal_trouble.is_some());
    let help = "1 while the journal cannot be written, so that nothing is decided or begun.";
    text.single("forebay_controller_journal_failing", "gauge", help, fails);
}

/// Of hosts and volumes that are drained, and of no others: 0 once they may be removed.
fn drained(text: &mut Text, turn: &Turn) {
    for (what, name, label, help) in [
        (
            DrainedWhat::Host,
            "forebay_host_draining",
            "host",
            "Of hosts with `drain` alone: 1 while there is an appliance on it, 0 once it may be maintained, or removed from the configuration.",
        ),
        (
            DrainedWhat::Volume,
            "forebay_volume_draining",
            "volume",
            "Of volumes with `drain` alone: 1 while it has an appliance, 0 once it may be removed from the configuration.",
        ),
    ] {
        let of: Vec<&DrainStatus> = turn.drained.iter().filter(|of| of.what == what).collect();
        if !of.is_empty() {
            text.family(name, "gauge", help);
        }
        for status in of {
            text.sample(name, &[(label, &status.name)], f64::from(status.left.is_some()));
        }
    }
}

fn hosts(text: &mut Text, config: &FleetConfig, turn: &Turn) {
    type Of = fn(Bytes, &Room) -> f64;
    let families: [(&str, &str, Of); 5] = [
        ("forebay_host_memory_bytes", "Memory that the host offers for appliances.", |all, _| all.as_f64()),
        (
            "forebay_host_memory_claimed_bytes",
            "What is spoken for of it: of appliances that run, and of those that are started or stopped.",
            |_, room| room.claimed.as_f64(),
        ),
        ("forebay_host_memory_free_bytes", "What is left of it.", |all, room| {
            all.saturating_sub(room.claimed).as_f64()
        }),
        (
            "forebay_host_resting",
            "1 while nothing is started there: an appliance failed there of late, or it is unlisted.",
            |_, room| f64::from(room.rests),
        ),
        (
            "forebay_host_unlisted",
            "1 while the host has not said what runs there, and the journal that told it is lost.",
            |_, room| f64::from(room.is_unlisted),
        ),
    ];
    for (name, help, of) in families {
        text.family(name, "gauge", help);
        for (host, room) in config.host.iter().zip(&turn.hosts) {
            text.sample(name, &[("host", &host.name)], of(host.memory, room));
        }
    }
}

/// A volume, and how its clients are moved.
type Volume<'a> = (&'a VolumeStatus, &'a Moved);

/// Whether what is heard of a volume is relied on now.
fn is_relied_on(volume: &VolumeStatus) -> bool {
    volume.origin.state != "unknown"
}

/// Whether there is something that is relied on.
fn is_known(volume: &VolumeStatus) -> bool {
    is_relied_on(volume) && volume.size_bytes > 0
}

/// A sample for each of `volumes` of which `of` says something.
fn gauge(text: &mut Text, volumes: &[Volume<'_>], gauge: Gauge, of: impl Fn(&Volume<'_>) -> Option<f64>) {
    let each = volumes.iter().filter_map(|volume| Some((volume.0.name.as_str(), of(volume)?)));
    text.of_volumes(gauge, each);
}

/// A sample of 1 for each of `volumes` under the word for it.
fn words<'a>(
    text: &mut Text,
    volumes: &[Volume<'a>],
    (name, help): Gauge,
    label: &str,
    of: impl Fn(&Volume<'a>) -> Option<&'a str>,
) {
    text.family(name, "gauge", help);
    for volume in volumes {
        if let Some(word) = of(volume) {
            text.sample(name, &[("volume", &volume.0.name), (label, word)], 1.0);
        }
    }
}

fn heard(text: &mut Text, volumes: &[Volume<'_>], now: Nanos) {
    let help = "1 if what is told of the volume is relied on, 0 while nothing new is told, or what cannot be so: nothing is done for it meanwhile.";
    gauge(text, volumes, ("forebay_volume_observed", help), |(volume, _)| {
        Some(f64::from(is_relied_on(volume)))
    });
    let help = "How long nothing new has been told of the volume; since the start where nothing was.";
    gauge(text, volumes, ("forebay_volume_unheard_seconds", help), |(_, moved)| {
        Some(now.saturating_since(moved.heard).as_secs_f64())
    });
    let help = "1 under the word for how the volume does, which `forebay status` has.";
    words(text, volumes, ("forebay_volume_state", help), "state", |(volume, _)| Some(&volume.state));
    gauge(text, volumes, common::ORIGIN_UP, |(volume, _)| {
        is_known(volume).then(|| f64::from(volume.origin.state == "up"))
    });
    gauge(text, volumes, common::IN_DOUBT, |(volume, _)| {
        is_known(volume).then_some(volume.origin.in_doubt_bytes as f64)
    });
}

/// What clients ask for, and get, in the last interval of which there is news.
fn rates(text: &mut Text, volumes: &[Volume<'_>]) {
    let known: Vec<Volume<'_>> = volumes.iter().filter(|(volume, _)| is_known(volume)).copied().collect();
    let known = &*known;
    let help = "Requests of clients in the last interval.";
    gauge(text, known, ("forebay_volume_requests_per_second", help), |(volume, _)| Some(volume.iops));
    let help = "Requests of the last interval that were answered with an error.";
    gauge(text, known, ("forebay_volume_errors_per_second", help), |(volume, _)| Some(volume.errors_per_s));
    let name = "forebay_volume_bytes_per_second";
    text.family(name, "gauge", "What clients read and wrote in the last interval.");
    for (volume, _) in known {
        for (op, rate) in [("read", volume.read_bytes_per_s), ("write", volume.write_bytes_per_s)] {
            text.sample(name, &[("volume", &volume.name), ("op", op)], rate);
        }
    }
    let name = "forebay_volume_latency_seconds";
    text.family(name, "gauge", "Latencies of the last interval, as clients saw them.");
    for (volume, _) in known {
        for (op, of) in [("read", volume.read_latency), ("write", volume.write_latency)] {
            let LatencyStatus { mean_s, p50_s, p95_s, p99_s } = of;
            for (statistic, value) in [("mean", mean_s), ("p50", p50_s), ("p95", p95_s), ("p99", p99_s)] {
                let labels = [("volume", volume.name.as_str()), ("op", op), ("statistic", statistic)];
                value.into_iter().for_each(|value| text.sample(name, &labels, value));
            }
        }
    }
    let help = "Share of the reads of the last interval that the cache in memory alone answered.";
    gauge(text, known, ("forebay_volume_hit_ratio", help), |(volume, _)| volume.hit_ratio);
    gauge(text, known, common::WORKING_SET, |(volume, _)| Some(volume.working_set_bytes as f64));
}

fn objectives(text: &mut Text, volumes: &[Volume<'_>]) {
    let promises = volumes.iter().flat_map(|(volume, _)| {
        volume.objectives.iter().enumerate().map(|(at, of)| Promise {
            volume: &volume.name,
            at,
            objective: of.objective.clone(),
            windows: [of.windows_conforming, of.windows_nonconforming, of.windows_low_load],
            conforming_share: of.conforming_share,
            conforming_share_target: of.conforming_share_target,
        })
    });
    common::objectives(text, &promises.collect::<Vec<_>>());
}

/// Where clients are, and what is done for them.
fn responses<'a>(text: &mut Text, config: &'a FleetConfig, volumes: &[Volume<'a>]) {
    let moved = moved(volumes);
    let help = "1 under the word for the step that the volume's response is at, which `forebay status` has.";
    words(text, &moved, ("forebay_volume_step", help), "step", |of| Some(response(of)?.step));
    let help = "1 under where the volume's clients are: original, appliance, or unknown from the order to switch or fence until that is known to be done.";
    words(text, &moved, ("forebay_volume_route", help), "route", |of| Some(response(of)?.route));
    let help = "1 under the host of the volume's appliance, where it has one.";
    let host = |of: HostId| &*config.host[of.0 as usize].name;
    words(text, &moved, ("forebay_volume_appliance", help), "host", |of| response(of)?.host.map(host));
    let help = "1 while that step does not succeed, or an appliance that is wanted is not started.";
    gauge(text, &moved, ("forebay_volume_hindered", help), |of| {
        Some(f64::from(response(of)?.hindered.is_some()))
    });
    let help = "The highest epoch that was given out for the volume.";
    gauge(text, &moved, ("forebay_volume_epoch", help), |of| Some(response(of)?.epoch as f64));
    gauge(text, &moved, common::CACHE_CAPACITY, |of| Some(response(of)?.cache_bytes as f64));
    let help = "The size of cache that is wanted for the volume.";
    gauge(text, &moved, ("forebay_cache_wanted_bytes", help), |of| Some(response(of)?.wanted_bytes as f64));
    gauge(text, &moved, common::CACHE_USED, |(volume, _)| {
        is_known(volume).then_some(volume.used_bytes as f64)
    });
}

fn response<'a>((_, moved): &Volume<'a>) -> Option<&'a ResponseStatus> {
    moved.response.as_ref()
}

/// Those whose clients are moved.
fn moved<'a>(volumes: &[Volume<'a>]) -> Vec<Volume<'a>> {
    volumes.iter().filter(|(volume, _)| volume.controlled).copied().collect()
}

/// What happened since the start.
fn events(text: &mut Text, volumes: &[Volume<'_>], state: &FleetState) {
    let told = |kind: &str, volume: &str| {
        let of = state.decision_counts.get(kind).and_then(|of| of.get(volume));
        of.copied().unwrap_or(0) as f64
    };
    let name = "forebay_volume_violations_total";
    text.family(name, "counter", "Violations found (`violation_found`).");
    for (volume, _) in volumes {
        text.sample(name, &[("volume", &volume.name)], told("violation_found", &volume.name));
    }
    let moved = moved(volumes);
    let name = "forebay_volume_appliance_failures_total";
    let help =
        "Times that an appliance of the volume, or a step of its response, failed (`appliance_failed`).";
    text.family(name, "counter", help);
    for (volume, _) in &moved {
        text.sample(name, &[("volume", &volume.name)], told("appliance_failed", &volume.name));
    }
    let name = "forebay_volume_switches_total";
    text.family(name, "counter", "Re-routes of the volume's clients that succeeded, by where to.");
    for (volume, Moved { switches, .. }) in &moved {
        for (to, count) in [("appliance", switches.to_appliance), ("original", switches.to_original)] {
            text.sample(name, &[("volume", &volume.name), ("to", to)], count as f64);
        }
    }
    let help = "How long requests were held for the last re-route, by whoever moved the clients: not for how long the path that they left was dead before.";
    gauge(text, &moved, ("forebay_volume_switch_pause_seconds", help), |(_, moved)| {
        moved.switches.pause_last.map(Nanos::as_secs_f64)
    });
    let help = "The longest of these pauses.";
    gauge(text, &moved, ("forebay_volume_switch_pause_max_seconds", help), |(_, moved)| {
        moved.switches.pause_max.map(Nanos::as_secs_f64)
    });
    let help = "How long clients had no answer when an appliance of the volume last died, at most: from its last answer until they were on the original route.";
    gauge(text, &moved, ("forebay_volume_outage_seconds", help), |of| {
        Some(response(of)?.outage?.as_secs_f64())
    });
}

#[cfg(test)]
#[path = "../../tests/serve/prometheus.rs"]
mod reader;

#[cfg(test)]
mod tests {
    use super::super::{Fleet, tests};
    use super::*;
    use crate::status::ObjectiveStatus;
    use forebay_control::VolumeId;
    use forebay_control::response::{ApplianceId, ResponseRules};
    use std::collections::{BTreeMap, BTreeSet};

    /// Beside `db`, whose clients are moved: one that is only watched, and a second host.
    const MORE: &str = r#"
        route = { type = "proxy", server = "unix:proxy.sock" }
        [[volume]]
        name = "seen"
        home = "h1"
        origin = "nbd+unix:///seen?socket=nowhere.sock"
        watch = "unix:watch.sock"
        [[host]]
        name = "h2"
        memory = "160MiB"
    "#;

    /// A controller of those two that does not turn by itself.
    fn fleet(folder: &std::path::Path) -> Fleet {
        let mut config = tests::config(folder, MORE);
        config.interval = Nanos::secs(3_600);
        Fleet::start(config).unwrap()
    }

    /// As [`fleet`] has its volumes, with all that can be known of one.
    fn statuses(config: &FleetConfig) -> Vec<VolumeStatus> {
        let nothing = Responses::new(ResponseRules::default(), Vec::new());
        let mut statuses = showing::volumes(config, &Observer::new(config), &nothing, None);
        statuses.iter_mut().for_each(know);
        statuses
    }

    fn know(status: &mut VolumeStatus) {
        (status.state, status.size_bytes, status.working_set_bytes) = ("acting".to_owned(), 1 << 30, 4_096);
        (status.origin.state, status.origin.in_doubt_bytes) = ("up".to_owned(), 512);
        (status.iops, status.errors_per_s, status.hit_ratio) = (90.0, 2.0, Some(0.5));
        (status.read_bytes_per_s, status.write_bytes_per_s, status.used_bytes) = (8_192.0, 0.0, 1 << 20);
        let of = |mean, p99| LatencyStatus { mean_s: mean, p99_s: p99, ..LatencyStatus::default() };
        (status.read_latency, status.write_latency) = (of(Some(0.004), Some(0.02)), of(None, None));
        status.objectives = vec![ObjectiveStatus {
            objective: "mean latency at most 5ms".to_owned(),
            reservation: None,
            value: None,
            bound: 0.005,
            unit: "s".to_owned(),
            verdict: None,
            conforming_share: Some(0.9),
            conforming_share_target: 0.75,
            windows_conforming: 9,
            windows_nonconforming: 1,
            windows_low_load: 3,
        }];
    }

    fn moved(response: Option<ResponseStatus>) -> Moved {
        let switches = Switches {
            to_appliance: 2,
            to_original: 1,
            pause_last: Some(Nanos::millis(3)),
            pause_max: Some(Nanos::millis(40)),
        };
        Moved { response, switches, heard: Nanos::ZERO }
    }

    /// `db` is on an appliance on `h2`, and `h1` rests; of `seen` nobody tells any more.
    fn state(config: &FleetConfig) -> FleetState {
        let mut volumes = statuses(config);
        let seen = &mut volumes[1];
        (seen.state, seen.origin.state) = ("unjudged".to_owned(), "unknown".to_owned());
        seen.objectives.clear();
        let response = ResponseStatus {
            volume: VolumeId(0),
            step: "serving",
            route: "appliance",
            appliance: Some(ApplianceId(7)),
            host: Some(HostId(1)),
            cache_bytes: 2 << 20,
            wanted_bytes: 3 << 20,
            epoch: 5,
            leaves: false,
            why: None,
            hindered: None,
            origin_trouble: None,
            outage: Some(Nanos::millis(3_400)),
        };
        let of = |volume: &str, count| BTreeMap::from([(volume.to_owned(), count)]);
        FleetState {
            volumes,
            turn: Turn {
                volumes: vec![moved(Some(response)), moved(None)],
                hosts: vec![
                    Room { claimed: Bytes::ZERO, rests: true, is_unlisted: true },
                    Room { claimed: Bytes::mib(12), rests: false, is_unlisted: false },
                ],
                strays_left: 4,
                drained: vec![
                    DrainStatus { what: DrainedWhat::Host, name: "h1".to_owned(), left: None },
                    DrainStatus {
                        what: DrainedWhat::Host,
                        name: "h2".to_owned(),
                        left: Some("appliance 7 of volume `db`".to_owned()),
                    },
                    DrainStatus { what: DrainedWhat::Volume, name: "seen".to_owned(), left: None },
                ],
            },
            decision_counts: BTreeMap::from([
                ("appliance_failed".to_owned(), of("db", 6)),
                (
                    "violation_found".to_owned(),
                    BTreeMap::from([("db".to_owned(), 8), ("seen".to_owned(), 1)]),
                ),
            ]),
            clock_steps: 2,
            steps: 11,
            restarts: 1,
            journal_trouble: Some("full".to_owned()),
            ..FleetState::default()
        }
    }

    /// All that follows from [`state`], but for what depends on the time.
    const EXPECTED: &str = r#"
forebay_clock_steps_total 2
forebay_controller_up 1
forebay_controller_enabled 1
forebay_controller_intervals_total 11
forebay_controller_restarts_total 1
forebay_controller_step_seconds 0
forebay_controller_decisions_total{kind="appliance_failed"} 6
forebay_controller_decisions_total{kind="violation_found"} 9
forebay_controller_journal_failing 1
forebay_host_memory_bytes{host="h1"} 134217728
forebay_host_memory_bytes{host="h2"} 167772160
forebay_host_memory_claimed_bytes{host="h1"} 0
forebay_host_memory_claimed_bytes{host="h2"} 12582912
forebay_host_memory_free_bytes{host="h1"} 134217728
forebay_host_memory_free_bytes{host="h2"} 155189248
forebay_host_resting{host="h1"} 1
forebay_host_resting{host="h2"} 0
forebay_host_unlisted{host="h1"} 1
forebay_host_unlisted{host="h2"} 0
forebay_host_draining{host="h1"} 0
forebay_host_draining{host="h2"} 1
forebay_volume_draining{volume="seen"} 0
forebay_strays_left_total 4
forebay_volume_observed{volume="db"} 1
forebay_volume_observed{volume="seen"} 0
forebay_volume_state{volume="db",state="acting"} 1
forebay_volume_state{volume="seen",state="unjudged"} 1
forebay_origin_up{volume="db"} 1
forebay_origin_in_doubt_bytes{volume="db"} 512
forebay_volume_requests_per_second{volume="db"} 90
forebay_volume_errors_per_second{volume="db"} 2
forebay_volume_bytes_per_second{volume="db",op="read"} 8192
forebay_volume_bytes_per_second{volume="db",op="write"} 0
forebay_volume_latency_seconds{volume="db",op="read",statistic="mean"} 0.004
forebay_volume_latency_seconds{volume="db",op="read",statistic="p99"} 0.02
forebay_volume_hit_ratio{volume="db"} 0.5
forebay_volume_working_set_bytes{volume="db"} 4096
forebay_slo_windows_total{volume="db",index="0",objective="mean latency at most 5ms",verdict="conforming"} 9
forebay_slo_windows_total{volume="db",index="0",objective="mean latency at most 5ms",verdict="nonconforming"} 1
forebay_slo_windows_total{volume="db",index="0",objective="mean latency at most 5ms",verdict="low_load"} 3
forebay_slo_conforming_ratio{volume="db",index="0",objective="mean latency at most 5ms"} 0.9
forebay_slo_error_budget_ratio{volume="db",index="0",objective="mean latency at most 5ms"} 0.6
forebay_slo_burn_rate{volume="db",index="0",objective="mean latency at most 5ms"} 0.4
forebay_volume_step{volume="db",step="serving"} 1
forebay_volume_route{volume="db",route="appliance"} 1
forebay_volume_appliance{volume="db",host="h2"} 1
forebay_volume_hindered{volume="db"} 0
forebay_volume_epoch{volume="db"} 5
forebay_cache_capacity_bytes{volume="db"} 2097152
forebay_cache_wanted_bytes{volume="db"} 3145728
forebay_cache_used_bytes{volume="db"} 1048576
forebay_volume_violations_total{volume="db"} 8
forebay_volume_violations_total{volume="seen"} 1
forebay_volume_appliance_failures_total{volume="db"} 6
forebay_volume_switches_total{volume="db",to="appliance"} 2
forebay_volume_switches_total{volume="db",to="original"} 1
forebay_volume_switch_pause_seconds{volume="db"} 0.003
forebay_volume_switch_pause_max_seconds{volume="db"} 0.04
forebay_volume_outage_seconds{volume="db"} 3.4
"#;

    #[test]
    fn what_a_small_fleet_tells_is_all_that_is_known_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = fleet(folder.path());
        *fleet.shared.state() = state(&fleet.shared.config);
        let text = fleet.metrics();
        let mut found = reader::parse(&text).unwrap();
        let mut take = |series: &str| found.remove(series).unwrap_or_else(|| panic!("no {series} in {text}"));
        assert!(take("forebay_start_time_seconds") > 1.7e9);
        let version = env!("CARGO_PKG_VERSION");
        assert!((take(&format!("forebay_build_info{{version=\"{version}\"}}")) - 1.0).abs() < 1e-9);
        for volume in ["db", "seen"] {
            let seconds = take(&format!("forebay_volume_unheard_seconds{{volume=\"{volume}\"}}"));
            assert!((0.0..3_600.0).contains(&seconds), "{seconds}");
        }
        let rounded = |value: f64| (value * 1e9).round() / 1e9;
        let line = |(series, value): (&str, f64)| format!("{series} {}", rounded(value));
        let found: BTreeSet<String> = found.iter().map(|(series, value)| line((series, *value))).collect();
        let expected: BTreeSet<String> = EXPECTED.lines().skip(1).map(str::to_owned).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn before_the_first_turn_there_is_nothing_of_volumes_and_a_pause_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = fleet(folder.path());
        fleet.set_controller_enabled(false);
        let text = fleet.metrics();
        let found = reader::parse(&text).unwrap();
        assert!(!text.contains("volume=") && !text.contains("host="), "{text}");
        assert_eq!((found["forebay_controller_up"], found["forebay_controller_enabled"]), (0.0, 0.0));
    }

    #[test]
    fn the_reference_tells_of_every_family() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = tests::config(folder.path(), MORE);
        config.history = Some(folder.path().join("history.db"));
        let text = Fleet::start(config).unwrap().metrics();
        let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let reference = include_str!("../../../../docs/reference/control.md");
        let missing: Vec<_> = families.filter(|name| !reference.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/reference/control.md tells nothing of {missing:#?}");
    }
}
