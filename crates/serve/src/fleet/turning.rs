//! The loop of a fleet: what is due is done at once; and every interval a *turn*, in which everything is heard of and the controller decides.

use super::carrying::{Carriers, Report};
use super::observing::{self, Observer};
use super::strays::Strays;
use super::{FleetConfig, FleetShared, home, metrics, showing};
use crate::clock::{ClockWatch, Moment, unix_ms};
use crate::history::{Batch, DatedDecision, word};
use crate::kept::{self, Hold};
use crate::supervised::{Alive, Supervised};
use forebay_control::response::{ApplianceId, Order, Responses, Wish};
use forebay_control::{
    Action, ConfigError, ControlConfig, Controller, Decision, HostObservation, HostSpec, Observation,
    OriginId, OriginObservation, OriginSpec, StepOutcome, VolumeId, VolumeObservation, VolumeSpec,
};
use forebay_units::{BlockSize, Bytes, Nanos, with_causes};
use std::collections::BTreeMap;
use std::path::PathBuf;
#[cfg(test)]
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Decisions that are kept in memory; a history keeps more.
const DECISIONS_MAX: usize = 10_000;
/// How long the loop waits for a report before it looks for what is due (ours).
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Which volumes compete, by the word for their array.
fn origins(config: &FleetConfig) -> (Vec<OriginId>, Vec<OriginSpec>) {
    let mut words: Vec<String> = Vec::new();
    let mut of = Vec::new();
    for volume in &config.volume {
        let watch = || volume.watch.as_ref().map_or_else(|| volume.name.clone(), ToString::to_string);
        let word = volume.array.clone().unwrap_or_else(watch);
        let at = words.iter().position(|known| *known == word).unwrap_or_else(|| {
            words.push(word);
            words.len() - 1
        });
        of.push(OriginId(at as u32));
    }
    let spec = |(at, name): (usize, String)| OriginSpec {
        id: OriginId(at as u32),
        name,
        servers: None,
        service_cv2: None,
        service: None,
    };
    (of, words.into_iter().enumerate().map(spec).collect())
}

/// What is to be done at `now`. A turn may take seconds where appliances hang: what was reported meanwhile is heard first, or it would count as lost.
pub(super) fn due(responses: &mut Responses, reports: &Receiver<Report>, now: Nanos) -> Vec<Order> {
    reports.try_iter().for_each(|(order, outcome)| responses.report(order, outcome, now));
    responses.step(now)
}

pub(super) struct Loop {
    pub(super) shared: Arc<FleetShared>,
    pub(super) carriers: Carriers,
    pub(super) responses: Responses,
    pub(super) observer: Observer,
    pub(super) journal_file: PathBuf,
    /// On the journal, and with it on the folder.
    pub(super) _hold: Hold,
    /// Which state of the responses is on disk.
    pub(super) journal_changes: Option<u64>,
    /// It could not be written when that was tried last: nothing is decided and nothing begun until it can.
    pub(super) journal_fails: bool,
    pub(super) supervised: Supervised,
    pub(super) hosts: Vec<HostSpec>,
    /// The controller was paused since it was asked last.
    pub(super) was_off: bool,
    /// The sizes of the volumes that the controller knows.
    pub(super) registered: BTreeMap<VolumeId, u64>,
    /// Which appliance each volume's clients were seen on last.
    pub(super) served_by: BTreeMap<VolumeId, ApplianceId>,
    pub(super) strays: Strays,
}

impl Loop {
    fn now(&self) -> Nanos {
        Nanos::from(self.shared.started.elapsed())
    }

