//! Hearing of every volume once per interval: from the storage side while clients go there, from its appliance while they go through it.

use super::carrying::{Carriers, id_of};
use super::config::FleetConfig;
use super::prometheus::Counters;
use super::source::{Doubt, Follower, News};
use crate::lease::{LeaseHolder, LeaseStatus};
use crate::observed::{Intervals, ObservedOrigin, VolumeIntervals};
use forebay_actuate::{Control, Deadline};
use forebay_control::response::{ApplianceId, Holder, Responses};
use forebay_control::{Decision, DecisionKind, VolumeId, VolumeObservation};
use forebay_units::{Nanos, printable, with_causes};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Intervals without news after which it is told, and the least time: an appliance of before tells of itself every second (ours).
const PATIENCE: u64 = 3;
const PATIENCE_LEAST: Nanos = Nanos::secs(3);
/// Turns after a switch whose news of the storage side is left out (ours: the interval in which it ended, and that in which this is told). Whoever switches compares
/// both paths, and its own requests are nobody's load.
const LEFT_OUT: u8 = 2;

/// For how long nothing may be heard of who tells in steps of so long before that is told.
fn patience(step: Nanos) -> Nanos {
    Nanos(step.0.saturating_mul(PATIENCE)).max(PATIENCE_LEAST)
}

/// What was heard in one turn.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) volumes: Vec<VolumeObservation>,
    pub(super) sizes: BTreeMap<VolumeId, u64>,
    pub(super) utilisation: Vec<(VolumeId, f64)>,
    /// At which epochs leases are at their storage sides, and who holds them.
    pub(super) leases: Vec<(VolumeId, u64, Holder)>,
    /// Whom not to rely on, and since when to rely on them again.
    pub(super) decisions: Vec<Decision>,
}

/// What is remembered of one volume's sources.
#[derive(Default)]
struct Ears {
    watch: Follower,
    appliance: Option<(ApplianceId, Follower)>,
    counters: Option<(Counters, Instant)>,
    /// Turns whose news of the storage side is left out yet.
    left_out: u8,
    doubt: Doubt,
    /// Its appliance is to be asked what its cache holds.
    lists: bool,
    /// What was last heard, and the size.
    last: Option<(VolumeObservation, Nanos)>,
    size_bytes: u64,
    /// What the storage side says of its own origin, and the appliance that clients are on of the storage side.
    health: [Health; 2],
}

/// How a volume is by the word of somebody who serves it.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    /// Who says so.
    whose: String,
    /// When that was heard last.
    heard: Nanos,
    pub(super) in_doubt_bytes: u64,
    /// Bytes of its cache for which the system has no memory.
    pub(super) refused_bytes: u64,
    pub(super) origin: ObservedOrigin,
    /// For how long nothing was heard of it.
    silent: Option<Nanos>,
}

impl Health {
    /// Takes in what was told at `now`, or that nothing was; told is what lasts for longer than `patience`.
    fn take(&mut self, whose: &str, told: Option<&VolumeIntervals>, now: Nanos, patience: Nanos) {
        if self.whose != whose {
            *self = Health { whose: whose.to_owned(), heard: now, ..Health::default() };
        }
        let Some(told) = told else {
            let silent = now.saturating_since(self.heard);
            self.silent = (silent >= patience).then_some(silent);
            return;
        };
        // It is shown as it is.
        let mut origin = told.origin.clone().unwrap_or_default();
        origin.state = printable(&origin.state);
        origin.reason = origin.reason.as_deref().map(printable);
        let (in_doubt_bytes, refused_bytes) = (told.in_doubt_bytes, told.refused_bytes);
        *self = Health {
            heard: now,
            in_doubt_bytes,
            refused_bytes,
            origin,
            silent: None,
            whose: std::mem::take(&mut self.whose),
        };
    }

    /// The word for its origin, unless that is up or nothing is said of it.
    pub(super) fn not_up(&self) -> Option<&str> {
        Some(&*self.origin.state).filter(|state| !["", "up"].contains(state))
    }

    /// What is wrong with what it serves from.
    pub(super) fn trouble(&self) -> Option<String> {
        let said = || Some(format!("{}: {}", self.whose, self.origin.reason.as_ref()?));
        let silent =
            self.silent.map(|silent| format!("{}: nothing was heard of it for {silent}", self.whose));
        silent.or_else(said)
    }
}

