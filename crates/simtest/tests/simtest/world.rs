//! The world of one run: events in the order of a virtual clock, everything drawn from one seed.

use crate::client::{Asked, AskedKind, Client};
use crate::controller::SimController;
use crate::disturbance::Answers;
use crate::flash::SimFlash;
use crate::network::Connection;
use crate::origin::{Fate, SimOrigin};
use crate::ring::SimRing;
use forebay_appliance::service::{Service, ServiceLimits, SlabKey};
use forebay_appliance::volume::{ListingPiece, VolumeLimits, VolumeMachine, VolumeSettings};
use forebay_linear::History;
use forebay_locality::LiveConfig;
use forebay_nbd::wire::ErrorCode;
use forebay_nbd::{BlockSizes, ExportInfo};
use forebay_origin::{OriginCompletion, OriginTraits};
use forebay_units::{BlockSize, ByteRange, Bytes, Nanos, Ratio};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::mpsc::Receiver;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The daemon's worker takes its turn.
    Turn,
    /// Bytes arrive.
    Arrival { connection: u64, to_server: bool },
    /// A client connects, asks, or leaves.
    Think { client: usize },
    /// An origin works on a request.
    Work { volume: usize, serial: u64 },
    /// An answer of an origin arrives at the daemon.
    Answer { volume: usize, serial: u64 },
    /// The flash device does something, or its answer arrives.
    Flash { serial: u64 },
    /// An interval of the controller ends.
    Control,
    /// A command of the controller reaches the daemon.
    Order { serial: u64 },
    /// Somebody who is neither client nor origin does something.
    Disturb,
}

/// What may happen in a run; each seed draws its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) fail_percent: u32,
    pub(crate) lose_percent: u32,
    pub(crate) connection_loss: bool,
    pub(crate) origin_crash: bool,
    pub(crate) daemon_crash: bool,
    pub(crate) cuts: bool,
    pub(crate) deafness: bool,
    pub(crate) removal: bool,
    pub(crate) ring_trouble: bool,
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Served { key: SlabKey },
    Draining { key: SlabKey, deadline: u64 },
    Gone,
}

/// An error of the origin that reached the daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) at: u64,
    pub(crate) range: ByteRange,
    pub(crate) code: ErrorCode,
    pub(crate) is_flush: bool,
    pub(crate) is_change: bool,
    /// Of a change with FUA, which may tell of more than its own bytes.
    pub(crate) is_forced: bool,
    /// Of a write, what was to be written; else `NO_VERSION`.
    pub(crate) version: u64,
    /// Some client was given it. A flush that failed under a client that left is told to another one that flushes, and so is a change with FUA; and again, where the connection of one that was given it may have
    /// broken since.
    pub(crate) is_told: bool,
}

/// Blocks in doubt, until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    pub(crate) range: ByteRange,
    pub(crate) to: u64,
}

/// A volume: its origin, its history, and how it is served.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) origin: SimOrigin,
    pub(crate) history: History,
    pub(crate) life: Life,
    pub(crate) block: u64,
    pub(crate) limits: VolumeLimits,
    pub(crate) locality: bool,
    pub(crate) failures: Vec<Failure>,
    pub(crate) doubts: Vec<Doubt>,
    /// When a connection to it last broke, or its end without a farewell was last noticed: what its client had been told it may not have heard.
    pub(crate) lost_at: u64,
    /// When it last began to be taken away.
    pub(crate) drained_at: u64,
    pub(crate) zeroed: BTreeSet<u64>,
}

/// An answer of an origin that the daemon has not looked at yet.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) volume: usize,
    pub(crate) key: SlabKey,
    pub(crate) completion: OriginCompletion,
    pub(crate) range: ByteRange,
    pub(crate) is_flush: bool,
    pub(crate) is_change: bool,
    pub(crate) is_forced: bool,
    /// Of a write, what was to be written; else `NO_VERSION`.
    pub(crate) version: u64,
    /// What a trim left.
    pub(crate) trimmed: Option<u64>,
}

/// The daemon.
pub(crate) struct Daemon {
    pub(crate) incarnation: u64,
    pub(crate) service: Service,
    pub(crate) keys: BTreeMap<SlabKey, u64>,
    pub(crate) resumable: Vec<SlabKey>,
    pub(crate) looks: Vec<SlabKey>,
    pub(crate) inbox: Vec<Answered>,
    pub(crate) flash_inbox: Vec<(SlabKey, OriginCompletion)>,
    pub(crate) ring: SimRing,
    /// It was killed in the middle of something, which happens at the end of the event.
    pub(crate) is_doomed: bool,
    pub(crate) exports: BTreeMap<String, ExportInfo>,
    pub(crate) batch: BTreeSet<SlabKey>,
    pub(crate) next_turn: Option<u64>,
    pub(crate) stall_check_at: u64,
}

