//! One volume's response: which step it is at, what that step orders, and where each outcome leads.
//!
//! First:  (`Looking`) - `Original`, or the way back from wherever clients may be.
//! There:  `Reserved` - `Starting` - `Proving` - (`FencingOriginal`) - `Switching` - (`FencingBehind`) - `Serving`; where a route cannot drain after all, from
//!         `Switching` to `FencingOriginal` and once more.
//! Back:   (`FencingAppliance`) - `SwitchingBack` - (`FencingBehindBack`) - `Stopping` - `Original`, and where a route cannot drain after all,
//!         by `FencingAppliance` or, without a lease, `StoppingFirst` to `SwitchingBack` once more.
//!
//! What a step orders follows from its state alone, so that it can be ordered again after a restart. In each of them a lease that the storage side has lost is
//! raised again first (`lapse`).

mod hearing;
mod lapse;
mod leaving;
mod outage;
mod phase;
mod recovering;

pub(super) use hearing::why;
pub(super) use phase::Phase;

use super::{
    ApplianceId, Draining, Holder, OrderId, Outcome, ResponseStatus, Shared, Target, VolumeRoute, Way, What,
    Wish,
};
use crate::decision::{DecisionKind, Fact, ZoneRange};
use crate::inventory::{HostId, VolumeId};
use forebay_units::{Bytes, Nanos};
use outage::Outage;
use phase::{Leaving, Placed};
use serde::{Deserialize, Serialize};

/// How often headroom is halved before an appliance is started with its share of that alone, or without (ours): less than a sixteenth of
/// what a larger cache needs is soon outgrown, but may be many times a small cache.
const HEADROOM_HALVINGS: u32 = 4;

/// What an order that is out is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Step,
    Probe,
    /// Whether it answers, on the way back.
    Doubt,
    /// Whether the epochs of the way back are still to come, where it is not known which appliance is left.
    DoubtOfEpochs,
    Resize(Bytes),
    Warm,
    /// That the lease is raised again.
    Lapse,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Response {
    volume: VolumeId,
    #[serde(skip)]
    pub(super) route: Option<VolumeRoute>,
    /// The route's, for the journal. Earlier versions do not know of it.
    #[serde(default)]
    pub(super) way: Option<Way>,
    wish: Option<Wish>,
    pub(super) phase: Phase,
    pub(super) placed: Option<Placed>,
    leaving: Option<Leaving>,
    /// The highest epoch that was given out.
    pub(super) epoch: u64,
    /// Why the last appliance is not there any more.
    why: Option<String>,
    /// The last fence that was vouched for.
    #[serde(default)]
    fence: Option<(u64, Holder)>,
    /// The lease was seen below it.
    #[serde(default)]
    has_lapsed: bool,
    /// The lease of who serves clients was seen above what it was ever raised to here.
    #[serde(skip)]
    pub(super) raised_to: Option<u64>,
    /// The epoch that its lease or its route was said to be at, where none can follow.
    #[serde(skip)]
    beyond: Option<u64>,
    /// The epoch at which somebody else holds its lease, while its clients should be on the original route.
    #[serde(skip)]
    held: Option<u64>,
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
    /// Why the appliance has nothing of the origin, as it said when it was asked last.
    #[serde(skip)]
    origin_trouble: Option<String>,
    /// In a row, at which nobody was connected to it.
    #[serde(skip)]
    probes_deserted: u32,
    #[serde(skip)]
    resize_from: Nanos,
    #[serde(skip)]
    outage: Outage,
    /// When the lease may be raised again next.
    #[serde(skip)]
    raise_from: Nanos,
    /// Why the step that it is at did not succeed when it was tried last.
    #[serde(skip)]
    hindrance: Option<String>,
    /// What was said last of the lack of room, not to say it again.
    #[serde(skip)]
    said: String,
    /// The same of a size that an appliance does not get.
    #[serde(skip)]
    resize_said: Option<(ApplianceId, String)>,
}

impl Response {
    pub(super) fn new(volume: VolumeId, route: VolumeRoute) -> Response {
        Response {
            volume,
            way: Some(route.way.clone()),
            route: Some(route),
            wish: None,
            phase: Phase::Original,
            placed: None,
            leaving: None,
            epoch: 0,
            why: None,
            fence: None,
            has_lapsed: false,
            raised_to: None,
            beyond: None,
            held: None,
            warm: None,
            pending: None,
            tries: 0,
            failures: 0,
            pause_until: Nanos::ZERO,
            prove_until: None,
            next_probe: Nanos::ZERO,
            probes_failed: 0,
            origin_trouble: None,
            probes_deserted: 0,
            resize_from: Nanos::ZERO,
            outage: Outage::default(),
            raise_from: Nanos::ZERO,
            hindrance: None,
            said: String::new(),
            resize_said: None,
        }
    }