/// What was last heard of a volume.
pub(super) struct Last<'a> {
    pub(super) seen: Option<&'a VolumeObservation>,
    /// Over which time.
    pub(super) span: Nanos,
    /// When something new was heard last.
    pub(super) heard: Nanos,
    pub(super) size_bytes: u64,
    /// By the word of who serves it, the storage side first.
    pub(super) health: &'a [Health],
    /// What is wrong with what is heard of it.
    pub(super) trouble: Option<&'a str>,
}

/// Hears of all volumes.
pub(super) struct Observer {
    ears: Vec<Ears>,
}

impl Observer {
    pub(super) fn new(config: &FleetConfig) -> Observer {
        Observer { ears: config.volume.iter().map(|_| Ears::default()).collect() }
    }

    /// What was last heard of a volume.
    pub(super) fn last(&self, id: VolumeId) -> Last<'_> {
        let ears = &self.ears[id.0 as usize];
        Last {
            seen: ears.last.as_ref().map(|(seen, _)| seen),
            span: ears.last.as_ref().map_or(Nanos::ZERO, |(_, span)| *span),
            heard: ears.doubt.heard(),
            size_bytes: ears.size_bytes,
            health: &ears.health,
            trouble: ears.doubt.trouble(),
        }
    }

    /// What the volume's cache holds is to be heard, too, the next time.
    pub(super) fn list(&mut self, id: VolumeId) {
        self.ears[id.0 as usize].lists = true;
    }

    pub(super) fn hear(
        &mut self,
        config: &FleetConfig,
        now: Nanos,
        responses: &Responses,
        carriers: &Carriers,
    ) -> Heard {
        let mut heard = Heard::default();
        // Nobody is waited for longer than half an interval.
        let within = Duration::from_nanos(config.interval.0 / 2).min(Duration::from_secs(2));
        let (sides, own) = self.ask(config, now, responses, carriers, within);
        for (index, ((volume, ears), own)) in config.volume.iter().zip(&mut self.ears).zip(own).enumerate() {
            let id = id_of(index);
            if volume.watch.is_some() {
                ears.doubt.asks(on_appliance(responses, id));
            }
            let news = match volume.watch() {
                Some(watch) => {
                    if responses.status(id).is_some_and(|status| status.route == "unknown") {
                        ears.left_out = LEFT_OUT;
                    }
                    let told = &sides[&watch.address.to_string()];
                    let export = &volume.origin.export;
                    let of =
                        told.as_ref().ok().and_then(|told| told.volumes.iter().find(|of| of.name == *export));
                    let [storage, through] = &mut ears.health;
                    storage.take("the storage side", of, now, patience(config.interval));
                    if own.is_none() {
                        *through = Health::default();
                    }
                    let side = match told {
                        Ok(told) => {
                            let lease = told.leases.get(&volume.origin.export);
                            heard.leases.extend(lease.map(|lease| (id, lease.epoch, holder_of(lease))));
                            ears.watch.take(told, &volume.origin.export, id, config.interval)
                        }
                        Err(reason) => Err(format!("the storage side: {reason}")),
                    };
                    match own {
                        None => {
                            if ears.appliance.take().is_some() {
                                ears.left_out = LEFT_OUT;
                            }
                            let counts = ears.left_out == 0;
                            ears.left_out = ears.left_out.saturating_sub(1);
                            side.map(|news| news.filter(|_| counts))
                        }
                        // The storage side says how large it is and how busy its disks are; what clients see, the appliance.
                        Some(through) => match through {
                            Ok(news) => Ok(news.map(|news| News {
                                utilisation: side.ok().flatten().and_then(|side| side.utilisation),
                                ..news
                            })),
                            Err(reason) => {
                                Err(format!("{}: {reason}", appliance_in_words(config, responses, id)))
                            }
                        },
                    }
                }
                None => own.unwrap_or(Ok(None)).map_err(|reason| {
                    // One with a password in it was refused.
                    let url = volume.prometheus.as_ref().map_or("", |table| &table.url);
                    format!("Prometheus at `{url}`: {reason}")
                }),
            };
            let good = match news {
                Ok(Some(news)) => {
                    ears.size_bytes = news.size_bytes;
                    if ears.doubt.relies() {
                        heard.utilisation.extend(news.utilisation.map(|utilisation| (id, utilisation)));
                        ears.last = Some((news.seen.clone(), news.span));
                        heard.volumes.push(news.seen);
                    }
                    Ok(true)
                }
                Ok(None) => Ok(false),
                Err(reason) => Err(reason),
            };
            if ears.size_bytes > 0 {
                heard.sizes.insert(id, ears.size_bytes);
            }
            // Who tells in longer steps is as silent in between.
            let step = ears.last.as_ref().map_or(Nanos::ZERO, |(_, span)| *span).max(config.interval);
            if let Some(said) = ears.doubt.judge(now, patience(step), good) {
                heard.decisions.push(Decision {
                    at: now,
                    volume: id,
                    volume_name: volume.name.clone(),
                    kind: DecisionKind::ObservationDoubted,
                    summary: match ears.doubt.trouble() {
                        Some(_) => format!("of {}: {said}; nothing is done for it meanwhile", volume.name),
                        None => format!("of {}: {said}", volume.name),
                    },
                    facts: Vec::new(),
                    alternatives: Vec::new(),
                });
            }
        }
        heard
    }

    /// Asks everybody side by side, with a thread for each, so that all who are dead are waited for at once: what each storage side answers, one of many volumes once,
    /// and of each volume what is heard of it elsewhere, if anything is.
    fn ask(
        &mut self,
        config: &FleetConfig,
        now: Nanos,
        responses: &Responses,
        carriers: &Carriers,
        within: Duration,
    ) -> (BTreeMap<String, Answer<Intervals>>, Vec<Option<Own>>) {
        thread::scope(|scope| {
            let (mut sides, mut own) = (BTreeMap::new(), Vec::new());
            for (index, (volume, ears)) in config.volume.iter().zip(&mut self.ears).enumerate() {
                let id = id_of(index);
                own.push(match volume.watch() {
                    Some(watch) => {
                        let side = sides.entry(watch.address.to_string());
                        side.or_insert_with(|| beside(scope, move || intervals(&watch, within)));
                        on_appliance(responses, id).map(|appliance| {
                            let control = carriers.control_of(appliance);
                            let whose = appliance_in_words(config, responses, id);
                            let ask = Ask {
                                volume: &volume.name,
                                id,
                                appliance,
                                whose,
                                now,
                                interval: config.interval,
                                within,
                            };
                            beside(scope, move || ears.through(&ask, control))
                        })
                    }
                    None => Some(beside(scope, move || ears.count(config, index, within))),
                });
            }
            let sides = sides.into_iter().map(|(address, asked)| (address, answer(asked))).collect();
            (sides, own.into_iter().map(|asked| asked.map(answer)).collect())
        })
    }
}