/// What a run did, for the reader and for the test of determinism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Course {
    pub(crate) events: u64,
    pub(crate) requests: u64,
    pub(crate) answers: u64,
    pub(crate) errors: u64,
    pub(crate) hits: u64,
    /// Blocks read from flash, found unfit to be read, saved at a stop, and found at a start.
    pub(crate) flash_hits: u64,
    pub(crate) corrupt: u64,
    pub(crate) saved: u64,
    pub(crate) recovered: u64,
    /// Chunks moved to flash.
    pub(crate) migrations: u64,
    pub(crate) crashes: u64,
    /// What controllers decided to have done, commands of theirs that arrived, their deaths, and operations that went through the ring.
    pub(crate) decided: u64,
    pub(crate) orders: u64,
    pub(crate) controller_deaths: u64,
    pub(crate) in_ring: u64,
    /// Cells that were said to read as zeroes.
    pub(crate) zeroes: u64,
    pub(crate) digest: u64,
}

/// Everything.
pub(crate) struct World {
    pub(crate) random: Xoshiro256PlusPlus,
    pub(crate) now: u64,
    tick: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub(crate) faults: Faults,
    pub(crate) limits: ServiceLimits,
    pub(crate) daemon: Daemon,
    pub(crate) flash: Option<SimFlash>,
    pub(crate) control: Option<SimController>,
    /// Files are read and written by the worker's ring.
    pub(crate) has_ring: bool,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) clients: Vec<Client>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// As many as there ever were at once.
    pub(crate) connections_most: usize,
    /// Answers of origins on their way, by volume and serial number.
    pub(crate) answers: Answers,
    pub(crate) next_connection: u64,
    pub(crate) next_version: u64,
    /// Requests that clients may still make.
    pub(crate) budget: u64,
    /// Everything comes to an end: no new requests, no faults.
    pub(crate) is_ending: bool,
    /// Only this is asked, of the whole volume.
    pub(crate) last_look: Option<AskedKind>,
    pub(crate) course: Course,
    /// Who waits to be told what is cached of a volume.
    pub(crate) listeners: Vec<(usize, Receiver<ListingPiece>)>,
    /// What happened, in words; only in a replay.
    pub(crate) log: Option<Vec<String>>,
}

/// Notes what happened, if somebody will read it.
macro_rules! note {
    ($world:expr, $($words:tt)*) => {
        if $world.log.is_some() {
            let line = format!($($words)*);
            $world.note(line);
        }
    };
}
pub(crate) use note;

