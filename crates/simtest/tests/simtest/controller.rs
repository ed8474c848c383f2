//! The daemon's controller, the real one, as the daemon runs it: it looks at intervals, decides, and sends commands, which arrive later and one by one;
//! it dies at any moment, with commands on their way or with half of them done, and another one takes back what it granted and starts anew. Nothing in the
//! data path waits for it.

use crate::world::{Event, Life, World, note};
use forebay_appliance::volume::{Counters, ListingPiece, PrewarmPlan};
use forebay_cache::{Insertion, Statistics};
use forebay_control::prewarm::resident_ranges;
use forebay_control::{
    Action, CacheObservation, ControlConfig, Controller, HostId, HostSpec, Objective, Observation,
    Operations, OriginId, OriginSpec, VolumeId, VolumeObservation, VolumeSpec, ZoneHeat, ZoneRange,
};
use forebay_units::{BlockRange, BlockSize, ByteRange, Bytes, Nanos};
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

const HOST: HostId = HostId(0);

/// The controller of a run, dead or alive, and what it sent.
pub(crate) struct SimController {
    /// None while it is dead.
    controller: Option<Controller>,
    capacity: Bytes,
    interval: u64,
    looked_at: u64,
    /// What was last seen of each volume.
    seen: BTreeMap<usize, (Counters, Statistics)>,
    /// Commands on their way.
    orders: BTreeMap<u64, Action>,
    next_order: u64,
    /// Lists of what caches hold that are under way.
    lists: BTreeMap<usize, List>,
}

/// A list of what a cache holds.
struct List {
    pieces: Receiver<ListingPiece>,
    /// What was told so far: blocks, and whether each was used again.
    told: Vec<(u64, bool)>,
}

impl SimController {
    /// A third of the runs has one.
    pub(crate) fn draw(random: &mut impl Rng) -> Option<SimController> {
        (random.random_range(0..3) == 0).then(|| SimController {
            controller: None,
            capacity: Bytes::kib(random.random_range(4..64)),
            interval: random.random_range(100_000..2_000_000),
            looked_at: 0,
            seen: BTreeMap::new(),
            orders: BTreeMap::new(),
            next_order: 0,
            lists: BTreeMap::new(),
        })
    }

    /// What a volume's cache was listed to hold, once all of it is told. A volume that went, or a daemon that died, tells no more.
    fn listed(&mut self, index: usize) -> Option<Arc<[BlockRange]>> {
        let list = self.lists.get_mut(&index)?;
        loop {
            match list.pieces.try_recv() {
                Ok(ListingPiece::Blocks(blocks)) => {
                    list.told.extend(blocks.iter().map(|block| (block.block().0, block.used_again())));
                }
                Ok(ListingPiece::End) => {
                    let list = self.lists.remove(&index)?;
                    return Some(resident_ranges(list.told).into());
                }
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {
                    self.lists.remove(&index);
                    return None;
                }
            }
        }
    }
}

/// Rules under which a controller has much to do in a run of milliseconds.
fn hasty_rules() -> ControlConfig {
    let mut rules = ControlConfig { chunk_bytes: 4096, retry_after: 1, ..ControlConfig::default() };
    rules.conformance.requests_min = 1;
    (rules.violation.windows, rules.violation.nonconforming) = (1, 1);
    rules.interference.history_min = 4;
    // It looks for seasons of six intervals, and has caches listed at each of a peak.
    rules.foresight.bucket_intervals = 1;
    rules
}

impl World {
    /// A controller starts: what another one may have granted is taken back first.
    fn start_controller(&mut self) {
        for index in 0..self.volumes.len() {
            if let Some(machine) = self.machine(index) {
                machine.cancel_prewarm();
                machine.set_quota(Bytes::ZERO);
            }
        }
        self.wake_daemon();
        let origin = OriginId(0);
        let specs: Vec<VolumeSpec> = self
            .volumes
            .iter()
            .enumerate()
            .map(|(index, volume)| VolumeSpec {
                id: VolumeId(index as u32),
                name: volume.name.clone(),
                size: Bytes(volume.origin.traits.size_bytes),
                block_size: BlockSize::new(Bytes(volume.block)).expect("a power of two"),
                origin,
                host: HOST,
                objectives: vec![Objective {
                    window: Nanos(self.control.as_ref().expect("it starts").interval),
                    ..Objective::mean_latency(Nanos(2_000), Operations::Reads)
                }],
                may_cache: true,
                minimum: Bytes::ZERO,
                maximum: None,
            })
            .collect();
        let control = self.control.as_mut().expect("it starts");
        let host = HostSpec::new(HOST, "simulated", 0, control.capacity);
        let origins = vec![OriginSpec {
            id: origin,
            name: "all".to_owned(),
            servers: None,
            service_cv2: None,
            service: None,
        }];
        let mut controller = Controller::new(hasty_rules(), control.capacity, vec![host], origins)
            .expect("rules within ranges");
        specs.into_iter().for_each(|spec| controller.register(spec).expect("a volume that can be judged"));
        control.controller = Some(controller);
        control.seen.clear();
    }