    pub(super) fn route(&self) -> &VolumeRoute {
        self.route.as_ref().expect("a response is registered with its route")
    }

    fn placed(&self) -> &Placed {
        self.placed.as_ref().expect("a response that left the original route has an appliance")
    }

    /// Goes on after a restart: what its step orders may have been ordered before, and have its effect or have it yet.
    pub(super) fn resume(&mut self) {
        self.come_down();
        match (self.phase, &mut self.placed) {
            // It may be ordered twice now, and one of the two be late.
            (Phase::Starting, Some(placed)) => placed.late = true,
            // Whoever refuses it now says nothing of an earlier try.
            (Phase::Switching, _) => self.tries = 1,
            _ => {}
        }
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

    /// Whether `what` of a size that its appliance does not get was not what was said of it last.
    fn says_anew(&mut self, what: &str) -> bool {
        let said = Some((self.placed().appliance, what.to_owned()));
        let is_new = self.resize_said != said;
        self.resize_said = said;
        is_new
    }

    pub(super) fn want(&mut self, wish: Wish, shared: &mut Shared) {
        if shared.drained.volumes.contains(&self.volume) {
            return;
        }
        if self.wish.as_ref() != Some(&wish) {
            if self.wish.is_none() {
                self.said.clear();
            }
            if self.wish.as_ref().is_none_or(|before| before.cache != wish.cache) {
                self.resize_from = Nanos::ZERO;
            }
            self.wish = Some(wish);
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

    pub(super) fn is_wished_for(&self) -> bool {
        self.wish.is_some()
    }

    /// Whether nothing is under way, and clients are known to be on the original route.
    pub(super) fn is_home(&self) -> bool {
        self.phase == Phase::Original
    }

    pub(super) fn adopt_unknown(&mut self, shared: &mut Shared) {
        self.go(Phase::Looking, shared);
    }

    pub(super) fn status(&self, shared: &Shared) -> ResponseStatus {
        let hindered = match self.phase {
            _ if self.beyond.is_some() => self.sentence_of_epochs(),
            _ if self.held.is_some() => self.sentence_of_holder(),
            // What it waits for after a failure, or for want of room.
            Phase::Original if self.wish.is_none() || shared.now >= self.pause_until => None,
            Phase::Original if self.said.is_empty() => self.why.clone(),
            Phase::Original => Some(format!("no host has room for it: {}", self.said)),
            _ => match (self.sentence_of_other_data(), self.hindrance.clone()) {
                (Some(stay), Some(now)) => Some(format!("{stay}; now {now}")),
                (stay, now) => stay.or(now),
            },
        };
        let route = match self.phase {
            Phase::Looking | Phase::Switching | Phase::SwitchingBack => "unknown",
            Phase::FencingBehind | Phase::Serving => "appliance",
            Phase::FencingAppliance | Phase::StoppingFirst => "unknown",
            Phase::Original if self.held.is_some() => "unknown",
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
            leaves: self.leaving.is_some(),
            why: self.leaving.as_ref().map(|leaving| leaving.why.clone()).or_else(|| self.why.clone()),
            hindered,
            origin_trouble: self.origin_trouble.clone(),
            outage: self.outage.last(),
        }
    }

    /// Whether its appliance cannot be on a host now.
    fn leaves_out(&self, host: HostId, shared: &Shared) -> bool {
        self.why_left_out(host, shared).is_some()
    }

    /// Why it cannot.
    fn why_left_out(&self, host: HostId, shared: &Shared) -> Option<String> {
        let VolumeRoute { unfit, apart, .. } = self.route();
        let unfit = || unfit.iter().find(|(at, _)| *at == host).map(|(_, why)| why.clone());
        // What may run there has its claim, also what starts late and what is being stopped.
        let is_there = |of: VolumeId| shared.claims.claims().any(|c| (c.volume, c.host) == (of, host));
        let kept_off = || apart.iter().find(|(of, _)| is_there(*of)).map(|(_, why)| why.clone());
        unfit().or_else(kept_off).or_else(|| shared.why_left_out(host))
    }

    pub(super) fn most(&self, shared: &Shared) -> Bytes {
        let there = self.placed.as_ref();
        let elsewhere = shared
            .claims
            .without(there.map(|placed| placed.claim), |host| self.leaves_out(host, shared))
            .map(|room| room.memory);
        let memory = elsewhere.chain(there.map(|placed| placed.room.memory)).max();
        memory.map_or(Bytes::ZERO, |memory| shared.rules.cost.cache(memory))
    }

    pub(super) fn tell(&self, shared: &mut Shared, kind: DecisionKind, summary: String, facts: Vec<Fact>) {
        shared.tell(self.volume, &self.route().name, kind, summary, facts);
    }

    /// Facts of the appliance.
    pub(super) fn facts(&self, shared: &Shared) -> Vec<Fact> {
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
        (self.probes_failed, self.probes_deserted) = (0, 0);
        (self.hindrance, self.origin_trouble) = (None, None);
        shared.changes += 1;
    }

    /// Tries the step again after a pause.
    fn again(&mut self, shared: &Shared) {
        self.tries += 1;
        let pause_ms = match self.phase {
            // Whoever only asks may ask often, and the volume waits for it.
            Phase::Looking => shared.rules.probe_every_ms,
            _ => shared.pause_ms(self.tries),
        };
        self.pause_until = shared.after_ms(pause_ms);
    }

    /// The one order of the step that it is at; `None` where there is none, or several.
    fn ordered(&self) -> Option<What> {
        if let Some(Leaving { epochs, settled, .. }) = &self.leaving {
            match self.phase {
                // A route that drains names an epoch on the original path too: so who is on it without one is fenced as well.
                Phase::FencingAppliance if self.route().draining == Draining::ByItself => {
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
        if self.phase == Phase::Looking {
            return Some(What::Look);
        }
        let Placed { appliance, host, room, cache_least: cache, flash, epoch, settled: fenced, .. } =
            self.placed?;
        match self.phase {
            Phase::Starting => Some(What::Start { appliance, host, room, cache, flash, epoch }),
            Phase::Proving => Some(What::Probe { appliance, host }),
            Phase::FencingOriginal | Phase::FencingBehind => {
                Some(What::Fence { epoch, holder: Holder::Named })
            }
            // A route that drains settles the old path itself; where it does not, or could not, the fence came first.
            Phase::Switching => {
                let settled = fenced || !self.route().drains();
                let to = Target::Appliance { appliance, host };
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
        if self.pending.is_some() || self.raise_again(shared) || shared.now < self.pause_until {
            return;
        }
        match self.phase {
            Phase::Original => {
                if !shared.held {
                    self.begin(shared);
                }
                return;
            }
            Phase::Reserved if self.wish.is_none() || self.on_drained(shared).is_some() => {
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
            Phase::Starting | Phase::Proving if self.wish.is_none() || self.on_drained(shared).is_some() => {
                // While it starts nothing is out only after a restart: the order may have been given, and be late.
                let late = self.phase == Phase::Starting;
                let drained = self.on_drained(shared).filter(|_| self.wish.is_some());
                let why = drained.unwrap_or_else(|| "it is not wanted any more".to_owned());
                self.abandon(&why, late, shared);
            }
            Phase::Proving => {
                self.prove_until.get_or_insert(shared.after_ms(shared.rules.start_within_ms));
            }
            Phase::Serving => {
                // While nothing can be ordered it stays, and is asked how it is.
                if shared.held || !self.leave_to_who_raised(shared) {
                    self.serve(shared);
                }
                return;
            }
            Phase::SwitchingBack => {
                // Whose clients cannot be moved while nothing can be ordered is looked after meanwhile.
                let waits = shared.held && self.is_unsettled() && shared.now >= self.next_probe;
                let is_doubted = self.leaving.as_ref().is_some_and(|leaving| leaving.doubted);
                if self.placed.is_some() && (is_doubted || waits) {
                    return self.ask(Asked::Doubt, shared);
                }
                if self.placed.is_none() && is_doubted {
                    let (id, lost) = shared.order(self.volume, What::Look);
                    self.pending = Some((id, lost, Asked::DoubtOfEpochs));
                    return;
                }
            }
            _ => {}
        }
        let what = self.ordered().expect("every other step has its order");
        if !shared.may_order(&what) {
            return;
        }
        let (id, lost) = shared.order(self.volume, what);
        self.pending = Some((id, lost, Asked::Step));
    }

    /// Answers a wish: room is claimed, or it is said why not.
    fn begin(&mut self, shared: &mut Shared) {
        let is_free = self.beyond.is_none() && self.held.is_none();
        let Some(wish) = self.wish.as_ref().filter(|_| is_free) else { return };
        if !self.route().drains() && !self.route().leased {
            let summary = format!(
                "the clients of {} are not moved to a cache: their route cannot drain the old path, and the storage side has no lease to fence it",
                self.route().name
            );
            self.wish = None;
            self.tell(shared, DecisionKind::NothingHelps, summary, Vec::new());
            return;
        }
        let room = shared.rules.cost.room(wish.cache, wish.flash, wish.rate);
        let home = wish.host.filter(|host| shared.why_left_out(*host).is_none()).unwrap_or(self.route().home);
        let (cache, flash) = (wish.cache, wish.flash);
        let resting: Vec<(HostId, String)> = (shared.claims.hosts().iter())
            .filter_map(|host| Some((host.id, self.why_left_out(host.id, shared)?)))
            .collect();
        let left_out =
            |host| resting.iter().find(|(resting, _)| *resting == host).map(|(_, why)| why.clone());
        let share = (cache.as_f64() * shared.rules.headroom) as u64;
        let headroom = share.max(shared.rules.headroom_bytes);
        let with = |more: u64| {
            shared.rules.cost.room(Bytes(cache.get().saturating_add(more)), wish.flash, wish.rate)
        };
        let claims = &mut shared.claims;
        let mut claim = |room, only: Option<HostId>| {
            let elsewhere = |host| only.filter(|only| *only != host).map(|_| String::new());
            let left_out = |host| left_out(host).or_else(|| elsewhere(host));
            claims.claim_near(home, room, self.volume, left_out).map(|claimed| (claimed, room))
        };
        // Home with less of it before any other host with all.
        let each = [Some(home), None].into_iter().flat_map(|only| {
            let headrooms = (0..=HEADROOM_HALVINGS).map(|halvings| headroom >> halvings).chain([share]);
            headrooms.map(move |headroom| (only, headroom))
        });
        let claimed = { each }
            .find_map(|(only, headroom)| claim(with(headroom), only).ok())
            .map_or_else(|| claim(room, None), Ok);
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
                    doubted: false,
                    cache_least: cache,
                    flash,
                    epoch,
                    late: false,
                    settled: false,
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

    /// Asks its appliance how it is.
    fn ask(&mut self, asked: Asked, shared: &mut Shared) {
        let Placed { appliance, host, .. } = *self.placed();
        let (id, lost) = shared.order(self.volume, What::Probe { appliance, host });
        self.pending = Some((id, lost, asked));
    }

    /// What is to be done while the cache is in place.
    fn serve(&mut self, shared: &mut Shared) {
        let placed = *self.placed();
        let (appliance, host) = (placed.appliance, placed.host);
        let is_to_be_asked = shared.now >= self.next_probe;
        // While nothing can be ordered it stays, also if it is not wanted any more, and is asked how it is.
        if shared.held {
            if is_to_be_asked {
                self.ask(Asked::Probe, shared);
            }
            return;
        }
        let Some(wish) = &self.wish else {
            let why = self.why.clone().unwrap_or_else(|| "it is not wanted any more".to_owned());
            self.leave(&why, true, shared);
            return self.step(shared);
        };
        if let Some(why) = self.on_drained(shared) {
            self.tell_taken_back(&why, shared);
            self.leave(&why, true, shared);
            return self.step(shared);
        }
        if is_to_be_asked {
            return self.ask(Asked::Probe, shared);
        }
        let (asked, what) = if self.probes_failed > 0 {
            // Whoever does not answer is told nothing that would have to be waited for before the next probe.
            return;
        } else if (wish.cache != placed.cache || placed.doubted) && shared.now >= self.resize_from {
            let cache = wish.cache;
            let room = shared.rules.cost.room(cache, placed.flash, wish.rate);
            // The memory of what runs does not grow.
            if room.memory > placed.room.memory {
                let name = self.route().name.clone();
                if shared.claims.would_fit(room, placed.claim, |host| self.leaves_out(host, shared)) {
                    let why = format!(
                        "the cache of {name} is to grow to {cache}, which its appliance has no room for"
                    );
                    self.leave(&why, true, shared);
                    return self.step(shared);
                }
                self.resize_from = shared.after_ms(shared.rules.retry_max_ms);
                let summary = format!(
                    "the cache of {name} cannot grow to {cache}: it takes {room}, and its appliance was started with {}",
                    placed.room
                );
                if self.says_anew(&summary) {
                    let facts = self.facts(shared);
                    self.tell(shared, DecisionKind::CapacityShort, summary, facts);
                }
                return;
            }
            let placed = self.placed.as_mut().expect("it serves");
            placed.cache_least = placed.cache_least.min(cache);
            placed.doubted = true;
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
}
