//! The control loop: observe, decide, act, remember, once per interval, on a thread of its own.
//!
//! It reads the clock and does what the controller decides; it decides nothing. A panic of the controller ends that
//! controller, not the loop: quotas stay as they are until another one starts, with the caches that it controls taken back
//! first, since it knows nothing of them. Those that somebody ordered stay, and are the next one's to size.

use crate::clock::unix_ms;
use crate::config::{CacheConfig, Config, VolumeConfig};
use crate::daemon::{Shared, remember};
use crate::history::{Batch, DatedDecision, IntervalRow};
use crate::monitor::{Interval, Monitor};
use crate::orders::Ordered;
use crate::reservation::Reservation;
use crate::supervised::{Supervised, panic_text};
use forebay_appliance::{CommandError, VolumeSnapshot};
use forebay_control::{
    Action, Controller, HostId, HostSpec, Objective, Observation, OriginId, OriginObservation, StepOutcome,
    VolumeId, VolumeObservation, VolumeSpec,
};
use forebay_origin::DeviceStatistics;
use forebay_units::{ByteRange, Bytes, Nanos, with_causes};
use forebay_workload::LatencySnapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// This machine.
const HOST: HostId = HostId(0);

/// Runs until the daemon stops.
pub(crate) fn run(shared: &Shared) {
    let mut pilot = Pilot::new();
    let every = shared.config.control.interval;
    let mut next = Instant::now() + every;
    let past_every = shared.config.control.rules.foresight.bucket_intervals as u64;
    while shared.sleep_until(next) {
        let turned = catch_unwind(AssertUnwindSafe(|| {
            pilot.turn(shared);
            let steps = shared.steps.load(Ordering::Relaxed) + 1;
            if steps.is_multiple_of(past_every) {
                pilot.supervised.keep_past(interval(shared), shared.history.as_ref());
            }
        }));
        if let Err(panic) = turned {
            let what = panic_text(&*panic);
            tracing::error!(what, "the control loop panicked; it starts anew");
            let mut state = shared.state();
            state.last_panic = Some(what);
            state.restarts += 1;
            drop(state);
            pilot = Pilot::new();
            pilot.takes_back = true;
        }
        shared.steps.fetch_add(1, Ordering::Release);
        // Late turns are left out rather than caught up with.
        let now = Instant::now();
        while next <= now {
            next += every;
        }
    }
    pilot.supervised.keep_past(interval(shared), shared.history.as_ref());
}

struct Pilot {
    supervised: Supervised,
    /// What the controller knows of the volumes' objectives.
    registered: BTreeMap<VolumeId, Vec<Objective>>,
    /// Another controller left quotas that must go before the next one starts.
    takes_back: bool,
    /// Others could size caches since the controller was asked last.
    was_off: bool,
    /// What was not taken back, since somebody had ordered it.
    kept: BTreeSet<VolumeId>,
    devices: BTreeMap<OriginId, DeviceStatistics>,
    /// The end of the last interval on the data path's clock.
    last_at: Nanos,
}

impl Pilot {
    fn new() -> Pilot {
        Pilot {
            supervised: Supervised::new(),
            registered: BTreeMap::new(),
            takes_back: false,
            was_off: false,
            kept: BTreeSet::new(),
            devices: BTreeMap::new(),
            last_at: Nanos::ZERO,
        }
    }

    fn turn(&mut self, shared: &Shared) {
        let began = Instant::now();
        self.was_off |= shared.switch.take_was_off();
        let (observation, row_data) = self.observe(shared);
        let mut decisions = Vec::new();
        if shared.switch.stayed_on()
            && let Some(outcome) = self.decide(shared, &observation)
            && carry_out(shared, outcome.actions)
        {
            let at_unix_ms = unix_ms();
            decisions = outcome
                .decisions
                .into_iter()
                .map(|decision| DatedDecision { at_unix_ms, decision })
                .collect();
        }
        for dated in &decisions {
            tracing::info!(volume = dated.decision.volume_name, kind = ?dated.decision.kind, "{}", dated.decision.summary);
        }
        renew_reservations(shared);
        let mut state = shared.state();
        remember(&mut state, &decisions);
        state.last_step = began.elapsed();
        drop(state);
        if let Some(history) = &shared.history {
            history.keep(Batch { intervals: row_data, decisions });
        }
    }