    pub(super) fn run(mut self, reports: &Receiver<Report>) {
        let interval = Duration::from_nanos(self.shared.config.interval.0);
        let mut next = Instant::now() + interval;
        let past_every = self.shared.config.control.foresight.bucket_intervals as u64;
        let mut clock = ClockWatch::default();
        while !self.shared.is_stopping() {
            if clock.tell(Moment::now()).is_some() {
                self.shared.state().clock_steps = clock.steps();
            }
            match reports.recv_timeout(LOOK_EVERY.min(next.saturating_duration_since(Instant::now()))) {
                Ok((order, outcome)) => {
                    let now = self.now();
                    self.responses.report(order, outcome, now);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let mut decisions = Vec::new();
            if Instant::now() >= next {
                decisions = self.turn();
                let steps = self.shared.state().steps;
                if steps.is_multiple_of(past_every) {
                    self.supervised.keep_past(self.shared.config.interval, self.shared.history.as_ref());
                }
                // Late turns are left out rather than caught up with.
                while next <= Instant::now() {
                    next += interval;
                }
            }
            self.go_on(reports);
            decisions.extend(self.responses.decisions());
            self.remember(decisions);
        }
        self.supervised.keep_past(self.shared.config.interval, self.shared.history.as_ref());
    }

    /// Hears of everything, and has the controller decide.
    fn turn(&mut self) -> Vec<Decision> {
        let began = Instant::now();
        #[cfg(test)]
        assert!(!self.shared.panics_next_turn.load(Ordering::Relaxed), "injected by a test");
        self.was_off |= self.shared.switch.take_was_off() || self.journal_fails;
        let now = self.now();
        let heard = self.observer.hear(&self.shared.config, now, &self.responses, &self.carriers);
        let mut decisions = heard.decisions;
        // Nothing was reported since they were asked.
        heard.leases.iter().for_each(|(id, epoch, holder)| self.responses.lease_seen(*id, *epoch, *holder));
        let mut observation = Observation {
            at: now,
            interval: self.shared.config.interval,
            volumes: heard.volumes,
            ..Observation::default()
        };
        let (of, _) = origins(&self.shared.config);
        let mut busy: BTreeMap<OriginId, f64> = BTreeMap::new();
        for (id, utilisation) in heard.utilisation {
            let known = busy.entry(of[id.0 as usize]).or_default();
            *known = known.max(utilisation);
        }
        let said = |(origin, utilisation)| OriginObservation { origin, utilisation: Some(utilisation) };
        observation.origins = busy.into_iter().map(said).collect();
        let beside = self.responses.beside();
        let room = |host: &HostSpec| HostObservation {
            host: host.id,
            free: self.responses.free(host.id),
            beside,
            rests: self.responses.why_rests(host.id),
            drained: self.responses.is_drained(host.id),
        };
        observation.hosts = self.hosts.iter().map(room).collect();
        if self.shared.switch.stayed_on() && !self.journal_fails {
            match self.decide(&heard.sizes, &observation) {
                None => {}
                Some(Ok(outcome)) => decisions.extend(self.carry_out(outcome, &observation)),
                Some(Err(what)) => self.tell_dead(what),
            }
        }
        // What it said before it was paused is not of now.
        let controller =
            self.supervised.controller().filter(|_| self.shared.switch.is_on() && !self.journal_fails);
        let volumes = showing::volumes(&self.shared.config, &self.observer, &self.responses, controller);
        let turn = metrics::Turn::of(
            &self.shared.config,
            &self.observer,
            &self.responses,
            &self.carriers,
            &self.strays,
        );
        let mut state = self.shared.state();
        state.turn = turn;
        state.granted_bytes = volumes.iter().map(|volume| volume.quota_bytes).sum();
        state.volumes = volumes;
        state.steps += 1;
        state.last_step = began.elapsed();
        decisions
    }

    /// Asks the controller, and starts one where there is none, a volume is heard of, and it is time. The error is what it said as it died.
    fn decide(
        &mut self,
        sizes: &BTreeMap<VolumeId, u64>,
        observation: &Observation,
    ) -> Option<Result<StepOutcome, String>> {
        if self.supervised.is_due()
            && sizes.values().any(|size| *size > 0)
            && let Err(error) = self.begin()
        {
            self.supervised.died();
            return Some(Err(with_causes(&error)));
        }
        let Loop { shared, supervised, registered, responses, was_off, served_by, .. } = self;
        let asked = supervised.ask(|alive| {
            register(shared, alive, registered, responses, sizes);
            let controller = &mut alive.controller;
            let was_off = std::mem::take(was_off);
            for id in registered.keys() {
                // What it decided when it was paused was not done.
                if let Some(status) = responses.status(*id).filter(|_| was_off) {
                    let volume = &shared.config.volume[id.0 as usize];
                    let host = status.host.unwrap_or_else(|| home(&shared.config, volume));
                    controller.take_over(*id, host, status.wanted_bytes / volume.block_size.get());
                }
                let (host, hindered) = responses.status(*id).map_or((None, None), |status| {
                    let ends = format!("the appliance before it is at its end ({})", status.step);
                    (status.host, status.hindered.or(status.leaves.then_some(ends)))
                });
                controller.located(*id, host, responses.most(*id));
                controller.hindered(*id, hindered);
            }
            for seen in &observation.volumes {
                if let Some(on) = observing::on_appliance(responses, seen.volume)
                    && served_by.insert(seen.volume, on) != Some(on)
                {
                    controller.made_anew(seen.volume);
                }
            }
            #[cfg(test)]
            assert!(!shared.panics_next_step.swap(false, Ordering::Relaxed), "injected by a test");
            alive.step(observation)
        })?;
        Some(asked.map(|answer| {
            let mut state = self.shared.state();
            state.is_dead = false;
            answer.interference.into_iter().for_each(|table| state.interference.keep(table));
            answer.outcome
        }))
    }

    fn begin(&mut self) -> Result<(), ConfigError> {
        let config = &self.shared.config;
        let (_, specs) = origins(config);
        let capacity = Bytes(self.hosts.iter().map(|host| host.capacity.get()).sum());
        // Memory of hosts that no appliance uses is theirs.
        let rules = ControlConfig { spare_share: 0.0, ..config.control.clone() };
        self.supervised.start(Controller::new(rules, capacity, self.hosts.clone(), specs)?);
        self.registered.clear();
        Ok(())
    }

    /// Tells of a controller that is dead. The next one takes over the caches that are there; what is under way goes on.
    fn tell_dead(&mut self, what: String) {
        tracing::error!(what, "the controller died; what is under way goes on, and it is started again");
        let mut state = self.shared.state();
        (state.is_dead, state.last_panic) = (true, Some(what));
        state.restarts += 1;
    }

    /// Makes wishes of what was decided, unless the controller was paused meanwhile, also if it is on again: then nothing was decided.
    fn carry_out(&mut self, outcome: StepOutcome, observation: &Observation) -> Vec<Decision> {
        let shared = Arc::clone(&self.shared);
        let _one = shared.wishing.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.switch.stayed_on() {
            return Vec::new();
        }
        for action in outcome.actions {
            self.act(action, observation);
        }
        outcome.decisions
    }

    fn act(&mut self, action: Action, observation: &Observation) {
        let config = &self.shared.config;
        let block = |id: VolumeId| config.volume[id.0 as usize].block_size.get();
        match action {
            Action::SetQuota { volume, blocks: 0, .. } => {
                self.responses.give_back(volume, "its cache is taken back");
            }
            Action::SetQuota { volume, host, blocks } => {
                let seen = observation.volumes.iter().find(|seen| seen.volume == volume);
                let per_second = |seen: &VolumeObservation| seen.completed() as f64 / seen.span.as_secs_f64();
                // To a power of two, so that it is another wish only where it matters.
                let rate = seen.map_or(0.0, |seen| per_second(seen).max(1.0).log2().ceil().exp2());
                let cache = Bytes(blocks * block(volume));
                self.responses.want(volume, Wish { cache, flash: Bytes::ZERO, rate, host: Some(host) });
            }
            Action::Prewarm { volume, zones, bytes_per_second } => {
                self.responses.warm(volume, zones, bytes_per_second);
            }
            // What is being loaded ends with its cache.
            Action::CancelPrewarm { .. } => {}
            Action::ListResident { volume } => self.observer.list(volume),
            other => tracing::error!(?other, "an action that this controller does not know"),
        }
    }

    /// Asks the responses what is due, keeps the journal, and has it carried out.
    fn go_on(&mut self, reports: &Receiver<Report>) {
        let now = self.now();
        self.strays.go_on(&self.shared.config, &mut self.responses, &self.carriers, now);
        let mut orders = due(&mut self.responses, reports, now);
        if self.journal_changes != Some(self.responses.changes()) {
            match kept::replace(&self.journal_file, &self.responses.journal()) {
                Ok(()) => {
                    self.journal_changes = Some(self.responses.changes());
                    if std::mem::take(&mut self.journal_fails) {
                        self.shared.state().journal_trouble = None;
                        tracing::info!(path = %self.journal_file.display(), "the journal is written again");
                    }
                }
                Err(error) => {
                    // Once, and not with each try: the log may be on the disk that is full.
                    if !std::mem::replace(&mut self.journal_fails, true) {
                        self.shared.state().journal_trouble =
                            Some(format!("`{}`: {error}", self.journal_file.display()));
                        tracing::error!(path = %self.journal_file.display(), %error, "the journal cannot be written; nothing is begun until it can");
                    }
                    // Who is not asked would be taken for one that does not answer, and be given up.
                    // And whom a lost lease let in is let in until it is raised again.
                    let (others, begun) =
                        orders.into_iter().partition(|order| self.responses.needs_journal(order));
                    orders = begun;
                    others.into_iter().for_each(|order| self.responses.withdraw(order));
                }
            }
            self.responses.hold(self.journal_fails);
        }
        orders.into_iter().for_each(|order| self.carriers.take(order));
    }

    fn remember(&self, decisions: Vec<Decision>) {
        if decisions.is_empty() {
            return;
        }
        let at_unix_ms = unix_ms();
        let dated: Vec<DatedDecision> =
            decisions.into_iter().map(|decision| DatedDecision { at_unix_ms, decision }).collect();
        for DatedDecision { decision, .. } in &dated {
            tracing::info!(volume = decision.volume_name, kind = ?decision.kind, "{}", decision.summary);
        }
        let mut state = self.shared.state();
        for decision in &dated {
            if state.decisions.len() == DECISIONS_MAX {
                state.decisions.pop_front();
            }
            let of_kind = state.decision_counts.entry(word(&decision.decision.kind)).or_default();
            *of_kind.entry(decision.decision.volume_name.clone()).or_default() += 1;
            state.decisions.push_back(decision.clone());
        }
        drop(state);
        if let Some(history) = &self.shared.history {
            history.keep(Batch { intervals: Vec::new(), decisions: dated });
        }
    }
}

/// Tells the controller of volumes whose size is known now; one that already has a cache is taken over with it.
fn register(
    shared: &FleetShared,
    alive: &mut Alive,
    registered: &mut BTreeMap<VolumeId, u64>,
    responses: &Responses,
    sizes: &BTreeMap<VolumeId, u64>,
) {
    let config = &shared.config;
    let new: Vec<(VolumeId, u64)> = (sizes.iter())
        .filter(|(id, size)| registered.get(id) != Some(size) && **size > 0)
        .map(|(id, size)| (*id, *size))
        .collect();
    if new.is_empty() {
        return;
    }
    let (of, _) = origins(config);
    let controller = &mut alive.controller;
    for (id, size) in new {
        let volume = &config.volume[id.0 as usize];
        let block_size = BlockSize::new(volume.block_size).expect("the configuration was checked");
        let spec = VolumeSpec {
            id,
            name: volume.name.clone(),
            size: Bytes(size),
            block_size,
            origin: of[id.0 as usize],
            host: home(config, volume),
            objectives: config.objectives(&volume.name),
            may_cache: volume.why_forbidden().is_none(),
            minimum: Bytes::ZERO,
            maximum: None,
        };
        if let Err(error) = controller.register(spec) {
            tracing::error!(volume = volume.name, %error, "the controller refuses the volume");
        }
        if let Some(why) = volume.why_forbidden() {
            controller.say_why_forbidden(id, why.to_owned());
        }
        // Also one that is only on its way: else nobody would take it back.
        if let Some(status) = responses.status(id).filter(|status| status.wanted_bytes > 0) {
            let host = status.host.unwrap_or_else(|| home(config, volume));
            controller.take_over(id, host, status.wanted_bytes / block_size.bytes());
        }
        registered.insert(id, size);
    }
    if let Some(history) = &config.history {
        // Of all, since those that are heard of later are registered later.
        let names = config.volume.iter().map(|volume| volume.name.clone());
        alive.recall_once(history, names, config.interval);
    }
}