/// The appliance that a volume's clients are on, if they are on one.
pub(super) fn on_appliance(responses: &Responses, id: VolumeId) -> Option<ApplianceId> {
    responses.status(id).filter(|status| status.route == "appliance")?.appliance
}

/// The same in words.
fn appliance_in_words(config: &FleetConfig, responses: &Responses, id: VolumeId) -> String {
    let status = responses.status(id);
    let on = status.and_then(|status| Some((status.appliance?, status.host?)));
    on.map_or_else(
        || "its appliance".to_owned(),
        |(appliance, host)| format!("appliance {} on {}", appliance.0, config.host[host.0 as usize].name),
    )
}

/// What is asked of an appliance.
struct Ask<'a> {
    volume: &'a str,
    id: VolumeId,
    appliance: ApplianceId,
    /// Whose word the answer is.
    whose: String,
    now: Nanos,
    interval: Nanos,
    within: Duration,
}

fn holder_of(lease: &LeaseStatus) -> Holder {
    match lease.holder {
        LeaseHolder::Original => Holder::Original,
        LeaseHolder::Named => Holder::Named,
    }
}

/// What was said, or why nothing was.
type Answer<T> = Result<T, String>;

/// What is heard of a volume elsewhere than from its storage side, if it said anything.
type Own = Answer<Option<News>>;

/// Asks beside whatever else is asked in `scope`.
fn beside<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    ask: impl FnOnce() -> Answer<T> + Send + 'scope,
) -> Answer<ScopedJoinHandle<'scope, Answer<T>>> {
    let asked = thread::Builder::new().name("hear".to_owned()).spawn_scoped(scope, ask);
    asked.map_err(|error| format!("the system has no thread to ask by: {error}"))
}

fn answer<T>(asked: Answer<ScopedJoinHandle<'_, Answer<T>>>) -> Answer<T> {
    asked?.join().unwrap_or_else(|panic| resume_unwind(panic))
}