impl World {
    pub(crate) fn new(seed: u64, with_log: bool) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let faults = draw_faults(&mut random);
        let limits = draw_limits(&mut random);
        let flash = SimFlash::draw(&mut random);
        let control = SimController::draw(&mut random);
        let has_ring = random.random_range(0..2) == 0;
        let mut world = World {
            daemon: Daemon::new(0, limits),
            random,
            now: 0,
            tick: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            faults,
            limits,
            flash,
            control,
            has_ring,
            volumes: Vec::new(),
            listeners: Vec::new(),
            clients: Vec::new(),
            connections: BTreeMap::new(),
            connections_most: 0,
            answers: BTreeMap::new(),
            next_connection: 0,
            next_version: 1000,
            budget: 0,
            is_ending: false,
            last_look: None,
            course: Course::default(),
            log: with_log.then(Vec::new),
        };
        note!(world, "{faults:?} {limits:?}");
        world.budget = world.random.random_range(100..350);
        for index in 0..world.random.random_range(1..4) {
            world.make_volume(index);
        }
        for _ in 0..world.random.random_range(2..6) {
            let volume = world.random.random_range(0..world.volumes.len());
            let depth = world.random.random_range(1..10);
            let client = world.clients.len();
            world.clients.push(Client {
                volume,
                session: None,
                connection: None,
                is_ready: false,
                input: Vec::new(),
                outbox: Default::default(),
                asked: BTreeMap::new(),
                next_cookie: 1,
                depth,
                deaf_until: 0,
                is_leaving: false,
                is_forsaken: false,
                is_scheduled: false,
            });
            world.think_soon(client);
        }
        world.schedule(10_000, Event::Disturb);
        world.schedule(20_000, Event::Control);
        world
    }

    fn make_volume(&mut self, index: usize) {
        let random = &mut self.random;
        let cell = [128, 128, 256, 1024][random.random_range(0..4)];
        let block = cell * 4;
        // The last block is often short.
        let cells = random.random_range(9..60);
        let traits = OriginTraits {
            size_bytes: cells * cell,
            read_only: false,
            block_size_min: cell as u32,
            block_size_preferred: block as u32,
            request_bytes_max: (block * [1, 2, 4, 64][random.random_range(0..4)]) as u32,
            can_trim: true,
            can_fast_zero: true,
            can_multi_conn: true,
        };
        let limits = VolumeLimits {
            requests_max: random.random_range(1..30),
            origin_requests_max: random.random_range(1..12),
            merge_bytes_max: Bytes(block * random.random_range(1..9)),
            write_parts_max: random.random_range(1..4),
            zero_part_bytes_max: Bytes(block * random.random_range(1..4)),
            patched_blocks_max: [1, 4, 1_024][(cells % 3) as usize],
            prewarm_outstanding_max: random.random_range(1..4),
            prewarm_read_bytes: Bytes(block * random.random_range(1..5)),
            doubt_runs_max: [2, 4096][random.random_range(0..2)],
            flash_reads_max: random.random_range(1..8),
            ..VolumeLimits::default()
        };
        let locality = random.random_range(0..10) == 0 || self.control.is_some();
        let mut history = History::new(cells);
        for cell in 0..cells {
            history.write(cell, cell + 1, 0, true);
            history.write_acknowledged(cell, cell + 1, 0);
        }
        self.volumes.push(Volume {
            name: format!("volume-{index}"),
            origin: SimOrigin::new(traits, cell),
            history,
            life: Life::Gone,
            block,
            limits,
            locality,
            failures: Vec::new(),
            doubts: Vec::new(),
            lost_at: 0,
            drained_at: 0,
            zeroed: BTreeSet::new(),
        });
        self.serve_volume(index);
    }

    /// Adds the volume to the daemon, with an empty cache.
    pub(crate) fn serve_volume(&mut self, index: usize) {
        let blocks = [0, 2, 6, 20][self.random.random_range(0..4)];
        let seed = self.random.random();
        let volume = &mut self.volumes[index];
        let traits = volume.origin.traits;
        let settings = VolumeSettings {
            origin: traits,
            read_only: false,
            block_size: BlockSize::new(Bytes(volume.block)).expect("a power of two"),
            quota: Bytes(volume.block * blocks),
            single_touch_share: Ratio::clamped(0.3),
            seed,
            locality: volume
                .locality
                .then(|| LiveConfig { curve_bytes: Bytes::kib(16), ..LiveConfig::default() }),
            limits: volume.limits,
        };
        let mut machine = VolumeMachine::new(settings, Nanos(self.now)).expect("settings that go together");
        if let Some(partition) = self.load_flash(index) {
            machine.attach_flash(partition);
            machine.set_flash_placing(self.draw_placing());
        }
        let volume = &mut self.volumes[index];
        let key = self.daemon.service.add_volume(machine);
        volume.life = Life::Served { key };
        let export = ExportInfo {
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            block_status: true,
            multi_conn: true,
            block_sizes: BlockSizes {
                min: traits.block_size_min,
                preferred: traits.block_size_preferred.max(512),
                max: 1 << 20,
            },
            ..ExportInfo::new(volume.name.clone(), traits.size_bytes)
        };
        self.daemon.exports.insert(volume.name.clone(), export);
    }

    pub(crate) fn note(&mut self, line: String) {
        let line = format!("{:>10} ns, tick {:>5}: {line}", self.now, self.tick);
        if let Some(log) = &mut self.log {
            log.push(line);
        }
    }

    /// The next moment of the histories' clock, on which no two things happen at once.
    pub(crate) fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    pub(crate) fn schedule(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + delay, self.sequence, event)));
    }

    /// A delay: mostly short, sometimes long, now and then very long.
    pub(crate) fn delay(&mut self) -> u64 {
        match self.random.random_range(0..40) {
            0 => self.random.random_range(0..3_000_000),
            1..8 => self.random.random_range(0..200_000),
            _ => self.random.random_range(0..20_000),
        }
    }

    pub(crate) fn think_soon(&mut self, client: usize) {
        if !self.clients[client].is_scheduled {
            self.clients[client].is_scheduled = true;
            let delay = self.delay() / 2;
            self.schedule(delay, Event::Think { client });
        }
    }

    /// Runs the schedule to its end, and judges it.
    pub(crate) fn run(&mut self) {
        // Each run ends when its clients have asked enough, or time is up.
        while (self.budget > 0 || self.is_something_asked()) && self.now < 1_000_000_000 {
            self.step();
        }
        self.is_ending = true;
        self.come_to_rest();
        self.settle_everything();
        if self.flash.is_some() && self.percent(50) {
            self.restart_everything();
            if (self.faults.daemon_crash || self.faults.removal) && self.percent(50) {
                self.write_and_be_killed();
            }
        }
        if self.faults.origin_crash && self.percent(50) {
            self.host_crash();
        }
        self.last_look();
        for volume in &self.volumes {
            volume.history.check();
        }
    }

    fn is_something_asked(&self) -> bool {
        self.clients.iter().any(|client| !client.asked.is_empty())
    }

    /// The next event happens; false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(Reverse((at, _, event))) = self.events.pop() else { return false };
        self.now = self.now.max(at);
        self.course.events += 1;
        assert!(self.course.events < 2_000_000, "the run does not come to an end");
        self.course.digest = (self.course.digest.rotate_left(5) ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match event {
            Event::Turn => self.turn(),
            Event::Arrival { connection, to_server: true } => self.arrive_at_server(connection),
            Event::Arrival { connection, to_server: false } => self.arrive_at_client(connection),
            Event::Think { client } => self.think(client),
            Event::Work { volume, serial } => self.work(volume, serial),
            Event::Answer { volume, serial } => self.answer(volume, serial),
            Event::Flash { serial } => self.flash_event(serial),
            Event::Control => self.control(),
            Event::Order { serial } => self.arrive_order(serial),
            Event::Disturb => self.disturb(),
        }
        if self.daemon.is_doomed {
            self.crash_daemon(false);
        }
        true
    }

    /// No new requests, no faults: everything that goes on ends, and nothing is left behind.
    fn come_to_rest(&mut self) {
        for volume in 0..self.volumes.len() {
            if let Some(machine) = self.machine(volume) {
                machine.cancel_prewarm();
            }
        }
        while self.step() {}
        for (index, client) in self.clients.iter().enumerate() {
            assert!(client.asked.is_empty(), "client {index} waits for {:?} and will for ever", client.asked);
        }
        for index in 0..self.volumes.len() {
            let volume = &self.volumes[index];
            assert!(volume.origin.requests.is_empty());
            let Life::Served { key } = volume.life else { panic!("a volume stays away: {:?}", volume.life) };
            let machine = self.daemon.service.volume(key).expect("it is served");
            assert!(machine.is_idle() && !machine.wants_step(), "the machine of a volume is not at rest");
        }
        let held = self.daemon.service.held_bytes();
        assert_eq!(held, 0, "the service holds {held} bytes although nobody waits for any");
    }

    /// Every volume is taken away in order and comes back, with what flash kept of it.
    fn restart_everything(&mut self) {
        (0..self.volumes.len()).for_each(|volume| self.remove(volume));
        self.schedule(1_000, Event::Disturb);
        while self.step() {}
        assert!(self.volumes.iter().all(|volume| matches!(volume.life, Life::Served { .. })));
    }

    /// What flash was found to hold is written over, some of it or all, and the daemon is killed: no start may believe it any more.
    fn write_and_be_killed(&mut self) {
        for volume in 0..self.volumes.len() {
            let index = self.clients.iter().position(|client| client.volume == volume);
            if let Some(index) = index.filter(|_| self.percent(70)) {
                self.ask_last(index, AskedKind::Write);
            }
        }
        self.last_look = None;
        self.crash_daemon(false);
        while self.step() {}
    }

    /// A client asks this of its whole volume, and is answered.
    fn ask_last(&mut self, index: usize, kind: AskedKind) {
        self.last_look = Some(kind);
        self.budget = 1;
        self.think_soon(index);
        while self.step() {}
        assert_eq!(self.budget, 0, "the last look at a volume was not asked");
        assert!(self.clients[index].asked.is_empty(), "the last look at a volume was not answered");
    }

    /// Who knows the origins says that nothing lost will come back.
    fn settle_everything(&mut self) {
        (0..self.volumes.len()).for_each(|volume| self.settle(volume));
    }

    /// Everything is read twice through the daemon, and once behind its back; and described.
    fn last_look(&mut self) {
        for volume in 0..self.volumes.len() {
            if !self.clients.iter().any(|client| client.volume == volume) {
                continue;
            }
            let index = self.clients.iter().position(|client| client.volume == volume).expect("looked up");
            for kind in [AskedKind::Read, AskedKind::Read, AskedKind::BlockStatus] {
                self.ask_last(index, kind);
            }
            let (start, end) = (self.tick(), self.tick());
            let Volume { origin, history, .. } = &mut self.volumes[volume];
            for cell in 0..origin.cell_count() {
                history.must_hold(cell, origin.held(cell));
                history.read(cell, origin.held(cell), start, end);
            }
        }
    }

    pub(crate) fn machine(&mut self, volume: usize) -> Option<&mut VolumeMachine> {
        match self.volumes[volume].life {
            Life::Served { key } | Life::Draining { key, .. } => self.daemon.service.volume(key),
            Life::Gone => None,
        }
    }

    /// What will become of a request at an origin.
    pub(crate) fn draw_fate(&mut self, is_change: bool) -> Fate {
        if self.is_ending {
            return Fate::Done;
        }
        if self.percent(self.faults.fail_percent) {
            return match self.random.random_range(0..4) {
                0 => Fate::Unreachable,
                1 => Fate::Fails { errno: 28 },
                _ => Fate::Fails { errno: 5 },
            };
        }
        if is_change && self.percent(self.faults.lose_percent) { Fate::Lost } else { Fate::Done }
    }

    /// What clients asked of the volume ends without an answer, and no part of it is on its way any more.
    pub(crate) fn forsake(&mut self, client: usize, is_over: bool) {
        let now = self.tick();
        let Client { volume, asked, .. } = &mut self.clients[client];
        let Volume { history, origin, .. } = &mut self.volumes[*volume];
        for asked in std::mem::take(asked).into_values() {
            let Asked { kind, range, version, .. } = asked;
            if is_over && kind.changes_content() && version != NO_VERSION {
                origin.cells(range).for_each(|cell| history.write_over(cell, version, now));
            }
        }
    }
}

