//! A run: takes what is planned, in order, and lets the controller decide at the end of every interval.

use crate::appliance::Appliance;
use crate::calendar::Planned;
use crate::drawn::{DrawJob, Helper};
use crate::load::{Load, Traces};
use crate::origin::Origin;
use crate::outcome::{
    ExpectedOutcome, IntervalRow, OriginRow, OriginSeries, Outcome, ReservationOutcome, Sum, VolumeSeries,
};
use crate::papers::Papers;
use crate::scenario::{ArrivalKind, Flag, Scenario, ScenarioError, Sizing};
use crate::tier::{Home, Tier};
use crate::track::Track;
use crate::volume::{Cache, OnItsWay, Volume, World};
use forebay_control::{
    Action, ConfigError, Controller, Decision, HostId, Observation, OriginId, OriginObservation, OriginSpec,
    VolumeId, VolumeSpec, VolumeSpecError,
};
use forebay_devmodel::ParameterError;
use forebay_locality::LiveObserver;
use forebay_policy::placement::ShapeError;
use forebay_units::{Bytes, Nanos, mix64};
use forebay_workload::generator::random;

/// Events after which a run ends, whatever was planned: half an hour of a processor (ours).
const EVENTS_MAX: u64 = 5_000_000_000;

/// Why a run cannot begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A device refuses its parameters.
    #[error("origin `{origin}` cannot be made")]
    Device {
        /// Which origin.
        origin: String,
        /// What is wrong.
        source: ParameterError,
    },
    /// An appliance refuses its parameters.
    #[error("appliance `{appliance}` cannot be made")]
    Appliance {
        /// Which appliance.
        appliance: String,
        /// What is wrong.
        source: ParameterError,
    },
    /// The tier cannot be.
    #[error("the tier cannot be made")]
    Tier(#[from] ShapeError),
    /// The controller refuses its parameters.
    #[error("the controller cannot be made")]
    Control(#[from] ConfigError),
    /// The controller refuses a volume.
    #[error("the controller does not take a volume")]
    Volume(#[from] VolumeSpecError),
    /// The requests of a load were not handed in.
    #[error("the trace of `volume[{volume}].load[{load}]` was not read")]
    TraceMissing {
        /// Place of the volume.
        volume: usize,
        /// Place of the load.
        load: usize,
    },
    /// A request of a trace passes the end of its volume.
    #[error(
        "request {number} of the trace of volume `{volume}` asks for {length} bytes from byte {offset} on, expected a `size` of at least {needed} bytes, found {} ({size})", size.get()
    )]
    TraceBeyondVolume {
        /// Which volume.
        volume: String,
        /// Which request, from 0.
        number: usize,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
        /// What it takes, in bytes.
        needed: u64,
        /// What the volume has.
        size: Bytes,
    },
}

/// What became of the requests of a volume, from the beginning of the run to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// Those that the load had no room for, and that were not sent.
    pub(crate) shed: u64,
}

/// What a run keeps of a volume besides its data path.
#[derive(Debug)]
pub(crate) struct Client {
    load: Load,
    /// Which load, counted from 0; before the first one `u32::MAX`.
    number: u32,
    seed: u64,
    pub(crate) tracks: Vec<Track>,
    rows: Vec<IntervalRow>,
    sum: Sum,
    requests: Requests,
    pub(crate) quota: u64,
    /// Requests that their appliance has not taken up yet.
    on_their_way: u32,
    /// The next observation is to tell what its cache holds.
    lists_resident: bool,
}

/// A run of a scenario.
#[derive(Debug)]
pub struct Simulation<'a> {
    scenario: &'a Scenario,
    traces: &'a Traces,
    seed: u64,
    flags: Vec<Flag>,
    world: World,
    volumes: Vec<Volume>,
    clients: Vec<Client>,
    origins: Vec<OriginSeries>,
    controller: Option<Controller>,
    papers: Papers,
    /// Sizes that are ordered whatever is decided: when, of which volume, in blocks.
    foretold: Vec<(Nanos, usize, u64)>,
    decisions: Vec<Decision>,
    answered: Vec<(u32, Nanos)>,
    hash: u64,
    events: u64,
    events_max: u64,
    /// Who draws requests.
    helper: Option<Helper>,
}