    /// An interval of the controller ends.
    pub(crate) fn control(&mut self) {
        let Some(control) = &self.control else { return };
        if self.is_ending {
            return;
        }
        let (interval, is_dead) = (control.interval, control.controller.is_none());
        self.schedule(interval, Event::Control);
        if is_dead {
            // It waits before it starts again.
            if self.percent(30) {
                note!(self, "a controller starts");
                self.start_controller();
            }
            return;
        }
        let observation = self.look_at_volumes();
        let control = self.control.as_mut().expect("looked at above");
        let controller = control.controller.as_mut().expect("it is not dead");
        let outcome = controller.step(&observation);
        assert!(controller.granted() <= control.capacity, "more was granted than there is");
        self.course.decided += outcome.actions.len() as u64;
        for decision in &outcome.decisions {
            note!(self, "the controller: {}", decision.summary);
        }
        let dies_after = self.percent(8).then(|| self.random.random_range(0..=outcome.actions.len().min(3)));
        for action in outcome.actions.into_iter().take(dies_after.unwrap_or(usize::MAX)) {
            self.order(action);
        }
        // What it decides is not enough for a run this short: commands like its own, of somebody in a hurry.
        if self.percent(40) {
            let action = self.draw_action();
            self.order(action);
        }
        if dies_after.is_some() {
            note!(self, "the controller dies");
            self.course.controller_deaths += 1;
            let control = self.control.as_mut().expect("looked at above");
            control.controller = None;
            let orders = std::mem::take(&mut control.orders);
            // Of what is on its way, some arrives.
            let kept: BTreeMap<u64, Action> = orders.into_iter().filter(|_| self.percent(50)).collect();
            self.control.as_mut().expect("looked at above").orders = kept;
        }
    }

    /// What the daemon tells the controller of an interval.
    fn look_at_volumes(&mut self) -> Observation {
        let now = self.now;
        let control = self.control.as_mut().expect("somebody looks");
        let interval = Nanos((now - std::mem::replace(&mut control.looked_at, now)).max(1));
        let mut volumes = Vec::new();
        for index in 0..self.volumes.len() {
            let Some(machine) = self.machine(index) else { continue };
            let seen = machine.observe(Nanos(now), true);
            let control = self.control.as_mut().expect("somebody looks");
            let (old, old_cache) =
                control.seen.insert(index, (seen.counters, seen.cache)).unwrap_or_default();
            let since = |of: fn(&Counters) -> u64| of(&seen.counters).saturating_sub(of(&old));
            let reads = since(|counters| counters.reads);
            let count = |hung: usize| u32::try_from(hung).expect("few are in flight");
            let mut observed = VolumeObservation {
                arrivals: reads + since(|counters| counters.writes + counters.trims + counters.write_zeroes),
                hits: seen.latencies.hits,
                misses: seen.latencies.misses,
                writes: seen.latencies.writes,
                origin_reads: Some(since(|counters| counters.origin_reads)),
                bytes_read: Bytes(since(|counters| counters.bytes_read)),
                bytes_written: Bytes(since(|counters| counters.bytes_written)),
                outstanding_max: seen.outstanding_max,
                idle: seen.idle,
                reads_hung: count(seen.reads_hung),
                writes_hung: count(seen.writes_hung),
                reads_failed: since(|counters| counters.reads_failed),
                writes_failed: since(|counters| counters.changes_failed),
                sequential_share: since(|counters| counters.reads_sequential) as f64 / reads.max(1) as f64,
                cache: CacheObservation {
                    quota_blocks: seen.cache.quota_blocks.into(),
                    refused_blocks: seen.cache.quota_blocks.saturating_sub(seen.cache.limit_blocks).into(),
                    used_blocks: seen.cache.resident_blocks.into(),
                    invalidated_blocks: seen.cache.invalidations.saturating_sub(old_cache.invalidations),
                    filled_blocks: seen.cache.insertions.saturating_sub(old_cache.insertions),
                    prewarmed_blocks: seen.cache.prewarmed.saturating_sub(old_cache.prewarmed),
                    prewarming: seen.prewarm.is_some_and(|prewarm| prewarm.ended.is_none()),
                },
                ..VolumeObservation::idle(VolumeId(index as u32), interval)
            };
            if let Some(locality) = seen.locality {
                observed.curve = Some(Arc::new(locality.curve));
                observed.curve_accesses = locality.accesses;
                observed.working_set_blocks = locality.working_set.current_blocks;
                let zones = locality.zones_current.zones.iter();
                observed.zones =
                    zones.map(|zone| ZoneHeat { zone: zone.zone, accesses: zone.count }).collect();
                observed.zone_accesses = locality.zones_current.accesses;
                observed.zone_blocks = 1 << locality.zone_shift;
            }
            observed.resident = self.control.as_mut().expect("somebody looks").listed(index);
            volumes.push(observed);
        }
        Observation { at: Nanos(now), interval, volumes, ..Observation::default() }
    }