impl Ears {
    fn through(&mut self, ask: &Ask<'_>, control: Option<Control>) -> Result<Option<News>, String> {
        let &Ask { volume, id, appliance, ref whose, now, interval, within } = ask;
        if self.appliance.is_none_or(|(known, _)| known != appliance) {
            self.appliance = Some((appliance, Follower::default()));
        }
        let (_, follower) = self.appliance.as_mut().expect("just set");
        // After a restart it is looked for with its first probe; where it is not found, nothing new is heard.
        let Some(control) = control else { return Ok(None) };
        let told = intervals(&control, within)?;
        let [_, health] = &mut self.health;
        health.take(whose, told.volumes.iter().find(|of| of.name == volume), now, patience(interval));
        // One that has just started has no intervals yet.
        if follower.is_new() && told.volumes.is_empty() {
            return Ok(None);
        }
        let news = follower.take(&told, volume, id, interval)?;
        let Some(mut news) = news else { return Ok(None) };
        if std::mem::take(&mut self.lists) {
            match control.resident(volume, Deadline::after(within)) {
                Ok(ranges) => news.seen.resident = Some(ranges.into()),
                // Before the next peak zones are loaded then.
                Err(error) => {
                    tracing::warn!(volume, error = with_causes(&error), "what its cache holds is not told");
                }
            }
        }
        Ok(Some(news))
    }

    fn count(
        &mut self,
        config: &FleetConfig,
        index: usize,
        within: Duration,
    ) -> Result<Option<News>, String> {
        let Some(table) = &config.volume[index].prometheus else { return Ok(None) };
        // Its samples may be as old as it scrapes seldom.
        let oldest_s = (config.interval.as_secs_f64() * 10.0).max(60.0);
        let asked_at = Instant::now();
        let now = Counters::ask(table, oldest_s, within)?;
        let Some((before, asked_before)) = &self.counters else {
            self.counters = Some((now, asked_at));
            return Ok(None);
        };
        let asked_s = asked_at.duration_since(*asked_before).as_secs_f64();
        let since = now.since(before, asked_s, oldest_s, id_of(index));
        // What is not to be relied on is begun anew from.
        if !matches!(since, Ok(None)) {
            self.counters = Some((now, asked_at));
        }
        // How large it is nobody says; it is never cached.
        Ok(since?.map(|(seen, span)| News { seen, span, size_bytes: 1 << 40, utilisation: None }))
    }
}