    /// Ends the interval of every volume, and says what happened in it.
    fn observe(&mut self, shared: &Shared) -> (Observation, Vec<IntervalRow>) {
        // Under the lock, so that nobody adds up an interval twice or not at all.
        let mut state = shared.state();
        let snapshots = shared.appliance.observe_all(true);
        let at = shared.appliance.now();
        let mut observation = Observation {
            at,
            interval: Nanos(at.saturating_since(self.last_at).0.max(1)),
            every: interval(shared),
            ..Observation::default()
        };
        self.last_at = at;
        let at_unix_ms = unix_ms();
        let mut rows = Vec::new();
        let mut devices = BTreeMap::new();
        state.utilisation.retain(|volume, _| snapshots.iter().any(|snapshot| snapshot.name == *volume));
        for snapshot in snapshots {
            let Some((index, volume)) = find(&shared.config, &snapshot.name) else { continue };
            let id = VolumeId(index as u32);
            let origin = shared.origins.0[index];
            if let Some(device) = snapshot.origin_statistics.device {
                if let Some(before) = self.devices.get(&origin) {
                    state.utilisation.insert(volume.name.clone(), utilisation(before, &device));
                }
                devices.insert(origin, device);
            }
            let monitor = state
                .monitors
                .entry(volume.name.clone())
                .or_insert_with(|| Monitor::new(id, &volume.objectives, interval(shared)));
            let seen = monitor.take(snapshot, &shared.config.control.rules.conformance);
            let resident = shared.books.lists().take(&volume.name);
            observation.volumes.push(VolumeObservation { resident, ..seen });
            rows.push(row(monitor, volume, at_unix_ms));
        }
        for (origin, device) in devices {
            if let Some(before) = self.devices.insert(origin, device) {
                let utilisation = Some(utilisation(&before, &device));
                observation.origins.push(OriginObservation { origin, utilisation });
            }
        }
        (observation, rows)
    }

    /// Asks the controller, and starts one where there is none and it is time.
    fn decide(&mut self, shared: &Shared, observation: &Observation) -> Option<StepOutcome> {
        if self.supervised.is_due() {
            self.begin(shared)?;
        }
        let Pilot { supervised, registered, was_off, kept, .. } = self;
        let asked = supervised.ask(|alive| {
            register(shared, &mut alive.controller, registered);
            let kept = std::mem::take(kept);
            if std::mem::take(was_off) {
                take_over(shared, &mut alive.controller, observation, |_| true);
            } else if !kept.is_empty() {
                take_over(shared, &mut alive.controller, observation, |volume| kept.contains(&volume));
            }
            if let Some(history) = &shared.config.history {
                let names = shared.config.volumes.iter().map(|volume| volume.name.clone());
                alive.recall_once(&history.path, names, interval(shared));
            }
            #[cfg(test)]
            assert!(!shared.panics_next_step.swap(false, Ordering::Relaxed), "injected by a test");
            // It takes milliseconds: without the state in hands.
            let mut answer = alive.step(observation);
            let mut state = shared.state();
            answer.interference.take().into_iter().for_each(|table| state.interference.keep(table));
            for id in registered.keys() {
                if let Some(status) = alive.controller.status(*id) {
                    let name = |id: &VolumeId| shared.config.volumes[id.0 as usize].name.clone();
                    let serves = status.serves.iter().map(name).collect();
                    state.judged.insert(status.name, (crate::history::word(&status.state), serves));
                }
            }
            answer
        })?;
        match asked {
            Ok(answer) => Some(answer.outcome),
            Err(what) => {
                self.tell_dead(shared, what);
                None
            }
        }
    }

    /// Starts a controller; `None` if that is not possible now.
    fn begin(&mut self, shared: &Shared) -> Option<()> {
        // Whoever could size caches meanwhile is not to lose them: they are taken over.
        if std::mem::take(&mut self.takes_back) && !self.was_off {
            let ordered = shared.books.quota_orders();
            if !shared.switch.stayed_on() {
                self.takes_back = true;
                return None;
            }
            self.kept = take_back(shared, &ordered);
        }
        match start(&shared.config, shared.origins.1.clone()) {
            Ok(controller) => self.supervised.start(controller),
            Err(error) => {
                self.supervised.died();
                self.tell_dead(shared, error);
                return None;
            }
        }
        self.registered.clear();
        shared.state().dead = false;
        Some(())
    }

    /// Tells of a controller that is dead; the next one takes back first what it granted.
    fn tell_dead(&mut self, shared: &Shared, what: String) {
        tracing::error!(what, "the controller died; serving goes on, and it is started again");
        self.takes_back = true;
        let mut state = shared.state();
        state.dead = true;
        state.restarts += 1;
        state.last_panic = Some(what);
        state.judged.clear();
    }
}

/// The length of an interval, as configured: turns may be late.
fn interval(shared: &Shared) -> Nanos {
    Nanos::from(shared.config.control.interval)
}