    fn draw_action(&mut self) -> Action {
        let index = self.random.random_range(0..self.volumes.len());
        let volume = VolumeId(index as u32);
        let blocks = self.volumes[index].origin.traits.size_bytes / self.volumes[index].block + 1;
        match self.random.random_range(0..10) {
            0..5 => Action::SetQuota { volume, host: HOST, blocks: self.random.random_range(0..=blocks) },
            5..9 => {
                let first_block = self.random.random_range(0..blocks);
                let zones = vec![ZoneRange { first_block, blocks: self.random.random_range(1..=blocks) }];
                Action::Prewarm {
                    volume,
                    zones,
                    bytes_per_second: self.random.random_range(0..3) * 50_000_000,
                }
            }
            _ => Action::CancelPrewarm { volume },
        }
    }

    /// A command sets out.
    fn order(&mut self, action: Action) {
        let control = self.control.as_mut().expect("somebody orders");
        let serial = control.next_order;
        control.next_order += 1;
        control.orders.insert(serial, action);
        let delay = self.delay();
        self.schedule(delay, Event::Order { serial });
    }

    /// A command reaches the daemon, if it was not lost with who sent it.
    pub(crate) fn arrive_order(&mut self, serial: u64) {
        let action = self.control.as_mut().and_then(|control| control.orders.remove(&serial));
        let Some(action) = action.filter(|_| !self.is_ending) else { return };
        note!(self, "the daemon is told {action:?}");
        self.course.orders += 1;
        let (Action::SetQuota { volume: id, .. }
        | Action::Prewarm { volume: id, .. }
        | Action::CancelPrewarm { volume: id }
        | Action::ListResident { volume: id }) = action
        else {
            panic!("an action that the daemon does not know: {action:?}")
        };
        let index = id.0 as usize;
        // A volume that was taken away cannot be named.
        if !matches!(self.volumes[index].life, Life::Served { .. }) {
            return;
        }
        let (block, size) = (self.volumes[index].block, self.volumes[index].origin.traits.size_bytes);
        let machine = self.machine(index).expect("it is served");
        match action {
            Action::SetQuota { blocks, .. } => machine.set_quota(Bytes(blocks * block)),
            Action::Prewarm { zones, bytes_per_second, .. } => {
                let range = |zone: &ZoneRange| {
                    let first = (zone.first_block * block).min(size);
                    ByteRange::new(first, (zone.blocks * block).min(size - first))
                };
                let ranges = zones.iter().map(range).filter(|range| range.length > 0).collect();
                let bytes_per_second = (bytes_per_second > 0).then_some(Bytes(bytes_per_second));
                machine.prewarm(PrewarmPlan {
                    ranges,
                    bytes_per_second,
                    insertion: Insertion::Prewarm,
                    own_partition: false,
                });
            }
            Action::ListResident { .. } => {
                let (sender, pieces) = channel();
                machine.list_resident(sender);
                let lists = &mut self.control.as_mut().expect("it ordered").lists;
                lists.insert(index, List { pieces, told: Vec::new() });
            }
            _ => machine.cancel_prewarm(),
        }
        self.wake_daemon();
    }
}
