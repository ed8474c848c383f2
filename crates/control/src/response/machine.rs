//! One volume's response: which step it is at, what that step orders, and where each outcome leads.
//!
//! There:  `Reserved` - `Starting` - `Proving` - (`FencingOriginal`) - `Switching` - (`FencingBehind`) - `Serving`.
//! Back:   (`FencingAppliance`) - `SwitchingBack` - (`FencingBehindBack`) - `Stopping` - `Original`, and where a route cannot drain after all,
//!         by `FencingAppliance` or, without a lease, `StoppingFirst` to `SwitchingBack` once more.
//!
//! What a step orders follows from its state alone, so that it can be ordered again after a restart.

use super::{
    Adopted, ApplianceId, Holder, OrderId, Outcome, ResponseStatus, Shared, Target, VolumeRoute, What, Wish,
};
use crate::claims::ClaimId;
use crate::decision::{DecisionKind, Fact, ZoneRange};
use crate::host::Room;
use crate::inventory::{HostId, VolumeId};
use crate::plain;
use forebay_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Where a response is. Steps in which clients may be on the appliance come from `Switching` to `SwitchingBack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Nothing is there.
    Original,
    /// Room is claimed.
    Reserved,
    /// The appliance is being started.
    Starting,
    /// It is asked whether it serves.
    Proving,
    /// The original path is fenced, because the route cannot drain it.
    FencingOriginal,
    /// Clients are being moved to the appliance.
    Switching,
    /// Who is still on the original path is fenced.
    FencingBehind,
    /// The cache is in place.
    Serving,
    /// The appliance is fenced, because its path cannot be drained.
    FencingAppliance,
    /// Where there is no lease it is stopped instead.
    StoppingFirst,
    /// Clients are being moved back.
    SwitchingBack,
    /// Who is still on the appliance is fenced.
    FencingBehindBack,
    /// The appliance is being stopped; no client is on it.
    Stopping,
}

impl Phase {
    pub(super) fn word(self) -> &'static str {
        match self {
            Phase::Original => "original route",
            Phase::Reserved => "room claimed",
            Phase::Starting => "starting",
            Phase::Proving => "waiting for an answer",
            Phase::FencingOriginal => "fencing the original path",
            Phase::Switching => "switching",
            Phase::FencingBehind => "fencing what is left behind",
            Phase::Serving => "serving",
            Phase::FencingAppliance => "fencing the appliance",
            Phase::StoppingFirst => "stopping before the way back",
            Phase::SwitchingBack => "switching back",
            Phase::FencingBehindBack => "fencing what is left behind",
            Phase::Stopping => "stopping",
        }
    }
}

/// An appliance, from the claim to the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Placed {
    pub(super) appliance: ApplianceId,
    pub(super) host: HostId,
    pub(super) claim: ClaimId,
    pub(super) room: Room,
    /// What it was last told to cache at most. Nothing until clients are on it: what it read before could be stale by then.
    #[serde(rename = "cache_bytes", with = "plain::bytes")]
    pub(super) cache: Bytes,
    /// What it must have room for at least: what it was started for, or less if it was told so since.
    #[serde(rename = "cache_least_bytes", with = "plain::bytes")]
    pub(super) cache_least: Bytes,
    #[serde(rename = "flash_bytes", with = "plain::bytes")]
    pub(super) flash: Bytes,
    pub(super) epoch: u64,
    /// Its start may still have an effect after it was stopped.
    pub(super) late: bool,
}

/// The way back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Leaving {
    pub(super) why: String,
    /// The appliance answers, so that draining it is worth more than one try.
    healthy: bool,
    /// That is to be asked again.
    doubted: bool,
    /// The appliance is fenced, or is known not to run: nothing is to be drained.
    settled: bool,
    epochs: BackEpochs,
}

/// The epochs of a way back. The lease admits its holder and all epochs above it, so each is admitted until the next fence is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct BackEpochs {
    /// To fence everybody, where it is not known which path clients are on and none can be drained.
    all: u64,
    /// At which the volume is the original route's again.
    home: u64,
    /// That the original path names where the route can have it name one.
    path: u64,
}

/// What an order that is out is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Step,
    Probe,
    /// Whether it answers, on the way back.
    Doubt,
    Resize(Bytes),
    Warm,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Response {
    volume: VolumeId,
    #[serde(skip)]
    pub(super) route: Option<VolumeRoute>,
    wish: Option<Wish>,
    pub(super) phase: Phase,
    pub(super) placed: Option<Placed>,
    leaving: Option<Leaving>,
    /// The highest epoch that was given out.
    pub(super) epoch: u64,
    /// Why the last appliance is not there any more.
    why: Option<String>,
    #[serde(skip)]
    pub(super) warm: Option<(Vec<ZoneRange>, u64)>,
    /// Its number, when it is taken for lost, and what it is for.
    #[serde(skip)]
    pub(super) pending: Option<(OrderId, Nanos, Asked)>,
    #[serde(skip)]
    tries: u32,
    #[serde(skip)]
    failures: u32,
    #[serde(skip)]
    pause_until: Nanos,
    /// When an appliance that has started must have answered.
    #[serde(skip)]
    prove_until: Option<Nanos>,
    #[serde(skip)]
    next_probe: Nanos,
    #[serde(skip)]
    probes_failed: u32,
    #[serde(skip)]
    resize_from: Nanos,
    /// What was said last of the lack of room, not to say it again.
    #[serde(skip)]
    said: String,
}

impl Response {
    pub(super) fn new(volume: VolumeId, route: VolumeRoute) -> Response {
        Response {
            volume,
            route: Some(route),
            wish: None,
            phase: Phase::Original,
            placed: None,
            leaving: None,
            epoch: 0,
            why: None,
            warm: None,
            pending: None,
            tries: 0,
            failures: 0,
            pause_until: Nanos::ZERO,
            prove_until: None,
            next_probe: Nanos::ZERO,
            probes_failed: 0,
            resize_from: Nanos::ZERO,
            said: String::new(),
        }
    }

    fn route(&self) -> &VolumeRoute {
        self.route.as_ref().expect("a response is registered with its route")
    }

    fn placed(&self) -> &Placed {
        self.placed.as_ref().expect("a response that left the original route has an appliance")
    }

    /// Takes another number, where the journal of an earlier run used it for another volume.
    pub(super) fn renumber(&mut self, volume: VolumeId) {
        self.volume = volume;
    }

    /// The same for the host that it would rather have.
    pub(super) fn prefer<E>(&mut self, host_now: &impl Fn(HostId) -> Result<HostId, E>) {
        if let Some(wish) = &mut self.wish {
            wish.host = wish.host.and_then(|host| host_now(host).ok());
        }
    }

    pub(super) fn want(&mut self, wish: Wish, shared: &mut Shared) {
        if self.wish.as_ref() != Some(&wish) {
            if self.wish.is_none() {
                self.said.clear();
            }
            self.wish = Some(wish);
            self.resize_from = Nanos::ZERO;
            shared.changes += 1;
        }
    }

    pub(super) fn give_back(&mut self, why: &str, shared: &mut Shared) {
        if self.wish.take().is_some() {
            self.why = Some(why.to_owned());
            self.warm = None;
            shared.changes += 1;
        }
    }

    pub(super) fn adopt(&mut self, found: Adopted, shared: &mut Shared) {
        let claim = shared.claim_found(found.host, found.room, self.volume);
        let Adopted { appliance, host, room, cache, epoch } = found;
        self.placed = Some(Placed {
            appliance,
            host,
            claim,
            room,
            cache,
            cache_least: cache,
            flash: room.flash,
            epoch,
            late: false,
        });
        self.wish = Some(Wish { cache, flash: room.flash, rate: 0.0, host: Some(host) });
        self.epoch = self.epoch.max(epoch);
        // Whether it was fenced behind is not known: it is done again.
        if self.route().leased {
            self.go(Phase::FencingBehind, shared);
        } else {
            self.arrive(shared);
        }
    }

    pub(super) fn adopt_original(&mut self, epoch: u64, shared: &mut Shared) {
        self.epoch = self.epoch.max(epoch);
        self.leave("what was done before is not known", true, shared);
    }

    pub(super) fn status(&self) -> ResponseStatus {
        let route = match self.phase {
            Phase::Switching | Phase::SwitchingBack => "unknown",
            Phase::FencingBehind | Phase::Serving => "appliance",
            Phase::FencingAppliance | Phase::StoppingFirst => "unknown",
            _ => "original",
        };
        ResponseStatus {
            volume: self.volume,
            step: self.phase.word(),
            route,
            appliance: self.placed.map(|placed| placed.appliance),
            host: self.placed.map(|placed| placed.host),
            cache_bytes: self.placed.map_or(0, |placed| placed.cache.get()),
            wanted_bytes: self.wish.as_ref().map_or(0, |wish| wish.cache.get()),
            epoch: self.epoch,
            why: self.leaving.as_ref().map(|leaving| leaving.why.clone()).or_else(|| self.why.clone()),
        }
    }

    fn tell(&self, shared: &mut Shared, kind: DecisionKind, summary: String, facts: Vec<Fact>) {
        shared.tell(self.volume, &self.route().name, kind, summary, facts);
    }

    /// Facts of the appliance.
    fn facts(&self, shared: &Shared) -> Vec<Fact> {
        let Some(placed) = &self.placed else { return Vec::new() };
        vec![
            Fact::number("appliance", placed.appliance.0 as f64, ""),
            Fact::text("host", shared.host_name(placed.host)),
            Fact::number("cache", placed.cache_least.as_f64(), "bytes"),
            Fact::number("epoch", placed.epoch as f64, ""),
        ]
    }

    fn go(&mut self, phase: Phase, shared: &mut Shared) {
        self.phase = phase;
        self.tries = 0;
        self.pause_until = shared.now;
        self.prove_until = None;
        self.probes_failed = 0;
        shared.changes += 1;
    }

    /// Tries the step again after a pause.
    fn again(&mut self, shared: &Shared) {
        self.tries += 1;
        self.pause_until = shared.after_ms(shared.pause_ms(self.tries));
    }

    /// The one order of the step that it is at; `None` where there is none, or several.
    fn ordered(&self) -> Option<What> {
        if let Some(Leaving { epochs, settled, .. }) = &self.leaving {
            match self.phase {
                // A route that drains names an epoch on the original path too: so who is on it without one is fenced as well.
                Phase::FencingAppliance if self.route().drains => {
                    return Some(What::Fence { epoch: epochs.all, holder: Holder::Named });
                }
                Phase::FencingAppliance | Phase::FencingBehindBack => {
                    return Some(What::Fence { epoch: epochs.home, holder: Holder::Original });
                }
                Phase::SwitchingBack => {
                    let (to, epoch, settled) = (Target::Original, epochs.path, *settled);
                    return Some(What::Switch { to, epoch, settled });
                }
                _ => {}
            }
        }
        let Placed { appliance, host, room, cache_least: cache, flash, epoch, .. } = self.placed?;
        match self.phase {
            Phase::Starting => Some(What::Start { appliance, host, room, cache, flash, epoch }),
            Phase::Proving => Some(What::Probe { appliance, host }),
            Phase::FencingOriginal | Phase::FencingBehind => {
                Some(What::Fence { epoch, holder: Holder::Named })
            }
            // A route that drains settles the old path itself; where it does not the fence came first.
            Phase::Switching => {
                let (to, settled) = (Target::Appliance(appliance), !self.route().drains);
                Some(What::Switch { to, epoch, settled })
            }
            Phase::StoppingFirst | Phase::Stopping => Some(What::Stop { appliance, host }),
            _ => None,
        }
    }

    pub(super) fn step(&mut self, shared: &mut Shared) {
        if self.pending.is_some_and(|(_, lost, _)| shared.now > lost) {
            self.heard(Outcome::Unknown("nothing was heard of it".to_owned()), shared);
        }
        if self.pending.is_some() || shared.now < self.pause_until {
            return;
        }
        match self.phase {
            Phase::Original => {
                self.begin(shared);
                return;
            }
            Phase::Reserved if self.wish.is_none() => {
                shared.claims.release(self.placed().claim);
                self.placed = None;
                self.go(Phase::Original, shared);
                return;
            }
            Phase::Reserved => {
                if shared.starting >= shared.rules.starting_max {
                    return;
                }
                shared.starting += 1;
                self.go(Phase::Starting, shared);
            }
            Phase::Starting | Phase::Proving if self.wish.is_none() => {
                // While it starts nothing is out only after a restart: the order may have been given, and be late.
                let late = self.phase == Phase::Starting;
                self.abandon("it is not wanted any more", late, shared);
            }
            Phase::Proving => {
                self.prove_until.get_or_insert(shared.after_ms(shared.rules.start_within_ms));
            }
            Phase::Serving => {
                self.serve(shared);
                return;
            }
            Phase::SwitchingBack => {
                if let (Some(placed), true) = (&self.placed, self.leaving.as_ref().is_some_and(|l| l.doubted))
                {
                    let what = What::Probe { appliance: placed.appliance, host: placed.host };
                    let (id, lost) = shared.order(self.volume, what);
                    self.pending = Some((id, lost, Asked::Doubt));
                    return;
                }
            }
            _ => {}
        }
        let what = self.ordered().expect("every other step has its order");
        let (id, lost) = shared.order(self.volume, what);
        self.pending = Some((id, lost, Asked::Step));
    }

    /// Answers a wish: room is claimed, or it is said why not.
    fn begin(&mut self, shared: &mut Shared) {
        let Some(wish) = &self.wish else { return };
        if !self.route().drains && !self.route().leased {
            let summary = format!(
                "the clients of {} are not moved to a cache: their route cannot drain the old path, and the storage side has no lease to fence it",
                self.route().name
            );
            self.wish = None;
            self.tell(shared, DecisionKind::NothingHelps, summary, Vec::new());
            return;
        }
        let room = shared.rules.cost.room(wish.cache, wish.flash, wish.rate);
        let home = wish.host.filter(|host| shared.rests(*host).is_none()).unwrap_or(self.route().home);
        let (cache, flash) = (wish.cache, wish.flash);
        let resting: Vec<(HostId, String)> = (shared.claims.hosts().iter())
            .filter_map(|host| Some((host.id, shared.rests(host.id)?)))
            .collect();
        let left_out =
            |host| resting.iter().find(|(resting, _)| *resting == host).map(|(_, why)| why.clone());
        let ample = Bytes((cache.as_f64() * (1.0 + shared.rules.headroom)) as u64);
        let ample = shared.rules.cost.room(ample, wish.flash, wish.rate);
        let claimed = match shared.claims.claim_near(home, ample, self.volume, left_out) {
            Ok(claimed) => Ok((claimed, ample)),
            Err(_) => {
                shared.claims.claim_near(home, room, self.volume, left_out).map(|claimed| (claimed, room))
            }
        };
        match claimed {
            Ok(((claim, host), room)) => {
                let appliance = ApplianceId(shared.next_appliance);
                shared.next_appliance += 1;
                self.epoch += 1;
                let epoch = self.epoch;
                self.placed = Some(Placed {
                    appliance,
                    host,
                    claim,
                    room,
                    cache: Bytes::ZERO,
                    cache_least: cache,
                    flash,
                    epoch,
                    late: false,
                });
                self.said.clear();
                self.go(Phase::Reserved, shared);
                let summary = format!(
                    "an appliance with {cache} of cache for {} is started on {}",
                    self.route().name,
                    shared.host_name(host)
                );
                let mut facts = self.facts(shared);
                facts.push(Fact::text("room", room.to_string()));
                self.tell(shared, DecisionKind::HostChosen, summary, facts);
            }
            Err(error) => {
                let said = error.to_string();
                self.failures += 1;
                self.pause_until = shared.after_ms(shared.pause_ms(self.failures));
                // Times to wait for change from one time to the next; what is said is said once.
                if self.said.is_empty() {
                    self.said.clone_from(&said);
                    let summary = format!("no host has room for the cache of {}: {said}", self.route().name);
                    let facts = vec![Fact::text("needed", room.to_string()), Fact::text("reason", said)];
                    self.tell(shared, DecisionKind::NothingHelps, summary, facts);
                }
            }
        }
    }

    /// What is to be done while the cache is in place.
    fn serve(&mut self, shared: &mut Shared) {
        let placed = *self.placed();
        let (appliance, host) = (placed.appliance, placed.host);
        let Some(wish) = &self.wish else {
            let why = self.why.clone().unwrap_or_else(|| "it is not wanted any more".to_owned());
            self.leave(&why, true, shared);
            return self.step(shared);
        };
        let (asked, what) = if shared.now >= self.next_probe {
            (Asked::Probe, What::Probe { appliance, host })
        } else if wish.cache != placed.cache && shared.now >= self.resize_from {
            let cache = wish.cache;
            let room = shared.rules.cost.room(cache, placed.flash, wish.rate);
            // The memory of what runs does not grow.
            if room.memory > placed.room.memory {
                self.resize_from = shared.after_ms(shared.rules.retry_max_ms);
                let name = &self.route().name;
                let summary = format!(
                    "the cache of {name} cannot grow to {cache}: it takes {room}, and its appliance was started with {}",
                    placed.room
                );
                let facts = self.facts(shared);
                self.tell(shared, DecisionKind::CapacityShort, summary, facts);
                return;
            }
            let placed = self.placed.as_mut().expect("it serves");
            placed.cache_least = placed.cache_least.min(cache);
            shared.changes += 1;
            (Asked::Resize(cache), What::Resize { appliance, host, cache })
        } else if placed.cache == Bytes::ZERO {
            return;
        } else if let Some((zones, bytes_per_second)) = self.warm.take() {
            (Asked::Warm, What::Warm { appliance, host, zones, bytes_per_second })
        } else {
            return;
        };
        let (id, lost) = shared.order(self.volume, what);
        self.pending = Some((id, lost, asked));
    }

    /// Gives up an appliance to which no client was ever switched.
    fn abandon(&mut self, why: &str, late: bool, shared: &mut Shared) {
        self.placed.as_mut().expect("it was ordered").late |= late;
        self.leaving = Some(Leaving {
            why: why.to_owned(),
            healthy: true,
            doubted: false,
            settled: true,
            epochs: BackEpochs::default(),
        });
        self.go(Phase::Stopping, shared);
    }

    /// The appliance, or its host, did not do what it should.
    fn fail(&mut self, why: &str, shared: &mut Shared) {
        let host = self.placed().host;
        shared.host_failed(host, why);
        self.failures += 1;
        let summary = format!(
            "the appliance for {} on {} is given up: {why}",
            self.route().name,
            shared.host_name(host)
        );
        let mut facts = self.facts(shared);
        facts.push(Fact::text("step", self.phase.word()));
        self.tell(shared, DecisionKind::ApplianceFailed, summary, facts);
    }

    /// Begins the way back from wherever clients may be.
    fn leave(&mut self, why: &str, healthy: bool, shared: &mut Shared) {
        self.leaving = Some(Leaving {
            why: why.to_owned(),
            healthy,
            doubted: false,
            settled: false,
            epochs: BackEpochs::default(),
        });
        self.new_epochs();
        // Also one that does not answer us may answer its clients: a route that drains tries.
        let phase = if self.route().drains { Phase::SwitchingBack } else { Phase::FencingAppliance };
        self.go(phase, shared);
    }

    fn new_epochs(&mut self) {
        let leaving = self.leaving.as_mut().expect("on the way back");
        leaving.epochs = BackEpochs { all: self.epoch + 1, home: self.epoch + 2, path: self.epoch + 3 };
        self.epoch += 3;
    }

    /// Whether draining is given up. Without a lease that takes the route's word that the old path does not answer, and ours: an
    /// appliance that serves its clients is not stopped.
    fn cannot_drain(&self, outcome: &Outcome, last_try: bool) -> bool {
        let Some(leaving) = self.leaving.as_ref().filter(|leaving| !leaving.settled) else { return false };
        match self.route().leased {
            true => last_try || !leaving.healthy,
            false => !leaving.healthy && self.placed.is_some() && matches!(outcome, Outcome::Refused(_)),
        }
    }

    /// Not by draining after all.
    fn leave_without_draining(&mut self, shared: &mut Shared) {
        let phase = if self.route().leased { Phase::FencingAppliance } else { Phase::StoppingFirst };
        self.go(phase, shared);
    }

    fn arrive(&mut self, shared: &mut Shared) {
        self.failures = 0;
        self.next_probe = shared.after_ms(shared.rules.probe_every_ms);
        self.go(Phase::Serving, shared);
        if let Some(record) = shared.records.get_mut(&self.placed().host) {
            record.failures = 0;
        }
        let summary = format!(
            "the cache of {} is in place on {}",
            self.route().name,
            shared.host_name(self.placed().host)
        );
        self.tell(shared, DecisionKind::CacheInPlace, summary, self.facts(shared));
    }

    /// Clients are on the original route.
    fn end(&mut self, shared: &mut Shared) {
        match self.placed {
            Some(_) => self.go(Phase::Stopping, shared),
            None => self.settle(shared),
        }
    }

    /// The appliance is gone, or is somebody else's to bury; clients are on the original route.
    fn settle(&mut self, shared: &mut Shared) {
        let why = self.leaving.take().map_or_else(String::new, |leaving| leaving.why);
        let facts = self.facts(shared);
        self.placed = None;
        self.go(Phase::Original, shared);
        self.pause_until = match self.failures {
            0 => shared.now,
            failures => shared.after_ms(shared.pause_ms(failures)),
        };
        let summary = format!("{} is on the original route: {why}", self.route().name);
        self.why = Some(why);
        self.tell(shared, DecisionKind::OriginalRoute, summary, facts);
    }

    pub(super) fn heard(&mut self, outcome: Outcome, shared: &mut Shared) {
        let Some((_, _, asked)) = self.pending.take() else { return };
        match asked {
            Asked::Step => self.heard_of_step(outcome, shared),
            Asked::Probe => self.heard_of_probe(outcome, shared),
            Asked::Doubt => {
                let leaving = self.leaving.as_mut().expect("on the way back");
                leaving.doubted = false;
                leaving.healthy = matches!(outcome, Outcome::Healthy { .. });
            }
            Asked::Resize(cache) => match outcome {
                Outcome::Done => {
                    let placed = self.placed.as_mut().expect("it serves");
                    (placed.cache, placed.cache_least) = (cache, cache);
                    shared.changes += 1;
                }
                other => {
                    // Without any cache it is of no use.
                    let none_yet = self.placed().cache == Bytes::ZERO;
                    let rules = &shared.rules;
                    let pause_ms = if none_yet { rules.retry_first_ms } else { rules.retry_max_ms };
                    self.resize_from = shared.after_ms(pause_ms);
                    self.tell_step(&format!("its cache is not {cache}: {}", why(&other)), shared);
                }
            },
            Asked::Warm => {
                if outcome != Outcome::Done {
                    self.tell_step(&format!("nothing is loaded into it: {}", why(&outcome)), shared);
                }
            }
        }
    }

    fn tell_step(&self, what: &str, shared: &mut Shared) {
        let summary = format!("the appliance for {}: {what}", self.route().name);
        let facts = self.facts(shared);
        self.tell(shared, DecisionKind::ApplianceFailed, summary, facts);
    }

    fn heard_of_probe(&mut self, outcome: Outcome, shared: &mut Shared) {
        self.next_probe = shared.after_ms(shared.rules.probe_every_ms);
        match outcome {
            Outcome::Healthy { cache } if cache >= self.placed().cache_least => self.probes_failed = 0,
            Outcome::Healthy { cache } => {
                let why = format!("it has {cache} for its cache, expected {}", self.placed().cache_least);
                self.fail(&why, shared);
                self.leave(&why, true, shared);
            }
            other => {
                self.probes_failed += 1;
                if self.probes_failed >= shared.rules.probe_failures.max(1) {
                    let why = format!("it does not answer: {}", why(&other));
                    self.fail(&why, shared);
                    self.leave(&why, false, shared);
                }
            }
        }
    }

    fn heard_of_step(&mut self, outcome: Outcome, shared: &mut Shared) {
        use Outcome::{Done, Healthy, Refused, Stale, Switched};
        let last_try = self.tries + 1 >= shared.rules.tries_max.max(1);
        let (drains, leased) = (self.route().drains, self.route().leased);
        match (self.phase, outcome) {
            (Phase::Starting, Done) => self.go(Phase::Proving, shared),
            (Phase::Starting, other) => {
                let why = format!("it does not start: {}", why(&other));
                self.fail(&why, shared);
                self.abandon(&why, !matches!(other, Refused(_)), shared);
            }

            (Phase::Proving, Healthy { cache }) if cache >= self.placed().cache_least => {
                self.go(if drains { Phase::Switching } else { Phase::FencingOriginal }, shared);
            }
            (Phase::Proving, Healthy { cache }) => {
                let host = shared.host_name(self.placed().host);
                let why =
                    format!("{host} gives it {cache} for its cache, expected {}", self.placed().cache_least);
                self.fail(&why, shared);
                self.abandon(&why, false, shared);
            }
            (Phase::Proving, other) => {
                if self.prove_until.is_some_and(|until| shared.now >= until) {
                    let why = format!("it has started and does not answer: {}", why(&other));
                    self.fail(&why, shared);
                    self.abandon(&why, false, shared);
                } else {
                    self.pause_until = shared.after_ms(shared.rules.probe_every_ms);
                }
            }

            (Phase::FencingOriginal, Done) => self.go(Phase::Switching, shared),
            (Phase::FencingOriginal | Phase::FencingBehind, Stale { epoch }) => {
                // Somebody whom no journal tells of had the lease: nobody of ours is admitted by it.
                self.epoch = self.epoch.max(epoch);
                let why = format!(
                    "the lease is at epoch {epoch} already, expected at most {}",
                    self.placed().epoch
                );
                self.failures += 1;
                self.leave(&why, false, shared);
            }
            (Phase::FencingOriginal, other) if last_try => {
                self.failures += 1;
                self.leave(&format!("the original path cannot be fenced: {}", why(&other)), false, shared);
            }

            (Phase::Switching, Done | Switched { .. }) if drains && leased => {
                self.go(Phase::FencingBehind, shared);
            }
            (Phase::Switching, Done | Switched { .. }) => self.arrive(shared),
            // An earlier try, of which nothing was heard, may have had its effect.
            (Phase::Switching, Refused(why)) if drains && self.tries == 0 => {
                self.failures += 1;
                self.abandon(&format!("the route is not switched: {why}"), false, shared);
            }
            (Phase::Switching, other) if last_try => {
                self.failures += 1;
                self.leave(&format!("the route is not switched: {}", why(&other)), true, shared);
            }

            (Phase::FencingBehind, Done) => self.arrive(shared),
            (Phase::FencingBehind, other) if last_try => {
                self.failures += 1;
                let why = format!("what was left behind cannot be fenced: {}", why(&other));
                self.leave(&why, true, shared);
            }

            (Phase::FencingAppliance, Done) => {
                self.leaving.as_mut().expect("on the way back").settled = true;
                self.go(Phase::SwitchingBack, shared);
            }
            (Phase::FencingAppliance | Phase::FencingBehindBack, Stale { epoch }) => {
                self.epoch = self.epoch.max(epoch);
                self.new_epochs();
                self.leave_without_draining(shared);
            }
            // Whoever cannot be stopped may be reached by its clients, who drain it.
            (Phase::StoppingFirst, other) if other != Done && last_try => {
                let why = why(&other);
                self.tell_step(
                    &format!(
                        "its clients wait for it, since nothing fences it and it cannot be stopped: {why}"
                    ),
                    shared,
                );
                self.go(Phase::SwitchingBack, shared);
                self.pause_until = shared.after_ms(shared.rules.retry_max_ms);
            }
            (Phase::StoppingFirst, Done) => {
                self.leaving.as_mut().expect("on the way back").settled = true;
                self.go(Phase::SwitchingBack, shared);
            }
            (Phase::SwitchingBack, Done | Switched { .. }) => {
                // Where the route does not drain the fence has come first.
                if leased && drains {
                    self.go(Phase::FencingBehindBack, shared);
                } else {
                    self.end(shared);
                }
            }
            (Phase::SwitchingBack, other) if self.cannot_drain(&other, last_try) => {
                self.leave_without_draining(shared);
            }
            (Phase::SwitchingBack, Refused(_)) if !leased && self.placed.is_some() => {
                self.leaving.as_mut().expect("on the way back").doubted = true;
                self.again(shared);
            }
            (Phase::FencingBehindBack, Done) => self.end(shared),

            (Phase::Stopping, Done) if !self.placed().late => {
                shared.claims.release(self.placed().claim);
                self.settle(shared);
            }
            (Phase::Stopping, outcome) if outcome == Done || last_try => {
                let Placed { appliance, host, claim, late, .. } = *self.placed();
                shared.start_burial(appliance, host, self.volume, claim, late);
                self.settle(shared);
            }

            // Everything else is tried again: on the way back for as long as it takes.
            (_, other) => {
                if self.tries + 1 == shared.rules.tries_max.max(1) {
                    let word = self.phase.word();
                    self.tell_step(
                        &format!("{word} does not succeed and is tried again: {}", why(&other)),
                        shared,
                    );
                }
                self.again(shared);
            }
        }
    }
}

fn why(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(why) | Outcome::Unknown(why) => why.clone(),
        Outcome::Stale { epoch } => format!("the lease is at epoch {epoch} already"),
        Outcome::Done | Outcome::Healthy { .. } | Outcome::Switched { .. } => {
            "the answer is none to this order".to_owned()
        }
    }
}