/// Has each volume judged by the reservations that stand now. At the end of a turn, so that the next interval is wholly theirs.
fn renew_reservations(shared: &Shared) {
    let active: Vec<Reservation> = {
        let mut reservations = shared.books.reservations();
        let now = unix_ms();
        reservations.end(now);
        reservations.all().iter().filter(|reservation| reservation.is_active(now)).cloned().collect()
    };
    let window = interval(shared);
    for (volume, monitor) in &mut shared.state().monitors {
        let of = |reservation: &Reservation| {
            let id = reservation.id;
            reservation.objectives(window).map(move |objective| (id, objective)).collect::<Vec<_>>()
        };
        let theirs = active.iter().filter(|reservation| reservation.volumes.contains(volume));
        monitor.reserve(&theirs.flat_map(of).collect::<Vec<_>>());
    }
}

fn find<'a>(config: &'a Config, name: &str) -> Option<(usize, &'a VolumeConfig)> {
    config.volumes.iter().enumerate().find(|(_, volume)| volume.name == name)
}

fn utilisation(before: &DeviceStatistics, after: &DeviceStatistics) -> f64 {
    let span = after.at.saturating_since(before.at).as_secs_f64() * f64::from(after.spindles);
    let busy = after.busy.saturating_since(before.busy).as_secs_f64();
    if span > 0.0 { (busy / span).clamp(0.0, 1.0) } else { 0.0 }
}

/// A controller for what the fixed quotas leave.
fn start(config: &Config, origins: Vec<forebay_control::OriginSpec>) -> Result<Controller, String> {
    let capacity = config.controllers_memory();
    let host = HostSpec::new(HOST, "this machine", 0, capacity);
    Controller::new(config.control.rules.clone(), capacity, vec![host], origins)
        .map_err(|error| with_causes(&error))
}

/// Tells the controller of volumes that it does not know yet, of those to which something else is promised, and of those that were drained, so
/// that others may have what they had.
fn register(
    shared: &Shared,
    controller: &mut Controller,
    registered: &mut BTreeMap<VolumeId, Vec<Objective>>,
) {
    let state = shared.state();
    let served = shared.appliance.volumes();
    let is_served = |volume: &VolumeConfig| served.binary_search(&volume.name).is_ok();
    registered.retain(|id, _| {
        let volume = &shared.config.volumes[id.0 as usize];
        // One that is being drained has its memory until what is in flight is answered.
        let stays = is_served(volume) || state.leaving.contains_key(&volume.name);
        if !stays {
            controller.forget(*id);
        }
        stays
    });
    for (index, volume) in shared.config.volumes.iter().enumerate().filter(|(_, volume)| is_served(volume)) {
        let id = VolumeId(index as u32);
        let Some(monitor) = state.monitors.get(&volume.name) else { continue };
        let Some(VolumeSnapshot { size, .. }) = &monitor.last else { continue };
        let objectives = monitor.objectives();
        if registered.get(&id) == Some(&objectives) {
            continue;
        }
        let (may_cache, minimum, maximum) = match volume.cache {
            CacheConfig::Fixed(_) => (false, Bytes::ZERO, None),
            CacheConfig::Controlled { may_cache, minimum, maximum } => (may_cache, minimum, maximum),
        };
        let spec = VolumeSpec {
            id,
            name: volume.name.clone(),
            size: *size,
            block_size: volume.block_size,
            origin: shared.origins.0[index],
            host: HOST,
            objectives: objectives.clone(),
            may_cache,
            minimum: minimum.min(*size),
            maximum,
        };
        if let Err(error) = controller.register(spec) {
            tracing::error!(
                volume = volume.name,
                error = with_causes(&error),
                "the controller refuses the volume"
            );
        }
        registered.insert(id, objectives);
    }
}

/// Tells a controller that was off, or is new, what those caches are that it sizes and `which` names, whoever ordered them.
fn take_over(
    shared: &Shared,
    controller: &mut Controller,
    observation: &Observation,
    which: impl Fn(VolumeId) -> bool,
) {
    for seen in observation.volumes.iter().filter(|seen| which(seen.volume)) {
        let volume = &shared.config.volumes[seen.volume.0 as usize];
        if matches!(volume.cache, CacheConfig::Controlled { .. }) {
            controller.take_over(seen.volume, HOST, seen.cache.quota_blocks);
        }
    }
}