/// The version of a request that has none of its own.
pub(crate) const NO_VERSION: u64 = u64::MAX;

impl Daemon {
    pub(crate) fn new(incarnation: u64, limits: ServiceLimits) -> Daemon {
        Daemon {
            incarnation,
            service: Service::new(limits),
            keys: BTreeMap::new(),
            resumable: Vec::new(),
            looks: Vec::new(),
            inbox: Vec::new(),
            flash_inbox: Vec::new(),
            ring: SimRing::default(),
            is_doomed: false,
            exports: BTreeMap::new(),
            batch: BTreeSet::new(),
            next_turn: None,
            stall_check_at: 0,
        }
    }
}

fn draw_faults(random: &mut Xoshiro256PlusPlus) -> Faults {
    let mut faults = Faults {
        fail_percent: 0,
        lose_percent: 0,
        connection_loss: false,
        origin_crash: false,
        daemon_crash: false,
        cuts: false,
        deafness: false,
        removal: false,
        ring_trouble: false,
    };
    // A quarter of the runs has none, where nothing may fail; the others have a handful each.
    if random.random_range(0..4) == 0 {
        return faults;
    }
    if random.random_range(0..2) == 0 {
        faults.fail_percent = 5;
    }
    if random.random_range(0..3) == 0 {
        faults.lose_percent = 5;
    }
    let mut one_in = |times: u32| random.random_range(0..times) == 0;
    faults.connection_loss = one_in(3);
    faults.origin_crash = one_in(3);
    faults.daemon_crash = one_in(4);
    faults.cuts = one_in(2);
    faults.deafness = one_in(3);
    faults.removal = one_in(3);
    faults.ring_trouble = one_in(3);
    faults
}

fn draw_limits(random: &mut Xoshiro256PlusPlus) -> ServiceLimits {
    if random.random_range(0..2) == 0 {
        return ServiceLimits::default();
    }
    ServiceLimits {
        requests_per_connection_max: random.random_range(1..12),
        output_per_connection_max: Bytes(random.random_range(1..8) * 1024),
        held_per_connection_max: Bytes(random.random_range(1..16) * 1024),
        held_per_worker_max: Bytes(random.random_range(4..64) * 1024),
        requests_per_turn_max: random.random_range(1..6),
        ..ServiceLimits::default()
    }
}