impl<'a> Simulation<'a> {
    /// A run of `scenario` at its beginning, with `seed` in place of the scenario's where it is given.
    ///
    /// `traces` holds the requests of every load with `trace` arrivals.
    ///
    /// # Errors
    /// [`RunError`] where the scenario, a device or a trace does not allow a run.
    pub fn new(
        scenario: &'a Scenario,
        traces: &'a Traces,
        seed: Option<u64>,
    ) -> Result<Simulation<'a>, RunError> {
        let mut flags = scenario.check()?;
        let seed = seed.unwrap_or(scenario.seed);
        check_traces(scenario, traces)?;
        scenario.flag_traces(traces, &mut flags);
        let mut world = World::new(scenario.cache.hit_latency);
        let mut origins = Vec::new();
        for (at, table) in scenario.origin.iter().enumerate() {
            let origin = Origin::new(table, mix64(seed ^ 0x0519_1000 ^ at as u64))
                .map_err(|source| RunError::Device { origin: table.name.clone(), source })?;
            world.origins.push(origin);
            origins.push(OriginSeries { origin: table.name.clone(), intervals: Vec::new() });
        }
        for table in &scenario.appliance {
            let appliance = Appliance::new(table)
                .map_err(|source| RunError::Appliance { appliance: table.name.clone(), source })?;
            world.appliances.push(appliance);
        }
        let mut simulation = Simulation {
            scenario,
            traces,
            seed,
            flags,
            world,
            volumes: Vec::new(),
            clients: Vec::new(),
            origins,
            controller: None,
            papers: Papers::default(),
            foretold: Vec::new(),
            decisions: Vec::new(),
            answered: Vec::new(),
            hash: seed,
            events: 0,
            events_max: EVENTS_MAX,
            helper: None,
        };
        simulation.add_volumes();
        simulation.add_tier()?;
        simulation.start_controller()?;
        simulation.plan_all();
        Ok(simulation)
    }

    fn add_volumes(&mut self) {
        let scenario = self.scenario;
        let mut bases = vec![0u64; scenario.origin.len()];
        let mut shared_blocks = 0;
        let promises = scenario.promises();
        for (at, table) in scenario.volume.iter().enumerate() {
            let origin = scenario.origin_of(table).expect("the scenario was checked");
            let block_size = table.block_size();
            let size =
                if scenario.cache.shared { scenario.cache.memory } else { table.cache.unwrap_or_default() };
            let quota = block_size.blocks_for(size);
            if at == 0 || !scenario.cache.shared {
                let own = if scenario.cache.shared { Bytes(u64::MAX) } else { table.size };
                let most = block_size.blocks_for(scenario.cache.memory.min(own));
                self.world.caches.push(Cache::new(scenario.cache.policy, quota, most));
            }
            let cache = (self.world.caches.len() - 1, shared_blocks);
            if scenario.cache.shared {
                shared_blocks += block_size.blocks_for(table.size);
            }
            let appliance =
                scenario.appliance_of(table).map(|at| (at, self.world.appliances[at].add_volume()));
            let seed = mix64(self.seed ^ mix64(0x0f0e_0000 + at as u64));
            let mut observing = scenario.observe.live(block_size, seed);
            if scenario.cache.sizing != Sizing::Control {
                // Nobody asks for a curve, which takes more time than all else.
                observing.curve_bytes = Bytes::ZERO;
            }
            let locality = LiveObserver::new(observing, Nanos::ZERO);
            self.volumes.push(Volume::new(
                at as u32,
                (origin as u32, bases[origin]),
                (table.size.get(), block_size),
                cache,
                appliance,
                locality,
            ));
            bases[origin] += table.size.get();
            let theirs = promises.iter().filter(|promise| promise.table.volume == table.name);
            self.clients.push(Client {
                load: Load::idle(random(mix64(seed))),
                number: u32::MAX,
                seed,
                tracks: theirs.map(|promise| Track::new(promise, scenario.cache.interval)).collect(),
                rows: Vec::new(),
                sum: Sum::default(),
                requests: Requests::default(),
                quota,
                on_their_way: 0,
                lists_resident: false,
            });
        }
    }

    fn add_tier(&mut self) -> Result<(), RunError> {
        let scenario = self.scenario;
        let (Some(table), Some(device)) = (&scenario.tier, scenario.tier_device()) else { return Ok(()) };
        let homes: Vec<Home> = self.volumes.iter().map(Volume::home).collect();
        let members = scenario.volume.iter().map(|volume| volume.tier.is_some()).collect();
        let mut tier = Tier::new(table, device as u32, homes, members)?;
        tier.placement.set_default(false);
        self.world.tier = Some(Box::new(tier));
        Ok(())
    }

    fn spec(&self, at: usize, now: Nanos) -> VolumeSpec {
        let table = &self.scenario.volume[at];
        let active = self.clients[at].tracks.iter().filter(|track| track.is_active(now));
        // A fixed cache takes the volume from the controller, as in the daemon.
        let free = table.cache.is_none();
        VolumeSpec {
            id: VolumeId(at as u32),
            name: table.name.clone(),
            size: table.size,
            block_size: table.block_size(),
            origin: OriginId(self.scenario.origin_of(table).expect("the scenario was checked") as u32),
            host: HostId(0),
            objectives: active.map(|track| track.objective).collect(),
            may_cache: table.may_cache && free,
            minimum: if free { table.minimum } else { Bytes::ZERO },
            maximum: if free { table.maximum } else { Some(Bytes::ZERO) },
        }
    }

    fn start_controller(&mut self) -> Result<(), RunError> {
        let scenario = self.scenario;
        match scenario.cache.sizing {
            Sizing::Fixed => return Ok(()),
            Sizing::Eafc => {
                self.papers = Papers::new(scenario, &mut self.world, &self.volumes, &mut self.clients);
                return Ok(());
            }
            Sizing::Control => {}
        }
        let fixed: Bytes = scenario.volume.iter().filter_map(|volume| volume.cache).sum();
        let specs = self.world.origins.iter().zip(&scenario.origin).enumerate();
        let specs = specs
            .map(|(at, (origin, table))| OriginSpec {
                id: OriginId(at as u32),
                name: table.name.clone(),
                servers: Some(f64::from(origin.device.servers())),
                service_cv2: None,
                service: None,
            })
            .collect();
        let capacity = scenario.cache.memory.saturating_sub(fixed);
        let mut controller = Controller::new(scenario.control.clone(), capacity, Vec::new(), specs)?;
        for at in 0..scenario.volume.len() {
            controller.register(self.spec(at, Nanos::ZERO))?;
        }
        self.controller = Some(controller);
        Ok(())
    }

    fn plan_all(&mut self) {
        let calendar = &mut self.world.calendar;
        for (at, volume) in self.scenario.volume.iter().enumerate() {
            for (load, table) in volume.load.iter().enumerate() {
                calendar.plan(table.from, Planned::Load { volume: at as u32, load: load as u32 });
            }
            if let Some(used) = &volume.tier {
                let volume = at as u32;
                calendar.plan(used.from, Planned::Tier { volume, on: true });
                if let Some(until) = used.until {
                    calendar.plan(until, Planned::Tier { volume, on: false });
                }
            }
        }
        calendar.plan(self.scenario.cache.interval, Planned::Interval);
    }

    /// The same run, in which the cache of volume number `volume` has `size` from the end of the interval on in which the instant `at` lies: what
    /// somebody would order who knows what comes. For sizes that nobody else decides ([`Sizing::Fixed`]).
    ///
    /// # Panics
    /// If there is no such volume.
    #[must_use]
    pub fn with_size(mut self, at: Nanos, volume: usize, size: Bytes) -> Simulation<'a> {
        let blocks = self.scenario.volume[volume].block_size().blocks_for(size);
        self.foretold.push((at, volume, blocks));
        self
    }

    /// The same run, which ends after so many events at the latest.
    #[must_use]
    pub fn with_events_max(self, events_max: u64) -> Simulation<'a> {
        Simulation { events_max, ..self }
    }

    /// The same run, which hands out what it needs drawn of open loops, a little before it needs it: for whoever has a processor to spare. A fifth of the
    /// time of a run goes there.
    ///
    /// `hand` takes a job to where it is run ([`DrawJob::run`]), and does not wait for it; the events are the same whatever becomes of it.
    #[must_use]
    pub fn with_helper(self, hand: impl Fn(DrawJob) + Send + Sync + 'static) -> Simulation<'a> {
        Simulation { helper: Some(Helper::new(hand)), ..self }
    }

    /// Runs to the end, or until so many events were taken as no experiment needs (closed loops and repeated traces draw
    /// as many as are answered): then a flag says so, and the outcome's `seconds` are those that passed.
    pub fn run(mut self) -> Outcome {
        let mut ended = self.scenario.duration;
        while let Some((at, planned)) = self.world.calendar.next() {
            if at > self.scenario.duration {
                break;
            }
            if self.events == self.events_max {
                let message = format!("the run was ended at {at} after {} events", self.events);
                self.flags.push(Flag { key: "duration".to_owned(), message });
                ended = at;
                break;
            }
            self.take(at, planned);
        }
        self.finish(ended)
    }

    #[inline]
    fn fold(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn take(&mut self, at: Nanos, planned: Planned) {
        self.events += 1;
        self.world.now = at;
        self.fold(at.0);
        self.fold(planned.word());
        match planned {
            Planned::Arrival { volume, load } => self.arrive(volume as usize, load),
            Planned::Device { origin } => {
                let (origins, calendar) = (&mut self.world.origins, &mut self.world.calendar);
                origins[origin as usize].advance(origin, at, calendar);
            }
            Planned::Submit { flight } => {
                self.world.submit(flight);
            }
            Planned::Served { flight, queue } => {
                let device = self.world.flights[flight].device as usize;
                self.world.origins[device].served(at, flight, queue, &mut self.world.calendar);
            }
            Planned::Ask { asked } => {
                let on_its_way = self.world.on_their_way[asked];
                self.world.on_their_way.free(asked);
                self.clients[on_its_way.volume as usize].on_their_way -= 1;
                self.ask(on_its_way);
            }
            Planned::Answer { flight } => {
                if self.world.answered_alone(flight) {
                    return;
                }
                let volume = self.world.flights[flight].volume as usize;
                let mut answered = std::mem::take(&mut self.answered);
                self.volumes[volume].answer(&mut self.world, flight, &mut answered);
                for (load, at) in answered.drain(..) {
                    self.think(volume, load, at);
                }
                self.answered = answered;
            }
            Planned::Load { volume, load } => self.begin(volume as usize, load),
            Planned::Prewarm { volume } => self.volumes[volume as usize].wake_prewarm(&mut self.world),
            Planned::Tier { volume, on } => {
                let tier = self.world.tier.as_mut().expect("a volume uses it");
                tier.placement.set_volume(volume, on).expect("there are fewer volumes than switches");
            }
            Planned::Interval => self.end_interval(),
        }
    }

    /// A load takes the place of the one before.
    fn begin(&mut self, volume: usize, load: u32) {
        let table = &self.scenario.volume[volume];
        let requests = self.traces.get(&(volume, load as usize)).cloned();
        let now = self.world.now;
        let client = &mut self.clients[volume];
        let random = std::mem::replace(&mut client.load, Load::idle(random(0))).into_random();
        let (table_of, helper) = (&table.load[load as usize], self.helper.clone());
        client.load = Load::new(table_of, table, requests, client.seed, random, helper, now);
        client.number = load;
        let arrival = Planned::Arrival { volume: volume as u32, load };
        for _ in 0..client.load.clients {
            // Clients do not begin in step.
            let at = now.saturating_add(client.load.think());
            self.world.calendar.plan(at, arrival);
        }
        if let Some(at) = client.load.next_arrival(now) {
            self.world.calendar.plan(at, arrival);
        }
    }

    fn arrive(&mut self, volume: usize, load: u32) {
        let client = &mut self.clients[volume];
        if client.number != load {
            return;
        }
        let now = self.world.now;
        let asked = client.load.next_request();
        let open = client.load.clients == 0;
        if open && let Some(at) = client.load.next_arrival(now) {
            self.world.calendar.plan(at, Planned::Arrival { volume: volume as u32, load });
        }
        let outstanding_max = client.load.outstanding_max;
        let target = &mut self.volumes[volume];
        if open && target.recorder.outstanding + client.on_their_way >= outstanding_max {
            target.recorder.shed += 1;
            client.requests.shed += 1;
            return;
        }
        client.requests.sent += 1;
        let on_its_way = OnItsWay { volume: volume as u32, load, asked, started: now };
        if let Some((appliance, worker)) = target.appliance {
            client.on_their_way += 1;
            let at = self.world.appliances[appliance].reach(worker, now, asked.writes, asked.bytes);
            let asked = self.world.on_their_way.insert(on_its_way);
            self.world.calendar.plan(at, Planned::Ask { asked });
        } else {
            self.ask(on_its_way);
        }
    }

    /// A request has reached its volume.
    fn ask(&mut self, OnItsWay { volume, load, asked, started }: OnItsWay) {
        let volume = volume as usize;
        let answered = self.volumes[volume].ask(&mut self.world, asked, load, started);
        self.fold(asked.first << 2 | u64::from(asked.writes) << 1 | u64::from(answered.is_some()));
        if let Some(at) = answered {
            self.think(volume, load, at);
        }
    }

    /// A client's request was answered, which it hears at `at`; one of a closed loop asks again.
    fn think(&mut self, volume: usize, load: u32, at: Nanos) {
        let client = &mut self.clients[volume];
        client.requests.answered += 1;
        if client.load.clients > 0 && client.number == load {
            let at = at.saturating_add(client.load.think());
            self.world.calendar.plan(at, Planned::Arrival { volume: volume as u32, load });
        }
    }

    /// Tells the controller of objectives that began or ceased to count in the interval that ends. At its end, as in the daemon, so that the next one is
    /// wholly theirs.
    fn change_objectives(&mut self, began: Nanos) {
        let now = self.world.now;
        for at in 0..self.clients.len() {
            let changed = |track: &Track| track.is_active(began) != track.is_active(now);
            if !self.clients[at].tracks.iter().any(changed) {
                continue;
            }
            let spec = self.spec(at, now);
            if let Some(controller) = &mut self.controller {
                controller.register(spec).expect("the same volume with other objectives of the scenario");
            }
        }
    }

    /// The end of a control interval: everything is observed, and the controller decides.
    fn end_interval(&mut self) {
        let (now, interval) = (self.world.now, self.scenario.cache.interval);
        let began = now.saturating_since(interval);
        let mut observation = Observation { at: now, interval, ..Observation::default() };
        for (at, (origin, series)) in self.world.origins.iter_mut().zip(&mut self.origins).enumerate() {
            let utilisation = origin.device.utilisation(now, interval);
            series.intervals.push(OriginRow { at_s: now.as_secs_f64(), utilisation });
            let origin = OriginId(at as u32);
            observation.origins.push(OriginObservation { origin, utilisation: Some(utilisation) });
        }
        for (at, (volume, client)) in self.volumes.iter_mut().zip(&mut self.clients).enumerate() {
            let statistics = volume.statistics(&self.world);
            let warming = volume.is_warming();
            let locality = volume.locality.snapshot(now);
            let id = VolumeId(at as u32);
            let (mut observed, shed) = volume.recorder.end(id, now, statistics, warming, &locality);
            if std::mem::take(&mut client.lists_resident) {
                observed.resident = volume.resident(&self.world);
            }
            for track in client.tracks.iter_mut().filter(|track| track.is_active(began)) {
                track.add(&observed, now, self.scenario);
            }
            if began >= self.scenario.measure_from {
                client.sum.add(&observed, client.quota, shed, interval);
            }
            client.rows.push(IntervalRow::of(&observed, client.quota, shed, now));
            observation.volumes.push(observed);
        }
        if let Some(tier) = &mut self.world.tier {
            tier.end_interval(now, began >= self.scenario.measure_from);
        }
        if let Some(controller) =
            self.controller.as_mut().filter(|_| began >= self.scenario.cache.control_from)
        {
            let outcome = controller.step(&observation);
            self.decisions.extend(outcome.decisions);
            for action in &outcome.actions {
                self.apply(action);
            }
        }
        self.change_objectives(began);
        let foretold = self.foretold.iter().filter(|(at, ..)| *at <= now && *at > began);
        let foretold: Vec<(usize, u64)> = foretold.map(|&(_, volume, blocks)| (volume, blocks)).collect();
        let papers = self.papers.step(self.scenario, &observation, &mut self.clients);
        for (at, blocks) in papers.into_iter().chain(foretold) {
            self.volumes[at].set_quota(&mut self.world, blocks);
            self.clients[at].quota = blocks;
            self.fold(blocks);
        }
        self.world.calendar.plan(now + interval, Planned::Interval);
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::SetQuota { volume, blocks, .. } => {
                let at = volume.0 as usize;
                self.volumes[at].set_quota(&mut self.world, *blocks);
                self.clients[at].quota = *blocks;
                self.fold(*blocks);
            }
            Action::Prewarm { volume, zones, bytes_per_second } => {
                self.volumes[volume.0 as usize].warm(&mut self.world, zones, *bytes_per_second);
            }
            Action::CancelPrewarm { volume } => self.volumes[volume.0 as usize].cancel_warm(),
            Action::ListResident { volume } => self.clients[volume.0 as usize].lists_resident = true,
            other => unreachable!("an action that simulations do not know: {other:?}"),
        }
    }

    fn finish(self, ended: Nanos) -> Outcome {
        let sum =
            |of: fn(&Requests) -> u64| self.clients.iter().map(|client| of(&client.requests)).sum::<u64>();
        let (requests, answered) = (sum(|requests| requests.sent), sum(|requests| requests.answered));
        let outstanding = self.world.in_flight().0 as u64;
        assert_eq!(requests, answered + outstanding, "a request was lost or answered twice");
        let mut flags = self.flags;
        for (place, client) in self.clients.iter().enumerate() {
            let origin = self.scenario.origin_of(&self.scenario.volume[place]).unwrap_or(0);
            flags.extend(client.requests.flag_shed(place, &self.scenario.origin[origin]));
            flags.extend(client.requests.flag_unanswered(place, &client.rows, self.scenario.cache.interval));
        }
        flags.extend(self.world.tier.as_ref().and_then(|tier| tier.flag()));
        let measure_from = self.scenario.measure_from;
        let volumes: Vec<VolumeSeries> = self
            .clients
            .into_iter()
            .zip(&self.volumes)
            .zip(&self.scenario.volume)
            .map(|((client, volume), table)| VolumeSeries {
                volume: table.name.clone(),
                adaptive: volume.chosen(&self.world),
                block_bytes: table.block_size().bytes(),
                totals: client.sum.totals(),
                objectives: client.tracks.into_iter().map(|track| track.outcome(measure_from)).collect(),
                intervals: client.rows,
            })
            .collect();
        let reservations = self.scenario.reservation.iter();
        let reservations =
            reservations.map(|table| ReservationOutcome::of(table, &volumes, self.scenario)).collect();
        let expected = self.scenario.expected.iter();
        let expected = expected.filter_map(|table| ExpectedOutcome::of(table, &volumes)).collect();
        Outcome {
            scenario: self.scenario.name.clone(),
            seed: self.seed,
            seconds: ended.as_secs_f64(),
            measure_from_s: measure_from.as_secs_f64(),
            hash: format!("{:016x}", mix64(self.hash ^ self.world.calendar.planned())),
            events: self.events,
            requests,
            answered,
            flags,
            volumes,
            reservations,
            expected,
            origins: self.origins,
            tier: self.world.tier.map(|tier| tier.outcome()),
            decisions: self.decisions,
        }
    }
}

fn check_traces(scenario: &Scenario, traces: &Traces) -> Result<(), RunError> {
    for (volume, table) in scenario.volume.iter().enumerate() {
        for (load, asked) in table.load.iter().enumerate() {
            if asked.arrivals != ArrivalKind::Trace {
                continue;
            }
            let Some(requests) = traces.get(&(volume, load)) else {
                return Err(RunError::TraceMissing { volume, load });
            };
            let beyond = requests.iter().position(|request| {
                request.offset.checked_add(request.length.into()).is_none_or(|end| end > table.size.get())
            });
            if let Some(number) = beyond {
                let request = requests[number];
                return Err(RunError::TraceBeyondVolume {
                    volume: table.name.clone(),
                    number,
                    offset: request.offset,
                    length: request.length,
                    needed: request.offset.saturating_add(request.length.into()),
                    size: table.size,
                });
            }
        }
    }
    Ok(())
}