fn intervals(from: &Control, within: Duration) -> Result<Intervals, String> {
    from.ask("GET", "/api/v1/intervals", "", Deadline::after(within)).map_err(|error| with_causes(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Daemon;
    use crate::config::{CacheConfig, Config, OriginConfig, VolumeConfig};
    use crate::fleet::{routes, showing};
    use crate::observed::{ObservedInterval, SCHEMA, VolumeIntervals};
    use forebay_actuate::Running;
    use forebay_actuate::api::ApiAddress;
    use forebay_control::response::{Draining, Outcome, ResponseRules, VolumeRoute, What, Wish};
    use forebay_control::{HostId, HostSpec};
    use forebay_units::{Bytes, Secret};
    use std::fmt::Write as _;
    use std::io::{Read, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Barrier};

    fn interval_of(name: &str, number: u64) -> VolumeIntervals {
        VolumeIntervals {
            name: name.to_owned(),
            size_bytes: 1 << 20,
            block_bytes: 4_096,
            utilisation: None,
            in_doubt_bytes: 0,
            refused_bytes: 0,
            origin: None,
            intervals: vec![ObservedInterval { number, span_ns: 1, ..ObservedInterval::default() }],
            locality: None,
        }
    }

    /// Somebody who answers each of these once, after `before`.
    fn answers(told: Vec<Vec<VolumeIntervals>>, before: impl Fn() + Send + 'static) -> ApiAddress {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ApiAddress::Tcp(listener.local_addr().unwrap());
        thread::spawn(move || {
            for volumes in told {
                let (schema, leases) = (SCHEMA.to_owned(), BTreeMap::new());
                let told = Intervals { schema, started_unix_ms: 1, leases, volumes };
                let body = serde_json::to_string(&told).unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                assert!(stream.read(&mut [0; 4_096]).unwrap() > 0);
                before();
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
            }
        });
        address
    }

    /// Somebody who answers what there is to hear of `volumes` once, but not before all others of `all` were asked.
    fn answers_with(all: &Arc<Barrier>, volumes: &[&str]) -> ApiAddress {
        let all = Arc::clone(all);
        let told = volumes.iter().map(|name| interval_of(name, 1)).collect();
        answers(vec![told], move || {
            all.wait();
        })
    }

    #[test]
    fn what_storage_side_and_appliance_say_of_their_origins_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let sick = |number, state: &str, reason: &str, oldest_in_flight_s| VolumeIntervals {
            in_doubt_bytes: 512,
            origin: Some(ObservedOrigin {
                state: state.to_owned(),
                reason: Some(reason.to_owned()),
                oldest_in_flight_s,
            }),
            ..interval_of("db", number)
        };
        let watch = answers(
            vec![vec![interval_of("db", 1)], vec![sick(2, "down", "the disk\u{1b} is gone", 1.0)]],
            || {},
        );
        let file = folder.path().join("control.toml");
        let text = format!(
            "socket = \"control.sock\"\nstate = \"state\"\n[[host]]\nname = \"h1\"\nmemory = \"16MiB\"\n[[volume]]\nname = \"db\"\nhome = \"h1\"\n\
             origin = \"nbd+unix:///db?socket=nowhere.sock\"\nwatch = \"{watch}\"\nleased = false\n"
        );
        std::fs::write(&file, text).unwrap();
        let config = FleetConfig::read(&file).unwrap();
        let secret = Secret::new("0123456789abcdef0123456789abcdef".to_owned()).unwrap();
        let (reporter, _reports) = channel();
        let carriers = Carriers::start(&config, secret, Instant::now(), &reporter).unwrap();
        let responses = Responses::new(ResponseRules::default(), Vec::new());
        let mut observer = Observer::new(&config);
        let told = |observer: &Observer| {
            let of = showing::volumes(&config, observer, &responses, None).remove(0);
            let origin = of.origin;
            (origin.state, origin.reason, origin.in_doubt_bytes, origin.oldest_in_flight_s, of.refused_bytes)
        };
        observer.hear(&config, Nanos::secs(1), &responses, &carriers);
        assert_eq!(told(&observer), ("up".to_owned(), None, 0, 0.0, 0));
        observer.hear(&config, Nanos::secs(2), &responses, &carriers);
        // What steers a terminal is replaced.
        let gone = "the storage side: the disk\u{fffd} is gone";
        assert_eq!(told(&observer), ("down".to_owned(), Some(gone.to_owned()), 512, 1.0, 0));
        // An appliance has word of it, too, and no memory for its cache; which there is none of any more in the response here.
        let hangs = "the oldest of 3 requests has had no answer for 20s";
        let through = VolumeIntervals { refused_bytes: 4_096, ..sick(1, "up", hangs, 20.0) };
        let address = answers(vec![vec![through]], || {});
        let ask = Ask {
            volume: "db",
            id: VolumeId(0),
            appliance: ApplianceId(7),
            whose: "appliance 7 on h1".to_owned(),
            now: Nanos::secs(2),
            interval: Nanos::secs(1),
            within: Duration::from_secs(10),
        };
        observer.ears[0].through(&ask, Some(Control { address, token: None })).unwrap();
        let both = format!("{gone}; appliance 7 on h1: {hangs}");
        assert_eq!(told(&observer), ("down".to_owned(), Some(both), 512, 20.0, 0));
        assert_eq!(observer.ears[0].health[1].refused_bytes, 4_096);
    }

    #[test]
    fn a_storage_side_of_which_nothing_is_heard_is_told_after_a_while() {
        let mut health = Health::default();
        let mut at = |second, told: Option<&VolumeIntervals>| {
            health.take("the storage side", told, Nanos::secs(second), patience(Nanos::secs(2)));
            health.trouble()
        };
        let of = interval_of("db", 1);
        // From when it is asked first.
        assert_eq!((at(90, None), at(95, None)), (None, None));
        assert_eq!(at(96, None).as_deref(), Some("the storage side: nothing was heard of it for 6s"));
        assert_eq!((at(97, Some(&of)), at(102, None)), (None, None));
        assert!(at(103, None).is_some());
    }

    #[test]
    fn all_are_asked_side_by_side() {
        let folder = tempfile::tempdir().unwrap();
        let all = Arc::new(Barrier::new(5));
        let watches = [&["v0", "v1", "v2"][..], &["v3"], &["v4"]].map(|of| answers_with(&all, of));
        let mut text = r#"
            socket = "control.sock"
            state = "state"
            [[host]]
            name = "h1"
            memory = "16MiB"
            "#
        .to_owned();
        for (index, watch) in [0, 0, 0, 1, 2].into_iter().enumerate() {
            let (export, watch) = (format!("v{index}"), &watches[watch]);
            write!(
                text,
                "[[volume]]\nname = \"{export}\"\nhome = \"h1\"\norigin = \"nbd+unix:///{export}?socket=nowhere.sock\"\nwatch = \"{watch}\"\nleased = false\n"
            )
            .unwrap();
        }
        let file = folder.path().join("control.toml");
        std::fs::write(&file, text).unwrap();
        let config = FleetConfig::read(&file).unwrap();
        let secret = Secret::new("0123456789abcdef0123456789abcdef".to_owned()).unwrap();
        let (reporter, _reports) = channel();
        let carriers = Carriers::start(&config, secret, Instant::now(), &reporter).unwrap();
        let host = HostSpec::new(HostId(0), "h1", 0, Bytes::gib(1));
        let mut responses = Responses::new(ResponseRules::default(), vec![host]);
        for (id, route) in routes(&config, |id, _| carriers.draining(id)) {
            let has_cache = [0, 3].map(id_of).contains(&id);
            let draining = if has_cache { Draining::ByItself } else { route.draining };
            responses.register(id, VolumeRoute { draining, ..route });
            if has_cache {
                let cache = Bytes::mib(1);
                responses.want(id, Wish { cache, flash: Bytes::ZERO, rate: 1.0, host: None });
            }
        }
        for at in (1..20).map(Nanos::secs) {
            for order in responses.step(at) {
                let outcome = match order.what {
                    What::Probe { .. } => {
                        Outcome::Healthy { cache: Bytes::mib(1), has_clients: true, origin_trouble: None }
                    }
                    _ => Outcome::Done,
                };
                responses.report(order.id, outcome, at);
            }
        }
        for index in [0, 3] {
            let appliance = responses.status(id_of(index)).unwrap().appliance.unwrap();
            let control = Control { address: answers_with(&all, &[&format!("v{index}")]), token: None };
            let id = "forebay-1".parse().unwrap();
            carriers.knows(appliance, Running { id, endpoints: BTreeMap::new(), control });
        }
        let mut observer = Observer::new(&config);
        let heard = observer.hear(&config, Nanos::ZERO, &responses, &carriers);
        assert_eq!(heard.decisions, [], "somebody was not waited for");
        // Each answers once. Who is not heard is told of each volume.
        let heard = observer.hear(&config, Nanos::ZERO, &responses, &carriers);
        let said: Vec<&str> = heard.decisions.iter().map(|decision| &*decision.summary).collect();
        let side = "the storage side: ";
        let whom = ["appliance 1 on h1: ", side, side, "appliance 2 on h1: ", side];
        for (index, whom) in whom.into_iter().enumerate() {
            assert!(said[index].starts_with(&format!("of v{index}: {whom}")), "{said:#?}");
        }
    }

    #[test]
    fn an_appliance_tells_once_what_its_cache_holds_where_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut volume = VolumeConfig::new("db", OriginConfig::Memory { size: Bytes::mib(1) });
        volume.cache = CacheConfig::Fixed(Bytes::kib(64));
        let mut config = Config::new(vec![volume]);
        config.cache_memory = Bytes::mib(1);
        config.control.interval = Duration::from_millis(100);
        let socket = folder.path().join("http.sock");
        config.http.socket = Some(socket.clone());
        let daemon = Daemon::start(config).unwrap();
        let control = Control { address: ApiAddress::Unix(socket), token: None };
        let mut ears = Ears::default();
        let ask = Ask {
            volume: "db",
            id: VolumeId(0),
            appliance: ApplianceId(1),
            whose: "appliance 1 on h1".to_owned(),
            now: Nanos::secs(1),
            interval: Nanos::millis(100),
            within: Duration::from_secs(10),
        };
        let hear = |ears: &mut Ears| {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let news = ears.through(&ask, Some(control.clone()));
                if let Some(news) = news.unwrap() {
                    return news.seen.resident;
                }
                assert!(Instant::now() < deadline, "nothing is heard");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        assert_eq!(hear(&mut ears), None, "nobody asked");
        ears.lists = true;
        // Nothing was read.
        assert_eq!(hear(&mut ears).as_deref(), Some([].as_slice()));
        assert_eq!(hear(&mut ears), None, "told twice");
        daemon.shutdown();
    }
}