/// Takes back what a controller that is gone granted, but not what somebody ordered: that is told.
fn take_back(shared: &Shared, ordered: &Ordered) -> BTreeSet<VolumeId> {
    let mut kept = BTreeSet::new();
    for (index, volume) in shared.config.volumes.iter().enumerate() {
        if matches!(volume.cache, CacheConfig::Controlled { .. }) {
            if ordered.has(&volume.name) {
                kept.insert(VolumeId(index as u32));
                continue;
            }
            shared.books.loads().forget(&volume.name);
            let _ = shared.appliance.cancel_prewarm(&volume.name);
            let _ = shared.appliance.set_quota(&volume.name, Bytes::ZERO);
        }
    }
    kept
}

/// Does what was decided, unless the controller was paused meanwhile, also if it is on again: what it knew of the caches may be wrong by
/// now, and the next turn tells it. Then nothing was decided.
fn carry_out(shared: &Shared, actions: Vec<Action>) -> bool {
    let mut ordered = shared.books.quota_orders();
    let stands = shared.switch.stayed_on();
    if stands {
        for action in actions {
            act(shared, &mut ordered, action);
        }
    }
    stands
}

/// Does what was decided, and counts it.
fn act(shared: &Shared, ordered: &mut Ordered, action: Action) {
    let volume = |id: VolumeId| &shared.config.volumes[id.0 as usize];
    let bytes = |id: VolumeId, blocks: u64| Bytes(blocks << volume(id).block_size.shift());
    let appliance = &shared.appliance;
    let (word, id, result): (&'static str, VolumeId, Result<(), CommandError>) = match action {
        Action::SetQuota { volume: id, blocks, .. } => {
            let name = &volume(id).name;
            let had = appliance.pulse(name).map(|pulse| pulse.cache.quota_blocks);
            let set = appliance.set_quota(name, bytes(id, blocks));
            if set.is_ok() && blocks == 0 {
                ordered.taken_away(name);
            } else if set.is_ok() && had == Ok(0) {
                shared.books.loads().begins(name);
            }
            ("set_quota", id, set)
        }
        Action::Prewarm { volume: id, zones, bytes_per_second } => {
            let range = |zone: &forebay_control::ZoneRange| {
                ByteRange::new(bytes(id, zone.first_block).get(), bytes(id, zone.blocks).get())
            };
            let zones = zones.iter().map(range).collect();
            shared.books.loads().zones(&volume(id).name, zones, bytes_per_second);
            ("prewarm", id, Ok(()))
        }
        Action::CancelPrewarm { volume: id } => {
            shared.books.loads().forget(&volume(id).name);
            ("cancel_prewarm", id, appliance.cancel_prewarm(&volume(id).name))
        }
        Action::ListResident { volume: id } => {
            shared.books.lists().order(&volume(id).name);
            ("list_resident", id, Ok(()))
        }
        // A later controller may wish for more than this daemon can do; the next observation tells it so.
        other => {
            tracing::error!(?other, "an action that this daemon does not know");
            *shared.state().action_counts.entry(("unknown", "failed")).or_default() += 1;
            return;
        }
    };
    let outcome = match result {
        Ok(()) => "done",
        Err(error) => {
            tracing::error!(volume = volume(id).name, action = word, %error, "an action failed");
            "failed"
        }
    };
    *shared.state().action_counts.entry((word, outcome)).or_default() += 1;
}

fn row(monitor: &Monitor, volume: &VolumeConfig, at_unix_ms: i64) -> IntervalRow {
    let Interval { span, reads, writes, bytes_read, bytes_written, errors, hit_ratio, .. } = monitor.interval;
    let seen = monitor.last.as_ref().map(|last| &last.observation);
    let worst = monitor.tracks.iter().filter_map(|track| track.conforming_share()).min_by(f64::total_cmp);
    IntervalRow {
        volume: volume.name.clone(),
        at_unix_ms,
        span_ms: (span.0 / 1_000_000) as i64,
        reads,
        writes,
        bytes_read,
        bytes_written,
        errors,
        iops: monitor.interval.iops(),
        read_us: microseconds(&monitor.interval.read_latency),
        write_us: microseconds(&monitor.interval.write_latency),
        hit_ratio,
        quota_bytes: seen.map_or(0, |seen| seen.quota_bytes.get()),
        used_bytes: seen.map_or(0, |seen| seen.resident_bytes.get()),
        conforming_share: worst,
        working_set_bytes: monitor.working_set_bytes(volume.block_size, false),
    }
}

fn microseconds(latencies: &LatencySnapshot) -> [Option<f64>; 4] {
    [latencies.mean(), latencies.percentile(50.0), latencies.percentile(95.0), latencies.percentile(99.0)]
        .map(|latency| latency.filter(|_| !latencies.is_empty()).map(Nanos::as_micros_f64))
}

#[cfg(test)]
mod tests;
